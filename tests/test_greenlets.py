"""Greenlets: each has its own calls, and the time it waits is not its functions' own time."""

from __future__ import annotations

import pytest

# The program measures its own calls: when they ran, and how long they waited.
SWITCHES = """
import gate, greenlet, time

clock = time.perf_counter
own = {}
getcurrent = greenlet.getcurrent

def worker(n):
    began = clock()
    while clock() < began + 0.004: pass
    called = clock()
    nested(n)
    back = clock()
    while clock() < back + 0.004: pass
    own["worker"] = own.get("worker", 0) + called - began + clock() - back

def nested(n):
    return nested(n - 1) if n else wait()

def wait():
    getcurrent().parent.switch()

def lives():
    try:
        wait()
    finally:
        leaf()

def leaf():
    return 1

def endless():
    while True: wait()

def passes(greenlets):
    for g in greenlets: g.switch()

traced = []
gate.on("function__stats", "function__entry", "function__return")
gate.flushed(1)  # the semaphore is raised a moment before the tracer receives events
# Each greenlet waits at its own depth while others run. The last to start is the first to resume.
some = [greenlet.greenlet(worker) for n in range(30)]
for n, g in enumerate(some): g.switch(n % 7)
time.sleep(0.2)
for g in reversed(some): g.switch()
alive = sum(not g.dead for g in some)
# Greenlets that are killed while they wait: by throw(), and by being freed.
for n in range(5):
    g = greenlet.greenlet(lives)
    g.switch()
    g.throw()
    g = greenlet.greenlet(lives)
    g.switch()
    del g
left = greenlet.greenlet(endless)
left.switch()
crowd = [greenlet.greenlet(wait) for _ in range(1000)]
passes(crowd)
passes(crowd)
# The program's own trace function replaces ours and calls it, as gevent's does.
def tracer(event, pair):
    traced.append(event)
    return before(event, pair)
before = greenlet.settrace(tracer)
crowd[0] = greenlet.greenlet(wait)
crowd[0].switch()
restored = greenlet.settrace(before) is tracer
crowd[0].switch()
gate.flushed()
import sys, json
print("report " + json.dumps(dict(own=own, alive=alive, traced=len(traced), restored=restored)), flush=True)
gate.off("function__stats")
wait_once = greenlet.greenlet(wait)
wait_once.switch()
print("after", greenlet.gettrace(), flush=True)
time.sleep(60)
"""


def check_pairs(events):
    """Checks that each return belongs to the innermost open call of its shadow stack.

    Returns the functions of the calls that are still open.
    """
    stacks = {}
    for event in events:
        stack = stacks.setdefault(event["context_id"], [])
        if event["probe"] == "function__entry":
            assert event["depth"] == len(stack), event
            stack.append(event["function"])
        else:
            assert stack.pop() == event["function"], event
            assert event["depth"] == len(stack), event
    return sorted(name for stack in stacks.values() for name in stack)


def test_each_greenlet_has_its_calls_and_its_time(trace):
    pytest.importorskip("greenlet")
    run = trace(SWITCHES, {"function__stats": ["function", "calls", "raised", "self", "elapsed"],
                           "function__entry": ["function", "depth", "context_id"],
                           "function__return": ["function", "depth", "context_id", "outcome",
                                                "self"]})  # fmt: skip
    rows = run.totals("function__stats")
    assert run.report["alive"] == 0
    assert {name: row["calls"] for name, row in rows.items() if name[0] not in "<t"} == {
        "worker": 30, "nested": sum(n % 7 + 1 for n in range(30)), "wait": 30 + 10 + 1000 + 1,
        "lives": 10, "leaf": 10, "passes": 2}  # fmt: skip
    assert {name: row["raised"] for name, row in rows.items() if row["raised"]} == {"lives": 10, "wait": 10}
    assert check_pairs(run.events("function__entry", "function__return")) == ["endless", "wait"]
    own = run.report["own"]["worker"]
    assert 0.9 * own < rows["worker"]["self"] / 1e9 < own + 0.1 * 30 * 0.2
    assert rows["worker"]["elapsed"] > 30 * 0.2e9
    assert rows["wait"]["self"] < 0.1 * rows["worker"]["elapsed"]
    assert (run.report["traced"], run.report["restored"]) == (2, True)
    assert run.program.line("after ") == "None"


