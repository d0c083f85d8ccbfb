"""What a call and its return cost while function__stats is listened to, beside cProfile, in one process.

    sudo PYTHONPATH=python python bench/python_overhead.py

Prints a table of ns of the thread's own CPU, the least of several rounds. Compare within one run only.
"""

from __future__ import annotations

import cProfile
import os
import platform
import subprocess
import sys
import time

import probescope

CALLS, ROUNDS = 200_000, 9
PROGRAM = "usdt:*:probescope:function__stats { @ = count(); }"


def leaf():
    return None


def calls():
    for _ in range(CALLS):
        leaf()


def loop():
    for _ in range(CALLS):
        pass


def least(function, rounds=ROUNDS):
    best = None
    for _ in range(rounds):
        began = time.thread_time_ns()
        function()
        took = time.thread_time_ns() - began
        best = took if best is None else min(best, took)
    return best / CALLS


def a_call():
    return least(calls) - least(loop)


def until(state):
    deadline = time.monotonic() + 30
    while probescope.status()["probes"]["function__stats"][0] != state:
        if time.monotonic() > deadline:
            sys.exit(f"function__stats is not {state}: {probescope.status()['probes']['function__stats']}")
        time.sleep(0.005)


def traced(function):
    tracer = subprocess.Popen(["bpftrace", "-p", str(os.getpid()), "-e", PROGRAM], stdout=subprocess.DEVNULL)
    try:
        until("on")
        return function()
    finally:
        tracer.terminate()
        tracer.wait()
        until("off")


def profiled(function):
    profile = cProfile.Profile()
    profile.enable()
    try:
        return function()
    finally:
        profile.disable()


def main():
    before = a_call()
    probescope.install()
    loaded = a_call()
    attached = traced(a_call)
    after = a_call()
    peer = profiled(a_call)
    base = min(before, after)
    print(f"CPython {platform.python_version()}, {platform.machine()}, load average {os.getloadavg()[0]:.2f}\n")
    print("| | ns | added | ratio |\n|---|---|---|---|")
    rows = [("without probescope", before), ("probescope loaded, nobody listens", loaded),
            ("`function__stats` listened to", attached), ("after it left", after), ("cProfile", peer)]  # fmt: skip
    for name, ns in rows:
        print(f"| {name} | {ns:.1f} | {ns - base:.1f} | {(ns - base) / (peer - base):.2f} |")


if __name__ == "__main__":
    main()
