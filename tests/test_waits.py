"""`probescope trace waits` and `gvl` on programs that know their waits: for CPython, the kernel
reports them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import types
from collections import Counter

import pytest
from probescope.command import line_table, machine
from probescope.command.errors import CommandError
from probescope.command.reports import report_of
from probescope.command.result import Result
from tracing import Child

COMMAND = [sys.executable, "-m", "probescope"]
ROUNDS = 4
STRIDES = 10
# With so many lines a function's line table has some 4 KiB.
TALL = "\n".join(f"    a = b{number} = 1" for number in range(400))

# The times that the program measures are without the time in which its thread was ready to run and
# had no CPU.
PROGRAM = f"""
import fcntl, os, queue, select, socket, threading, time
import gate

ROUNDS = {ROUNDS}
CLOCKS = {{}}
LOCK, MEETING, EVENTS, GOODS = threading.Lock(), threading.Condition(), [], queue.Queue()
READ, WRITE = os.pipe()
LEFT, RIGHT = socket.socketpair()


def now():
    with open("/proc/thread-self/schedstat") as file:
        return time.monotonic_ns() - int(file.read().split()[1])

def took(name, began):
    CLOCKS[name] = CLOCKS.get(name, 0) + now() - began

def naps():
    began = now()
    time.sleep(0.05)  # naps
    took("naps", began)

def strides():
{TALL}
    began = now()
    for _ in range({STRIDES}):
        time.sleep(0.005)  # strides
    took("strides", began)

def locks():
    began = now()
    with LOCK:  # locks
        took("locks", began)

def holds(taken):
    with LOCK:  # holds
        taken.set()
        time.sleep(0.05)

def flocks():
    with open(__file__) as file:
        began = now()
        fcntl.flock(file, fcntl.LOCK_EX)  # flocks
        took("flocks", began)

def lends(taken):
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        taken.set()
        time.sleep(0.05)
        fcntl.flock(file, fcntl.LOCK_UN)  # lends

def pops():
    began = now()
    GOODS.get()  # pops
    took("pops", began)

def puts():
    GOODS.put(1)  # puts

def meets():
    with MEETING:
        began = now()
        MEETING.wait()  # meets
        took("meets", began)

def notifies():
    with MEETING:
        MEETING.notify()  # notifies

def expects(event):
    began = now()
    event.wait()  # expects
    took("expects", began)

def sets(event):
    event.set()  # sets

def reads():
    began = now()
    os.read(READ, 1)  # reads
    took("reads", began)

def receives():
    began = now()
    LEFT.recv(1)  # receives
    took("receives", began)

def polls():
    began = now()
    select.select([READ], [], [])  # polls
    took("polls", began)
    os.read(READ, 1)

def spawns():
    return os.posix_spawn("/bin/sleep", ["sleep", "0.05"], {{}})

def reaps():
    pid = spawns()
    began = now()
    os.waitpid(pid, 0)  # reaps
    took("reaps", began)

def later(function, *arguments):
    def run():
        time.sleep(0.05)
        function(*arguments)
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def with_other(wait, function, *arguments):
    thread = later(function, *arguments)
    wait()
    thread.join()

def one_round():
    naps()
    strides()
    taken = threading.Event()
    holder = threading.Thread(target=holds, args=(taken,))
    holder.start()
    taken.wait()
    locks()
    holder.join()
    taken.clear()
    lender = threading.Thread(target=lends, args=(taken,))
    lender.start()
    taken.wait()
    flocks()
    lender.join()
    with_other(pops, puts)
    with_other(meets, notifies)
    event = threading.Event()
    with_other(lambda: expects(event), sets, event)
    with_other(reads, os.write, WRITE, b"x")
    with_other(receives, RIGHT.send, b"x")
    with_other(polls, os.write, WRITE, b"x")
    reaps()