GEVENT = """
from gevent import monkey; monkey.patch_all()
import gate, gevent, gevent.pool, json, probescope, queue, sys, threading, time

clock = time.perf_counter
own = [0.0, 0.0]

def request(n):
    for _ in range(2):
        began = clock()
        while clock() < began + 0.002: pass
        own[0] += clock() - began
        deep(n % 20)
    return n

def deep(n):
    if n: return deep(n - 1)
    began = clock()
    time.sleep(0.02)
    own[1] += clock() - began

def late():
    with gevent.Timeout(0.01):
        time.sleep(30)

def killed():
    time.sleep(30)

def consume(things):
    return sum(iter(things.get, None))

def failing(n):
    try:
        time.sleep(0.001)
        raise KeyError(n)
    except KeyError:
        time.sleep(0.001)
        return n

def program():
    pool = gevent.pool.Pool(40)
    assert sum(pool.imap_unordered(request, range(80))) == 3160
    timeouts = [gevent.spawn(late) for _ in range(10)]
    gevent.joinall(timeouts)
    assert all(isinstance(g.exception, gevent.Timeout) for g in timeouts)
    victims = [gevent.spawn(killed) for _ in range(20)]
    time.sleep(0)
    gevent.killall(victims[:10])
    for g in victims[10:]: g.kill(KeyError("told"), block=False)
    gevent.joinall(victims)
    things = queue.Queue(maxsize=1)
    threads = [threading.Thread(target=consume, args=(things,)) for _ in range(3)]
    for thread in threads: thread.start()
    for n in range(50): things.put(n)
    for _ in threads: things.put(None)
    for thread in threads: thread.join()
    crowd = [gevent.spawn(failing, n) for n in range(1000)]
    gevent.joinall(crowd)
    assert sum(g.value for g in crowd) == 499500
    assert gevent.get_hub().threadpool.apply(native, (5,)) == 5

def native(n):
    return n

sys.stderr = open("/dev/null", "w")  # gevent prints the exceptions that kill greenlets
used = []
gate.on("function__stats", "exception__stats", "function__entry")
gate.flushed(1)
program()
gate.flushed()
print("report " + json.dumps(own), flush=True)
gate.off("function__stats")
gate.off("exception__stats")
print("after", probescope.status()["memory_used"], flush=True)
threading.Event().wait(60)
"""


def test_gevent_patched_all_through(trace):
    pytest.importorskip("gevent")
    run = trace(GEVENT, {"function__stats": ["function", "calls", "raised", "self", "elapsed"],
                         "function__entry": ["function", "depth", "context_id"],
                         "function__return": ["function", "depth", "context_id", "outcome"],
                         "exception__stats": ["type", "function", "raised", "rescued"]})  # fmt: skip
    rows = run.totals("function__stats")
    calls = {name: row["calls"] for name, row in rows.items() if ">" not in name}
    assert calls == {
        "request": 80, "deep": 2 * sum(n % 20 + 1 for n in range(80)), "late": 10, "killed": 20, "consume": 3,
        "failing": 1000, "native": 1, "program": 1}  # fmt: skip
    raised = {name: row["raised"] for name, row in rows.items() if row["raised"]}
    assert raised == {"late": 10, "killed": 20}
    assert check_pairs(run.events("function__entry", "function__return")) == []
    busy, waited = run.report
    assert 0.9 * busy < rows["request"]["self"] / 1e9 < busy + 0.2 * waited
    assert rows["request"]["elapsed"] / 1e9 > waited
    assert rows["deep"]["self"] / 1e9 < 0.1 * waited
    raised = run.totals("exception__stats", "type", "function")
    assert (raised["KeyError", "failing"]["raised"], raised["KeyError", "failing"]["rescued"]) == (1000, 1000)
    by_type = run.totals("exception__stats")
    ends = ("gevent.timeout.Timeout", "greenlet.GreenletExit")
    assert [by_type[name]["raised"] for name in ends] == [10, 10]
    # All memory for greenlets and rows was freed.
    assert int(run.program.line("after ")) < 128_000


