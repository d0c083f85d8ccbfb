from __future__ import annotations

import json
import sys
import sysconfig

import pytest
from tracing import start_tracer, text_of, wait_for

pytestmark = pytest.mark.skipif(
    sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of another CPython: with a GIL"
)
KNOWS_CLASSES = sys.version_info >= (3, 13)
FIELDS = {
    "object__stats": ["class", "file", "line", "allocated", "bytes"],
    "status": ["probe", "state", "reason"],
}
LISTENING = """
import sys, time, gate
def listening():
    gate.on("object__stats")
"""


def at_line(run, line):
    """Returns {class: (objects, bytes)} for a line of the program."""
    found = {}
    for row in run.events("object__stats"):
        if row["line"] == line and row["file"].endswith("app.py"):
            objects, size = found.get(row["class"], (0, 0))
            found[row["class"]] = objects + row["allocated"], size + row["bytes"]
    return found


def test_allocations_are_counted_by_line_and_by_class_or_size(trace):
    run = trace(
        LISTENING
        + """

class Box:
    __slots__ = ("n",)

def boxes(n): return [Box() for _ in range(n)]
def texts(n):
    for i in range(n):
        text = bytes(50)
def lists(n):
    for i in range(n):
        kept = [i, i]

listening()
kept = boxes(10)
kept = boxes(20_000)
lists(5000)
texts(5000)
Gone = type("Gone", (), {})
gone = [Gone() for _ in range(700)]
del Gone, gone
Other = type("Other", (), {})
gate.done(state=gate.status("object__stats"), size=sys.getsizeof(kept[0]))
""",
        FIELDS,
    )
    size, state = run.report["size"], run.report["state"]
    if KNOWS_CLASSES:
        assert state == ["on", None]
        assert at_line(run, 10)["Box"] == (20_010, 20_010 * size)
        # This list comes from a free list. It is counted too.
        assert at_line(run, 16)["list"][0] == 5000
        assert at_line(run, 13)["bytes"] == (5000, 5000 * 83)
        assert at_line(run, 24)["Gone"][0] == 700
        assert "Other" not in at_line(run, 24)
    else:
        assert state[0] == "degraded"
        assert "by size" in state[1]
        assert state[1][:60] in {row["reason"][:60] for row in run.events("status")}
        objects, size_of_all = at_line(run, 10)["(<= 48 bytes)"]
        assert 20_010 <= objects <= 20_100  # includes some blocks of the list and the call
        assert size_of_all == pytest.approx(objects * size, rel=0.01)
        assert at_line(run, 13)["(<= 96 bytes)"] == (5000, 5000 * 83)


WHO_IS_IN = """
import ctypes
class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]

def who():
    allocator = Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(2, ctypes.byref(allocator))
    tracer = None
    if sys.version_info >= (3, 13):
        get = ctypes.pythonapi.PyRefTracer_GetTracer
        get.restype = ctypes.c_void_p
        get.argtypes = [ctypes.c_void_p]
        tracer = get(None)
    return [getattr(allocator, name) for name, _ in Allocator._fields_] + [tracer]
"""


@pytest.mark.parametrize(
    "options,env",
    [([], {}), (["-X", "dev", "-W", "always"], {"PYTHONMALLOC": "malloc_debug"})],
    ids=["plain", "debug"],
)
def test_tracemalloc_and_debug_hooks_work_beside_it_and_nothing_is_left(trace, children, options, env):
    """tracemalloc starts or stops while the hooks are installed, and the other way round."""
    run = trace(
        LISTENING
        + WHO_IS_IN
        + """
import tracemalloc
def litter(n): return [bytearray(100) for _ in range(n)]
def traced(n):
    before = tracemalloc.get_traced_memory()[0]
    kept = litter(n)
    return tracemalloc.get_traced_memory()[0] - before >= 100 * n

before = who()
listening()
assert who() != before
litter(1000)
tracemalloc.start()
theirs = who()[5]  # Python 3.13 leaves it installed when tracemalloc stops
assert traced(1000)
litter(1000)
tracemalloc.stop()
litter(1000)
while who() == before: time.sleep(0.01)  # it restored what it had found, and our hooks return
litter(1000)
tracemalloc.start()
gate.flushed(1)
print("ready", flush=True)
gate.off("object__stats", "status")
print("off", traced(1000), flush=True)
listening()
tracemalloc.stop()
litter(1000)
print("done", flush=True)
gate.off("object__stats", "status")
print("as before", who()[:5] == before[:5] and who()[5] in (None, theirs), flush=True)
gate.done()
""",
        FIELDS,
        options=options,
        env=env,
        finish=False,
    )
    run.program.line("ready")

    def seen():
        return sum(row["allocated"] for row in run.events("object__stats") if row["file"].endswith("app.py"))

    # Allocations are missed after tracemalloc starts or stops, until the next check, within a
    # second.
    wait_for("most of them", lambda: seen() >= 2000)
    run.tracer.kill()
    assert run.program.line("off ") == "True"
    children.append(start_tracer(run.program.pid, text_of({"stats__done": ["sequence"], **FIELDS})))
    run.program.line("done")
    children[-1].kill()
    assert run.program.line("as before ") == "True"
    assert run.program.err == ""


def test_counts_and_sizes_are_those_of_tracemalloc(trace):
    """The same lines run twice, once traced by us and once by tracemalloc. tracemalloc counts live
    objects, so all of them are kept.
    """
    run = trace(
        LISTENING
        + """
import tracemalloc

class Box:
    __slots__ = ("n",)

def boxes(n): return [Box() for _ in range(n)]
def floats(n): return [i * 1.5 for i in range(n)]
def large(n): return [i << 40 for i in range(1, n)]
def texts(n): return [bytes(50) for i in range(n)]
def sets(n): return [{n} for i in range(n)]
KINDS = boxes, floats, large, texts, sets

listening()
gate.flushed(1)
kept = [kind(20_000) for kind in KINDS]
gate.flushed(2)
print("ready", flush=True)
gate.off("object__stats", "status")
tracemalloc.start()
kept += [kind(20_000) for kind in KINDS]
theirs = {}
for one in tracemalloc.take_snapshot().statistics("lineno"):
    frame = one.traceback[0]
    if frame.filename == __file__: theirs[frame.lineno] = [one.count, one.size]
tracemalloc.stop()
lines = {kind.__name__: kind.__code__.co_firstlineno for kind in KINDS}
gate.done(**{name: theirs[line] + [line] for name, line in lines.items()},
          places=sys.getsizeof(kept[0]) - sys.getsizeof([]))
""",
        FIELDS,
        finish=False,
    )
    run.program.line("ready")
    run.tracer.kill()
    report = json.loads(run.program.line("report "))
    places = report.pop("places")  # the list's own array, which belongs to no element
    # The loop's counter is another int, and before 3.13 another block of 32 bytes.
    del report["large" if KNOWS_CLASSES else "floats"]
    for name, (blocks, size, line) in report.items():
        objects, own = min(at_line(run, line).values(), key=lambda found: abs(found[1] - size + places))
        assert objects == pytest.approx(blocks, abs=100), (name, at_line(run, line))
        assert own == pytest.approx(size - places, abs=5000), (name, at_line(run, line))