def serve():
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    for _ in range(ROUNDS):
        one_round()
    gate.flushed()
    print("waited " + str(CLOCKS).replace("'", '"'), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

# A thread sleeps for 10 ms, and meanwhile the other one takes the GIL: for 22.5 ms, after 4 ms. Calls
# of C keep the GIL, also the one that reads the clock.
NAPS = 40
NAP_NS = 10_000_000
GIL_PROGRAM = f"""
import ctypes, os, threading, time
import gate

C = ctypes.PyDLL(None)
READ = ctypes.create_string_buffer(100)
TIMES = {{"clock": 0}}

def now(file):
    size = C.pread(file, READ, 100, 0)
    return time.monotonic_ns() - int(READ.raw[:size].split()[1])

def starves(file):
    began = now(file)
    time.sleep({NAP_NS / 10**9})  # starves
    TIMES["clock"] += now(file) - began

def starve():
    file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    for _ in range({NAPS}):
        starves(file)

def seizes():
    C.usleep(22500)  # seizes

def seize(starving):
    while starving.is_alive():
        seizes()
        time.sleep(0.004)

def serve():
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    starving = threading.Thread(target=starve)
    seizing = threading.Thread(target=seize, args=(starving,))
    began = time.monotonic_ns()
    starving.start()
    seizing.start()
    starving.join()
    TIMES["whole"] = time.monotonic_ns() - began
    seizing.join()
    gate.flushed()
    print("waited " + str(TIMES).replace("'", '"'), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

with_known_gil = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) or sys.version_info >= (3, 15),
    reason="of another CPython: with a GIL, up to 3.14",
)
LOCK = "lock"
# {function: what it waits for}
KINDS = {
    "naps": "sleep",
    "strides": "sleep",
    "locks": LOCK,
    "flocks": "file lock",
    "pops": LOCK,
    "meets": LOCK,
    "expects": LOCK,
    "reads": "file, pipe or socket",
    "receives": "socket",
    "polls": "event loop or socket",
    "reaps": "child",
}
# {function: the one that ends its waits}
ENDED_BY = {
    "naps": None,
    "strides": None,
    "locks": "holds",
    "flocks": "lends",
    "pops": "puts",
    "meets": "notifies",
    "expects": "sets",
    "reads": None,
    "receives": None,
    "polls": None,
    "reaps": None,
}

# Threads that take one of two locks. Each function writes down whose wait was ended by which other
# one: the last that held the lock.
TAKER = """
def taker_{number}(index):
    if not LOCKS[index].acquire(False):
        LOCKS[index].acquire()
        LEDGER.append(["taker_{number}", LAST[index]])
    time.sleep(0.004)
    LAST[index] = "taker_{number}"
    LOCKS[index].release()
"""
CROWD = f"""
import json, random, threading, time
import gate

LOCKS = [threading.Lock(), threading.Lock()]
LAST = [None, None]
LEDGER = []

{"".join(TAKER.format(number=number) for number in range(6))}

def work(number):
    choose = random.Random(number)
    function = globals()[f"taker_{{number}}"]
    for _ in range(40):
        function(choose.randrange(2))
        time.sleep(choose.uniform(0.002, 0.01))

def serve():
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.flushed()
    print("waited " + json.dumps(LEDGER), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

# Two threads serve requests of one route and one another route, at the same time. A thread of no
# request waits beside them, and so does one that a request starts. asyncio's event loop waits for
# the tasks of a last request.
REQUESTS = """
import asyncio, os, threading, time
import gate
from probescope import _native

CLOCKS = {}
TAKEN = []

def begins():
    with open("/proc/thread-self/schedstat") as file:
        delayed = int(file.read().split()[1])
    return delayed, time.monotonic_ns()

def took(request, delayed, began):
    ended = time.monotonic_ns()
    TAKEN.append((request, ended - began - (begins()[0] - delayed)))

def naps(request, seconds):
    began = begins()
    time.sleep(seconds)
    took(request, *began)

def work(request, seconds):
    for _ in range(20):
        naps(request, seconds)

def serve_one(path, function, *arguments):
    made = _native.Request("GET", path, None)
    outer = _native.enter_request(made)
    function(*arguments)
    _native.enter_request(outer)
    made.done(200, None)

def slow():
    child = threading.Thread(target=work, args=("-", 0.02))
    child.start()
    work("GET /slow", 0.04)
    child.join()

async def rests():
    await asyncio.sleep(0.05)

async def gathers():
    await asyncio.gather(rests(), rests())
    naps("GET /tasks", 0.05)

async def tasks():
    request = _native.Request("GET", "/tasks", None)
    outer = _native.enter_request(request)
    await asyncio.create_task(gathers())
    _native.enter_request(outer)
    request.done(200, None)

def serve():
    gate.on("function__here", "stats__done", "stats__by_request")
    gate.flushed(3)
    threads = [
        threading.Thread(target=serve_one, args=("/orders/17", work, "GET /orders/*", 0.02)),
        threading.Thread(target=serve_one, args=("/orders/18", work, "GET /orders/*", 0.02)),
        threading.Thread(target=serve_one, args=("/slow", slow)),
        threading.Thread(target=work, args=("-", 0.03)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(tasks())
    for request, ns in TAKEN:
        times, all_ns = CLOCKS.get(request, (0, 0))
        CLOCKS[request] = times + 1, all_ns + ns
    gate.flushed()
    print("waited " + str(CLOCKS).translate(str.maketrans("'()", '"[]')), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""


def line_of(mark, text=PROGRAM):
    """Returns the line of the program that ends with this comment."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if line.endswith(f"  # {mark}"))


def traced(program, children, text, name="waits", *options):
    """Returns the JSON of the command on a run of the program, what the program printed, and the
    child.
    """
    started = program(text)
    words = [*COMMAND, "trace", name, "-p", str(started.pid), "--json", *options]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    children.append(Child(words, env={**kept, "LANG": "C.UTF-8"}))
    truth = json.loads(started.line("waited ", within=180))
    children[-1].process.send_signal(signal.SIGINT)
    assert children[-1].wait() == 0, children[-1]
    started.line("report ")
    return json.loads(children[-1].out), truth, children[-1]


def row_of(told, function, what):
    found = [row for row in told["rows"] if (row["function"], row["what"]) == (function, what)]
    assert len(found) == 1, (function, what, told["rows"])
    return found[0]


def blocked(told, function):
    return sum(row["blocked_ns"] for row in told["rows"] if row["function"] == function)


@pytest.mark.smoke
def test_each_wait_has_its_kind_its_line_its_time_and_who_ended_it(switches, program, children):
    told, clocks, child = traced(program, children, PROGRAM)
    for function, what in KINDS.items():
        row = row_of(told, function, what)
        assert row["waits"] == ROUNDS * (STRIDES if function == "strides" else 1), row
        assert (row["line"], row["line_is"]) == (line_of(function), "current"), row
        assert row["longest_ns"] <= row["blocked_ns"] <= clocks[function] * 1.02, (row, clocks)
        # A wait for a lock goes on with one for the GIL, in a row of its own.
        assert blocked(told, function) >= clocks[function] * 0.98 - 2_000_000, (row, clocks)
        by = ENDED_BY[function]
        holders = [(one["function"], one["line"], one["line_is"]) for one in row["holders"]]
        assert holders == ([(by, line_of(by), "current")] if by else []), row
    assert told["known_by"] == "kernel"
    assert told["reach"] and told["reach"][0] in child.err
    assert "the kernel reports waits" in child.err
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)


@pytest.mark.smoke
def test_each_wait_belongs_to_the_request_of_its_thread(switches, program, children):
    told, clocks, _ = traced(program, children, REQUESTS, "waits", "--by-request")
    found = {}
    for row in told["rows"]:
        request = f"{row['method']} {row['route']}" if row["route"] else "-"
        if row["what"] == "event loop or socket":
            assert request == "-", row
        if row["function"] == "naps":
            waits, ns = found.get(request, (0, 0))
            found[request] = waits + row["waits"] * (row["what"] == "sleep"), ns + row["blocked_ns"]
    assert found.keys() == clocks.keys()
    for request, (times, clock) in clocks.items():
        waits, ns = found[request]
        assert waits == times, (request, told["rows"])
        assert clock * 0.98 <= ns <= clock * 1.02, (request, found, clocks)
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)


