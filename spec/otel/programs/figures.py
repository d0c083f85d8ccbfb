"""Calls, raises and allocates between USR1 and USR2, and then prints the counts."""

import gc
import os
import signal
import time


class Costly(Exception):
    pass


class Thing:
    __slots__ = ()


counts = {"turns": 0, "raised": 0, "napped": 0.0, "collected": 0}


def deep(left):
    if left == 0:
        raise Costly
    deep(left - 1)


def costly():
    try:
        deep(50)
    except Costly:
        counts["raised"] += 1


def nap():
    began = time.monotonic()
    time.sleep(0.002)
    counts["napped"] += time.monotonic() - began


def things():
    return [Thing() for _ in range(10)]


def turn():
    costly()
    nap()
    things()
    counts["turns"] += 1
    if counts["turns"] % 20 == 0:
        gc.collect()
        counts["collected"] += 1


told = set()
for name in ("SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), lambda number, frame: told.add(number))
print("process", os.getpid(), flush=True)
while signal.SIGUSR1 not in told:
    time.sleep(0.01)
while signal.SIGUSR2 not in told:
    turn()
print("counts", os.getpid(), *counts.values(), flush=True)
while True:
    time.sleep(1)
