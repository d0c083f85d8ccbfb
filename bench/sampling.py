"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work while nobody does.

    sudo python bench/sampling.py [PAIRS]      # 60 pairs by default, a minute; probescope has to be importable

One process that works all the time. Turns of the same work with and without a tracer alternate; each is timed by the CPU clock of the
thread that works, on which the stacks are walked, and by those of probescope's own threads. Ticks come by the wall clock: on a machine that
gives the process half of a CPU their share of its CPU time is twice as large.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

import probescope
from turns import Listener, middle

PIECES = 300  # of about 1 ms


def work(depth=20):
    if depth:
        return work(depth - 1)
    n = 0
    while n < 20_000:
        n += 1
    return n


def ours():
    """CPU time of probescope's own threads, ns."""
    spent = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "probescope\n":
            spent += int((task / "schedstat").read_text().split()[0])
    return spent


def turn():
    """CPU time in ns of the thread that works, and of ours; wall time."""
    own, clock, wall = ours(), time.thread_time_ns(), time.monotonic_ns()
    for _ in range(PIECES):
        work()
    return time.thread_time_ns() - clock, ours() - own, time.monotonic_ns() - wall


def attached_turn(listener):
    with listener:
        return turn()


def main(pairs):
    probescope.install()
    turn()
    listener = Listener("sample__stats")
    added, threads, of_one_cpu = [], [], []
    for _ in range(pairs):
        # Both begin after a wait for the hooks: a thread that has slept is given the CPU for longer at a time.
        (busy, own, wall), (plain, _, _) = attached_turn(listener), turn()
        added.append(busy / plain - 1)
        threads.append(own / plain)
        of_one_cpu.append(own / wall)
    listener.finish()
    (walks, error), (watcher, watcher_error) = middle(added), middle(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    print(
        f"{platform.python_version()}: {whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread that "
        f"works and {watcher:.2%} in threads of ours, which is {middle(of_one_cpu)[0]:.2%} of one CPU; {pairs} pairs, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