@with_known_gil
def test_a_wait_for_the_gil_is_told_and_so_is_who_had_it(switches, program, children):
    told, times, _ = traced(program, children, GIL_PROGRAM)
    row = row_of(told, "starves", "GIL")
    assert (row["line"], row["call"]) == (line_of("starves", GIL_PROGRAM), "futex")
    assert row_of(told, "starves", "sleep")["waits"] == NAPS
    whole = blocked(told, "starves")
    assert times["clock"] * 0.98 - 2_000_000 <= whole <= times["clock"] * 1.02, (whole, times)
    assert row["blocked_ns"] >= 0.5 * NAPS * 16_500_000  # half of what it is without other load
    # It is not one for each step of 5 ms. A thread that is woken may find the GIL taken, by the
    # library's own thread. Then it waits once more.
    assert 0.5 * NAPS <= row["waits"] <= 2 * NAPS, row
    # That thread, which ends some of the waits, is in no function.
    by = {(one["function"], one["line"]): one["blocked_ns"] for one in row["holders"]}
    seized = by.pop(("seizes", line_of("seizes", GIL_PROGRAM)), 0)
    assert seized >= 0.25 * row["blocked_ns"], row
    assert sum(by.values()) <= 0.05 * row["blocked_ns"], row


@pytest.mark.full("the gate has gvl on a Python process in the spec of the gem")
@with_known_gil
def test_gvl_has_the_threads_that_wait_for_the_gil(switches, program, children):
    told, times, child = traced(program, children, GIL_PROGRAM, "gvl")
    row = max(told["rows"], key=lambda row: row["total_ns"])
    assert row["waits"] >= 0.5 * NAPS and row["max_ns"] <= row["total_ns"], told["rows"]
    assert (times["clock"] - NAPS * NAP_NS) * 0.9 <= row["total_ns"] <= times["whole"] - NAPS * NAP_NS, row
    assert "the kernel reports waits for the GIL" in child.err


