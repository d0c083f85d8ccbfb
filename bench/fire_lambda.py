"""For bench/fire.rb: the same as bench/fire_block.rb, with a lambda."""

import time
from statistics import median

import probescope
from probescope._native import nothing

checkout = probescope.Provider("shop").probe("checkout", str, int)
COUNT = 2000


def fire():
    for i in range(COUNT):
        checkout.fire("a", i)


def fire_lambda():
    for i in range(COUNT):
        checkout(lambda: ("a", i))  # noqa: B023


def call_nothing():
    for i in range(COUNT):
        nothing(lambda: ("a", i))  # noqa: B023


def turn(function):
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / COUNT


turns = [[turn(function) for function in (fire, fire_lambda, call_nothing)] for _ in range(501)]
print(*(round(median(way), 1) for way in zip(*turns)))
