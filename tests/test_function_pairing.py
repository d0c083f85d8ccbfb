"""Entry and return events are compared with the program's own record, for generators, coroutines,
exceptions, recursion, threads and greenlets.
"""

from __future__ import annotations

import sys

import pytest

# Each function records the events that the probes should fire. Recording calls no function written
# in Python.
RANDOM_PROGRAM = """
import gate, random

rng = random.Random(SEED)
log = []

def leaf(n):
    log.append("in leaf 0")
    if rng.random() < 0.25:
        log.append("out leaf 0 1")
        raise ValueError(n)
    log.append("out leaf 0 0")
    return n

def recurse(n):
    log.append("in recurse 0")
    try:
        if n > 0:
            rng.choice(ACTIONS)(n - 1)
    except ValueError:
        if rng.random() < 0.5:
            log.append("out recurse 0 1")
            raise
    finally:
        n = 0
    log.append("out recurse 0 0")

def numbers(n):
    kind = 0
    log.append("in numbers 0")
    for i in range(3):
        try:
            if n > 0 and rng.random() < 0.4:
                rng.choice(ACTIONS)(n - 1)
        except ValueError:
            log.append("out numbers %d 1" % kind)
            raise
        log.append("out numbers %d 2" % kind)
        kind = 1
        try:
            yield i
        except KeyError:
            log.append("in numbers 1")
            if rng.random() < 0.5:
                log.append("out numbers 1 1")
                raise
        else:
            log.append("in numbers 1")
    log.append("out numbers %d 0" % kind)

def consume(n):
    log.append("in consume 0")
    generator = numbers(n)
    try:
        for step in range(9):
            if step and rng.random() < 0.3:
                generator.throw(KeyError)
            else:
                next(generator)
    except StopIteration:
        pass
    except (ValueError, KeyError):
        if rng.random() < 0.5:
            log.append("out consume 0 1")
            raise ValueError
    log.append("out consume 0 0")

def outer(n):
    log.append("in outer 0")
    kind = 0
    inner = numbers(0)
    log.append("mark")
    try:
        result = yield from inner
    except KeyError:
        log.append("out outer 1 1")
        raise ValueError
    log.append("out outer 1 0")

class Once:
    def __await__(self):
        log.append("in Once.__await__ 0")
        log.append("out Once.__await__ 0 2")
        yield
        log.append("in Once.__await__ 1")
        log.append("out Once.__await__ 1 0")

async def ticks(n):
    log.append("in ticks 0")
    kind = 0
    for i in range(2):
        log.append("out ticks %d 2" % kind)
        yield i
        kind = 1
        log.append("in ticks 1")
    log.append("out ticks 1 0")

async def task(n):
    log.append("in task 0")
    kind = 0
    async for i in ticks(n):
        try:
            leaf(i)
        except ValueError:
            pass
    await_log = log.append
    once = Once()
    await once
    await_log("out task 1 0")

def drive(n):
    log.append("in drive 0")
    coroutine = task(n)
    coroutine.send(None)
    log.append("out task 0 2")
    log.append("in task 1")
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    log.append("out drive 0 0")

ACTIONS = [leaf, recurse, consume, recurse, consume, drive]
gate.on("function__entry", "function__return")
gate.flushed(1)  # the semaphore is raised a moment before the tracer receives events
while len(log) < 1500:
    try:
        rng.choice(ACTIONS)(4)
    except ValueError:
        pass
gate.flushed()
gate.done(log=log)
"""


def expected(log):
    """Adds the events that a coroutine cannot record itself: it is suspended after the awaitable
    is, and resumed before the awaitable is.
    """
    events = [entry for entry in log if not entry.startswith(("out task 0 2", "in task 1"))]
    result = []
    for entry in events:
        if entry == "in Once.__await__ 1":
            result.append("in task 1")
        result.append(entry)
        if entry == "out Once.__await__ 0 2":
            result.append("out task 0 2")
    return result


