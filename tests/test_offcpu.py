"""`probescope trace offcpu` on a program that knows how long its functions are off the CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import pytest
from probescope.command import cells, machine, thread_states
from probescope.command.errors import CommandError
from probescope.command.off_cpu import NOT_KNOWN, OTHER
from probescope.command.programs import program as path_of
from probescope.command.programs import tracepoints
from probescope.command.reports import report_of
from probescope.command.result import Result
from probescope.command.thread_states import Quiet
from tracing import Child

COMMAND = [sys.executable, "-m", "probescope"]

PROGRAM = """
import fcntl, json, os, socket, threading, time
import gate

LOCK = threading.Lock()
HELD = threading.Event()
OWN = {}
reader, writer = socket.socketpair()

def naps():
    for _ in range(5):
        time.sleep(0.05)

def listens():
    reader.recv(10)

def waits_for_a_child():
    pid = os.fork()
    if pid == 0:
        time.sleep(0.3)
        os._exit(0)
    os.waitpid(pid, 0)

def holds():
    with LOCK:
        HELD.set()
        time.sleep(0.4)

def ships():
    with LOCK:
        pass

def lends(lent):
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lent.set()
        time.sleep(0.2)  # closing the file releases its lock

def borrows():
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)

def reads_a_pipe(pipe):
    os.read(pipe, 1)

def computes():
    till = time.thread_time() + 0.3
    while time.thread_time() < till:
        pass

def own(function, *arguments):
    wall, cpu = time.monotonic_ns(), time.thread_time_ns()
    function(*arguments)
    OWN[function.__name__] = time.monotonic_ns() - wall - (time.thread_time_ns() - cpu)

def later(seconds, function, *arguments):
    threading.Timer(seconds, function, arguments).start()

def work():
    own(naps)
    later(0.2, writer.send, b"x")
    own(listens)
    own(waits_for_a_child)
    holder = threading.Thread(target=own, args=(holds,))
    holder.start()
    HELD.wait()
    own(ships)
    holder.join()
    lent = threading.Event()
    lender = threading.Thread(target=own, args=(lends, lent))
    lender.start()
    lent.wait()
    own(borrows)
    lender.join()
    ends = os.pipe()
    later(0.2, os.write, ends[1], b"x")
    own(reads_a_pipe, ends[0])
    rival = threading.Thread(target=own, args=(computes,))
    rival.start()
    computes()
    rival.join()