# After a fork, the child cleans up the data of the parent's other threads. It does so on its only
# thread, which here runs a greenlet.
FORKS = """
import gate, greenlet, os, probescope, threading

def begins():
    ready.set()
    threading.Event().wait()

def switches():
    main.switch()

def forks():
    if os.fork() == 0:
        while True: switches()
    gate.done(status=os.wait()[1])

def another():
    while True: switches()

def outer():
    one, two = greenlet.greenlet(forks), greenlet.greenlet(another)
    one.switch()
    if one.dead: return
    for _ in range(5):
        two.switch()
        one.switch()
    probescope.uninstall()
    os._exit(0)

ready = threading.Event()
main = greenlet.getcurrent()
gate.on("function__stats")
threading.Thread(target=begins, daemon=True).start()
ready.wait()
outer()
"""


def test_a_greenlet_forks_beside_threads(trace):
    assert trace(FORKS, {"function__stats": ["function", "calls"]}).report == {"status": 0}


REQUESTS = """
import gate, gevent, time
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

tracer = TracerProvider().get_tracer("test")
said = {}

def note(name):
    context = trace.get_current_span().get_span_context()
    flags = context.trace_flags & 0xFF
    current = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}" if context.is_valid else ""
    said.setdefault(name, []).append(current)

WORK = '''
def workerN():
    for _ in range(REQUESTS):
        with tracer.start_as_current_span("request"): outerN()
    note("workerN")

def outerN():
    innerN()
    gevent.sleep(0)
    with tracer.start_as_current_span("query"): lookupN()
    note("outerN")

def lookupN():
    gevent.sleep(0.0015)
    innerN()
    note("lookupN")

def innerN():
    time.sleep(0.0011)
    note("innerN")
'''
for n in range(WORKERS): exec(compile(WORK.replace("N", str(n)), __file__, "exec"), globals())
gate.on("function__slow1ms")
gevent.joinall([gevent.spawn(globals()[f"worker{n}"]) for n in range(WORKERS)], raise_error=True)
gate.flushed()
gate.done(said=said)
"""


def test_each_slow_call_of_a_greenlet_has_its_own_requests_span_and_caller(trace):
    pytest.importorskip("gevent")
    pytest.importorskip("opentelemetry.sdk.trace")
    source = REQUESTS.replace("WORKERS", "40").replace("REQUESTS", "5")
    run = trace(source, {"function__slow1ms": ["function", "traceparent", "span_id", "parent_id"]})
    said = run.report["said"]
    calls = {
        event["span_id"]: event for event in run.events("function__slow1ms") if event["function"] in said
    }
    heard = {}
    for call in calls.values():
        heard.setdefault(call["function"], []).append(call["traceparent"])
    assert {name: sorted(spans) for name, spans in heard.items()} == {n: sorted(s) for n, s in said.items()}
    callers = {"outer": {"worker"}, "lookup": {"outer"}, "inner": {"outer", "lookup"}, "worker": {""}}
    for call in calls.values():
        name = call["function"].rstrip("0123456789")
        caller = calls[call["parent_id"]]["function"] if call["parent_id"] else ""
        number = call["function"][len(name) :] if caller else ""
        assert caller in {f"{one}{number}" for one in callers[name]}, call
        inside = caller and calls[call["parent_id"]]["traceparent"]
        assert name != "inner" or call["traceparent"] == inside, call