@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.smoke), 5])
def test_raw_events_are_the_programs_own_record(trace, seed):
    source = RANDOM_PROGRAM.replace("SEED", str(seed))
    run = trace(source, {"function__entry": ["function", "kind", "depth"],
                         "function__return": ["function", "kind", "outcome", "depth"]})  # fmt: skip
    events = run.events("function__entry", "function__return")
    seen = []
    depth = 0
    for event in events:
        if event["probe"] == "function__entry":
            assert event["depth"] == depth
            depth += 1
            seen.append("in %s %d" % (event["function"], event["kind"]))
        else:
            depth -= 1
            assert event["depth"] == depth
            seen.append("out %s %d %d" % (event["function"], event["kind"], event["outcome"]))
    assert seen == expected(run.report["log"])


TOTALS_PROGRAM = """
import asyncio, gate, threading

def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)

def endless(n):
    return endless(n + 1)

def numbers():
    yield 1
    yield 2
    yield 3

def first():
    for n in numbers():
        return n

def close():
    generator = numbers()
    next(generator)
    generator.close()

def close_unstarted():
    numbers().close()

class Guard:
    def __enter__(self):
        return self
    def __exit__(self, *exc):
        return True

def guarded():
    with Guard():
        raise KeyError

async def nap(n):
    await asyncio.sleep(0)
    if n % 3 == 0:
        raise ValueError(n)
    return n

async def forever():
    await asyncio.sleep(1000)

async def main():
    await asyncio.gather(*[nap(n) for n in range(30)], return_exceptions=True)
    tasks = [asyncio.ensure_future(forever()) for _ in range(10)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

def work():
    for _ in range(50):
        deep(10)
        first()
        close()
        close_unstarted()
        guarded()

gate.on("function__stats")
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
# Short-lived threads, one after the other.
for _ in range(50):
    thread = threading.Thread(target=deep, args=(1,))
    thread.start()
    thread.join()
asyncio.run(main())
try:
    endless(0)
except RecursionError:
    pass
for _ in range(10):
    deep(1)
gate.flushed()
gate.done()
"""


def test_totals_of_threads_tasks_and_recursion(trace):
    run = trace(
        TOTALS_PROGRAM, {"function__stats": ["function", "calls", "resumed", "raised", "elapsed", "self"]}
    )
    rows = run.totals("function__stats")
    calls = {name: row["calls"] for name, row in rows.items() if name != "<listcomp>"}
    raised = {name: row["raised"] for name, row in rows.items()}
    assert calls["work"] == 4
    assert calls["deep"] == 4 * 50 * 11 + 50 * 2 + 10 * 2
    assert calls["first"] == calls["close"] == calls["close_unstarted"] == 200
    assert calls["guarded"] == calls["Guard.__exit__"] == calls["Guard.__enter__"] == 200
    assert raised["guarded"] == raised["Guard.__exit__"] == raised["numbers"] == 0
    # A generator that is left suspended may stay open. Earlier ones are counted when another
    # generator starts in their place. Before 3.12, closing a generator that never started starts
    # it.
    numbers = calls["numbers"] - (200 if sys.version_info < (3, 12) else 0)
    assert 400 - 8 <= numbers <= 400
    assert (calls["nap"], rows["nap"]["resumed"], raised["nap"]) == (30, 30, 10)
    assert (calls["forever"], raised["forever"]) == (10, 10)
    assert calls["main"] == 1
    assert 500 < calls["endless"] == raised["endless"] < 1100
    assert rows["main"]["self"] < rows["main"]["elapsed"]


GREENLETS = """
import gate, greenlet

def ping(n):
    for _ in range(n):
        other.switch()
    return n

def pong():
    while True:
        main.switch()

def branch(n):
    if n: branch(n - 1)
    greenlet.getcurrent().parent.switch()

gate.on("function__stats", "function__return")
gate.flushed(1)  # the semaphore is raised a moment before the tracer receives events
main = greenlet.getcurrent()
other = greenlet.greenlet(pong)
for _ in range(20):
    ping(5)
branches = list(map(greenlet.greenlet, [branch] * 20))
for b in branches: b.switch(5)
for _ in range(6):
    for b in branches: b.switch()
gate.flushed()
gate.done()
"""


def test_greenlets_keep_their_calls(trace):
    pytest.importorskip("greenlet")
    run = trace(
        GREENLETS,
        {"function__stats": ["function", "calls"], "function__return": ["function", "elapsed", "outcome"]},
    )
    calls = {name: row["calls"] for name, row in run.totals("function__stats").items()}
    assert calls == {"ping": 20, "branch": 120}  # and pong never ends
    assert all(event["outcome"] == 0 for event in run.events("function__return"))
