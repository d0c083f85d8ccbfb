"""Formatting of tracebacks: the caller, the exception, and the cost."""

from __future__ import annotations

import sys

import pytest
from tracing import stop_tracer, wait_for

COMMON = """
import ctypes, io, sys, threading, time, traceback
import gate

class Problem(Exception):
    pass

def fail(depth):
    if depth:
        return fail(depth - 1)
    raise Problem("no")

def words(function):
    size = ctypes.sizeof(ctypes.c_void_p)
    return (ctypes.c_void_p * (type(fail).__basicsize__ // size)).from_address(id(function))[:]

def alike(function):
    # Offsets at which all functions have the same pointer: the type, and the code that runs a call.
    pairs = list(enumerate(zip(words(function), words(fail))))
    return [index for index, (a, b) in pairs[1:] if a == b and (a or 0) > 1 << 20]
"""

# Each of these functions formats once, in its third line. The event has its name.
CASES = f"""{COMMON}
import asyncio, copy, logging.handlers, pickle, queue
from traceback import format_exc as bound_early

lines = {{}}
log = logging.getLogger("test")
log.propagate = False
log.addHandler(logging.StreamHandler(io.StringIO()))
queued = logging.getLogger("queued")
queued.propagate = False
queued.addHandler(logging.handlers.QueueHandler(queue.Queue()))

def case(function):
    lines[function.__name__] = function.__code__.co_firstlineno + 2
    try:
        fail(5)
    except Problem as error:
        return function(error)

gate.on("backtrace__done", "exception__stats")

@case
def format_exc(error):
    assert "fail(depth - 1)" in traceback.format_exc()

@case
def early(error):
    bound_early()

@case
def format_exception(error):
    traceback.format_exception(type(error), value=error, tb=error.__traceback__)

@case
def print_exception(error):
    traceback.print_exception(type(error), error, error.__traceback__, file=io.StringIO())

@case
def print_exc(error):
    traceback.print_exc(file=io.StringIO())

@case
def by_logging(error):
    log.exception("message")

@case
def by_queue(error):
    queued.exception("message")

@case
def by_exc_info(error):
    logging.Formatter().formatException(sys.exc_info())

@case
def only(error):
    traceback.format_exception_only(type(error), error)

@case
def format_tb(error):
    traceback.format_tb(error.__traceback__)

@case
def extract(error):
    traceback.extract_tb(error.__traceback__)

@case
def extract_stack(error):
    traceback.extract_stack(limit=3)

@case
def format_stack(error):
    traceback.format_stack()

@case
def made(error):
    return traceback.TracebackException.from_exception(error)

@case
def made_directly(error):
    made.other = traceback.TracebackException(type(error), error, error.__traceback__)

@case
def in_a_loop(error):
    for line in made.format(): pass

@case
def joined(error):
    assert "fail(depth - 1)" in "".join(made.other.format())

@case
def delegated(error):
    def delegate():
        yield from made.format()
    assert "Problem: no" in "".join(delegate())

@case
def in_a_thread(error):
    thread = threading.Thread(target=traceback.format_exception, \
                              args=(type(error), error, error.__traceback__))
    thread.start(), thread.join()

@case
def in_a_task(error):
    async def task():
        return traceback.format_exception(type(error), error, error.__traceback__)
    async def tasks():
        await asyncio.gather(task(), task())
    asyncio.run(tasks())

thread = threading.Thread(target=fail, args=(1,))
thread.start(), thread.join()

# Other uses of these functions while a tracer is attached.
assert not set(alike(traceback.print_last)) >= set(alike(gate.flushed))
assert pickle.loads(pickle.dumps(traceback.format_exc)) is copy.deepcopy(traceback.format_exc) \
    is traceback.format_exc
assert isinstance(traceback.format_exc, type(fail)) \
    and repr(traceback.format_exc).startswith("<function format_exc at ")
made.format()
generator = made.format()
assert next(generator) and generator.gi_frame and iter(generator) is generator
generator.close()
gate.flushed()
gate.done(lines=lines)
"""


