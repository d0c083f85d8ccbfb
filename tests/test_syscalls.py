"""`probescope trace syscalls` on a program that knows which system calls it makes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import pytest
from probescope.command import machine
from probescope.command.errors import CommandError
from probescope.command.programs import program as path_of
from probescope.command.programs import tracepoints
from probescope.command.reports import report_of
from probescope.command.result import Result
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
    # The library itself writes and yields at a fork. This is a call that it does not make.
    os.getpriority(os.PRIO_PROCESS, 0)

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
    ("forks", "getpriority"): 1,
    ("work", STAT): 0,
    ("serve", ".*"): 0,  # it was open when the tracer came
}


def traced(program, children, *options):
    """Returns the JSON of the command on a run of the program."""
    started = program(PROGRAM)
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


def test_only_calls_that_failed_or_were_slow_are_shown(bpf, program, children):
    failed = traced(program, children, "--failed")
    assert failed["rows"]
    assert all(row["failed"] for row in failed["rows"])
    assert called(failed, "fails", ".*", "failed") == 10
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
    assert (told["cut_paths"], told["unread_paths"]) == (0, 0)


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
