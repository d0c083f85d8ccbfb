"""On every version of CPython, each probe of the ABI fires, or its state says why not."""

from __future__ import annotations

import sys
import sysconfig

import pytest
from probescope.abi import PROBES

MONITORING = sys.version_info >= (3, 12)
# While a tracer is attached to one of these, other probes cover more. They have no events.
SWITCHES = {"functions__all", "stats__by_request"}
# This probe fires so many events that a busy tracer loses some. So it is not traced together with
# probes that fire a single event.
MANY = "object__alloc"
# What this CPython cannot serve. What another version cannot serve is added in the same way as below:
# `if sys.version_info < (3, 12): UNSERVED |= {...}`.
UNSERVED = {"gvl__wait", "wait__stats"}
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    UNSERVED |= {"sample", "sample__stats", "sample__frame", "object__alloc", "object__stats"}
    UNSERVED |= {"stack__frame", "stack__cpu"}

PROGRAM = """
import colorsys, gc, probescope, time, traceback, zlib
import gate

class Parcel:
    pass

def wait():
    time.sleep(0.11)

def lose():
    raise LookupError("lost")

def look():
    try:
        lose()
    except LookupError:
        return traceback.format_exc()

def pack():
    return [Parcel() for _ in range(10)]

def burn():
    data = bytes(1 << 20)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        zlib.crc32(data)

gate.on(*PROBES)
gate.flushed(1)  # the semaphore is raised a moment before the tracer receives events
wait()
look()
for _ in range(30):
    parcels = pack()
    time.sleep(0.01)
burn()
gc.collect()
colorsys.rgb_to_hsv(1, 1, 1)
app = probescope.wsgi(lambda environ, start: start("404 Not Found", []) or [])
app({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, print)
gate.flushed()
gate.done(states=probescope.status()["probes"])
"""


def line_of(text):
    return next(i for i, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


LOST = line_of("raise LookupError")
# Of each probe, one event with exactly these values is expected.
WANTED = {
    "function__entry": {"function": "lose", "line": line_of("def lose"), "depth": 1, "kind": 0},
    "function__return": {"function": "lose", "line": line_of("def lose"), "depth": 1, "outcome": 1},
    "function__slow1ms": {"function": "wait", "line": line_of("def wait"), "outcome": 0},
    "function__slow10ms": {"function": "wait", "line": line_of("def wait"), "outcome": 0},
    "function__slow100ms": {"function": "wait", "line": line_of("def wait"), "outcome": 0},
    "function__stats": {"function": "lose", "line": line_of("def lose"), "calls": 1, "raised": 1},
    "exception__raise": {"type": "LookupError", "function": "lose", "line": LOST},
    "exception__detail": {"type": "LookupError", "function": "lose", "line": LOST, "message": "lost"},
    "exception__rescue": {"type": "LookupError", "function": "look", "raise_line": LOST, "unwound": 1},
    "exception__stats": {"type": "LookupError", "function": "lose", "line": LOST, "raised": 1},
    "backtrace__done": {"function": "look", "type": "LookupError", "raise_line": LOST, "depth": 2},
    "object__alloc": {"line": line_of("Parcel() for")},
    "object__stats": {"line": line_of("Parcel() for")},
    "gc__start": {"kind": "generation 2"},
    "gc__done": {"kind": "generation 2"},
    "sample": {"function": "burn"},
    "sample__stats": {"function": "burn"},
    "sample__frame": {"function": "burn", "line": line_of("zlib.crc32(")},
    "stack__frame": {"function": "burn", "line": line_of("zlib.crc32(")},
    "stack__cpu": {},
    "line": {"function": "lose", "line": LOST},
    "request__start": {"route": "/", "method": "GET", "parent_id": 0},
    "request__done": {"route": "(not found)", "method": "GET", "status": 404, "path": "/"},
    "stats__done": {"dropped": 0},
    "status": {"state": 4, "reason": "CPython tells nobody which threads wait for the GIL"},
    "function__here": {"vm_frame": 0, "vm_text": 0},
}


@pytest.mark.smoke
def test_every_probe_fires_or_says_why_not(trace):
    assert set(WANTED) | SWITCHES | UNSERVED == set(PROBES)
    fields = {probe: list(wanted) for probe, wanted in WANTED.items() if probe not in UNSERVED | {MANY}}
    env = {} if MONITORING else {"PROBESCOPE_FORCE": "1"}
    served = ", ".join(map(repr, fields))
    run = trace(PROGRAM.replace("*PROBES", served), fields, attach=UNSERVED, env=env)
    for probe in fields:
        assert {"probe": probe, **WANTED[probe]} in run.events(probe)
    states = {state for state, _ in (run.report["states"][probe] for probe in UNSERVED)}
    assert states <= {"refused", "unsupported"}
    assert all(run.report["states"][probe][1] for probe in UNSERVED)


@pytest.mark.smoke
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="of another CPython: with a GIL"
)
def test_allocations_fire_and_the_standard_library_is_covered_as_long_as_that_is_asked_for(trace):
    run = trace(
        PROGRAM.replace("*PROBES", f"'function__stats', 'functions__all', {MANY!r}"),
        {"function__stats": ["function", "calls"], MANY: ["line"]},
        attach={"functions__all"},
    )
    assert run.totals("function__stats")["colorsys.rgb_to_hsv"]["calls"] == 1
    assert {"probe": MANY, **WANTED[MANY]} in run.events(MANY)