@pytest.mark.smoke
def test_each_way_to_format_counts_once(trace):
    fields = ["kind", "function", "line", "depth", "type", "raise_line"]
    run = trace(
        CASES, {"backtrace__done": fields, "exception__stats": ["type", "line", "string_cost", "asked_line"]}
    )
    raised = CASES.splitlines().index('    raise Problem("no")') + 1
    lines = run.report["lines"]
    heard = {}
    for event in run.events("backtrace__done"):
        heard.setdefault(event["function"], []).append(
            tuple(event[field] for field in fields if field != "function")
        )

    def told(kind, function, depth=7, further=0):
        return [(f"{kind}", lines[function] + further, depth, "Problem", raised)]

    traceback = "traceback."
    stacks = {name: heard.pop(name) for name in ("extract_stack", "format_stack")}
    assert stacks["extract_stack"] == [("traceback.extract_stack", lines["extract_stack"], 3, "", 0)]
    assert stacks["format_stack"] == [("traceback.format_stack", lines["format_stack"], 3, "", 0)]
    task = next(name for name in heard if name.endswith("task"))
    assert heard.pop(task) == told("traceback.format_exception", "in_a_task", further=1) * 2
    # From 3.13 on, the interpreter formats in Python what it prints. In a thread, no function of
    # the application calls.
    bare = heard.pop("", []) + [
        event for name in list(heard) if name.startswith("threading.") for event in heard.pop(name)
    ]
    assert ("traceback.format_exception", 7, "Problem", raised) in [(event[0], *event[2:]) for event in bare]
    assert [event[0] for event in bare].count("sys.excepthook") == (1 if sys.version_info >= (3, 13) else 0)
    delegate = next(name for name in heard if name.endswith("delegate"))
    assert heard.pop(delegate) == told(traceback + "TracebackException.format", "delegated", further=1)
    assert heard == {
        "format_exc": told("traceback.format_exc", "format_exc"),
        "early": told("traceback.format_exc", "early"),
        "format_exception": told("traceback.format_exception", "format_exception"),
        "print_exception": told("traceback.print_exception", "print_exception"),
        "print_exc": told("traceback.print_exc", "print_exc"),
        "by_logging": told("logging.Formatter.formatException", "by_logging"),
        "by_queue": told("logging.Formatter.formatException", "by_queue"),
        "by_exc_info": told("logging.Formatter.formatException", "by_exc_info"),
        "only": told("traceback.format_exception_only", "only"),
        "format_tb": told("traceback.format_tb", "format_tb"),
        "extract": told("traceback.extract_tb", "extract"),
        "made": told("traceback.TracebackException", "made"),
        "made_directly": told("traceback.TracebackException", "made_directly"),
        "in_a_loop": told("traceback.TracebackException.format", "in_a_loop"),
        "joined": told("traceback.TracebackException.format", "joined"),
    }
    rows = [
        event
        for event in run.events("exception__stats")
        if event["type"] == "Problem" and event["string_cost"]
    ]
    assert {event["line"] for event in rows} == {raised}
    assert all(event["asked_line"] for event in rows)


