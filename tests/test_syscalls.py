"""`probescope trace syscalls` on a program that knows which system calls it makes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import pytest
from probescope.command import machine
from probescope.command.errors import CommandError, Usage
from probescope.command.main import parser
from probescope.command.programs import program as path_of
from probescope.command.programs import tracepoints
from probescope.command.reports import report_of
from probescope.command.result import Result
from probescope.command.trace import check_lines, message, program_name
from tracing import Child

COMMAND = [sys.executable, "-m", "probescope"]

PROGRAM = """
import os, threading, time
import gate

HERE = os.getcwd()

def stats():
    for _ in range(100):
        os.stat(HERE)

def writes(file):
    for _ in range(50):
        os.write(file, b"four")

def fails():
    for _ in range(7):
        try:
            os.stat("/nowhere")
        except OSError:
            pass
    for _ in range(3):
        try:
            os.mkdir(HERE)
        except OSError:
            pass

def raises():
    os.stat(HERE)
    raise RuntimeError("left by an exception")

def outer(file):
    writes(file)
    try:
        raises()
    except RuntimeError:
        os.write(file, b"y")

def generates(file):
    for _ in range(10):
        os.stat(HERE)
        yield
        os.stat(HERE)

def consumes(file):
    for _ in generates(file):
        os.write(file, b"next")

def in_thread():
    for _ in range(30):
        os.stat(HERE)

def naps():
    time.sleep(0.05)
    time.sleep(0.05)

def forks(file):
    pid = os.fork()
    if pid == 0:
        stats()
        os._exit(0)
    os.waitpid(pid, 0)
    os.write(file, b"forked")

def work(file):
    stats()
    outer(file)
    fails()
    consumes(file)
    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    naps()
    forks(file)

def serve():
    file = os.open("/dev/null", os.O_WRONLY)
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    work(file)
    gate.flushed()
    print("called", flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

STAT = r"stat|newfstatat|statx"
# In a process of one thread, CPython's os.fork() makes the library end its own threads, and start
# them again (3.12 and later).
WORKS = """
import os, time, traceback
import gate

def forks():
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

def formats():
    try:
        raise LookupError
    except LookupError as error:
        for _ in range(30):
            for _ in traceback.TracebackException.from_exception(error).format():
                pass
    for _ in range(7):
        time.thread_time()

def serve():
    gate.on("function__here", "stats__done", "backtrace__done")
    gate.flushed(3)
    forks()
    formats()
    gate.flushed()
    print("called", flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

KNOWN = {
    ("stats", STAT): 100,
    ("writes", "write"): 50,
    ("outer", "write"): 1,
    ("raises", STAT): 1,
    ("fails", STAT): 7,
    ("fails", "mkdir|mkdirat"): 3,
    ("generates", STAT): 20,
    ("consumes", "write"): 10,
    ("consumes", STAT): 0,
    ("in_thread", STAT): 120,
    ("forks", "write"): 1,
    ("forks", "sched_yield"): 0,
    # From 3.12 on os.fork() itself counts the threads of the process.
    ("forks", "openat"): int(sys.version_info >= (3, 12)),
    ("work", STAT): 0,
    ("serve", ".*"): 0,  # it was open when the tracer came
}


# The kernel answers getsid() with EPERM, like a seccomp profile of a container.
REFUSED = PROGRAM.replace(
    "    work(file)",
    """
    import ctypes, platform, struct
    seccomp, getsid = {"x86_64": (317, 124), "aarch64": (277, 156)}[platform.machine()]
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, getsid), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    told = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    call = ctypes.CDLL(None).syscall
    assert call(*map(ctypes.c_ulong, (seccomp, 1, 0, ctypes.addressof(told)))) == 0
    asks()
""",
).replace(
    "def serve()",
    """
def asks():
    os.getpriority(os.PRIO_PROCESS, 0)
    for _ in range(50):
        try:
            os.getsid(0)
        except PermissionError:
            pass

