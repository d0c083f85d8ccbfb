"""Samples by request. Each request gets its own samples, also where requests take turns on one
thread, and after a request has ended.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig

import pytest
from test_sampling import SANDBOX, attempts, of

pytestmark = pytest.mark.skipif(
    sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of another CPython: with a GIL"
)

FIELDS = {"sample__stats": ["function", "request", "self", "self_samples"]}
PROBES = ["sample__stats", "stats__by_request"]

COMMON = f"""
import gate, time
from probescope import _native

PROBES = {PROBES}
used = {{}}

def burn(times):
    n = 0
    while n < times: n += 1

def timed(name, function, *arguments):
    start = time.thread_time()
    function(*arguments)
    used[name] = used.get(name, 0) + time.thread_time() - start

def within(request, function, *arguments):
    outer = _native.enter_request(request)
    try: function(*arguments)
    finally: _native.enter_request(outer)

def state():
    return gate.probescope.status()["probes"]["sample__stats"][:2]

"""


def traced(trace, source):
    """On a busy machine, some seconds of CPU time take minutes."""
    return trace(source, FIELDS, attach=["stats__by_request"], finish=False).finish(within=240)


def sampled_in(run, *functions):
    """Returns {request: CPU time of its samples in these functions}; "" stands for no request."""
    found = {}
    for (request, function), row in run.totals("sample__stats", "request", "function").items():
        if function in functions:
            found[request] = found.get(request, 0) + row["self"]
    return found


def add(sums, found):
    for name, value in found.items():
        sums[name] = sums.get(name, 0) + value


def test_requests_have_what_their_threads_clocks_say(trace):
    """On one event loop: a request in a context of 40 variables, one in C without the GIL and with
    it, and one in a pool of threads.

    With some 900 samples, chance alone puts one attempt in 300 outside of 5 points.
    """
    sampled, clocks = {}, {}

    def check():
        run = traced(
            trace,
            COMMON
            + """
import asyncio, contextvars, hashlib, zlib
probescope = gate.probescope
DATA = bytes(800_000)
VARIABLES = [contextvars.ContextVar(f"variable {n}") for n in range(40)]

def crunch():
    hashlib.sha256(DATA).digest()
    for _ in range(20): zlib.crc32(DATA[:5000])

async def loop():
    timed("GET /loop", burn, 60_000)

async def variables():
    for n, variable in enumerate(VARIABLES): variable.set(n)
    timed("GET /variables", burn, 40_000)

async def in_c():
    timed("GET /c", crunch)

async def pool():
    await asyncio.to_thread(timed, "GET /pool", burn, 40_000)

async def shop(scope, receive, send):
    for _ in range(10):
        await scope["work"]()
        await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})

async def nothing(*_): return {"type": "http.request", "body": b"", "more_body": False}

async def main(seconds):
    app, ends = probescope.asgi(shop), time.process_time() + seconds
    work = {"/loop": loop, "/variables": variables, "/c": in_c, "/pool": pool}
    while time.process_time() < ends:
        scopes = [{"type": "http", "method": "GET", "path": path, "headers": [], "work": work[path]}
                  for path in work]
        await asyncio.gather(*[app(scope, nothing, nothing) for scope in scopes])

gate.on(*PROBES)
gate.flushed(1)
asyncio.run(main(9))
gate.flushed(2)
gate.done(used=used, state=state())
""",
        )
        assert run.report["state"] == ["on", None]
        found = sampled_in(run, "burn", "crunch")
        assert found.pop("", 0) < 0.01 * sum(found.values()), found
        add(sampled, found)
        add(clocks, run.report["used"])
        assert of(sampled) == {name: pytest.approx(share, abs=0.05) for name, share in of(clocks).items()}

    attempts(check)


def test_requests_that_have_ended_get_their_samples_and_none_of_the_next_ones(trace):
    """Two kinds of short requests take turns, each with its own function. Almost all have ended,
    and are freed, when their stacks are read.
    """
    sampled, clocks = {}, {}

    def check():
        run = traced(
            trace,
            COMMON
            + """
def long(times):
    n = 0
    while n < times: n += 1

def short(times):
    n = 0
    while n < times: n += 1

def turn():
    for name, function, times in (("long", long, 9_000), ("short", short, 3_000)):
        request = _native.Request("GET", "/" + name, None)
        within(request, timed, "GET /" + name, function, times)
        if name == "long": request.done(200, None) # the short request is freed without done()

def turns(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        for _ in range(20): turn()

gate.on(*PROBES)
gate.flushed(1)
turns(6)
gate.flushed(2)
gate.done(used=used, state=state())
""",
        )
        assert run.report["state"] == ["on", None]
        found = run.totals("sample__stats", "request", "function")
        samples = {key: row["self_samples"] for key, row in found.items() if key[1] in ("long", "short")}
        own = [("GET /long", "long"), ("GET /short", "short")]
        others = {key: count for key, count in samples.items() if key not in own}
        assert sum(others.values()) <= 0.01 * sum(samples.values()), samples
        add(sampled, {request: found[request, function]["self"] for request, function in own})
        add(clocks, run.report["used"])
        assert of(sampled) == {name: pytest.approx(share, abs=0.05) for name, share in of(clocks).items()}

    attempts(check)


# Preloaded. Once a tick, a thread that has copied a page of frames waits until the program has
# started its next request.
BETWEEN = """
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
volatile int waits;
static long ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from,
                         unsigned long m, unsigned long flags)
{
    ssize_t copied = syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
    static long before;
    if (copied != 4096 || ms() - before < 5) return copied;
    waits = 1;
    for (int i = 0; waits && i < 5000; i++) usleep(200);
    before = ms();
    return copied;
}
"""


def test_a_request_that_ends_while_its_stack_is_read_is_not_taken_for_the_next_one(trace, tmp_path):
    """On most Pythons, the next request's context and frame have the same addresses. When requests
    were identified by these addresses, all samples were of the wrong request.
    """
    (tmp_path / "between.c").write_text(BETWEEN)
    library = tmp_path / "between.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "between.c"], check=True)
    preloaded = ":".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    run = trace(
        COMMON
        + """
