"""syscalls, on, offcpu and waits where their counts could go wrong: in greenlets and tasks, in a
container, beside other tracers, in a function that is open when the tracer comes, and in a crowd of
idle threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from tracing import ENVIRONMENT, ROOT, Child, maps_library, wait_for

COMMAND = [sys.executable, "-m", "probescope"]
EVENT = "tracepoint:syscalls:sys_enter_getpriority"
COMMANDS = [["syscalls"], ["on", EVENT], ["offcpu"], ["waits"]]

PROGRAM = """
import asyncio, os, threading, time
import gate
try:
    import greenlet
except ImportError:
    greenlet = None

IDLE = 0

def asks():
    for _ in range(100):
        os.getpriority(os.PRIO_PROCESS, 0)

def in_thread():
    for _ in range(20):
        os.getpriority(os.PRIO_PROCESS, 0)

def naps():
    for _ in range(4):
        time.sleep(0.05)

async def awaits():
    os.getpriority(os.PRIO_PROCESS, 0)
    await asyncio.sleep(0.01)
    os.getpriority(os.PRIO_PROCESS, 0)

async def tasks():
    await asyncio.gather(*(awaits() for _ in range(10)))

def switches():
    for _ in range(10):
        os.getpriority(os.PRIO_PROCESS, 0)
        greenlet.getcurrent().parent.switch()

def greenlets():
    three = [greenlet.greenlet(switches) for _ in range(3)]
    for _ in range(10):
        for one in three:
            one.switch()
            os.getpriority(os.PRIO_PROCESS, 0)

