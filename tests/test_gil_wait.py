"""How soon hooks are installed in programs that hold the GIL in different ways, and what happens to
their switch interval.
"""

from __future__ import annotations

import itertools
import json
import sysconfig

import pytest
import temperaments
from tracing import wait_for

pytestmark = pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL")

# These run no bytecode for 20 ms or longer, and their threads take turns.
IN_C = ("calls of C, 20 ms each", "4 threads of such calls")


def start(name, program, tmp_path, source=""):
    counts = temperaments.Counts(tmp_path)
    started = program(source + temperaments.source(name))
    started.line("ready")
    return started, counts


# With this interval, no thread of the application requests the GIL during the test.
PATIENT = "import sys\nsys.setswitchinterval(30)\n"


def switch_ms(started, attach):
    cycles = attach(started, "exception__stats", cycles=5, await_hooks=True).finish()
    return [cycle["switch_ms"] for cycle in cycles]


@pytest.mark.parametrize("name", [name for name in temperaments.PROGRAMS if name not in IN_C])
def test_hooks_are_in_as_soon_as_the_program_runs(name, program, attach, tmp_path):
    started, _ = start(name, program, tmp_path, PATIENT)
    assert max(switch_ms(started, attach)) < 5000


@pytest.mark.parametrize("name", temperaments.PROGRAMS)
def test_all_that_is_raised_after_the_interval_began_is_reported(name, trace, tmp_path):
    counts = temperaments.Counts(tmp_path)
    run = trace(temperaments.source(name), {"exception__stats": ["type", "raised"]}, finish=False)
    run.program.line("ready")
    wait_for("the first flush", lambda: run.events("stats__done"), 120)
    begun = counts.raised()
    wait_for("raises", lambda: counts.raised() > begun + 20, 120)
    counts.stop()
    wait_for("the end of the raises", counts.stopped, 120)
    run.await_flushes(120)
    reported = run.totals("exception__stats")["ValueError"]["raised"]
    # A thread increments its count just before it raises.
    assert counts.raised() - begun <= reported <= counts.raised() + temperaments.THREADS
    assert {event["dropped"] for event in run.events("stats__done")} == {0}


# The library cannot find the interval when sys.getswitchinterval() returns another value.
NOT_FOUND = (
    PATIENT
    + """
interval, sys.getswitchinterval = sys.getswitchinterval, lambda: 1.0
"""
)


@pytest.mark.parametrize("name", ["a CPU loop", "traceback.format_exc()", "os.stat() every 0.1 ms"])
def test_where_the_interval_is_not_found_the_main_thread_is_asked(name, program, attach, tmp_path):
    started, _ = start(name, program, tmp_path, NOT_FOUND)
    assert max(switch_ms(started, attach)) < 5000


# Reads the interval as often as possible while a tracer attaches and detaches, until the interval
# is one that the library has set. Then runs `act`, and continues when no tracer is attached.
LOOKS = """
import gate, os, sys, threading, time

{}
own = seen = sys.getswitchinterval()
while seen == own:
    seen = sys.getswitchinterval()
{}
print("seen", flush=True)
gate.open("left")
gate.off("exception__stats")
{}
gate.done(own=own, seen=seen, after=sys.getswitchinterval())
"""


@pytest.fixture
def look(program, attach, tmp_path):
    """look(act, then, first): returns the report of the program above."""

    def run(act="", then="", first=""):
        started = program(LOOKS.format(first, act, then))
        attacher = attach(started, "exception__stats").attached()
        steps = itertools.cycle(("detach", "attach"))
        while "seen" not in started.out:
            attacher.tell(next(steps))
        attacher.finish()
        (tmp_path / "left").touch()
        return json.loads(started.line("report "))

    return run


def test_the_interval_is_the_applications_again(look):
    report = look()
    assert report["seen"] < 0.001
    assert report["after"] == report["own"]


def test_an_interval_that_the_application_sets_meanwhile_stays(look):
    assert look("sys.setswitchinterval(0.02)")["after"] == 0.02


def test_one_of_ours_that_the_application_sets_later_becomes_what_it_stood_for(look):
    report = look("sys.setswitchinterval(0.02)", """
sys.setswitchinterval(seen)
while sys.getswitchinterval() == seen: time.sleep(0.002)
""")  # fmt: skip
    assert report["after"] == report["own"]


# With a thread besides the main one, the library's threads keep waiting during the fork. From 3.12
# on, they end before a fork if there is no such thread.
BESIDE = """
never = threading.Lock()
never.acquire()
threading.Thread(target=never.acquire, daemon=True).start()
"""
HAS_ITS_OWN_AT_ONCE, HAS_IT_AFTER_A_WAIT_OF_ITS_OWN, HAS_ANOTHER = 42, 43, 44
FORK = f"""
seen = []
for _ in range(5):
    while sys.getswitchinterval() == own: pass
    child = os.fork()
    if not child:
        ends = time.monotonic() + 30
        status = {HAS_ITS_OWN_AT_ONCE} if sys.getswitchinterval() == own else {HAS_IT_AFTER_A_WAIT_OF_ITS_OWN}
        while sys.getswitchinterval() != own and time.monotonic() < ends: pass
        os._exit(status if sys.getswitchinterval() == own else {HAS_ANOTHER})
    seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_during_a_wait_has_the_applications_interval(look):
    """A tracer also listens to the child. On a busy machine, the library's threads in the child may
    start a wait before the child reads the interval.
    """
    statuses = look(FORK, first=BESIDE)["seen"]
    assert statuses.count(HAS_ITS_OWN_AT_ONCE) > 2
    assert set(statuses) <= {HAS_ITS_OWN_AT_ONCE, HAS_IT_AFTER_A_WAIT_OF_ITS_OWN}
