"""Other tools hold all six tool ids of sys.monitoring."""

from __future__ import annotations

import json
import re
import sys
import sysconfig

import pytest
from test_function_pairing import RANDOM_PROGRAM, expected

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="of another CPython: 3.12 and later, with a GIL",
)

# cProfile has id 2, as always. The other tools have events on every line.
TAKE = """
import cProfile, sys
monitoring, lines = sys.monitoring, set()
for id in (0, 1, 3, 4, 5):
    monitoring.use_tool_id(id, "tool %d" % id)
    monitoring.register_callback(id, monitoring.events.LINE,
                                 lambda code, line: lines.add((code.co_name, line)) and None)
    monitoring.set_events(id, monitoring.events.LINE)
profiler = cProfile.Profile()
profiler.enable()
"""

PROGRAM = f"""{TAKE}
import gate, json, threading

def leaf(): return 1
def other(): return 2
def numbers():
    yield leaf()
    yield (
        leaf())
def failing(): raise ValueError

def work(n):
    for _ in range(n):
        list(numbers())
        try: failing()
        except ValueError: pass

heard = {{"early": 0, "late": 0}}
def hear(name):
    def profile(frame, what, argument):
        if what == "call" and frame.f_code is other.__code__: heard[name] += 1
    sys.setprofile(profile)

is_ready, is_attached, has_worked, is_detached = (threading.Event() for _ in range(4))

def early():
    hear("early")
    is_ready.set()
    is_attached.wait()
    work(10)
    for _ in range(10): other()
    is_detached.wait()
    for _ in range(10): other()

def late():
    hear("late")
    for _ in range(10): other()
    has_worked.set()
    is_detached.wait()
    for _ in range(10): other()

threads = [threading.Thread(target=early)]
threads[0].start()
is_ready.wait()
gate.on("function__stats")
is_attached.set()
work(10)
# These two threads start while a tracer is attached.
threads += [threading.Thread(target=work, args=(10,)), threading.Thread(target=late)]
threads[1].start()
threads[1].join()
threads[2].start()
has_worked.wait()
state, reason = gate.status("function__stats")
gate.flushed()
print("report", json.dumps(dict(state=state, reason=reason)), flush=True)
gate.off("function__stats")
is_detached.set()
for thread in threads: thread.join()
# The profile hook has the tool id 6. All threads with a hook have ended. The interpreter checks
# for such threads when the hook is set.
sys.setprofile(None)
left = [event for event, tools in monitoring._all_events().items() if tools & 1 << 6]
profiler.disable()
calls = {{row.code.co_name: row.callcount for row in profiler.getstats() if hasattr(row.code, "co_name")}}
print("after", json.dumps(dict(heard=heard, left=left, calls=calls["numbers"], lines=len(lines))), flush=True)
gate.open("never")
"""


def test_functions_are_told_by_the_profile_hook_and_everybody_keeps_theirs(trace):
    run = trace(PROGRAM, {"function__stats": ["function", "calls", "raised", "resumed"]})
    totals = run.totals("function__stats")
    report, after = run.report, json.loads(run.program.line("after "))
    assert report["state"] == "degraded"
    assert re.search(
        r"by the profile hook; .*: tool 0, tool 1, cProfile, tool 3, tool 4, tool 5$", report["reason"]
    )
    assert {name: totals[name]["calls"] for name in ("leaf", "numbers", "failing")} == {
        "leaf": 60,
        "numbers": 30,
        "failing": 30,
    }
    assert totals["failing"]["raised"] == 30
    assert totals["numbers"]["resumed"] == 60
    assert after["heard"] == {"early": 20, "late": 20}
    assert after["left"] == []
    assert after["calls"] >= 10
    assert after["lines"] > 20


def test_raw_events_by_the_profile_hook_are_the_programs_own_record(trace):
    run = trace(TAKE + RANDOM_PROGRAM.replace("SEED", "7"),
                {"function__entry": ["function", "kind"],
                 "function__return": ["function", "kind", "outcome"]})  # fmt: skip
    seen = []
    for event in run.events("function__entry", "function__return"):
        if event["probe"] == "function__entry":
            seen.append("in %s %d" % (event["function"], event["kind"]))
        else:
            seen.append("out %s %d %d" % (event["function"], event["kind"], event["outcome"]))
    assert seen == expected(run.report["log"])
