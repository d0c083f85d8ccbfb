"""Compares the shares of samples with the program's own clocks. Many runs of the same program show
how much of a difference is chance.

    sudo python bench/shares.py [PROGRAM...] [--runs 10] [--seconds 4] [--spinners 4] [--apart]

probescope must be importable.

Each run starts a program that works for this many seconds of CPU time and measures its functions by
the CPU clocks of their threads. A bpftrace reads its samples. Spinners are other processes that use
all the CPU they get.

Prints a line for each function: its share by the program's clocks and by the samples, over all
runs; the mean difference of the samples in points, with its standard error; the standard deviation
between runs, and the one by chance for that many samples; the worst run. With --apart, spinners
have their own sessions, like other services: the kernel divides CPUs between sessions first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from tracing import Run, maps_library, start_program, start_tracer, text_of, wait_for  # noqa: E402

FIELDS = {
    "sample__stats": ["function", "self", "self_samples"],
    "stats__done": ["sequence", "samples_missed"],
}

COMMON = """
import asyncio, concurrent.futures, gate, time, zlib

clocks = {}

def add(name, seconds):
    clocks[name] = clocks.get(name, 0) + seconds

def timed(function):
    start = time.thread_time()
    function()
    add(function.__name__, time.thread_time() - start)

def run_for(seconds, *functions):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        for function in functions: function()

def heavy():
    n = 0
    while n < 60_000: n += 1

def light():
    n = 0
    while n < 20_000: n += 1

def trivial():
    return 1

number = 10 ** 20_000
def product():
    return number * number

data = bytes(200_000)
def checksum():
    return zlib.crc32(data)

gate.on("sample__stats")
gate.flushed(1)
seconds = SECONDS
"""

POOL = """
def job():
    start = time.thread_time()
    n = 0
    for i in range(ADDITIONS): n += i * i
    used.append(time.thread_time() - start)

used = []
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    pending, begun = set(), time.process_time()
    while time.process_time() < begun + seconds:
        while len(pending) < 2: pending.add(pool.submit(job))
        done, pending = concurrent.futures.wait(pending, return_when="FIRST_COMPLETED")
    concurrent.futures.wait(pending)
    whole = time.process_time() - begun
clocks = {"job": sum(used), "(other)": whole - sum(used)}
"""

# Each program fills `clocks` while it works: {function: seconds of CPU time}.
PROGRAMS = {
    "pool-0.2ms": POOL.replace("ADDITIONS", "3_000"),
    "pool-2ms": POOL.replace("ADDITIONS", "30_000"),
    "pool-20ms": POOL.replace("ADDITIONS", "300_000"),
    # A thread for each job of some 1 ms, and work of the main thread.
    "short-threads": """
import threading
def first():
    n = 0
    while n < 6_000: n += 1
def second():
    n = 0
    while n < 12_000: n += 1
def job():
    timed(first)
    timed(second)
ends = time.process_time() + seconds
while time.process_time() < ends:
    for _ in range(10):
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
    timed(heavy)
""",
    # A call of C that holds the GIL, and a call after it.
    "product": "run_for(seconds, *(lambda f=f: timed(f) for f in (product, trivial, light, trivial)))",
    "c-calls": "run_for(seconds, *(lambda f=f: timed(f) for f in "
    "(product, trivial, light, checksum, trivial)))",
    # Long system calls, during which a kernel without preemption gives the CPU to no other thread.
    "system-calls": """
import socket
data = bytes(800_000)
listening = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listening.getsockname())
other, _ = listening.accept()
def send(): one.sendall(data)
def brief():
    n = 0
    while n < 5_000: n += 1
def receive():
    left = len(data)
    while left: left -= len(other.recv(left))
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2_000_000)
other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_000_000)
run_for(seconds, *(lambda f=f: timed(f) for f in (send, receive, brief)))
""",
    "loops": "run_for(seconds, lambda: timed(heavy), lambda: timed(light))",
    # Short work between readings of the clock, at which a kernel may take the CPU away. The
    # spinners do the same.
    "clocks": """
import os, subprocess, sys
for _ in range(2 * len(os.sched_getaffinity(0))):
    code = "import os, sys, time\\nwhile os.getppid() == int(sys.argv[1]): time.thread_time()"
    subprocess.Popen([sys.executable, "-S", "-c", code, str(os.getpid())])
def brief():
    n = 0
    while n < 4_000: n += 1
begun, used = time.process_time(), 0
ends = before = time.thread_time()
while before < ends + seconds:
    brief()
    after = time.thread_time()
    used += after - before
    before = after
clocks = {"brief": used, "(other)": time.process_time() - begun - used}
""",
    # The collector uses other memory than the rest, and a finalizer runs in the middle of it.
    "collections": """
import gc
kept = [[n] for n in range(10_000)]
def inside(): return clocks.get("heavy", 0) + clocks.get("(garbage collection)", 0)
class Finalized:
    def __init__(self): self.itself = self
    def __del__(self): timed(heavy)
