from __future__ import annotations

from tracing import python

FIELDS = {"gc__start": ["kind", "generation"], "gc__done": ["kind", "generation", "elapsed", "objects"]}


def test_collections_are_told_and_counted_as_the_collector_does(trace):
    """Also when the application empties gc.callbacks or binds another list. Nothing is left in
    gc.callbacks at the end.
    """
    run = trace(
        """
import gc, json, time, gate
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
before = list(gc.callbacks)

def count():
    return sum(generation["collections"] for generation in gc.get_stats())

class Knot: pass

def knots(number):
    for _ in range(number):
        knot = Knot()
        knot.itself = knot

gate.on("gc__start", "gc__done")
gc.collect()
gc.disable()
knots(500)
collected = gc.collect()
first = count()
gc.collect(0)
low = count()
gc.enable()
while count() < low + 2: knots(1000)  # the collector runs by itself
gc.callbacks[:] = []
ours = gc.callbacks
gc.callbacks = []
while not ours: time.sleep(0.01)
gc.disable()
knots(300)
again = gc.collect()
last = count()
report = dict(collected=collected, first=first, low=low, again=again, last=last)
print("report " + json.dumps(report), flush=True)
gate.off("gc__start", "gc__done")
print("left", ours, flush=True)
gate.done()
""",
        FIELDS,
        finish=False,
    )
    report = run.finish().report
    assert run.program.line("left ") == "[]"
    numbers = [event["generation"] for event in run.events("gc__done")]
    starts, done = run.events("gc__start"), run.events("gc__done")
    assert [event["generation"] for event in starts] == numbers == sorted(set(numbers))
    by_number = {event["generation"]: event for event in done}
    assert by_number[report["first"]]["kind"] == by_number[report["last"]]["kind"] == "generation 2"
    assert by_number[report["first"]]["objects"] == report["collected"] >= 500
    assert by_number[report["last"]]["objects"] == report["again"] >= 300
    assert by_number[report["low"]]["kind"] == "generation 0"
    assert all(event["elapsed"] > 0 for event in done)
    # Until the list is emptied, no collection is missing.
    assert set(range(report["first"], report["low"] + 3)) <= set(numbers)


def test_are_refused_where_the_collector_has_no_callbacks():
    ran = python("-c", """
import sys, types
sys.modules["gc"] = types.ModuleType("gc")
import probescope
probescope.install()
print(probescope.status()["probes"]["gc__done"])
""")  # fmt: skip
    assert ran.stdout.startswith("('refused', 'gc.callbacks or gc.get_stats was missing"), ran