@pytest.mark.full("the gate has who ended waits for locks with one holder each")
def test_holders_of_contended_locks_are_right(switches, program, children):
    told, ledger, _ = traced(program, children, CROWD)
    truth = Counter(map(tuple, ledger))
    seen: Counter = Counter()
    rows = [row for row in told["rows"] if row["what"] == LOCK and str(row["function"]).startswith("taker_")]
    for row in rows:
        for one in row["holders"]:
            seen[row["function"], one["function"]] += one["waits"]
    right = sum((truth & seen).values())
    assert len(ledger) >= 20
    assert right >= 0.95 * len(ledger), (right, truth, seen)
    # A thread that is woken may find the lock taken. Then it waits once more, and its ledger has the
    # last of the two that woke it.
    again = sum(row["waits"] for row in rows) - len(ledger)
    assert right >= 0.95 * (sum(seen.values()) - again), (right, again, truth, seen)


def codes(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from codes(one)


def test_lines_of_instructions_are_those_of_cpython():
    looked_at = 0
    for module in (argparse_file(), __file__):
        with open(module, encoding="utf-8") as file:
            every = list(codes(compile(file.read(), module, "exec")))
        for code in every:
            if len(code.co_linetable) > 2000:
                continue
            for begin, end, line in code.co_lines():
                for offset in {begin, end - 2}:
                    found = line_table.line(code.co_linetable, code.co_firstlineno, offset)
                    assert found == line, (code, offset)
                    looked_at += 1
            assert line_table.line(code.co_linetable, code.co_firstlineno, -2) is None
            assert line_table.line(code.co_linetable, code.co_firstlineno, len(code.co_code)) is None
    assert looked_at > 1000


def test_a_request_whose_name_could_not_be_read_is_unknown():
    result = Result(1, "waits_kernel_by_request")
    sleep = 231  # one more than the number of clock_nanosleep on x86-64
    for request in (0, 5, 6):
        key = f"1,64,0,{sleep},0,0,{request}"
        result.add({"@waits": {key: 10**request}, "@blocked_ns": {key: 7 * 10**request}})
    result.add({"@row": {"1,64": ["f", "a.py", 1, 1]}, "@request": {"1,5": [5, "GET /a"]}})
    rows = report_of("waits_kernel_by_request")(result).rows()
    assert {(row["function"], row["method"], row["route"]): row["waits"] for row in rows} == {
        ("f", None, None): 1,
        ("f", "GET", "/a"): 10**5,
        ("f", None, "(unknown)"): 10**6,
    }


def argparse_file():
    import argparse

    return argparse.__file__


def test_a_line_whose_table_was_not_read_is_the_definitions():
    def f():
        return 1

    code = f.__code__
    words = code.co_linetable + bytes(-len(code.co_linetable) % 64)
    result = Result(1, "waits_kernel")
    start, table = 0x7F0000000000, 0x7F0000001000
    result.known = {"runtime": "python"}
    first, size = code.co_firstlineno, len(code.co_linetable)
    result.add({"@row": {"1,64": ["f", "a.py", first, 1], "1,65": ["g", "a.py", first + 1, 1]}})
    result.add({"@waits": {f"1,64,{start},203,0,0": 3, f"1,65,{start},203,64,{start}": 1}})
    result.add({"@blocked_ns": {f"1,64,{start},203,0,0": 300, f"1,65,{start},203,64,{start}": 100}})
    result.add({"@longest_ns": {f"1,64,{start},203,0,0": 200, f"1,65,{start},203,64,{start}": 100}})
    result.add({"@code": {f"1,{start}": [start, table, size, first]}, "@wall_ns": {"1": 10**9}})

    def told():
        return [
            (row["function"], row["line"], row["line_is"]) for row in report_of("waits_kernel")(result).rows()
        ]

    assert told() == [("f", first, "definition"), ("g", first + 1, "definition")]
    result.add(
        {
            "@table": {
                f"1,{table},{i // 64}": [
                    str(int.from_bytes(words[i + j : i + j + 8], "little")) for j in range(0, 64, 8)
                ]
                for i in range(0, len(words), 64)
            }
        }
    )
    # The code is that of f, and g is defined at another line.
    assert told() == [("f", first, "current"), ("g", first + 1, "definition")]
    (row, other) = report_of("waits_kernel")(result).rows()
    assert (row["waits"], row["blocked_ns"], row["longest_ns"], row["mean_ns"]) == (3, 300, 200, 100)
    assert (row["what"], row["holders"]) == ("lock", [])
    assert [(one["function"], one["waits"]) for one in other["holders"]] == [("f", 1)]


def test_waits_are_refused_where_bpftrace_would_miss_wake_ups():
    waits, syscalls = ["sched:sched_waking"], ["raw_syscalls:sys_enter", "sched:sched_process_exit"]
    new = machine.Bpftrace("bpftrace", "0.24.0")
    machine.check_elsewhere(machine.Bpftrace("bpftrace", "0.23.5"), 1, "waits", waits)
    machine.check_elsewhere(new, 1, "syscalls", syscalls)
    with pytest.raises(CommandError, match="misses switches and wake-ups"):
        machine.check_elsewhere(new, 1, "waits", waits)
