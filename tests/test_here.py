"""The record by which a tracer's program finds the function in which a thread is.

At each stage the program says in which function its threads are, and waits. The test stops it and
reads the records, from the addresses and offsets that function__here told, in /proc/PID/mem.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import re
import signal
import struct
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

import pytest
from probescope.abi import PROBES
from tracing import Run, start_tracer, stop_tracer, text_of, wait_for

FIELDS = list(PROBES["function__here"].more)
PROBE = {"function__here": FIELDS}
BEGIN = """
import gate, threading
me = threading.get_native_id()
gate.on("function__here")
gate.flushed(1)
"""


class Here:
    """Reads records as a tracer's program does."""

    def __init__(self, pid: int) -> None:
        self._memory = open(f"/proc/{pid}/mem", "rb", buffering=0)  # noqa: SIM115

    def stack(self, record: int) -> int:
        """Returns the address of the stack that a record names, or 0."""
        return self._word(record)

    def function(self, record: int) -> Optional[str]:
        """Returns the name of the innermost open call."""
        stack, layout, epoch, _, _, _, names = self._read(record, "7Q")
        frames, depth, own_epoch, size, row, _, site = layout.to_bytes(8, "little")[:7]
        if not stack or self._half(stack + own_epoch) != self._half(epoch):
            return None
        calls = self._half(stack + depth)
        if not calls:
            return None
        frame = self._word(stack + frames) + (calls - 1) * size
        name = self._word(self._word(self._word(frame + row) + site) + (names & 255))
        return os.pread(self._memory.fileno(), 256, name).split(b"\0")[0].decode()

    def _read(self, address: int, form: str) -> Any:
        form = "<" + form
        return struct.unpack(form, os.pread(self._memory.fileno(), struct.calcsize(form), address))

    def _word(self, address: int) -> int:
        return self._read(address, "Q")[0]

    def _half(self, address: int) -> int:
        return self._read(address, "I")[0]


def records(run: Any) -> Dict[int, int]:
    """Returns the address of each thread's record."""
    return {event["thread_id"]: event["record"] for event in run.events("function__here")}


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(
            f"{pid} stopped",
            lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T",
        )
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def look(run: Any, name: str, pid: Optional[int] = None) -> Dict[int, int]:
    """Compares a stage. Returns the records of its threads."""
    pid = pid or run.program.pid
    told = {
        int(number): function for number, function in json.loads(run.program.line(f"stage {name} ")).items()
    }

    def known() -> Dict[int, int]:
        return {number: record for number, record in records(run).items() if number in told}

    try:
        wait_for(f"records of all threads of {name}\n{run.program}", lambda: len(known()) == len(told))
        found = known()
        with stopped(pid):
            here = Here(pid)
            functions = {number: here.function(record) for number, record in found.items()}
        assert functions == {number: told[number] for number in found}, name
        return found
    finally:
        run.open(name)


def test_leads_to_the_function_through_exceptions_generators_and_tasks(trace):
    run = trace(
        BEGIN
        + """
import asyncio

def inner():
    gate.stage("inner", "inner")

def outer():
    inner()
    gate.stage("outer", "outer")

def fails():
    raise LookupError

def deep():
    fails()

def rescues():
    try:
        deep()
    except LookupError:
        gate.stage("rescued", "rescues")

def gives():
    gate.stage("given", "gives")
    yield 1
    gate.stage("resumed", "gives")
    yield 2

def takes():
    some = gives()
    next(some)
    gate.stage("between", "takes")
    next(some)
    del some
    gate.stage("taken", "takes")

async def first():
    await asyncio.sleep(0)
    gate.stage("first", "first")

async def second():
    await asyncio.sleep(0)
    gate.stage("second", "second")

async def both():
    await asyncio.gather(first(), second())
    gate.stage("both", "both")

outer()
gate.stage("outside", None)
rescues()
takes()
asyncio.run(both())
gate.stage("end", None)
gate.done()
""",
        PROBE,
        finish=False,
    )
    stages = "inner outer outside rescued given between resumed taken first second both end"
    for stage in stages.split():
        look(run, stage)
    run.finish()


def test_is_right_for_each_of_many_threads_and_names_nothing_where_one_has_ended(trace):
    run = trace(
        BEGIN
        + """
import gc, queue, time

some = queue.Queue()

def waits():
    some.get()
    raise KeyError

def step():
    return 1

def start(target, *args):
    threads = [threading.Thread(target=target, args=args, daemon=True) for _ in range(20)]
    for thread in threads: thread.start()
    return threads

def ends():
    threading.excepthook = lambda args: None
    waiting, outside = start(waits), start(gate.then_sleep, step)
    time.sleep(0.3)
    at = {thread.native_id: "waits" for thread in waiting}
    at.update({thread.native_id: None for thread in outside})
    at[me] = "ends"
    gate.stage("threads", at)
    for _ in waiting: some.put(1)
    for thread in waiting: thread.join()
    ended = {thread.native_id: None for thread in waiting}
    del waiting, thread
    gc.collect()
    gate.stage("ended", ended)

ends()
gate.done()
""",
        PROBE,
        finish=False,
    )
    look(run, "threads")
    found = look(run, "ended")
    here = Here(run.program.pid)
    assert {here.stack(record) for record in found.values()} == {0}
    run.finish()