def serve():
    forever = threading.Lock()
    forever.acquire()
    for _ in range(12):  # these have no event at all
        threading.Thread(target=forever.acquire, daemon=True).start()
    time.sleep(0.1)
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    work()
    threads = len(os.listdir("/proc/self/task"))
    gate.flushed()
    print("worked " + json.dumps({"own": OWN, "threads": threads}), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""


# Requests at the same time on threads and in tasks, and a thread outside of requests. They call the
# same function, which keeps how long its threads were off the CPU and how often they blocked.
REQUESTS = """
import asyncio, contextvars, json, resource, threading, time
import gate
import probescope
from probescope import _native

OWN = {}

def naps(path, seconds):
    wall, cpu = time.monotonic_ns(), time.thread_time_ns()
    blocked = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    time.sleep(seconds)
    blocked = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - blocked
    off = time.monotonic_ns() - wall - (time.thread_time_ns() - cpu)
    own = OWN.setdefault(path, [0, 0])
    own[:] = own[0] + off, own[1] + blocked

def requests(path, times, function, *arguments):
    for number in range(times):
        made = _native.Request("GET", f"{path}/{number}", None)
        outer = _native.enter_request(made)
        function(*arguments)
        _native.enter_request(outer)
        made.done(200, None)

def outside():
    for _ in range(15):
        naps("", 0.02)

def elsewhere():
    contextvars.Context().run(time.sleep, 0.05)  # no traced function runs in that context

async def app(scope, receive, send):
    path = scope["path"]
    for _ in range(5):
        naps(path, 0.01 if path == "/task" else 0.03)
        await asyncio.sleep(0.03)
    # No traced function runs in this step of the loop.
    asyncio.get_running_loop().call_soon(time.sleep, 0.05)
    await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})

async def nothing(*_):
    return {"type": "http.request", "body": b"", "more_body": False}

async def both():
    served = probescope.asgi(app)
    scopes = [{"type": "http", "method": "GET", "path": path, "headers": []} for path in ("/task", "/other")]
    await asyncio.gather(*[served(scope, nothing, nothing) for scope in scopes])

def tasks():
    asyncio.run(both())

def serve():
    gate.on("function__here", "stats__by_request", "stats__done")
    gate.flushed(3)
    threads = [
        threading.Thread(target=requests, args=("/slow", 10, naps, "/slow/*", 0.05)),
        threading.Thread(target=requests, args=("/fast", 60, naps, "/fast/*", 0.005)),
        threading.Thread(target=requests, args=("/elsewhere", 1, elsewhere)),
        threading.Thread(target=outside),
        threading.Thread(target=tasks),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.flushed()
    print("worked " + json.dumps(OWN), flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""


def traced(program, children, *options, source=PROGRAM):
    """Returns the JSON of the command on a run of the program, and what the program knows."""
    started = program(source)
    words = [*COMMAND, "trace", "offcpu", "-p", str(started.pid), "--json", *options]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    children.append(Child(words, env={**kept, "LANG": "C.UTF-8"}))
    line = started.line("worked ", within=150)
    children[-1].process.send_signal(signal.SIGINT)
    assert children[-1].wait() == 0, children[-1]
    started.line("report ")
    assert "listens to every system call" in children[-1].err
    return json.loads(children[-1].out), json.loads(line)


def row_of(told, function):
    (row,) = (row for row in told["rows"] if row["function"] == function)
    return row


def off(row):
    return row["blocked_ns"] + row["queued_ns"]


@pytest.mark.smoke
def test_the_times_are_those_of_the_program_and_add_up(switches, program, children):
    told, known = traced(program, children)
    for function, ns in known["own"].items():
        if function != "computes":  # two threads run it, and one has a clock
            # Within 2 %, and 2 ms for the calls that the program's own clocks include.
            # Beside other tracers the kernel leaves out switches. The time after one is left over.
            least = ns * 0.98 - 2_000_000 - max(0, told["left_over_ns"])
            assert least <= off(row_of(told, function)) <= ns * 1.02 + 2_000_000, function
    blocked = sum(told["blocked_ns"].values())
    assert told["on_cpu_ns"] + told["queued_ns"] + blocked + told["left_over_ns"] == told["thread_ns"]
    assert abs(told["left_over_ns"]) <= 0.02 * told["thread_ns"]
    assert sum(map(off, told["rows"])) == blocked + told["queued_ns"]
    # What is left over may be time on the CPU.
    cpu, least = told["cpu_share"] * told["seconds"] * 1e9, told["on_cpu_ns"]
    assert least >= cpu * 0.98 - 20_000_000 - max(0, told["left_over_ns"])
    # If a thread's way off the CPU and its way back were not seen, it was on the CPU in between.
    if not any("that were not seen" in text for text in told["warnings"]):
        assert least <= cpu * 1.02 + 20_000_000
    reasons = {
        name: row_of(told, name)["reasons"][0]["reason"]
        for name in ("naps", "listens", "waits_for_a_child", "ships", "borrows", "reads_a_pipe")
    }
    assert reasons == {
        "naps": "timer",
        "listens": "socket",
        "waits_for_a_child": "child",
        "ships": "lock",
        "borrows": "file_lock",
        "reads_a_pipe": "pipe",
    }
    assert row_of(told, "ships")["woken_by"][0]["function"] == "holds"
    assert row_of(told, "borrows")["woken_by"][0]["function"] == "lends"
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)
    # The idle threads: 12 of them, each for the whole time.
    outside = row_of(told, None)
    assert outside["blocked_ns"] >= 12 * 0.98 * told["seconds"] * 1e9
    assert told["threads"] >= known["threads"] >= 13
    if any("where it is in this CPython is not known" in line for line in told["not_covered"]):
        assert "vm_lock" not in told["blocked_ns"]
    else:
        waits = [one for one in row_of(told, "computes")["reasons"] if one["reason"] == "vm_lock"]
        # Two threads compute for 0.3 s each, one at a time.
        assert sum(one["blocked_ns"] for one in waits) >= 0.15e9


@pytest.mark.smoke
def test_requests_are_told_apart(switches, program, children):
    told, own = traced(program, children, "--by-request", source=REQUESTS)
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)
    unseen = [re.search("not seen: ([0-9]+)", text) for text in told["warnings"]]
    missed = sum(int(found[1]) for found in unseen if found)
    left_over = max(0, told["left_over_ns"]) if missed else 0
    rows = {row["route"] or "": row for row in told["rows"] if row["function"] == "naps"}
    assert sum(row["function"] == "naps" for row in told["rows"]) == len(rows)
    assert set(rows) == set(own) == {"/slow/*", "/fast/*", "", "/task", "/other"}
    for route, (ns, times) in own.items():
        row = rows[route]
        assert row["method"] == ("GET" if route else None)
        # A thread may be pushed off its CPU just before or after the function reads its clocks, or wait
        # for the GIL there. If it is not known where the GIL is, such a wait counts as one for a lock.
        blocked = sum(one["times"] for one in row["reasons"] if one["reason"] != "preempted")
        gil = [one for one in row["reasons"] if one["reason"] in ("vm_lock", "lock")]
        pushed_off = [one for one in row["reasons"] if one["reason"] == "preempted"]
        assert times - missed <= blocked, route
        assert blocked - sum(one["times"] for one in gil) <= times, route
        # If a wake-up ends a thread's turn, the clock of the CPU stops before the switch.
        least = ns * 0.98 - row["times"] * 20_000 - left_over
        assert least <= off(row) <= ns * 1.02 + sum(map(off, gil + pushed_off)), route
    # The loop, its untraced callbacks, and a context without a traced function.
    waits = {
        (row["function"], row["method"], one["reason"]): one["times"]
        for row in told["rows"]
        for one in row["reasons"]
        if row["function"] in ("tasks", "elsewhere") and one["reason"] in ("ready", "timer")
    }
    assert waits.pop(("tasks", None, "ready")) > 0
    unknown = {("tasks", None, "timer"): 2, ("elsewhere", None, "timer"): 1}
    assert set(waits) <= set(unknown)
    for key, times in unknown.items():
        assert times - missed <= waits.get(key, 0) <= times, key
    blocked = sum(told["blocked_ns"].values())
    assert told["on_cpu_ns"] + told["queued_ns"] + blocked + told["left_over_ns"] == told["thread_ns"]
    assert abs(told["left_over_ns"]) <= 0.02 * told["thread_ns"]
    assert sum(map(off, told["rows"])) == blocked + told["queued_ns"]


def test_a_kernel_without_a_tracepoint_is_a_sentence(tmp_path):
    names = tracepoints(path_of("offcpu"))
    assert names == [
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
        "sched:sched_process_exec",
        "sched:sched_process_exit",
        "sched:sched_switch",
        "sched:sched_waking",
        "task:task_newtask",
    ]
    for name in names:
        tmp_path.joinpath(*name.split(":")).mkdir(parents=True)
    machine.check_tracepoints(names, [str(tmp_path)])
    (tmp_path / "sched" / "sched_waking").rmdir()
    with pytest.raises(CommandError, match="has no tracepoint sched:sched_waking"):
        machine.check_tracepoints(names, [str(tmp_path)])


def test_another_namespace_is_refused(monkeypatch):
    monkeypatch.setattr(machine.os, "readlink", lambda path: "pid:[1]")
    with pytest.raises(CommandError, match="numbers of threads in the initial PID namespace"):
        machine.check_own_namespace()
    monkeypatch.setattr(machine.os, "readlink", lambda path: machine.INITIAL_PIDS)
    machine.check_own_namespace()


SECOND = 10**9
# On x86-64: futex, ppoll, read, clock_nanosleep.
FUTEX, PPOLL, READ, NANOSLEEP = (number + 1 << 17 for number in (202, 271, 0, 230))


def result_of(maps, quiet=None, runtime="python", program="offcpu"):
    """Returns a result of one process, whose interval is from 10 s to 20 s of bpftrace's clock."""
    result = Result(7, program)
    result.known = {"runtime": runtime, "version": "3.1.2"}
    result.quiet = quiet
    result.add({"@wall_ns": {"7": 10 * SECOND}, "@cpu_ns": {"7": 8 * SECOND}, "@followed": {"7": 2}})
    result.add({"@began": {"7": 10 * SECOND}, "@ended": {"7": 20 * SECOND}, "@until": {"7": 21 * SECOND}})
    result.add({"@row": {"7,0": ["", "", 0, 7], "7,64": ["f", "a.py", 1, 7], "7,128": ["g", "a.py", 5, 7]}})
    for name, values in maps.items():
        result.add({f"@{name}": values})
    return result


x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="its numbers of system calls")


