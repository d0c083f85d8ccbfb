"""Measures what a call, an allocation, a line and a collection cost under a tracer and under other
tools, in one process.

    sudo PYTHONPATH=python python bench/python_overhead.py [ROUNDS]      # 15 by default, about a minute

Prints tables of ns of the thread's own CPU. Everything that is compared takes turns. Each turn is
compared with the plain one of the same round. A figure is the mean of the middle half of the
differences, with its standard error. yappi is measured if it can be imported.
"""

from __future__ import annotations

import contextlib
import cProfile
import functools
import gc
import os
import platform
import sys
import time
import tracemalloc

import probescope
from turns import Listener, interleaved, middle, nothing

try:
    import yappi
except ImportError:
    yappi = None


def leaf():
    return None


class Item:
    __slots__ = ("a",)


def calls(count):
    for _ in range(count):
        leaf()


def objects(count):
    for _ in range(count):
        Item()


def lines(count):
    for _ in range(count):
        a = 1
        a = 2  # noqa: F841


def loop(count):
    for _ in range(count):
        pass


def collections(count):
    for _ in range(count):
        gc.collect(0)


def cost(function, count, empty=None):
    """Measures one turn, the least of three. Returns ns each."""

    def least(one):
        best = float("inf")
        for _ in range(3):
            began = time.thread_time_ns()
            one(count)
            best = min(best, time.thread_time_ns() - began)
        return best / count

    return lambda: least(function) - (least(empty) if empty else 0)


@contextlib.contextmanager
def profiled():
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()


@contextlib.contextmanager
def yappied(clock):
    yappi.set_clock_type(clock)
    yappi.start(builtins=False)
    try:
        yield
    finally:
        yappi.stop()
        yappi.clear_stats()


@contextlib.contextmanager
def allocations_traced():
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


class Again:
    """Makes a new context each time."""

    def __init__(self, make):
        self._make = make

    def __enter__(self):
        self._context = self._make()
        return self._context.__enter__()

    def __exit__(self, *error):
        return self._context.__exit__(*error)


def table(title, measure, states, rounds):
    """states: {text: context}, the plain one first. Ratios are taken against the last, a peer."""
    found = interleaved({name: Again(make) for name, make in states.items()}, measure, rounds)
    plain, *others = found
    added = {name: middle([a - b for a, b in zip(found[name], found[plain])]) for name in others}
    peer = added[others[-1]][0]
    print(f"\n| {title} | ns | added | ratio |\n|---|---|---|---|")
    print(f"| {plain} | {middle(found[plain])[0]:.1f} | | |")
    for name, (ns, error) in added.items():
        print(f"| {name} | {middle(found[name])[0]:.1f} | {ns:.1f} ± {error:.1f} | {ns / peer:.2f} |")


def main(rounds):
    before = middle([cost(calls, 50_000, loop)() for _ in range(rounds)])
    probescope.install()
    made = []

    def listening(*probes):
        listener = Listener(*probes)
        made.append(listener)
        return lambda: listener

    print(
        f"CPython {platform.python_version()}, {platform.machine()}, "
        f"load average {os.getloadavg()[0]:.1f}, {rounds} rounds."
    )
    loaded = "loaded, no tracer"
    after = middle([cost(calls, 50_000, loop)() for _ in range(rounds)])
    print(
        f"A call and its return took {before[0]:.1f} ± {before[1]:.1f} ns before probescope was "
        f"loaded and {after[0]:.1f} ± {after[1]:.1f} afterwards."
    )
    states = {loaded: nothing, "`function__stats` traced": listening("function__stats")}
    if yappi:
        states.update(
            {f"yappi, {clock} clock": functools.partial(yappied, clock) for clock in ("cpu", "wall")}
        )
    table(
        "one call of a Python function and its return",
        cost(calls, 50_000, loop),
        {**states, "cProfile": profiled},
        rounds,
    )
    states = {loaded: nothing, "`object__stats` traced": listening("object__stats")}
    table(
        "one object made and freed",
        cost(objects, 20_000, loop),
        {**states, "tracemalloc": allocations_traced},
        rounds,
    )
    if probescope.status()["probes"]["line"][0] == "off" and sys.version_info >= (3, 12):
        states = {loaded: nothing, "`line` traced, three lines": listening("line")}
        table("one round of a loop of three lines", cost(lines, 3_000), states, max(3, rounds // 3))
    states = {loaded: nothing, "`gc__done` traced": listening("gc__done")}
    table("one collection of the youngest generation", cost(collections, 300), states, rounds)
    for listener in made:
        listener.finish()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
