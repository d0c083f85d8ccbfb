"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work
while nobody does.

    sudo python bench/sampling.py [PAIRS]
    sudo python bench/sampling.py 20 --waiting 62 --working 1    # 64 threads, of which 2 work
    sudo python bench/sampling.py 20 --calling 63                # which are in short system calls
                                                                 # all the time

60 pairs by default, a minute; probescope has to be importable.

One process that works all the time. Turns of the same work with and without a tracer alternate;
each is timed by the CPU clock of the thread that works, on which the stacks are walked, and by
those of probescope's own threads. Ticks come by the wall clock: on a machine that gives the process
half of a CPU their share of its CPU time is twice as large.

What a thread pays for sleeping and waking so often, whatever it does when it is up, is the
machine's, and most of it on a small virtual one: a second process that does nothing else is
measured in the turns without a tracer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import threading
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
    """CPU time in ns of the thread that works, of ours, and of the process; wall time."""
    own, clock, whole, wall = ours(), time.thread_time_ns(), time.process_time_ns(), time.monotonic_ns()
    for _ in range(PIECES):
        work()
    spent = time.thread_time_ns() - clock, ours() - own, time.process_time_ns() - whole
    return (*spent, time.monotonic_ns() - wall)


def turn_in(context):
    """Both kinds are called from here: where the frames lie in memory alone was worth up to 2.8 %
    of a turn.
    """
    with context:
        return turn()


class Sleeper:
    """Another process that only sleeps, and wakes 99 times a second.

    As a context: takes in what it uses meanwhile.
    """

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


def call():
    time.sleep(0.0002)
    os.stat(__file__)


def start_others(options):
    """Threads beside the one that is measured."""

    def always(function):
        while True:
            function()

    # A lock that nobody ever gives.
    never = threading.Lock()
    never.acquire()
    for function, number in (
        (never.acquire, options.waiting),
        (work, options.working),
        (call, options.calling),
    ):
        for _ in range(number):
            threading.Thread(target=always, args=(function,), daemon=True).start()


def main(options):
    probescope.install()
    start_others(options)
    turn()
    listener, sleeper = Listener("sample__stats"), Sleeper()
    added, threads, of_process, of_one_cpu = [], [], [], []
    for _ in range(options.pairs):
        # Both begin after a wait for the hooks: a thread that has slept is given the CPU for longer
        # at a time.
        (busy, own, whole, wall), (plain, *_) = turn_in(listener), turn_in(sleeper)
        added.append(busy / plain - 1)
        threads.append(own / plain)
        of_process.append(own / whole)
        of_one_cpu.append(own / wall)
    listener.finish()
    sleeper.finish()
    (walks, error), (watcher, watcher_error) = middle(added), middle(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    others = [f"{number} {what}" for what, number in vars(options).items() if what != "pairs" and number]
    print(
        f"{platform.python_version()}, {options.pairs} pairs, load {os.getloadavg()[0]:.1f}",
        *others,
        sep=", ",
        end=": ",
    )
    # Beside others that have the GIL in turns, what the thread takes longer says nothing.
    if not others:
        print(
            f"{whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread "
            f"that works and {watcher:.2%} in threads of ours",
            end="; ",
        )
    print(
        f"threads of ours {middle(of_process)[0]:.2%} of the process, "
        f"{middle(of_one_cpu)[0]:.2%} of one CPU. "
        "A process that only sleeps and wakes 99 times a second: "
        f"{sleeper.spent / sleeper.wall:.2%} of one CPU, "
        f"{sleeper.spent / sleeper.wakes / 1000:.0f} us a wake",
        flush=True,
    )
    os._exit(0)  # threads that wait for ever do so


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=int, nargs="?", default=60)
    parser.add_argument("--waiting", type=int, default=0, help="threads that wait")
    parser.add_argument("--working", type=int, default=0, help="threads that compute as well")
    parser.add_argument("--calling", type=int, default=0, help="threads that make short system calls")
    main(parser.parse_args())