@x86
def test_what_is_under_way_at_the_end_counts_with_its_part():
    lock, timer = FUTEX + NOT_KNOWN, NANOSLEEP + NOT_KNOWN
    maps = {
        # Thread 8 waited for 3 s, and computes since 18 s. 9 waits since 5 s, and is ready since 19 s.
        # 10 was made at 15 s, and sleeps since 16 s.
        "blocked_ns": {f"7,64,{lock}": 3 * SECOND},
        "times": {f"7,64,{lock}": 2},
        "longest_ns": {f"7,64,{lock}": 2 * SECOND},
        "woken_ns": {f"7,64,{lock},128": 2 * SECOND},
        "on_cpu_ns": {"7": 6 * SECOND},
        "at": {"7,8": 18 * SECOND, "7,9": 5 * SECOND, "7,10": 16 * SECOND},
        "what": {"7,8": 1, "7,9": lock, "7,10": timer},
        "site": {"7,8": 0, "7,9": 64, "7,10": 0},
        "woken": {"7,8": 1, "7,9": 19 * SECOND, "7,10": 1},
        "since": {"7,10": 15 * SECOND},
    }
    report = report_of("offcpu")(result_of(maps))
    more = report.more()
    assert (more["threads"], more["thread_ns"]) == (3, 25 * SECOND)
    assert more["on_cpu_ns"] == 8 * SECOND
    assert more["queued_ns"] == SECOND
    assert more["blocked_ns"] == {"lock": 12 * SECOND, "timer": 4 * SECOND}
    assert more["left_over_ns"] == 0
    first, second = report.rows()
    assert (first["function"], first["blocked_ns"], first["queued_ns"]) == ("f", 12 * SECOND, SECOND)
    assert (first["times"], first["longest_ns"]) == (3, 15 * SECOND)
    assert first["woken_by"] == [{"function": "g", "file": "a.py", "line": 5, "blocked_ns": 2 * SECOND}]
    assert cells.largest_waker(first, "woken_by") == "g at a.py:5 16.7 %"
    assert cells.largest_reason(first, "reasons") == "lock (futex)"
    assert (second["function"], second["outside"], second["blocked_ns"]) == (None, True, 4 * SECOND)
    assert report.warnings(1) == []


