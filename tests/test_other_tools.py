"""Line events, and other tools with hooks of their own. Their hooks keep working, and are unchanged
after ours are removed.
"""

from __future__ import annotations

import sys

import pytest

MONITORING = sys.version_info >= (3, 12)

LINES = """
import gate

def pay(n):
    total = 0
    for i in range(n):
        total += i
    return total

gate.on(*PROBES)
gate.flushed(1)  # the semaphore is raised a moment before the tracer receives events
pay(2)
gate.flushed()
gate.done(state=gate.state("line"))
"""


def test_lines_of_covered_functions(trace):
    env = {} if MONITORING else {"PROBESCOPE_FORCE": "1"}
    source = LINES.replace("*PROBES", "'line'")
    run = trace(source, {"line": ["function", "line"]}, env=env)
    lines = [event["line"] for event in run.events("line") if event["function"] == "pay"]
    assert lines == [5, 6, 7, 6, 7, 6, 8]


@pytest.mark.skipif(MONITORING, reason="of another CPython: before 3.12")
def test_lines_are_refused_where_they_are_dear(trace):
    source = LINES.replace("*PROBES", "'function__stats'")
    run = trace(source, {"line": ["function", "line"], "function__stats": ["function", "calls"],
                         "status": ["probe", "state", "reason"]})  # fmt: skip
    assert run.report["state"] == "refused"
    assert not run.events("line")
    reasons = {event["probe"]: event["reason"] for event in run.events("status")}
    assert "PROBESCOPE_FORCE=1" in reasons["line"]
    assert run.totals("function__stats")["pay"]["calls"] == 1


OWNERS = """
import cProfile, gate, pstats, sys, threading, time

def leaf():
    return 1

events = []
def python_hook(frame, event, argument):
    if frame.f_code is leaf.__code__:
        events.append(event)

profile = cProfile.Profile()

def count():
    profile.create_stats()
    return sum(row[0] for key, row in profile.stats.items() if key[2] == "leaf")

sys.setprofile(python_hook)        # it has the hook before we attach
gate.on("function__stats")
for _ in range(10): leaf()
kept = sys.getprofile() is python_hook
sys.setprofile(None)
profile.enable()                   # another tool takes the hook while we are attached
for _ in range(10): leaf()
gate.flushed(1)                    # the watcher has put our hook in between by now
for _ in range(10): leaf()
profile.disable()
gate.flushed(1)
for _ in range(10): leaf()
profiled = count()
sys.setprofile(python_hook)
gate.flushed(1)
import json
sys.stdout.write("report " + json.dumps(dict(events=len(events), kept=kept, profiled=profiled)) + "\\n")
sys.stdout.flush()
gate.off("function__stats")
after = len(events)
leaf()
sys.stdout.write("after %s %d\\n" % (sys.getprofile() is python_hook, len(events) - after))
sys.stdout.flush()
time.sleep(60)
"""


@pytest.mark.smoke
def test_profilers_go_on_and_are_left_as_they_were(trace):
    run = trace(OWNERS, {"function__stats": ["function", "calls"]})
    assert run.report["kept"]
    assert run.report["events"] == 20
    assert run.report["profiled"] == 20
    # Before 3.12, calls between a profiler's start and our next check are missed.
    calls = run.totals("function__stats")["leaf"]["calls"]
    assert calls == 40 if MONITORING else 30 <= calls <= 40
    assert run.program.line("after ") == "True 2"


POLITE = """
import gate, sys

monitoring = sys.monitoring
mine = monitoring.OPTIMIZER_ID
seen = []

def leaf():
    return 1

def lost(n):
    if n: lost(n - 1)
    raise KeyError

def other():
    return leaf()

def on_start(code, offset):
    seen.append(code.co_name)
    return monitoring.DISABLE

def on_unwind(code, offset, exception):
    if code.co_name == "lost" and wild: raise LookupError

wild = False
for tool in (mine, monitoring.DEBUGGER_ID): monitoring.use_tool_id(tool, "test%d" % tool)
monitoring.register_callback(mine, monitoring.events.PY_START, on_start)
monitoring.set_events(mine, monitoring.events.PY_START)
monitoring.register_callback(monitoring.DEBUGGER_ID, monitoring.events.PY_UNWIND, on_unwind)
monitoring.set_events(monitoring.DEBUGGER_ID, monitoring.events.PY_UNWIND)
gate.on("function__stats")
leaf()
leaf()
disabled = seen.count("leaf")
# Another tool's callback raises before ours runs, so we see no exit. Open calls must not pile up,
# and later ones must be right.
wild = True
for _ in range(300):
    try: lost(3)
    except LookupError: pass
wild = False
for _ in range(10): other()
import probescope
gate.flushed()
used = probescope.status()["memory_used"]
sys.stdout.write("report " + __import__("json").dumps(dict(disabled=disabled, used=used)) + "\\n")
sys.stdout.flush()
gate.off("function__stats")
ids = [monitoring.get_tool(id) for id in range(6)]
free = ids.index(None, 2)
# Events that we disabled under our tool id are enabled for the next owner of the id.
monitoring.use_tool_id(3, "next")
heard = []
monitoring.register_callback(3, monitoring.events.PY_START, lambda code, offset: heard.append(code.co_name))
monitoring.set_events(3, monitoring.events.PY_START)
gate.state("line")
leaf()
monitoring.set_events(3, 0)
sys.stdout.write("after %s %s\\n" % ("probescope" in ids, "state" in heard and "leaf" in heard))
sys.stdout.flush()
__import__("time").sleep(60)
"""


@pytest.mark.skipif(not MONITORING, reason="of another CPython: 3.12 and later")
def test_tools_of_sys_monitoring_go_on(trace):
    run = trace(POLITE, {"function__stats": ["function", "calls", "elapsed"]})
    calls = {name: row["calls"] for name, row in run.totals("function__stats").items()}
    assert run.report["disabled"] == 1
    assert calls["leaf"] == 12
    assert calls["other"] == 10
    assert run.program.line("after ") == "False True"