def told(phase, _info):
    global began, before
    if phase == "start": began, before = time.thread_time(), clocks.get("heavy", 0)
    else: add("(garbage collection)", time.thread_time() - began - clocks.get("heavy", 0) + before)
def litter():
    start, already = time.thread_time(), inside()
    for _ in range(30_000): [].append([])
    Finalized()
    gc.collect()
    add("litter", time.thread_time() - start - inside() + already)
gc.callbacks.append(told)
run_for(seconds, litter)
""",
    # Work that begins after a wait each time, and ends before the scheduler's slice does.
    "woken": """
def first():
    n = 0
    while n < 8_000: n += 1
def second():
    n = 0
    while n < 8_000: n += 1
def third():
    n = 0
    while n < 8_000: n += 1
run_for(seconds, lambda: time.sleep(0.003), *(lambda f=f: timed(f) for f in (first, second, third)))
""",
    # The same work, with the clocks read once in a while and not around each call.
    "loops-unclocked": """
def heavies():
    for _ in range(20): heavy()
def lights():
    for _ in range(20): light()
def measured(function, name):
    start = time.thread_time()
    function()
    add(name, time.thread_time() - start)
run_for(seconds, lambda: measured(heavies, "heavy"), lambda: measured(lights, "light"))
""",
    "asyncio": """
async def inner(): timed(heavy)
async def outer():
    await inner()
    timed(light)
    await asyncio.sleep(0)
async def main():
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        for _ in range(20): await asyncio.gather(outer(), outer())
asyncio.run(main())
""",
}


def run_once(source, seconds):
    """Returns the program's own clocks, and CPU time and number of each function's samples."""
    with tempfile.TemporaryDirectory() as directory:
        whole = COMMON.replace("SECONDS", str(seconds)) + source + "\ngate.flushed(2)\ngate.done(**clocks)\n"
        program = start_program(whole, Path(directory), env={"GATE_ALSO": "stats__done"})
        try:
            wait_for("the library", lambda: maps_library(program.pid) or program.process.poll() is not None)
            tracer = start_tracer(program.pid, text_of(FIELDS))
            try:
                run = Run(program, tracer, FIELDS, Path(directory)).finish(within=60 + 60 * seconds)
            finally:
                tracer.kill()
        finally:
            program.kill()
        rows = {
            name: row for name, row in run.totals("sample__stats").items() if not name.startswith("gate.")
        }
        return run.report, rows


def shares(clocks, rows):
    """Returns {function: (true, said)} and the number of samples."""
    named = [name for name in clocks if name != "(other)"]
    said = {name: rows.get(name, {"self": 0})["self"] for name in named}
    if "(other)" in clocks:
        said["(other)"] = sum(row["self"] for row in rows.values()) - sum(said.values())
        samples = sum(row["self_samples"] for row in rows.values())
    else:
        samples = sum(rows[name]["self_samples"] for name in named if name in rows)
    true, all_said = sum(clocks.values()), sum(said.values())
    return {name: (clocks[name] / true, said[name] / all_said) for name in clocks}, samples


def measure(name, options):
    found, samples = {}, []
    for _ in range(options.runs):
        told, number = shares(*run_once(PROGRAMS[name], options.seconds))
        samples.append(number)
        for function, pair in told.items():
            found.setdefault(function, []).append(pair)
    for function, pairs in found.items():
        if function == "(other)":
            continue
        true, said = (statistics.mean(values) for values in zip(*pairs))
        off = [100 * (mine - theirs) for theirs, mine in pairs]
        spread = statistics.stdev(off) if len(off) > 1 else 0
        chance = 100 * (true * (1 - true) / statistics.mean(samples)) ** 0.5
        error = spread / len(off) ** 0.5
        print(
            f"{name:16} {function:9} true {true:6.1%}  said {said:6.1%}  "
            f"off by {statistics.mean(off):+5.1f} ± {error:.1f}  "
            f"runs {spread:4.1f} apart, by chance {chance:.1f}; "
            f"worst {max(off, key=abs):+.1f}  {sum(samples)} samples",
            flush=True,
        )


@contextlib.contextmanager
def spinners(number, apart):
    code = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", code, str(os.getpid())], start_new_session=apart)
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--spinners", type=int, default=0)
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    print(
        f"CPython {platform.python_version()}, {len(os.sched_getaffinity(0))} CPUs, "
        f"Linux {platform.release()}, "
        f"load {os.getloadavg()[0]:.1f}, {options.spinners} spinners{', apart' if options.apart else ''}, "
        f"{options.runs} runs of {options.seconds:g} s of CPU time",
        flush=True,
    )
    with spinners(options.spinners, options.apart):
        for name in options.programs or PROGRAMS:
            measure(name, options)


if __name__ == "__main__":
    main()