def work():
    asks()
    threads = [threading.Thread(target=in_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(tasks())
    if greenlet:
        greenlets()
    wall, cpu = time.monotonic_ns(), time.thread_time_ns()
    naps()
    return time.monotonic_ns() - wall - (time.thread_time_ns() - cpu)

def serve():  # it is open when the tracers come
    forever = threading.Lock()
    forever.acquire()
    for _ in range(IDLE):
        threading.Thread(target=forever.acquire, daemon=True).start()
    print("ready", flush=True)
    gate.open("go")
    gate.flushed(3)
    for _ in range(7):
        os.getpriority(os.PRIO_PROCESS, 0)
    off = work()
    gate.flushed()
    print(f"called {off} {int(greenlet is not None)}", flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

# Asks until SIGTERM, and prints when it did.
STEADY = """
import os, signal, time
import gate

OVER = []
signal.signal(signal.SIGTERM, lambda *_: OVER.append(1))

def ask():
    os.getpriority(os.PRIO_PROCESS, 0)

def serve():
    asked = []
    print("ready", flush=True)
    while not OVER:
        ask()
        asked.append(time.time_ns())
        time.sleep(0.002)
    print("asked", *asked, flush=True)

serve()
"""


def environment():
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8"}


def waits_for_events(pid):
    """Whether this process is a bpftrace that has attached all its probes."""
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        return name.endswith(b"bpftrace") and "epoll" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:  # it has ended
        return False


def below(pid):
    """Returns all processes below this one."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(number) for words in lists for number in words.split()]
    return [*children, *(each for child in children for each in below(child))]


def start(children, pid, *commands, before=()):
    """Starts commands on a process, and waits until all their probes are attached."""
    started = []
    for words in commands:
        line = [*before, *COMMAND, "trace", *words, "-p", str(pid), "--json"]
        started.append(Child(line, env=environment()))
        children.append(started[-1])
    for one in started:
        wait_for(f"the attach of {one}", lambda one=one: any(map(waits_for_events, below(one.pid))), 180)
    return started


def end(command):
    """Ends a command as Ctrl-C does. Returns its JSON."""
    pid = next(pid for pid in [command.pid, *below(command.pid)] if is_command(pid))
    os.kill(pid, signal.SIGINT)
    assert command.wait() == 0, command
    return json.loads(command.out)


def is_command(pid):
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[0].endswith(os.path.basename(sys.executable).encode()) and b"trace" in words


def by_function(told, figure, **fields):
    found = {}
    for row in told["rows"]:
        if row["function"] and all(row[name] == value for name, value in fields.items()):
            found[row["function"]] = found.get(row["function"], 0) + row[figure]
    return found


def expect_known(syscalls, on, offcpu, waits, line):
    """line: what the program said. offcpu: None where it is refused."""
    off, has_greenlets = map(int, line.split())
    known = {"asks": 100, "in_thread": 60, "awaits": 20}
    if has_greenlets:
        known.update({"switches": 30, "greenlets": 30})
    assert by_function(syscalls, "calls", call="getpriority") == known
    assert by_function(on, "events") == known
    assert all((one["lost"]["unread"], one["lost"]["map_full"]) == (0, 0) for one in (syscalls, on))
    # Those of a function that was open before the tracer came.
    outside = sum(row["events"] for row in on["rows"] if not row["function"])
    assert outside + on["lost"]["untold"] == 7
    (napped,) = (row for row in waits["rows"] if (row["function"], row["what"]) == ("naps", "sleep"))
    assert napped["waits"] == 4
    assert 0.98 * 200_000_000 <= napped["blocked_ns"] <= off
    if offcpu:
        (row,) = (row for row in offcpu["rows"] if row["function"] == "naps")
        # Within 2 %, and 2 ms for the call that the program's own clocks include.
        # Beside other tracers the kernel leaves out switches. The time after one is left over.
        left_over = max(0, offcpu["left_over_ns"])
        told = row["blocked_ns"] + row["queued_ns"]
        assert off * 0.98 - 2_000_000 - left_over <= told <= off * 1.02 + 2_000_000
        assert abs(offcpu["left_over_ns"]) <= 0.02 * offcpu["thread_ns"]


def test_greenlets_tasks_and_threads_beside_300_idle_ones_are_told_apart(bpf, program, children, tmp_path):
    started = program(PROGRAM.replace("IDLE = 0", "IDLE = 300"))
    started.line("ready")
    commands = start(children, started.pid, *COMMANDS)
    (tmp_path / "go").touch()
    line = started.line("called ", within=180)
    told = [end(command) for command in commands]
    expect_known(*told, line)
    assert told[2]["threads"] >= 301
    assert told[2]["thread_ns"] >= 301 * 0.98 * told[2]["seconds"] * 1e9


def contained(source, children, tmp_path):
    """Starts a program as the first process of a PID namespace, like a container. Returns it, and its
    number outside.
    """
    (tmp_path / "app.py").write_text(source)
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    before = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    children.append(
        Child(
            [*before, sys.executable, str(tmp_path / "app.py")],
            env={**ENVIRONMENT, "GATE_DIRECTORY": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)},
            cwd=tmp_path,
        )
    )
    children[-1].line("ready")
    (pid,) = below(children[-1].pid)
    wait_for("its library", lambda: maps_library(pid))
    return children[-1], pid


@pytest.mark.full("another process of the gate has each of these commands")
def test_a_process_in_a_container_is_counted_from_the_host(bpf, children, tmp_path):
    started, pid = contained(PROGRAM, children, tmp_path)
    commands = start(children, pid, *COMMANDS)
    (tmp_path / "go").touch()
    line = started.line("called ", within=180)
    expect_known(*(end(command) for command in commands), line)


@pytest.mark.full("another process of the gate has each of these commands")
def test_in_its_container_a_process_is_counted_too_and_offcpu_is_refused(bpf, children, tmp_path):
    started, pid = contained(PROGRAM, children, tmp_path)
    enter = ["nsenter", "--target", str(pid), "--mount", "--pid"]
    refused = subprocess.run(
        [*enter, *COMMAND, "trace", "offcpu", "-p", "1"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert "numbers of threads in the initial PID namespace" in refused.stderr
    assert "try: run the command on the host" in refused.stderr
    commands = start(children, 1, *(one for one in COMMANDS if one != ["offcpu"]), before=enter)
    (tmp_path / "go").touch()
    line = started.line("called ", within=180)
    syscalls, on, waits = (end(command) for command in commands)
    expect_known(syscalls, on, None, waits, line)


def test_a_second_tracer_counts_the_same_however_soon_its_interval_begins(bpf, program, children):
    started = program(STEADY)
    started.line("ready")
    wait_for("its library", lambda: maps_library(started.pid))
    calls, first = start(children, started.pid, ["calls"], ["on", EVENT])
    told = []
    for _ in range(2):
        words = [*COMMAND, "trace", "on", EVENT, "-p", str(started.pid), "-d", "1", "--json"]
        children.append(Child(words, env=environment()))
        assert children[-1].wait(180) == 0, children[-1]
        told.append(json.loads(children[-1].out))
    (calls, first) = (end(calls), end(first))
    started.process.send_signal(signal.SIGTERM)
    asked = [int(word) for word in started.line("asked ").split()]

    def truth(one, beyond=0):
        begin, over = (ns_of(one["processes"][0][name]) for name in ("begin", "end"))
        # The program reads its clock after the call, and may lose its CPU in between.
        least = sum(begin <= at <= over for at in asked) - 10
        return least, sum(begin <= at <= over + beyond for at in asked) + 10

    for one in told:
        least, most = truth(one)
        assert least <= by_function(one, "events")["ask"] <= most
    least, most = truth(calls)
    assert least <= by_function(calls, "calls")["ask"] <= most
    # After Ctrl-C, events count until bpftrace has detached: some 0.1 s after the last flush.
    least, most = truth(first, 300_000_000)
    assert least <= by_function(first, "events")["ask"] <= most
    assert all(one["lost"]["untold"] <= 1 for one in [first, *told])


def ns_of(text):
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e9)
