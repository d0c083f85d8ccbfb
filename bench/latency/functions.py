"""For bench/latency.rb: like bench/latency/methods.rb, with functools.partial as wrapper in C."""

import functools
import sys
import time

import probescope

COUNT = 2000


def plain(value):
    return value


@probescope.latency
def traced(value):
    return value


@functools.partial
def wrapped(value):
    return value


def turn(function):
    start = time.perf_counter_ns()
    for i in range(COUNT):
        function(i)
    return (time.perf_counter_ns() - start) / COUNT


def figures(*functions):
    turns = [[turn(function) for function in functions] for _ in range(501)]
    return " ".join(str(round(sorted(way)[250], 1)) for way in zip(*turns))


print("idle", figures(plain, traced, wrapped), flush=True)
for line in sys.stdin:
    while probescope.latency.probes()["traced"]["listened"] != (line == "attached\n"):
        time.sleep(0.01)
    print(line.strip(), figures(plain, traced), flush=True)
