"""Tracers attach and detach in the middle of calls. Calls that were open before are ignored, and
later ones are counted exactly.
"""

from __future__ import annotations

import pytest
from test_greenlets import check_pairs

MID_CALL = """
import asyncio, concurrent.futures, ctypes, gate, gc, sys, threading

def leaf(n):
    return n

def deep(n, act):
    try:
        return deep(n - 1, act) if n else act()
    finally:
        leaf(n)

def numbers():
    try:
        for n in range(4): yield leaf(n)
    finally:
        leaf(-1)

async def steps():
    try:
        for n in range(4):
            yield leaf(n)
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)

async def inner():
    await go_on.wait()
    return leaf(1)

async def outer():
    return await inner()

here, over = threading.Event(), threading.Event()

def enter(act):
    entered.release()
    here.wait()
    return act()

def in_thread():
    return deep(20, lambda: enter(lambda: leaf(0)))

entered = threading.Semaphore(0)
pool = concurrent.futures.ThreadPoolExecutor(2)
libc = ctypes.CDLL(None)
foreign = ctypes.c_ulong()
kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
native = kind(lambda _: in_thread() and 0)

def start():
    threads = [threading.Thread(target=in_thread), threading.Thread(target=in_thread, daemon=True)]
    for thread in threads: thread.start()
    futures = [pool.submit(in_thread) for _ in range(2)]
    libc.pthread_create(ctypes.byref(foreign), None, native, None)
    for _ in range(5): entered.acquire()
    return threads, futures

async def main():
    global go_on
    go_on = asyncio.Event()
    tasks = [asyncio.ensure_future(outer()) for _ in range(10)]
    waiting = steps()
    await waiting.__anext__()
    await asyncio.sleep(0)
    # 50 frames are open here, and as many in threads of all kinds. Generators are suspended, and
    # coroutines are awaiting.
    suspended = [numbers() for _ in range(6)]
    for one in suspended: next(one)
    threads, futures = start()
    print("ready", flush=True)
    deep(50, attached)
    here.set()
    go_on.set()
    await asyncio.gather(*tasks)
    for thread in threads: thread.join()
    for future in futures: future.result()
    libc.pthread_join(foreign, None)
    list(suspended[0])
    suspended[1].close()
    try: suspended[2].throw(KeyError)
    except KeyError: pass
    del suspended[3]
    # Only the collector can close this one.
    cycle = [suspended[4]]
    cycle.append(cycle)
    suspended[4] = cycle = None
    gc.collect()
    await waiting.aclose()
    fresh = steps()
    async for n in fresh:
        if n == 2: break
    await fresh.aclose()
    for _ in range(20):
        for n in numbers(): break
    gate.flushed(1)
    known.update(deep(30, lambda: {}))

def attached():
    gate.on(*PROBES)
    gate.flushed(1)

known = {}
PROBES = "function__entry", "function__return", "function__stats"
asyncio.run(main())
gate.flushed()
gate.done(known=known)
"""


def test_a_tracer_comes_while_everything_is_open(trace):
    run = trace(MID_CALL, {"function__stats": ["function", "calls", "raised", "resumed"],
                           "function__entry": ["function", "depth", "context_id", "kind"],
                           "function__return": ["function", "depth", "context_id", "outcome",
                                                "kind"]})  # fmt: skip
    calls = {name: row["calls"] for name, row in run.totals("function__stats").items() if "<" not in name}
    # Calls that were open are not counted, but their callees are. A resumed generator or coroutine
    # counts as a call from then on.
    assert calls["deep"] == 31
    assert calls["inner"] == calls["outer"] == 10
    assert calls["leaf"] >= 51 + 5 * (21 + 1) + 10 + 31
    open_calls = check_pairs(run.events("function__entry", "function__return"))
    # From 3.13 on, closing a generator fires no event. None of its calls stays open either.
    assert open_calls == []
    outcomes = {(e["function"], e["outcome"]) for e in run.events("function__return")}
    assert ("numbers", 2) in outcomes and ("steps", 2) in outcomes and ("outer", 2) not in outcomes


TASKS = """
import asyncio, concurrent.futures, gate, time

clock = time.perf_counter
own = {"task": 0.0, "waited": 0.0, "blocking": 0.0}

async def task(n):
    for _ in range(3):
        began = clock()
        while clock() < began + 0.001: pass
        asleep = clock()
        own["task"] += asleep - began
        await rest()
        own["waited"] += clock() - asleep
    if n % 10 == 0:
        await asyncio.get_running_loop().run_in_executor(pool, blocking)
    if n % 25 == 0:
        raise KeyError(n)

async def rest():
    await asyncio.sleep(0.05)

def blocking():
    began = clock()
    time.sleep(0.02)
    own["blocking"] += clock() - began

async def main():
    tasks = [asyncio.ensure_future(task(n)) for n in range(100)]
    late = [asyncio.ensure_future(rest()) for _ in range(10)]
    await asyncio.sleep(0)
    for one in late: one.cancel()
    return await asyncio.gather(*tasks, *late, return_exceptions=True)

pool = concurrent.futures.ThreadPoolExecutor(4)
gate.on("function__stats", "function__slow10ms", "function__return")
gate.flushed(1)
results = asyncio.run(main())
gate.flushed()
gate.done(own=own, errors=sum(isinstance(one, BaseException) for one in results))
"""


def test_what_tasks_await_is_not_their_own_time(trace):
    run = trace(TASKS, {"function__stats": ["function", "calls", "raised", "resumed", "self", "elapsed"],
                        "function__slow10ms": ["function", "elapsed", "self", "outcome"],
                        "function__return": ["function", "outcome"]})  # fmt: skip
    own, rows = run.report["own"], run.totals("function__stats")
    assert (rows["task"]["calls"], rows["task"]["raised"], run.report["errors"]) == (100, 4, 14)
    assert (rows["rest"]["calls"], rows["rest"]["raised"], rows["rest"]["resumed"]) == (310, 10, 310)
    assert rows["blocking"]["calls"] == 10
    # On a busy machine, other processes may run between the parts of task(). Its waits take fifteen
    # times as long as its work.
    assert 0.9 * own["task"] < rows["task"]["self"] / 1e9 < own["task"] + 0.2 * own["waited"]
    assert rows["task"]["elapsed"] / 1e9 > own["waited"]
    assert rows["rest"]["self"] / 1e9 < 0.1 * own["waited"]
    assert rows["blocking"]["self"] / 1e9 == pytest.approx(own["blocking"], rel=0.2)
    slow = [event for event in run.events("function__slow10ms") if event["function"] == "task"]
    assert len(slow) == 100 and all(event["elapsed"] > 3 * 50e6 for event in slow)
    assert sum(event["self"] for event in slow) == pytest.approx(rows["task"]["self"], rel=0.01)
    suspended = [e for e in run.events("function__return") if e["function"] == "task" and e["outcome"] == 2]
    assert len(suspended) == 310
