"""What samples cost a Python process: CPU time while a tracer listens to them, over the same work while nobody does.

    sudo python bench/sampling.py [ROUNDS]

One process, some ms of work at a time, each timed by its own CPU clock together with the process's (the walk runs on the main thread,
the rest on threads of ours). Rounds with and without a tracer take turns; the cheaper halves of each are held against each other.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import probescope

PROGRAM = """
usdt:*:probescope:sample__stats { @self = sum(arg3); }
usdt:*:probescope:stats__done { @missed = sum(*(uint64*)arg5); }
"""


def work(depth=20):
    if depth:
        return work(depth - 1)
    n = 0
    while n < 20_000:
        n += 1
    return n


def state():
    return probescope.status()["probes"]["sample__stats"][0]


def round_of(seconds):
    """CPU time of the process for a piece of work, ns: the mean of the cheaper half."""
    pieces = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        start = time.process_time_ns()
        for _ in range(50):
            work()
        pieces.append(time.process_time_ns() - start)
    pieces.sort()
    return statistics.mean(pieces[: len(pieces) // 2])


def ours():
    """CPU time of probescope's own threads, ns."""
    spent = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "probescope\n":
            spent += int((task / "schedstat").read_text().split()[0])
    return spent


def main(rounds):
    probescope.install()
    ratios = []
    for _ in range(rounds):
        before = round_of(2)
        tracer = subprocess.Popen(["bpftrace", "-p", str(os.getpid()), "-e", PROGRAM],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        while state() != "on":
            time.sleep(0.01)
        spent, process = ours(), time.process_time_ns()
        during = round_of(3)
        share = (ours() - spent) / (time.process_time_ns() - process)
        tracer.send_signal(2)
        counted = dict(
            line.strip().split(": ") for line in tracer.communicate()[0].splitlines() if line.startswith("@")
        )
        while state() != "off":
            time.sleep(0.01)
        after = round_of(2)
        ratios.append(during / min(before, after) - 1)
        print(
            f"{ratios[-1]:+.2%} CPU ({share:.2%} in threads of ours), {counted['@missed']} missed",
            flush=True,
        )
    print(f"{sys.version.split()[0]}: median {statistics.median(ratios):+.2%} of the CPU time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