@x86
def test_each_request_has_rows_and_the_sums_are_the_same():
    lock, get, lost = FUTEX + NOT_KNOWN, 1 << 48, (1 << 48) + 1
    waits = {
        f"7,64,{lock},0": SECOND,
        f"7,64,{lock},{get}": 2 * SECOND,
        f"7,64,{lock},{lost}": 4 * SECOND,
    }
    maps = {
        "blocked_ns": waits,
        "times": dict.fromkeys(waits, 1),
        "longest_ns": waits,
        "request": {f"7,{get}": [get, "GET /a"]},
        "woken_ns": {f"7,64,{lock},{get},128": SECOND},
        # Thread 8 waits since 15 s, and is ready since 19 s. 9 has no event.
        "at": {"7,8": 15 * SECOND},
        "what": {"7,8": lock},
        "site": {"7,8": 64},
        "works_for": {"7,8": get},
        "woken": {"7,8": 19 * SECOND},
        "thread_ns": {"7": 2 * SECOND},
        "threads": {"7": 1},
    }
    quiet = Quiet([(9, 0, (202, 1 << 40, 128))], 0, {})
    report = report_of("offcpu_by_request")(result_of(maps, quiet, program="offcpu_by_request"))
    names = ("method", "route", "function", "blocked_ns", "queued_ns", "times")
    rows = report.rows()
    assert [tuple(row[name] for name in names) for row in rows] == [
        (None, None, None, 10 * SECOND, 0, 1),
        ("GET", "/a", "f", 6 * SECOND, SECOND, 2),
        (None, "(unknown)", "f", 4 * SECOND, 0, 1),
        (None, None, "f", SECOND, 0, 1),
    ]
    assert [len(row["woken_by"]) for row in rows] == [0, 1, 0, 0]
    more = report.more()
    assert more["blocked_ns"] == {"lock": 21 * SECOND}
    assert (more["queued_ns"], more["left_over_ns"]) == (SECOND, 0)


