from __future__ import annotations

import sys

TOLD_AT_ONCE = sys.version_info >= (3, 12)

STORY = """
import gate, asyncio, contextlib, gc, threading

TIMES = 25

def kind(name, base=Exception):
    return type(name, (base,), {})

Plain, Deep, Final, Within, Unmatched, Bare, Named, Cause, Effect, Kept, Fresh, FromGenerator, InThread, Task, Patient, Base, \\
    Twice, Nested, Inner, Compared, ByIterator, Returned, Swallowed = (kind(name) for name in (
    "Plain Deep Final Within Unmatched Bare Named Cause Effect Kept Fresh FromGenerator InThread Task Patient Base "
    "Twice Nested Inner Compared ByIterator Returned Swallowed").split())
Base = kind("Base", BaseException)

def plain():
    try:
        raise Plain("told")  # Plain
    except Plain:  # rescue of Plain
        pass

def deeper(n):
    if n == 0:
        raise Deep  # Deep
    deeper(n - 1)

def deep():
    try:
        deeper(8)
    except Deep:  # rescue of Deep
        pass

def finally_():
    try:
        raise Final  # Final
    finally:
        len("")

def in_finally():
    try:
        finally_()
    except Final:  # rescue of Final
        pass

def within():
    with contextlib.ExitStack():
        with open("/dev/null"):
            raise Within  # Within

def in_with():
    try:
        within()
    except (KeyError, Within):  # rescue of Within
        pass

def unmatched():
    try:
        try:
            raise Unmatched  # Unmatched
        except (KeyError, ValueError):
            pass
        except ZeroDivisionError:
            pass
    except Unmatched as error:  # rescue of Unmatched
        str(error)

def bare():
    try:
        raise Bare  # Bare
    except Bare:
        raise

def in_bare():
    try:
        bare()
    except Exception:  # rescue of Bare
        pass

def named():
    try:
        raise Named  # Named
    except Named as error:
        raise error

def in_named():
    try:
        named()
    except Named:  # rescue of Named
        pass

def raise_from():
    try:
        try:
            raise Cause  # Cause
        except Cause as error:  # rescue of Cause
            raise Effect from error  # Effect
    except Effect:  # rescue of Effect
        pass

def nested():
    try:
        raise Nested  # Nested
    except Nested:  # rescue of Nested
        for i in range(3):
            try:
                raise Inner  # Inner
            except Inner:  # rescue of Inner
                pass

kept = Kept()
def raise_kept():
    raise kept  # Kept

def keep():
    try:
        raise_kept()
    except Kept:  # rescue of Kept
        pass

fresh = Fresh()
def refresh():
    try:
        raise fresh.with_traceback(None)  # Fresh
    except Fresh:  # rescue of Fresh
        pass

def numbers():
    yield 1
    raise FromGenerator  # FromGenerator

def generate():
    try:
        [n for n in numbers()]
    except FromGenerator:  # rescue of FromGenerator
        pass

class Iterator:
    def __init__(self):
        self.left = 3
    def __iter__(self):
        return self
    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left

def no_errors():
    sum(Iterator())
    generator = numbers()
    next(generator)
    generator.close()
    for n in (n for n in range(3)):
        pass
    next(iter(()), None)

def in_thread():
    for i in range(TIMES):
        try:
            raise InThread  # InThread
        except InThread:  # rescue of InThread
            pass

async def task():
    raise Task  # Task

async def patient():
    try:
        raise Patient  # Patient
    finally:
        await asyncio.sleep(0)

async def impatient():
    try:
        await patient()
    except Patient:  # rescue of Patient
        await asyncio.sleep(0)

async def tasks():
    await asyncio.gather(*(impatient() for i in range(TIMES)))
    for i in range(TIMES):
        try:
            await asyncio.ensure_future(task())
        except Task:  # rescue of Task
            pass

def base():
    try:
        raise Base  # Base
    except BaseException:  # rescue of Base
        pass

def twice():
    for i in range(2):
        try:
            int("no number")  # ValueError
        except ValueError:  # rescue of ValueError
            pass

def returned():
    try:
        raise Returned  # Returned
    finally:
        return  # rescue of Returned

STEPS = [plain, deep, in_finally, in_with, unmatched, in_bare, in_named, raise_from, nested, keep, refresh, generate, no_errors,
         base, twice, returned]
gate.on("exception__stats")
for i in range(TIMES):
    for step in STEPS:
        step()
kept = fresh = None
threads = [threading.Thread(target=in_thread) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
asyncio.run(tasks())
gc.collect()
gate.flushed(3)
gate.done()
"""

