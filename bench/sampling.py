"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work while nobody does.

    sudo python bench/sampling.py [PAIRS]      # 60 pairs by default, a minute; probescope has to be importable

One process that works all the time. Turns of the same work with and without a tracer alternate, the first of each pair by turns; each
is timed by the CPU clock of the thread that works, on which the stacks are walked, and by those of probescope's own threads.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import probescope  # noqa: E402
from attacher import Attacher  # noqa: E402

PROBES = "sample__stats", "stats__done"
PIECES = 300  # of about 1 ms


def work(depth=20):
    if depth:
        return work(depth - 1)
    n = 0
    while n < 20_000:
        n += 1
    return n


def until(state):
    while probescope.status()["probes"]["sample__stats"][0] != state:
        time.sleep(0.002)


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


def attached_turn(tracer):
    tracer.process.stdin.write(b"attach\n")
    tracer.process.stdin.flush()
    until("on")
    try:
        return turn()
    finally:
        tracer.process.stdin.write(b"detach\n")
        tracer.process.stdin.flush()
        until("off")


def mean_and_error(values):
    """Of the middle half: the machine has other work too."""
    values = sorted(values)
    middle = values[len(values) // 4 : len(values) - len(values) // 4]
    # The error of a quartile mean of a normal distribution, from the distance between the quartiles.
    return statistics.mean(middle), (middle[-1] - middle[0]) / 1.349 * 1.09 / len(values) ** 0.5


def main(pairs):
    probescope.install()
    turn()
    tracer = Attacher(os.getpid(), *PROBES).attached()
    tracer.process.stdin.write(b"detach\n")
    tracer.process.stdin.flush()
    until("off")
    added, threads = [], []
    for number in range(pairs):
        if number % 2:
            (plain, _), (busy, own) = turn(), attached_turn(tracer)
        else:
            (busy, own), (plain, _) = attached_turn(tracer), turn()
        added.append(busy / plain - 1)
        threads.append(own / plain)
    tracer.finish()
    (walks, error), (watcher, watcher_error) = mean_and_error(added), mean_and_error(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    print(
        f"{platform.python_version()}: {whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread that "
        f"works and {watcher:.2%} in threads of ours; {pairs} pairs, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
