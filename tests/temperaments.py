"""Programs that raise exceptions all the time. They differ in how they hold and release the GIL.

Each runs until it is killed. It counts its raises in memory that it shares with the test (Counts).
Counting makes no system call, because that would change how the program holds the GIL.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

THREADS = 64
# For each thread: the number of its raises, and whether it has stopped. After all threads: whether
# they should stop.
FORM = struct.Struct("QQ")
SIZE = THREADS * FORM.size + 8

BEGIN = f"""
import itertools, mmap, os, socket, struct, threading, time, traceback
import gate

FORM = struct.Struct("QQ")
with open(os.path.join(os.environ["GATE_DIRECTORY"], "counts"), "r+b") as file:
    shared = mmap.mmap(file.fileno(), {SIZE})
numbers = itertools.count()

def fail(depth=0):
    if depth:
        return fail(depth - 1)
    raise ValueError("declined")

# Raises until the test stops it. around: called before each raise, and on after the stop.
def always(around, fail=fail):
    at, count = next(numbers) * FORM.size, 0
    while not shared[{SIZE - 8}]:
        around()
        count += 1
        FORM.pack_into(shared, at, count, 0)
        try:
            fail()
        except ValueError:
            pass
    FORM.pack_into(shared, at, count, 1)
    while True:
        around()

def beside(count, *arguments):
    for _ in range(count):
        threading.Thread(target=always, args=arguments, daemon=True).start()

def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

def work():
    for i in range(1000):
        str(i)

def call():
    sum(range(1_500_000))

print("ready", flush=True)
"""

PROGRAMS = {
    "a CPU loop": "always(work)",
    "8 CPU threads": "beside(7, work)\nalways(work)",
    # format_exc() checks the files of the traceback with os.stat(), which releases the GIL.
    "traceback.format_exc()": """
def formatted():
    try:
        fail(20)
    except ValueError:
        traceback.format_exc()
always(lambda: None, formatted)
""",
    "os.stat() every 0.02 ms": "always(lambda: (spin(0.00002), os.stat('.')))",
    "os.stat() every 0.1 ms": "always(lambda: (spin(0.0001), os.stat('.')))",
    "os.stat() every 2 ms": "always(lambda: (spin(0.002), os.stat('.')))",
    "send() and recv()": """
near, far = socket.socketpair()
beside(1, lambda: far.send(far.recv(100)))
always(lambda: (spin(0.00005), near.send(b"x"), near.recv(100)))
""",
    "a parked main thread, 4 busy ones": "beside(4, work)\nthreading.Event().wait()",
    "asyncio": """
import asyncio
async def one():
    at, count = next(numbers) * FORM.size, 0
    while True:
        spin(0.0002)
        await asyncio.sleep(0)
        await asyncio.sleep(0.0005)
        if shared[len(shared) - 8]:
            FORM.pack_into(shared, at, count, 1)
            continue
        count += 1
        FORM.pack_into(shared, at, count, 0)
        try:
            fail()
        except ValueError:
            pass
async def main():
    await asyncio.gather(*[one() for _ in range(5)])
asyncio.run(main())
""",
    "50 threads, served once a second": """
served = threading.Condition()
def wait():
    with served:
        served.wait()
beside(50, wait)
while True:
    time.sleep(1)
    with served:
        served.notify_all()
""",
    "calls of C, 20 ms each": "always(call)",
    "4 threads of such calls": "beside(3, call)\nalways(call)",
}


class Counts:
    """The counts of a program. Must be created before the program starts, in the directory of its
    gates.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "counts"
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SIZE)

    def raised(self) -> int:
        return sum(count for count, _ in self._rows())

    def stop(self) -> None:
        """Makes the threads stop raising."""
        self._shared[SIZE - 8] = 1

    def stopped(self) -> bool:
        return all(done for count, done in self._rows() if count)

    def _rows(self) -> Any:
        return FORM.iter_unpack(self._shared[: SIZE - 8])


def source(name: str) -> str:
    return BEGIN + PROGRAMS[name]
