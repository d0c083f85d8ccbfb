"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work while nobody does.

    sudo python bench/sampling.py [PAIRS]      # 60 pairs by default, a minute; probescope has to be importable

One process that works all the time. Turns of the same work with and without a tracer alternate, the first of each pair by turns; each
is timed by the CPU clock of the thread that works, on which the stacks are walked, and by those of probescope's own threads.
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
    """CPU time in ns of the thread that works, and of ours."""
    own, clock = ours(), time.thread_time_ns()
    for _ in range(PIECES):
        work()
    return time.thread_time_ns() - clock, ours() - own


def attached_turn(listener):
    with listener:
        return turn()


def main(pairs):
    probescope.install()
    turn()
    listener = Listener("sample__stats")
    added, threads = [], []
    for number in range(pairs):
        if number % 2:
            (plain, _), (busy, own) = turn(), attached_turn(listener)
        else:
            (busy, own), (plain, _) = attached_turn(listener), turn()
        added.append(busy / plain - 1)
        threads.append(own / plain)
    listener.finish()
    (walks, error), (watcher, watcher_error) = middle(added), middle(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    print(
        f"{platform.python_version()}: {whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread that "
        f"works and {watcher:.2%} in threads of ours; {pairs} pairs, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