import contextvars, ctypes
waits = ctypes.c_int.in_dll(ctypes.CDLL(None), "waits")

def first():
    waits.value = 0
    while not waits.value: pass

def second():
    waits.value = 0
    while not waits.value: pass

def enter(request, function):
    _native.enter_request(request)
    function()

gate.on(*PROBES)
gate.flushed(1)
for _ in range(30):
    for path, function in (("/first", first), ("/second", second)):
        request = _native.Request("GET", path, None)
        contextvars.Context().run(enter, request, function)
        request.done(200, None)
        # Otherwise only every second request's context has the same address.
        contextvars.Context().run(_native.enter_request, None)
waits.value = 0
gate.flushed(2)
gate.done(state=state())
""",
        FIELDS,
        attach=["stats__by_request"],
        env={"LD_PRELOAD": preloaded},
    )
    assert run.report["state"] == ["on", None]
    found = run.totals("sample__stats", "request", "function")
    samples = {key: row["self_samples"] for key, row in found.items() if key[1] in ("first", "second")}
    assert set(samples) == {("GET /first", "first"), ("GET /second", "second")}, samples
    assert sum(samples.values()) > 40, samples


def test_a_pool_of_threads_works_for_the_requests_whose_contexts_it_has(trace):
    """Jobs that run in the thread's own context belong to no request."""
    sampled, clocks = {}, {}

    def check():
        run = traced(
            trace,
            COMMON
            + """
import contextvars, queue, threading
jobs, ends = queue.SimpleQueue(), []

def work():
    while True:
        context, name, times = jobs.get()
        if context: context.run(timed, name, burn, times)
        else: timed(name, burn, times)
        ends.append(name)

def context_of(request):
    def copied():
        contexts.append(contextvars.copy_context())
    contexts = []
    within(request, copied)
    return contexts[0]

def give(seconds):
    times = {"GET /a": 30_000, "GET /b": 10_000, "": 15_000}
    until = time.process_time() + seconds
    while time.process_time() < until:
        requests = {name: _native.Request(*name.split(), None) for name in times if name}
        for name in times:
            jobs.put((context_of(requests[name]) if name else None, name, times[name]))
        while len(ends) < len(times): time.sleep(0.0002)
        ends.clear()
        for request in requests.values(): request.done(200, None)

for _ in range(3): threading.Thread(target=work, daemon=True).start()
gate.on(*PROBES)
gate.flushed(1)
give(6)
gate.flushed(2)
gate.done(used=used, state=state())
""",
        )
        assert run.report["state"] == ["on", None]
        add(sampled, sampled_in(run, "burn"))
        add(clocks, run.report["used"])
        assert of(sampled) == {name: pytest.approx(share, abs=0.1) for name, share in of(clocks).items()}

    attempts(check)


def test_requests_are_made_and_dropped_while_they_are_sampled(trace):
    """Some ten thousand requests a second, by threads that compete for the GIL."""
    run = traced(
        trace,
        COMMON
        + """
import contextvars, sys, threading

def fresh(n):
    within(_native.Request("GET", f"/{chr(97 + n % 20)}", None), burn, n % 20 * 100)

def serve(seconds):
    global made
    ends, n = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        for _ in range(50):
            n += 1
            (contextvars.Context() if n % 3 else contextvars.copy_context()).run(fresh, n)
    made += n

made = 0
sys.setswitchinterval(1e-5)
gate.on(*PROBES)
for _ in range(2):
    threads = [threading.Thread(target=serve, args=(2,)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
gate.flushed(2)
gate.done(state=state(), made=made)
""",
    )
    assert run.report["state"] == ["on", None]
    found = sampled_in(run, "burn")
    assert len(found) > 10, (found, run.report)
    taken = sum(event["self_samples"] for event in run.events("sample__stats"))
    assert taken > 50


def test_where_memory_cannot_be_copied_requests_are_told_apart_at_the_next_check(trace):
    def check():
        run = traced(
            trace,
            COMMON
            + "ANSWER = 0x80000000\n"
            + SANDBOX
            + """
def work(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        for name, times in (("/a", 90_000), ("/b", 30_000)):
            request = _native.Request("GET", name, None)
            within(request, timed, "GET " + name, burn, times)
            request.done(200, None)

gate.on(*PROBES)
gate.flushed(1)
work(2)
gate.flushed(2)
gate.done(used=used, state=state())
""",
        )
        assert run.report["state"][0] == "degraded"
        assert run.report["state"][1].startswith("charged at the next check")
        found = sampled_in(run, "burn")
        used = of(run.report["used"])["GET /a"]
        assert of(found)["GET /a"] == pytest.approx(used, abs=0.15), (found, run.report)

    attempts(check)