LEFT = f"""{COMMON}
import importlib, signal

whole = alike(traceback.format_exc)
assert len(whole) >= 2
assert "logging" not in sys.modules
gate.on("backtrace__done")
assert alike(traceback.format_exc) != whole

# Imported and reloaded while a tracer is attached.
import logging
old = traceback.format_exc
importlib.reload(traceback)
while (set(alike(logging.Formatter.formatException)) >= set(whole)
       or set(alike(traceback.format_exc)) >= set(whole)):
    time.sleep(0.005)

def theirs(*args, **options):
    return traceback.print_tb(sys.exc_info()[2], file=io.StringIO())

theirs.before = traceback.format_exception
traceback.format_exception = theirs
same = words(theirs)[1:]
while gate.state("backtrace__done") != "degraded":
    time.sleep(0.005)
assert words(theirs)[1:] == same
try:
    fail(2)
except Problem as error:
    traceback.format_exception(error)
    kept = error

# No exception of the application is swallowed.
class Timeout(BaseException):
    pass

class Full:
    def write(self, text):
        raise broken

broken = KeyboardInterrupt()
try:
    traceback.print_exception(Problem, kept, kept.__traceback__, file=Full())
except KeyboardInterrupt as error:
    assert error is broken
else:
    assert False
for wrong in (), (1, 2, 3, 4, 5, 6, 7, 8):
    try:
        traceback.format_tb(*wrong)
    except TypeError as error:
        assert "format_tb" in str(error)
    else:
        assert False

def alarmed(*_):
    raise Timeout

def until_timeout(send):
    try:
        send()
        while True:
            traceback.extract_tb(kept.__traceback__)
    except Timeout:
        return 1

signal.signal(signal.SIGALRM, alarmed)
by_signal = sum(until_timeout(lambda: signal.setitimer(signal.ITIMER_REAL, 0.001)) for _ in range(150))
by_thread = 0
me = ctypes.c_ulong(threading.get_ident())
wanted = threading.Lock()
wanted.acquire()
def send_from_a_thread():
    for _ in range(100):
        wanted.acquire()
        time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(Timeout))
# A reference is kept. Without a GIL, the thread could otherwise end during the last timeout.
sender = threading.Thread(target=send_from_a_thread)
sender.start()
by_thread = sum(until_timeout(wanted.release) for _ in range(100))

generator = traceback.TracebackException.from_exception(kept).format()
first = next(generator)
reason = gate.status("backtrace__done")
print("asked", flush=True)
gate.off("backtrace__done")
assert set(alike(traceback.format_exc)) >= set(whole) and set(alike(old)) >= set(whole)
assert set(alike(traceback.TracebackException.__init__)) >= set(whole)
assert set(alike(logging.Formatter.formatException)) >= set(whole)
traceback.format_exception = theirs.before
assert "Problem: no" in "".join(generator) and old() and traceback.format_exc()
assert sys.getrefcount(traceback.format_tb) == sys.getrefcount(traceback.extract_tb)
gate.done(reason=reason, by_signal=by_signal, by_thread=by_thread)
"""


def test_nothing_is_left_and_nothing_is_taken(trace):
    run = trace(
        LEFT,
        {"backtrace__done": ["kind", "function", "line"]},
        finish=False,
        options=["-X", "dev", "-W", "error"],
    )
    run.program.line("asked")
    wait_for(
        "the last event", lambda: run.events("backtrace__done")[-1]["kind"] == "traceback.TracebackException"
    )
    stop_tracer(run.tracer)
    report = run.program.line("report ")
    assert '"by_signal": 150, "by_thread": 100' in report
    assert "the application has replaced traceback.format_exception: it is left alone" in report
    assert run.program.err == ""
    kinds = [event["kind"] for event in run.events("backtrace__done")]
    assert kinds[0] == "traceback.print_tb"  # called by the application's replacement
    assert kinds[1] == "traceback.print_exception" and "traceback.extract_tb" in kinds


ACCURACY = f"""{COMMON}
import logging

log = logging.getLogger("test")
log.propagate = False
log.addHandler(logging.StreamHandler(io.StringIO()))

class Logged(Exception):
    pass

class Made(Exception):
    pass

def deep(depth, error):
    if depth:
        return deep(depth - 1, error)
    raise error

def logs(formats):
    try:
        deep(30, Logged())
    except Logged:
        log.error("message", exc_info=formats)

def makes(formats):
    try:
        deep(30, Made())
    except Made as error:
        text = "".join(traceback.TracebackException.from_exception(error).format()) if formats else ""

def seconds(function, formats):
    start = time.thread_time()
    for _ in range(20):
        function(formats)
    return time.thread_time() - start

gate.on("exception__stats")
truth = {{"Logged": 0, "Made": 0}}
for _ in range(30):
    truth["Logged"] += seconds(logs, True) - seconds(logs, False)
    truth["Made"] += seconds(makes, True) - seconds(makes, False)
gate.flushed()
gate.done(truth=truth)
"""


def test_the_cost_is_what_the_program_saves_without(trace):
    run = trace(ACCURACY, {"exception__stats": ["type", "string_cost"]})
    rows = run.totals("exception__stats")
    shares = {name: rows[name]["string_cost"] / 1e9 / truth for name, truth in run.report["truth"].items()}
    print(shares)
    assert shares == {"Logged": pytest.approx(1, abs=0.15), "Made": pytest.approx(1, abs=0.15)}