@x86
def test_threads_without_an_event_slept_or_ran_all_the_time():
    threads = [(8, 0, None), (9, 0, (202, 1 << 40, 128)), (10, 10 * SECOND, None), (11, SECOND, None)]
    result = result_of({"at": {"7,8": 20 * SECOND}, "what": {"7,8": 1}}, Quiet(threads, 5, {}))
    report = report_of("offcpu")(result)
    more = report.more()
    assert (more["threads"], more["thread_ns"], more["on_cpu_ns"]) == (4, 40 * SECOND, 10 * SECOND)
    assert more["blocked_ns"] == {"lock": 10 * SECOND}
    # Thread 8 has no time on the CPU or off it, and 11 ran for a part of the time without an event.
    assert more["left_over_ns"] == 20 * SECOND
    assert report.warnings(1) == [
        "the times of the threads do not add up: 20.0 s (50.0 %) left over of 40.0 s"
    ]
    assert "up to 5 threads that slept" in report.not_covered()[-1]


def test_more_time_on_the_cpu_than_the_process_has_used_is_told():
    maps = {"on_cpu_ns": {"7": 9 * SECOND}, "thread_ns": {"7": 9 * SECOND}, "threads": {"7": 1}}
    result = result_of(maps)
    assert report_of("offcpu")(result).warnings(1) == [
        "of the time on the CPU, 1.00 s were off it: the process's CPU time is less"
    ]
    # Interrupted: the figures of threads cover more than the process's interval.
    result.map("followed")["7"] = "1"
    assert report_of("offcpu")(result).warnings(1) == []


@x86
def test_reasons_come_from_the_call_the_file_and_the_state():
    def reason(what, runtime="python", **files):
        quiet = Quiet([], 0, {int(fd[1:]): kind for fd, kind in files.items()})
        report = report_of("offcpu")(result_of({"times": {f"7,64,{what}": 1}}, quiet, runtime))
        (row,) = report.rows()
        return row["reasons"][0]["reason"]

    deep = 1 << 16
    assert reason(FUTEX + NOT_KNOWN) == "lock"
    assert reason(FUTEX + NOT_KNOWN, "ruby") == "timer_lock_or_child"
    assert reason(PPOLL + 65_534) == "timer"
    assert reason(PPOLL + 65_534, "ruby") == "timer_lock_or_child"
    assert reason(PPOLL + 7, "ruby", _7="event") == "timer_lock_or_child"
    assert reason(PPOLL + 7, "ruby", _7="socket") == "socket"
    assert reason(PPOLL + NOT_KNOWN) == "ready"
    two = PPOLL + 7 + (8 + 1 << 40)
    assert reason(two, "ruby", _7="event", _8="event") == "timer_lock_or_child"
    assert reason(two, "ruby", _7="socket", _8="event") == "socket"
    assert reason(two, "ruby", _7="event", _8="socket") == "ready"
    assert reason(two, _7="socket", _8="event") == "ready"
    assert reason(FUTEX + 7 + (8 + 1 << 40)) == "lock"
    assert reason(READ + 7, _7="pipe") == "pipe"
    assert reason(READ + 7) == "other"
    assert reason(READ + deep + NOT_KNOWN) == "file"
    assert reason(NANOSLEEP + 1) == "timer"
    assert reason((60_001 << 17) + deep + NOT_KNOWN) == "page_fault"
    assert reason((OTHER << 17) + NOT_KNOWN) == "other"


def test_the_states_of_this_process_are_read():
    before = thread_states.state_of(os.getpid())
    ends = os.pipe()
    after = thread_states.state_of(os.getpid())
    quiet = thread_states.between(before, after)
    assert os.getpid() in [thread for thread, _, _ in quiet.threads]
    assert (quiet.files[ends[0]], quiet.more) == ("pipe", 0)
    assert thread_states.state_of(2**22 + 1) == thread_states.State({}, 0, {})
    for end in ends:
        os.close(end)
