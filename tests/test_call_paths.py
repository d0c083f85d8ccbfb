"""Call paths: what stack__frame and stack__cpu tell, seen by a real bpftrace."""

from __future__ import annotations

import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of another CPython: with a GIL"
)

FIELDS = {
    "stack__frame": ["function", "line", "id", "parent", "path", "defined", "flags"],
    "stack__cpu": ["stack_id", "thread_id", "count", "weight", "looked"],
    "sample__stats": ["function", "self"],
    "stats__done": ["sequence"],
}
PROGRAM = """
import functools, gate, time

def spin():
    n = 0
    while n < 2_000: n += 1

def left(): spin()
def right(): spin()
def outer():
    left(); left(); left(); right()

gate.on("stack__cpu", "stack__frame", "sample__stats")
ends = time.process_time() + 2
while time.process_time() < ends: outer()
gate.done()
"""


def counted(run, probe):
    """Returns the events without those before the first flush, which are of probes that were attached
    one after the other.
    """
    events = run.events("stats__done", probe)
    first = next(i for i, event in enumerate(events) if "sequence" in event)
    return [event for event in events[first:] if "sequence" not in event]


def paths_of(run):
    """Returns [([(function, line), ...], the outermost one first, weight), ...]."""
    frames = {frame["id"]: frame for frame in run.events("stack__frame")}
    found = []
    for event in counted(run, "stack__cpu"):
        names, number = [], event["stack_id"]
        while number:
            names.insert(0, (frames[number]["function"], frames[number]["line"]))
            number = frames[number]["parent"]
        found.append((names, event["weight"]))
    return found


def test_cpu_time_is_split_by_callers_and_paths_are_whole(trace):
    run = trace(PROGRAM, FIELDS)
    found = paths_of(run)
    whole = sum(weight for _, weight in found)
    assert whole == sum(row["self"] for row in counted(run, "sample__stats"))
    sides = {
        side: sum(weight for names, weight in found if side in dict(names)) for side in ("left", "right")
    }
    assert sides["left"] / sum(sides.values()) == pytest.approx(0.75, abs=0.13)
    names = next(names for names, _ in found if names[-1][0] == "spin")
    assert [name for name, _ in names[:2]] == ["<module>", "outer"]
    assert [name for name, _ in names[3:]] == ["spin"]


def test_frames_tell_whose_they_are(trace):
    frames = trace(PROGRAM.replace("outer()\ngate", "sorted([1], key=lambda _: outer())\ngate"), FIELDS)
    of = {frame["function"]: frame for frame in frames.events("stack__frame")}
    assert of["outer"]["flags"] == 1
    assert PROGRAM.split("\n")[of["spin"]["defined"] - 1] == "def spin():"
    assert of["spin"]["path"].startswith("/")


DEEP = """
import gate, probescope, time

def spin():
    n = 0
    while n < 2_000: n += 1

def deep(n):
    if n: deep(n - 1)
    else: spin()

def application(environ, start):
    deep(depth)
    return []

def above(n):
    if n: return above(n - 1)
    return served({}, None)

served = probescope.wsgi(application)
gate.on("stack__cpu", "stack__frame")
ends = time.process_time() + 1.5
while time.process_time() < ends:
    for depth in 100, 240: above(60)
gate.done()
"""


def test_a_stack_with_more_frames_than_are_read_begins_with_a_frame_of_its_own(trace):
    """Frames of the library's are left out. Without them a stack that was cut has fewer frames."""
    paths = [(names, weight) for names, weight in paths_of(trace(DEEP, FIELDS)) if names[-1][0] == "spin"]
    assert {names[0][0] for names, _ in paths} == {"(deeper than 256 frames)", "<module>"}
    # A stack that the thread left while it was read gets the callers of the next one, which may be less.
    whole = [one for one in paths if one[0][0][0] == "<module>"]
    mended = [weight for names, weight in whole if "above" not in dict(names)]
    assert sum(mended) < 0.2 * sum(weight for _, weight in whole)
    assert max(len(names) for names, _ in paths) <= 257