def serve()""",
)


def traced(program, children, *options, source=PROGRAM):
    return traced_run(program(source), children, *options)


def traced_run(started, children, *options):
    """Returns the JSON of the command on a run of a program."""
    words = [*COMMAND, "trace", "syscalls", "-p", str(started.pid), "--json", *options]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    children.append(Child(words, env={**kept, "LANG": "C.UTF-8"}))
    started.line("called")
    children[-1].process.send_signal(signal.SIGINT)
    assert children[-1].wait() == 0, children[-1]
    started.line("report ")
    assert "listens to every system call" in children[-1].err
    return json.loads(children[-1].out)


def called(told, function, call, figure="calls"):
    return sum(
        row[figure] for row in told["rows"] if row["function"] == function and re.fullmatch(call, row["call"])
    )


@pytest.mark.smoke
def test_calls_errors_and_bytes_of_each_function_are_counted(bpf, program, children):
    told = traced(program, children)
    assert {key: called(told, *key) for key in KNOWN} == KNOWN
    assert called(told, "writes", "write", "bytes") == 200
    errors = [row["errors"] for row in told["rows"] if row["function"] == "fails" and row["failed"]]
    assert sorted(errors, key=str) == [{"EEXIST": 3}, {"ENOENT": 7}]
    assert all(row["longest_ns"] <= row["total_ns"] for row in told["rows"] if row["function"] == "stats")
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)
    assert told["lost"]["untold"] > 0  # the library's own thread
    assert any("made no traced call" in line for line in told["not_covered"])
    assert told["reach"]


def line_of(text, after="def "):
    """Returns the number of the first line with this text behind the line that begins with `after`."""
    lines = PROGRAM.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(after))
    return next(number for number, line in enumerate(lines) if number >= begin and text in line) + 1


# {(function, call): calls of each of its lines}
KNOWN_LINES = {
    ("generates", STAT): {
        line_of("os.stat", "def generates"): 10,
        line_of("os.stat", "        yield"): 10,
    },
    ("fails", STAT): {line_of('os.stat("/nowhere")'): 7},
    ("fails", "mkdir|mkdirat"): {line_of("os.mkdir"): 3},
    ("outer", "write"): {line_of('b"y"'): 1},
    ("writes", "write"): {line_of('b"four"'): 50},
    ("in_thread", STAT): {line_of("os.stat", "def in_thread"): 120},
    ("forks", "write"): {line_of('b"forked"'): 1},
}


@pytest.mark.smoke
def test_each_line_has_a_row(bpf, program, children):
    told = traced(program, children, "--by", "line")
    assert {key: called(told, *key) for key in KNOWN} == KNOWN
    found = {
        (function, call): {
            row["line"]: row["calls"]
            for row in told["rows"]
            if row["function"] == function and re.fullmatch(call, row["call"])
        }
        for function, call in KNOWN_LINES
    }
    assert found == KNOWN_LINES
    of = {(row["function"], row["call"]): row for row in told["rows"]}
    assert {of[key]["line_is"] for key in of if key[0] in ("stats", "fails", "forks", "naps")} == {"current"}
    # The calls of the loop before the first traced one, and those of the library.
    assert {row["line_is"] for row in told["rows"] if row["function"] in (None, "(probescope)")} <= {None}
    errors = [row["errors"] for row in told["rows"] if row["function"] == "fails" and row["failed"]]
    assert sorted(errors, key=str) == [{"EEXIST": 3}, {"ENOENT": 7}]
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)


# The request "/early" has begun when the tracer comes, under another one.
REQUESTS = """
import contextvars, os, threading
import gate
from probescope import _native

HERE = os.getcwd()

def looks(times):
    for _ in range(times):
        os.stat(HERE)

def request(path, function, *arguments):
    made = _native.Request("GET", path, None)
    outer = _native.enter_request(made)
    function(*arguments)
    _native.enter_request(outer)
    made.done(200, None)

def nested():
    looks(5)
    request("/inner/7", looks, 7)
    looks(11)

def elsewhere():
    contextvars.Context().run(os.stat, HERE)
    os.stat(HERE)  # no traced function has run in this context since it was entered again
    looks(3)
    os.stat(HERE)

def copies():
    contextvars.copy_context().run(looks, 13)
    thread = threading.Thread(target=contextvars.copy_context().run, args=(looks, 17))
    thread.start()
    thread.join()

def early():
    gate.on("function__here", "stats__done")
    gate.flushed(3)
    looks(23)

