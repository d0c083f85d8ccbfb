"""Functions with which a traced program waits for its tracer.

Function probes do not cover this file.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading
import time

import probescope

probescope.install()


def state(probe):
    return status(probe)[0]


def status(probe):
    """Returns (state, reason)."""
    return probescope.status()["probes"][probe]


def on(*probes):
    """Waits until the hooks of these probes and of those in GATE_ALSO are installed. Events before
    the tracer's last probe is attached belong to no interval.
    """
    probes += tuple(os.environ.get("GATE_ALSO", "").split())
    while not all(state(probe) in ("on", "degraded") for probe in probes):
        time.sleep(0.002)


def off(*probes):
    """Waits until the hooks are removed."""
    while not all(state(probe) == "off" for probe in probes):
        time.sleep(0.002)


def flushed(times=2):
    """Waits until all earlier events have been fired."""
    before = probescope.status()["flushes"]
    while probescope.status()["flushes"] < before + times:
        time.sleep(0.005)


def open(name):
    """Waits until the test opens the gate by creating the file."""
    while not os.path.exists(os.path.join(os.environ["GATE_DIRECTORY"], name)):
        time.sleep(0.002)


def touch(name):
    """Opens a gate from within a program."""
    with builtins.open(os.path.join(os.environ["GATE_DIRECTORY"], name), "w"):
        pass


def stage(name, functions):
    """Tells the test in which function each thread is, {number: name or None}, or this thread. Waits
    until the test has looked.
    """
    if not isinstance(functions, dict):
        functions = {threading.get_native_id(): functions}
    sys.stdout.write(f"stage {name} {json.dumps(functions)}\n")
    sys.stdout.flush()
    open(name)


def then_sleep(function):
    """For a thread that has made a call and is in no function of the application any more."""
    function()
    time.sleep(600)


def done(**report):
    """Prints the program's report for the test, and waits to be killed."""
    sys.stdout.write("report " + json.dumps(report) + "\n")
    sys.stdout.flush()
    while True:
        time.sleep(0.02)