# For each type: raised in, how often in a step, entries of the traceback at the end, rescued in.
TIMES = 25
EXPECTED = {
    "Plain": ("plain", 1, 1),
    "Deep": ("deeper", 1, 10),
    "Final": ("finally_", 1, 2),
    "Within": ("within", 1, 2),
    "Unmatched": ("unmatched", 1, 1),
    "Bare": ("bare", 1, 2),
    "Named": ("named", 1, 3),
    "Cause": ("raise_from", 1, 1),
    "Effect": ("raise_from", 1, 1),
    "Nested": ("nested", 1, 1),
    "Inner": ("nested", 3, 1),
    "Kept": ("raise_kept", 1, 2),
    "Fresh": ("refresh", 1, 1),
    "FromGenerator": ("numbers", 1, 2 if TOLD_AT_ONCE else 3),
    "InThread": ("in_thread", 4, 1),
    "Task": ("task", 1, 2),
    "Patient": ("patient", 1, 2),
    "Base": ("base", 1, 1),
    "ValueError": ("twice", 2, 1),
    "Returned": ("returned", 1, 1),
}


# Before 3.12 an exception counts when it dies: one that was raised in rounds as so many raises, but only the traceback it has
# then. Its handler is known while it runs, by the line where the exception dies; the last Task is its future's for longer.
if not TOLD_AT_ONCE:
    EXPECTED["Fresh"] = ("refresh", 1 / TIMES, 1)
LATE = {} if TOLD_AT_ONCE else {"Kept": TIMES - 1, "Fresh": 0, "Task": TIMES - 1}


def line_of(source, mark):
    lines = [number for number, line in enumerate(source.splitlines(), 1) if line.endswith(f"# {mark}")]
    assert len(lines) == 1, mark
    return lines[0]


def sums(rows):
    """By type. Of depth_max and the lines it makes no sense."""
    totals = {}
    for row in rows:
        total = totals.setdefault(row["type"], dict.fromkeys((k for k, v in row.items() if isinstance(v, int)), 0))
        for name in total:
            total[name] += row[name]
    return totals


STATS = [
    "type", "line", "function", "raised", "depth_sum", "depth_max", "rescued", "rescue_line", "rescued_at_once", "backtrace_cost",
    "app_line", "file",
]  # fmt: skip


def test_raises_are_counted_once_where_they_happen_and_where_they_end(trace):
    run = trace(STORY, {"exception__stats": STATS})
    rows = [row for row in run.events("exception__stats") if row["file"].endswith("/app.py")]
    places = {(row["type"], row["function"], row["line"]) for row in rows}
    assert places == {(name, where, line_of(STORY, name)) for name, (where, _, _) in EXPECTED.items()}
    totals = sums(rows)
    assert {name: totals[name]["raised"] for name in EXPECTED} == {n: TIMES * e[1] for n, e in EXPECTED.items()}
    depths = {name: totals[name]["depth_sum"] for name in EXPECTED}
    assert depths == {n: TIMES * e[1] * e[2] for n, e in EXPECTED.items()}
    rescued = {name: totals[name]["rescued"] for name in EXPECTED}
    assert rescued == {n: LATE.get(n, TIMES * e[1]) for n, e in EXPECTED.items()}
    lines = {row["type"]: row["rescue_line"] for row in rows if row["rescue_line"]}
    marked = {name: line_of(STORY, f"rescue of {name}") for name in EXPECTED if name in lines}
    if TOLD_AT_ONCE:
        assert lines == marked and set(lines) == set(EXPECTED)
    else:
        assert {name for name, line in lines.items() if marked[name] - 1 <= line <= marked[name] + 6} == set(
            EXPECTED
        ) - {
            "Kept",
            "Fresh",
        }
    at_once = {name for name in EXPECTED if 0 < totals[name]["rescued"] == totals[name]["rescued_at_once"]}
    # A handler that is suspended, as Patient's, cannot be told from one that is over.
    assert at_once - {"Patient"} == {name for name, (_, _, depth) in EXPECTED.items() if depth == 1} - set(LATE)
    assert all(row["app_line"] == row["line"] for row in rows)
    assert totals["Deep"]["backtrace_cost"] > 3 * totals["Plain"]["backtrace_cost"] > 0
