"""Tracers that come and go on one Python process with eight threads under load, several at once: does it grow, does it crash?

    sudo python bench/soak.py [CYCLES]     # 1,000 of all tracers together, beside a warm-up; probescope has to be importable

And how long it takes from the attach to the first hook while four threads spin.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from attacher import Attacher  # noqa: E402
from tracing import start_program  # noqa: E402

LOAD = """
import gate, threading, time, traceback
def numbers(n):
    for i in range(n):
        yield i
def fails():
    raise ValueError("soft")
def inner(n):
    try:
        return n and fails() or sum(numbers(3))
    except ValueError:
        return len(traceback.format_exc()) if n == 10 else [n]
def outer(pause):
    while True:
        for n in range(20):
            inner(n)
        time.sleep(pause)
for _ in range(7):
    threading.Thread(target=outer, args=(0.0005,), daemon=True).start()
print("ready", flush=True)
outer(0)
"""
SPIN = """
import gate, threading
def step(n): return n + 1
def spin():
    n = 0
    while True: n = step(n)
for _ in range(3): threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
spin()
"""
# Each is a tracer of its own, so that each comes while others are in, go, or come.
TRACERS = [["function__stats"], ["exception__stats"], ["object__stats"], ["sample__stats"], ["backtrace__done"],
           ["function__entry", "line"], ["function__slow1ms"], ["exception__raise", "stats__done"]]  # fmt: skip


# `rake memcheck` sets them.
SANITIZERS = {
    name: os.environ[name]
    for name in ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "PYTHONMALLOC")
    if name in os.environ
}


def holdings(pid: int) -> "tuple[int, int, int]":
    """KiB of memory, threads and open files of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))


def cycle(pid: int, count: int) -> None:
    tracers = [Attacher(pid, *probes, cycles=count) for probes in TRACERS]
    for tracer in tracers:
        tracer.finish(3600)


def soak(cycles: int) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        target = start_program(LOAD, Path(directory), env=SANITIZERS)
        try:
            target.line("ready")
            cycle(target.pid, 10)
            time.sleep(1)
            before, began = holdings(target.pid), time.monotonic()
            cycle(target.pid, -(-cycles // len(TRACERS)))
            seconds = time.monotonic() - began
            time.sleep(1)
            after = holdings(target.pid)
            print(
                f"Python {sys.version.split()[0]}: {cycles} cycles in {seconds:.0f} s; KiB, threads, files: {before} -> {after}"
            )
            if target.err:
                print(target.err)
            return (
                after[0] - before[0] < int(os.environ.get("GROWTH", 4096))
                and after[1:] == before[1:]
                and not target.err
            )
        finally:
            target.kill()


def latency() -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = start_program(SPIN, Path(directory), env=SANITIZERS)
        try:
            target.line("ready")
            figures = Attacher(target.pid, "function__stats", cycles=20, await_hooks=True).finish(600)
            hooked = [figure["hooked_ms"] for figure in figures]
            print(
                f"attach to first hook, 4 spinning threads: median {statistics.median(hooked):.0f} ms, max {max(hooked):.0f} ms"
            )
        finally:
            target.kill()


if __name__ == "__main__":
    done = soak(int((sys.argv[1:] or ["1000"])[0]))
    latency()
    sys.exit(not done)
