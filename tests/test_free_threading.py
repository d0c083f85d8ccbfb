"""CPython without a GIL (3.13t, 3.14t): several threads run the hooks at the same time."""

from __future__ import annotations

import json
import sysconfig

import pytest
from tracing import python

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of another CPython: a free-threaded build"
)

THREADS, CALLS = 8, 1000

# Each thread's work is known: calls, generators, exceptions that pass two frames, and formatted
# tracebacks.
WORK = f"""
import gate, threading, traceback

class Problem(Exception):
    pass

def leaf(n):
    return n + 1

def numbers():
    yield leaf(1)
    yield leaf(2)

def fails():
    raise Problem("x")

def passes():
    fails()

def handles():
    try:
        passes()
    except Problem:
        return 1

shared = Problem("shared")
def shares():
    try:
        raise shared
    except Problem:
        return 1

def work():
    began.wait()
    for n in range({CALLS}):
        assert sum(numbers()) == 5
        if n % 10 == 0:
            handles()
            shares()
        if n % 100 == 0:
            traceback.format_exception(shared)

gate.on("function__stats", "exception__stats", "backtrace__done")
began = threading.Barrier({THREADS})
threads = [threading.Thread(target=work) for _ in range({THREADS})]
for thread in threads: thread.start()
for thread in threads: thread.join()
gate.flushed()
gate.done()
"""


@pytest.mark.smoke
def test_the_gil_stays_off_and_nothing_is_said():
    ran = python(
        "-X", "dev", "-W", "error", "-c",
        "import sys, probescope; probescope.install(); assert not sys._is_gil_enabled(); "
        "probescope.uninstall()",
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.smoke
def test_eight_threads_at_once_are_counted_exactly(trace):
    run = trace(WORK, {
        "function__stats": ["function", "calls", "raised", "resumed"],
        "exception__stats": ["type", "line", "raised", "rescued", "depth_sum"],
        "backtrace__done": ["kind"],
    })  # fmt: skip
    functions = run.totals("function__stats")
    times, rare = THREADS * CALLS, THREADS * CALLS // 10
    assert functions["leaf"] == {"calls": 2 * times, "raised": 0, "resumed": 0}
    assert functions["numbers"] == {"calls": times, "raised": 0, "resumed": 2 * times}
    assert functions["fails"] == functions["passes"] == {"calls": rare, "raised": rare, "resumed": 0}
    assert functions["handles"] == functions["shares"] == {"calls": rare, "raised": 0, "resumed": 0}
    rows = run.totals("exception__stats", "type", "line").values()
    assert {"raised": rare, "rescued": rare, "depth_sum": 3 * rare} in rows
    assert len(run.events("backtrace__done")) == rare // 10
    assert run.program.err == ""


@pytest.mark.smoke
def test_samples_and_call_paths_are_refused_and_say_why():
    """A probe that is "on" and never fires would look like a process that uses no CPU."""
    ran = python(
        "-c",
        "import json, probescope; probescope.install(); print(json.dumps(probescope.status()['probes']))",
    )
    probes = json.loads(ran.stdout)
    for probe in ("sample__stats", "stack__cpu", "stack__frame"):
        state, reason = probes[probe]
        assert state == "refused", probe
        assert "without a GIL" in reason
