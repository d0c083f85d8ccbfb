"""Measures what samples cost a Python process: its CPU time under a tracer of samples, divided by
that of the same work without a tracer.

    sudo python bench/sampling.py [PAIRS]
    sudo python bench/sampling.py 20 --waiting 62 --working 1    # 64 threads, of which 2 work
    sudo python bench/sampling.py 20 --calling 63                # threads in short system calls
                                                                 # all the time
    sudo python bench/sampling.py 20 --paths                     # with call paths, as `hot` traces

60 pairs by default, a minute; probescope must be importable.

One process works all the time. Turns of the same work with and without a tracer alternate. Each
turn is timed by the CPU clock of the working thread, on which the stacks are walked, and by the CPU
clocks of probescope's own threads. Ticks come by the wall clock. If a machine gives the process
half of a CPU, their share of its CPU time is twice as large.

A thread that sleeps and wakes so often costs something by itself, which depends on the machine and
is most of the cost on a small virtual one. So in the turns without a tracer a second process is
measured that only sleeps and wakes.
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
PATHS = ["stack__cpu", "stack__frame"]
SLEEPER = "import time\nwhile True: time.sleep(1 / 99)"


def work(depth=20):
    if depth:
        return work(depth - 1)
    n = 0
    while n < 20_000:
        n += 1
    return n


def cpu(task):
    """Returns a thread's CPU time in ns, and how often it got a CPU."""
    spent, _, times = (task / "schedstat").read_text().split()
    return int(spent), int(times)


def ours():
    """Returns the CPU time of probescope's own threads, in ns."""
    spent = 0
    for task in Path("/proc/self/task").iterdir():
        # A thread ends with the trace, perhaps at this moment.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "probescope\n":
                spent += cpu(task)[0]
    return spent


def turn():
    """Returns CPU time in ns of the working thread, of ours, and of the process; wall time."""
    own, clock, whole, wall = ours(), time.thread_time_ns(), time.process_time_ns(), time.monotonic_ns()
    for _ in range(PIECES):
        work()
    spent = time.thread_time_ns() - clock, ours() - own, time.process_time_ns() - whole
    return (*spent, time.monotonic_ns() - wall)


def turn_in(context):
    """Both kinds are called from here: the place of the frames in memory changed a turn by up to
    2.8 %.
    """
    with context:
        return turn()


class Sleeper:
    """Another process that only sleeps, and wakes 99 times a second.

    As a context it measures its own use of the CPU.
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
    """Starts threads beside the measured one."""

    def always(function):
        while True:
            function()

    # A lock that is never released.
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
    listener = Listener(*(PATHS if options.paths else ["sample__stats"]))
    sleeper = Sleeper()
    added, threads, of_process, of_one_cpu = [], [], [], []
    for _ in range(options.pairs):
        # Both begin after a wait for the hooks: after a sleep, a thread gets the CPU for longer at
        # a time.
        (busy, own, whole, wall), (plain, *_) = turn_in(listener), turn_in(sleeper)
        added.append(busy / plain - 1)
        threads.append(own / plain)
        of_process.append(own / whole)
        of_one_cpu.append(own / wall)
    listener.finish()
    sleeper.finish()
    (walks, error), (watcher, watcher_error) = middle(added), middle(threads)
    whole, whole_error = walks + watcher, (error**2 + watcher_error**2) ** 0.5
    others = [
        f"{number} {what}"
        for what, number in vars(options).items()
        if what not in ("pairs", "paths") and number
    ]
    print(
        f"{platform.python_version()}, {options.pairs} pairs, load {os.getloadavg()[0]:.1f}",
        *others,
        sep=", ",
        end=": ",
    )
    # If other threads take turns with the GIL, the thread's additional time is not a measure.
    if not others:
        print(
            f"{whole:+.2%} ± {whole_error:.2%} of the CPU time, {walks:+.2%} ± {error:.2%} in the thread "
            f"that works and {watcher:.2%} in probescope's threads",
            end="; ",
        )
    print(
        f"probescope's threads {middle(of_process)[0]:.2%} of the process, "
        f"{middle(of_one_cpu)[0]:.2%} of one CPU. "
        "A process that only sleeps and wakes 99 times a second: "
        f"{sleeper.spent / sleeper.wall:.2%} of one CPU, "
        f"{sleeper.spent / sleeper.wakes / 1000:.0f} us a wake",
        flush=True,
    )
    os._exit(0)  # some threads wait for ever


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=int, nargs="?", default=60)
    parser.add_argument("--waiting", type=int, default=0, help="threads that wait")
    parser.add_argument("--working", type=int, default=0, help="threads that compute as well")
    parser.add_argument("--calling", type=int, default=0, help="threads that make short system calls")
    parser.add_argument("--paths", action="store_true", help="with call paths")
    main(parser.parse_args())