def serve():
    gate.on("stats__by_request")
    request("/early", early)
    request("/outer", nested)
    request("/elsewhere", elsewhere)
    request("/copies", copies)
    looks(19)
    gate.flushed()
    print("called", flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""


@pytest.mark.smoke
def test_each_request_has_rows(program, attach, children):
    started = program(REQUESTS)
    attach(started, "stats__by_request")
    told = traced_run(started, children, "--by-request")
    found = {}
    for row in told["rows"]:
        if row["function"] in ("looks", "elsewhere") and re.fullmatch(STAT, row["call"]):
            key = (row["function"], row["method"], row["route"])
            found[key] = found.get(key, 0) + row["calls"]
    assert found == {
        ("looks", "GET", "/early"): 23,
        ("looks", "GET", "/outer"): 16,
        ("looks", "GET", "/inner/*"): 7,
        ("looks", "GET", "/elsewhere"): 3,
        ("elsewhere", "GET", "/elsewhere"): 1,
        ("elsewhere", None, None): 2,
        ("looks", "GET", "/copies"): 30,
        ("looks", None, None): 19,
    }
    assert (told["lost"]["unread"], told["lost"]["map_full"]) == (0, 0)


@pytest.mark.smoke
def test_the_calls_of_the_library_have_rows_of_their_own(program, attach, children):
    started = program(WORKS)
    attach(started, "backtrace__done")
    told = traced_run(started, children)
    counts_threads = sys.version_info >= (3, 12)
    assert called(told, "forks", "clone|clone3|fork|vfork") == 20
    assert called(told, "forks", "wait4") == 20
    assert called(told, "forks", "openat") == 20 * counts_threads
    assert called(told, "forks", "write|sched_yield|clock_gettime") == 0
    # A generator of lines begins with a reading of the thread's CPU clock.
    assert called(told, "formats", "clock_gettime") == 7
    assert called(told, "(probescope)", "clock_gettime") >= 30
    if counts_threads:
        assert called(told, "(probescope)", "openat") >= 20
        assert called(told, "(probescope)", "clone|clone3") >= 1
    places = [(row["file"], row["line"]) for row in told["rows"] if row["function"] == "(probescope)"]
    assert set(places) == {(None, None)}
    assert told["lost"]["unread"] == 0


def test_only_calls_that_failed_are_shown(bpf, program, children):
    failed = traced(program, children, "--failed")
    assert failed["rows"]
    assert all(row["failed"] for row in failed["rows"])
    assert called(failed, "fails", ".*", "failed") == 10


@pytest.mark.full("the gate has --slower in the spec of the gem, which runs the same program")
def test_only_calls_that_were_slow_are_shown(bpf, program, children):
    slow = traced(program, children, "--slower", "20ms")
    assert all(row["longest_ns"] >= 20_000_000 for row in slow["rows"])
    assert called(slow, "naps", ".*") == 2
    assert called(slow, "naps", ".*", "total_ns") >= 95_000_000
    assert "not covered: calls shorter than 20.0 ms" in slow["not_covered"]


def test_each_path_has_a_row(bpf, program, children):
    told = traced(program, children, "--files")
    assert called(told, "stats", STAT) == 100
    assert called(told, "writes", ".*") == 0
    rows = [row for row in told["rows"] if row["function"] == "fails"]
    assert {row["path"]: row["errors"] for row in rows if row["call"] != "mkdir"} == {
        "/nowhere": {"ENOENT": 7}
    }
    (made,) = (row for row in rows if row["call"].startswith("mkdir"))
    (stats,) = (row for row in told["rows"] if row["function"] == "stats")
    assert (made["path"], made["errors"]) == (stats["path"], {"EEXIST": 3})
    # From 3.12 on os.fork() opens a file. An fstat() of glibc can be a call with an empty path.
    empty = [(row["function"], row["call"]) for row in told["rows"] if not row["path"]]
    assert empty in ([], [("forks", "newfstatat")] * (sys.version_info >= (3, 12)))
    assert (told["cut_paths"], told["unread_paths"]) == (0, len(empty))


def test_calls_that_seccomp_refuses_are_counted_and_are_in_no_row(bpf, program, children):
    told = traced(program, children, source=REFUSED)
    assert called(told, "asks", "getpriority") == 1
    assert called(told, "asks", "getsid") == 0
    assert told["half_told"] >= 50
    assert any(f"{told['half_told']} calls of which the kernel told only" in s for s in told["not_covered"])


def test_a_kernel_without_a_tracepoint_is_a_sentence(tmp_path):
    names = tracepoints(path_of("syscalls"))
    assert names == [
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
        "sched:sched_process_exec",
        "sched:sched_process_exit",
    ]
    for name in names:
        tmp_path.joinpath(*name.split(":")).mkdir(parents=True)
    machine.check_tracepoints(names, [str(tmp_path)])
    (tmp_path / "raw_syscalls" / "sys_exit").rmdir()
    with pytest.raises(CommandError, match="has no tracepoint raw_syscalls:sys_exit"):
        machine.check_tracepoints(names, [str(tmp_path)])
    with pytest.raises(CommandError, match="lists no tracepoints"):
        machine.check_tracepoints(names, [str(tmp_path / "none")])
    machine.check_tracepoints([], [str(tmp_path / "none")])


def test_a_namespace_in_which_bpftrace_has_no_numbers_is_refused(monkeypatch):
    monkeypatch.setattr(machine.os, "readlink", lambda path: f"pid:[{1 + ('self' in path)}]")
    with pytest.raises(CommandError, match="process 7 is in a PID namespace below this one"):
        machine.check_namespace(7)
    monkeypatch.setattr(
        machine.os, "readlink", lambda path: machine.INITIAL_PIDS if "self" in path else "pid:[1]"
    )
    machine.check_namespace(7)


def test_rows_of_one_name_are_merged_whatever_their_addresses():
    result = Result(1, "syscalls")
    call = 2  # write, one more than its number on x86-64
    result.add({"@row": {"1,64,2": ["f", "a.py", 1, call], "1,128,2": ["f", "a.py", 1, call]}})
    result.add({"@calls": {"1,64,2": 10, "1,128,2": 200}, "@total_ns": {"1,64,2": 40, "1,128,2": 500}})
    result.add({"@longest_ns": {"1,64,2": 7, "1,128,2": 5}, "@failed": {"1,64,2": 3, "1,128,2": 1}})
    result.add({"@errno": {"1,64,2,2": 3, "1,128,2,2": 1}, "@wall_ns": {"1": 10**9}})
    (row,) = report_of("syscalls")(result).rows()
    assert (row["calls"], row["total_ns"], row["longest_ns"]) == (210, 540, 7)
    assert (row["failed"], row["errors"]) == (4, {"ENOENT": 4})
    assert row["mean_ns"] == 3


def test_calls_whose_function_could_not_be_read_have_a_row_and_are_counted():
    result = Result(1, "syscalls")
    result.add({"@row": {"1,64,2": ["f", "a.py", 1, 2], "1,0,2": ["", "", 0, 2]}})
    result.add({"@calls": {"1,64,2": 10, "1,0,2": 5, "1,1,2": 200, "1,128,2": 3000}})
    result.add({"@unread": {"1": 200}, "@unnamed": {"1,128,2": 3000}, "@wall_ns": {"1": 10**9}})
    rows = report_of("syscalls")(result).rows()
    assert {row["function"]: row["calls"] for row in rows} == {"f": 10, None: 5, "(unknown)": 3200}
    assert result.lost()["unread"] == 3200


def test_calls_with_one_end_are_counted_up_to_the_last_flush():
    result = Result(1, "syscalls")
    result.add({"@half_told": {"1,0": 2, "1,700": 3, "1,900": 161}, "@ended": {"1": 900}})
    report = report_of("syscalls")(result)
    assert report.more()["half_told"] == 5
    assert any("5 calls of which the kernel told only" in line for line in report.not_covered())


def test_a_line_whose_table_was_not_read_is_the_definitions():
    def f():
        return 1

    result = Result(1, "syscalls_lines")
    code = f.__code__
    size, first, start, table = len(code.co_linetable), code.co_firstlineno, 1 << 40, 1 << 41
    for site, name, line, times in [(64, "f", first, 1), (128, "g", first + 1, 10), (0, "", 0, 100)]:
        key = f"1,{site},2,{start if site else 0}"
        result.add({"@row": {key: [name, "a.py", line, 2]}, "@calls": {key: times}})
    result.add({"@calls": {f"1,1,2,{start}": 1000}, "@wall_ns": {"1": 10**9}})
    result.add({"@code": {f"1,{start}": [start, table, size, first]}})

    def told():
        return {
            (row["function"], row["line"], row["line_is"]): row["calls"]
            for row in report_of("syscalls_lines")(result).rows()
        }

    rest = {("g", first + 1, "definition"): 10, (None, None, None): 100, ("(unknown)", None, None): 1000}
    assert told() == {("f", first, "definition"): 1, **rest}
    words = code.co_linetable + bytes(-size % 64)
    for i in range(0, len(words), 64):
        entry = [str(int.from_bytes(words[i + j : i + j + 8], "little")) for j in range(0, 64, 8)]
        result.add({"@table": {f"1,{table},{i // 64}": entry}})
    # The code is that of f, and g is defined at another line.
    assert told() == {("f", first, "current"): 1, **rest}


def test_lines_are_those_of_syscalls():
    def chosen(*words):
        return program_name(parser().parse_args(["trace", *words, "-p", "1"]))

    assert chosen("syscalls", "--by", "line") == "syscalls_lines"
    with pytest.raises(Usage, match="--by of syscalls takes line, and not 'file'"):
        chosen("syscalls", "--by", "file")
    for words in (("hot", "--by", "line"), ("syscalls", "--by", "line", "--files")):
        with pytest.raises(Usage, match="--by line is for syscalls, without --files"):
            chosen(*words)


class OfRuby:
    pid = 7

    def to_dict(self):
        return {"runtime": "ruby", "probes": {}}


def test_lines_of_ruby_are_refused_and_those_of_an_unread_process_are_not():
    path = path_of("syscalls_lines")
    with pytest.raises(Usage, match="the lines of Ruby are not known to the kernel"):
        check_lines(path, OfRuby())
    check_lines(path_of("syscalls"), OfRuby())
    check_lines(path, None)


def test_paths_that_differ_only_in_bytes_that_are_no_utf_8_have_rows_of_their_own():
    program = f"syscalls_files_{os.uname().machine}"
    result = Result(1, program)
    for line in (
        rb'{"@file": {"1,0,5,2,a\uffffffff": "a\uffffffff", "1,0,5,2,a\xfe": "a\xfe"}}',
        rb'{"@calls": {"1,0,5,2,a\uffffffff": 10, "1,0,5,2,a\ufffffffe": 200}}',
    ):
        result.add(message(b'{"type": "map", "data": %b}' % line.replace(rb"\xfe", b"\xfe"))[1])
    rows = report_of(program)(result).rows()
    assert sorted((row["path"], row["calls"]) for row in rows) == [("a\ufffd", 10), ("a\ufffd", 200)]


def test_a_request_whose_name_could_not_be_read_is_unknown():
    result = Result(1, "syscalls_by_request")
    for request in (0, 5, 6):
        key = f"1,64,2,{request}"
        result.add({"@row": {key: ["f", "a.py", 1, 2, request]}, "@calls": {key: 10**request}})
    result.add({"@calls": {"1,1,2,5": 7}, "@request": {"1,5": [5, "GET /a"]}, "@wall_ns": {"1": 10**9}})
    rows = report_of("syscalls_by_request")(result).rows()
    assert {(row["function"], row["method"], row["route"]): row["calls"] for row in rows} == {
        ("f", None, None): 1,
        ("f", "GET", "/a"): 10**5,
        ("f", None, "(unknown)"): 10**6,
        ("(unknown)", "GET", "/a"): 7,
    }


def test_a_process_that_reports_no_requests_is_named():
    def said(program, flags):
        result = Result(1, program)
        result.known = {"flags": flags}
        return report_of(program)(result).silent()

    named = ["nothing in process 1 tells of requests or jobs: `use Probescope::Rack`"]
    for program in ("requests", "hot_by_request", "syscalls_by_request"):
        assert [text[: len(named[0])] for text in said(program, ["watcher"])] == named
        assert said(program, ["watcher", "requests"]) == []
    assert said("syscalls", ["watcher"]) == []


def test_paths_are_not_told_apart_by_request():
    def chosen(*words):
        return program_name(parser().parse_args(["trace", *words, "-p", "1", "--by-request"]))

    assert chosen("syscalls") == "syscalls_by_request"
    assert chosen("syscalls", "--by", "line") == "syscalls_lines_by_request"
    for words in (["syscalls", "--files"], ["syscalls_files_x86_64"]):
        with pytest.raises(Usage, match="--files takes no --by-request"):
            chosen(*words)
