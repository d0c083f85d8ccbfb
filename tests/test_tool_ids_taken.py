"""Other tools hold all six tool ids of sys.monitoring."""

from __future__ import annotations

import sys

import pytest
from test_safety import report_of

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later")

FUNCTIONS = ("function__entry", "function__return", "function__slow1ms", "function__slow10ms",
             "function__slow100ms", "function__stats", "function__here")  # fmt: skip
HOLDERS = "tool 0, tool 1, cProfile, tool 3, tool 4, tool 5"

# cProfile has id 2, as always. The other tools have events on every line.
PROGRAM = f"""
import cProfile, gate, sys, time
monitoring, lines, heard = sys.monitoring, set(), []
for id in (0, 1, 3, 4, 5):
    monitoring.use_tool_id(id, "tool %d" % id)
    monitoring.register_callback(id, monitoring.events.LINE,
                                 lambda code, line: lines.add((code.co_name, line)) and None)
    monitoring.set_events(id, monitoring.events.LINE)
profiler = cProfile.Profile()
profiler.enable()

def leaf(): return 1
def hear(frame, what, argument):
    if what == "call" and frame.f_code is leaf.__code__: heard.append(what)

while any(gate.state(probe) == "off" for probe in {FUNCTIONS}): time.sleep(0.002)
lines.clear()
sys.setprofile(hear)
for _ in range(20): leaf()
sys.setprofile(None)
refused = {{probe: gate.status(probe) for probe in {FUNCTIONS}}}
others = dict(heard=len(heard), lines=[name for name, _ in lines].count("leaf"))
profiler.disable()
others["calls"] = [row.callcount for row in profiler.getstats() if row.code is leaf.__code__]
print("refused", flush=True)
gate.off("function__stats")
for id in (0, 1, 3, 4, 5): monitoring.free_tool_id(id)
gate.on("function__stats")
gate.done(refused=refused, others=others)
"""


def test_functions_are_refused_with_the_holders_names_and_everybody_keeps_theirs(program, attach):
    target = program(PROGRAM, options=["-W", "always"])
    first = attach(target, *FUNCTIONS).attached()
    target.line("refused")
    first.finish()
    attach(target, "function__stats")
    report = report_of(target)
    said = ["refused", f"all sys.monitoring tool ids are taken: {HOLDERS}"]
    assert report["refused"] == dict.fromkeys(FUNCTIONS, said)
    assert report["others"] == {"heard": 20, "lines": 1, "calls": [20]}
    assert target.err == ""
