"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work while nobody does.

    sudo python bench/sampling.py [PAIRS]      # 60 pairs by default, a minute; probescope has to be importable

One process that works all the time. Turns of the same work with and without a tracer alternate; each is timed by the CPU clock of the
thread that works, on which the stacks are walked, and by those of probescope's own threads. Ticks come by the wall clock: on a machine that
gives the process half of a CPU their share of its CPU time is twice as large.

What a thread pays for sleeping and waking so often, whatever it does when it is up, is the machine's, and most of it on a small virtual
one: a second process that does nothing else is measured in the turns without a tracer.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import probescope
from turns import Listener, middle

PIECES = 300  # of about 1 ms
SLEEPER = "import time\nwhile True: time.sleep(1 / 99)"


def work(depth=20):
    if depth:
        return work(depth - 1)
    n = 0
    while n < 20_000:
        n += 1
    return n


def cpu(task):
    """CPU time of a thread, ns; how often it was given a CPU."""
    spent, _, times = (task / "schedstat").read_text().split()
    return int(spent), int(times)


def ours():
    """CPU time of probescope's own threads, ns."""
    spent = 0
    for task in Path("/proc/self/task").iterdir():
        # One of them ends with the listening, maybe now.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "probescope\n":
                spent += cpu(task)[0]
    return spent


def turn():
    """CPU time in ns of the thread that works, and of ours; wall time."""
    own, clock, wall = ours(), time.thread_time_ns(), time.monotonic_ns()
    for _ in range(PIECES):
        work()
    return time.thread_time_ns() - clock, ours() - own, time.monotonic_ns() - wall


def turn_in(context):
    """Both kinds are called from here: where the frames lie in memory alone was worth up to 2.8 % of a turn."""
    with context:
        return turn()


class Sleeper:
    """Another process that only sleeps, and wakes 99 times a second. As a context: takes in what it uses meanwhile."""

    def __init__(self):
        self._process = subprocess.Popen([sys.executable, "-S", "-E", "-c", SLEEPER])
        self._task = Path(f"/proc/{self._process.pid}")
        self.spent = self.wakes = self.wall = 0

    def __enter__(self):
        self._before = *cpu(self._task), time.monotonic_ns()

    def __exit__(self, *_):
        spent, wakes, wall = (
            now - before for now, before in zip((*cpu(self._task), time.monotonic_ns()), self._before)
        )
        self.spent += spent
        self.wakes += wakes
        self.wall += wall

    def finish(self):
        self._process.kill()
        self._process.wait()


def main(pairs):
    probescope.install()
    turn()
    listener, sleeper = Listener("sample__stats"), Sleeper()
    added, threads, of_one_cpu = [], [], []
    for _ in range(pairs):
        # Both begin after a wait for the hooks: a thread that has slept is given the CPU for longer at a time.
        (busy, own, wall), (plain, _, _) = turn_in(listener), turn_in(sleeper)
        added.append(busy / plain - 1)
        threads.append(own / plain)
        of_one_cpu.append(own / wall)
    listener.finish()
    sleeper.finish()
    (walks, error), (watcher, watcher_error) = middle(added), middle(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    print(
        f"{platform.python_version()}: {whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread that "
        f"works and {watcher:.2%} in threads of ours, which is {middle(of_one_cpu)[0]:.2%} of one CPU; {pairs} pairs, "
        f"load {os.getloadavg()[0]:.1f}. A process that only sleeps and wakes 99 times a second: "
        f"{sleeper.spent / sleeper.wall:.2%} of one CPU, {sleeper.spent / sleeper.wakes / 1000:.0f} us a wake"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