def test_is_right_in_a_forked_child_in_which_other_threads_have_no_record(trace, children):
    run = trace(
        BEGIN
        + """
import os, queue, time

def waits():
    queue.Queue().get()

def step():
    return 1

def in_child():
    gate.stage("child", {os.getpid(): "in_child"})

def forks():
    for _ in range(5): threading.Thread(target=waits, daemon=True).start()
    time.sleep(0.3)
    if os.fork() == 0:
        step()  # at its first event the kernel takes the parent's tracer out of the child
        gate.off("function__here")
        print("child", os.getpid(), flush=True)
        gate.on("function__here")
        gate.flushed(1)
        in_child()
        os._exit(0)
    gate.stage("parent", "forks")

forks()
gate.done()
""",
        PROBE,
        finish=False,
    )
    child = int(run.program.line("child "))
    fields = {"stats__done": ["sequence", "rows", "dropped"], **PROBE}
    children.append(start_tracer(child, text_of(fields)))
    of_child = Run(run.program, children[-1], fields, run.directory)
    run.program.line("stage child ")
    here = Here(child)
    others = {record for number, record in records(run).items() if number != run.program.pid}
    assert len(others) == 5
    assert {here.stack(record) for record in others} == {0}
    assert look(of_child, "child", pid=child) == {child: records(run)[run.program.pid]}
    stop_tracer(of_child.tracer)
    look(run, "parent")
    run.finish()


def test_follows_greenlets(trace):
    pytest.importorskip("greenlet")
    run = trace(
        """
import greenlet
"""
        + BEGIN
        + """
def worker():
    gate.stage("worker", "worker")
    leaves()
    gate.stage("again", "worker")

def leaves():
    greenlet.getcurrent().parent.switch()
    gate.stage("back", "leaves")

def quick():
    return 1

def drives():
    one, two = greenlet.greenlet(worker), greenlet.greenlet(quick)
    one.switch()
    gate.stage("beside", "drives")
    two.switch()
    gate.stage("over", "drives")
    crowd = [greenlet.greenlet(leaves) for _ in range(100)]
    for each in crowd: each.switch()
    gate.stage("crowd", "drives")
    del crowd, each
    gate.stage("killed", "drives")
    one.switch()
    gate.stage("after", "drives")

drives()
gate.stage("outside", None)
gate.done()
""",
        PROBE,
        finish=False,
    )
    for stage in ("worker", "beside", "over", "crowd", "killed", "back", "again", "after", "outside"):
        look(run, stage)
    run.finish()


def test_leads_to_functions_of_the_program_only_at_whatever_moment_it_is_stopped(trace):
    run = trace(
        BEGIN
        + """
import random

def dives(depth):
    return dives(depth - 1) if depth else step()

def step():
    return 1

def fails():
    raise LookupError

def gives():
    for number in range(3):
        yield dives(number)

def takes():
    some = gives()
    return next(some) + next(some)

def tries():
    try:
        dives(random.randrange(40))
        fails()
    except LookupError:
        return 1

def works(rounds):
    while rounds:
        random.choice((takes, tries))()
        rounds -= 1

def renews():
    while True:
        short = threading.Thread(target=works, args=(50,))
        short.start()
        short.join()

for _ in range(4): threading.Thread(target=works, args=(-1,), daemon=True).start()
threading.Thread(target=renews, daemon=True).start()
gate.open("enough")
gate.done()
""",
        PROBE,
        finish=False,
    )
    wait_for("a record for each thread", lambda: len(records(run)) > 4)
    here = Here(run.program.pid)
    found = set()
    for _ in range(300):
        time.sleep(random.random() / 200)
        with stopped(run.program.pid):
            found |= {here.function(record) for record in set(records(run).values())}
    names = {"dives", "step", "fails", "gives", "takes", "tries", "works", "renews"}
    assert found - {None} <= names
    assert len(found & names) > 3
    run.open("enough")
    run.finish()


def test_fires_again_for_a_tracer_that_comes_later(trace, children):
    run = trace(
        BEGIN
        + """
import time

def step():
    time.sleep(0.01)

def steps():
    while True: step()

threading.Thread(target=steps, daemon=True).start()
gate.open("second")
gate.done()
""",
        PROBE,
        finish=False,
    )
    wait_for("the first event", lambda: records(run))
    children.append(start_tracer(run.program.pid, text_of(PROBE)))
    second = children[-1]

    def found() -> Any:
        lines = [line.split("\t") for line in second.out.splitlines() if line.startswith("function__here\t")]
        return lines if len(lines) >= 4 else None

    place = FIELDS.index("thread_id") + 1
    told = {int(line[place]): int(line[1]) for line in wait_for(f"events of {second}", found)}
    assert told.items() <= records(run).items()
    stop_tracer(second)
    run.open("second")
    run.finish()


@pytest.mark.full("the gate has the waits for the GIL, which are found by its futexes")
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="of another CPython: with a GIL"
)
def test_the_futexes_of_a_wait_for_the_gil_are_where_it_says(trace):
    run = trace(
        BEGIN
        + """
import time

def waits():
    while True: time.sleep(0.001)

def computes():
    end = time.perf_counter() + 3
    while time.perf_counter() < end: pass

thread = threading.Thread(target=waits, daemon=True)
thread.start()
gate.open("go")
print("waiting", thread.native_id, flush=True)
computes()
gate.done()
""",
        PROBE,
        finish=False,
    )
    wait_for("the first event", lambda: records(run))
    event = run.events("function__here")[0]
    if sys.version_info >= (3, 15):
        assert event["gil"] == event["gil_bytes"] == 0
    run.open("go")
    waiting = int(run.program.line("waiting "))
    futex = {"x86_64": "202", "aarch64": "98"}[platform.machine()]
    calls = set()
    while "report" not in run.program.out:
        call = re.match(r"(\d+) (0x\w+)", Path(f"/proc/{run.program.pid}/task/{waiting}/syscall").read_text())
        if call and call[1] == futex:
            calls.add(int(call[2], 16))
    if event["gil"]:
        assert calls
        assert {event["gil"] <= call < event["gil"] + event["gil_bytes"] for call in calls} == {True}
    run.finish()
