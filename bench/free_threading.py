"""Measures what function__stats adds to a call when 1 and 2 threads call at once, on a Python
without a GIL. The threads take turns in the hook.

    sudo PYTHONPATH=python python3.14t bench/free_threading.py

Prints the ns per call of each thread, the least of several rounds. Compare only within one run.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time

import probescope

CALLS, ROUNDS = 100_000, 15
PROGRAM = "usdt:*:probescope:function__stats { @ = count(); }"


def makes_calls():
    """Makes a separate function for each thread, so that the threads share only the hook."""
    scope = {}
    code = f"def leaf(): return None\ndef calls():\n for _ in range({CALLS}): leaf()\n"
    exec(compile(code, __file__, "exec"), scope)
    return scope["calls"]


def took(functions):
    """Returns the ns a call of the slower thread, by its own clock."""
    barrier = threading.Barrier(len(functions))
    times = []

    def run(function):
        barrier.wait()
        began = time.monotonic_ns()
        function()
        times.append(time.monotonic_ns() - began)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times) / CALLS


def measured():
    functions = [makes_calls(), makes_calls()]
    return [min(took(functions[:count]) for _ in range(ROUNDS)) for count in (1, 2)]


def until(state):
    while probescope.status()["probes"]["function__stats"][0] != state:
        time.sleep(0.005)


def main():
    if not probescope.install():
        sys.exit(f"no probes: {probescope.unavailable_reason()}")
    plain = measured()
    tracer = subprocess.Popen(["bpftrace", "-p", str(os.getpid()), "-e", PROGRAM], stdout=subprocess.DEVNULL)
    until("on")
    traced = measured()
    tracer.terminate()
    tracer.wait()
    until("off")
    gil = "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"
    print(f"CPython {platform.python_version()}, GIL {gil}, load {os.getloadavg()[0]:.1f}\n")
    print("| threads | ns a call | traced | added |\n|---|---|---|---|")
    for count in (1, 2):
        before, after = plain[count - 1], traced[count - 1]
        print(f"| {count} | {before:.1f} | {after:.1f} | {after - before:.1f} |")


if __name__ == "__main__":
    main()
