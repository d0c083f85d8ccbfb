"""Where a traced program of these tests waits for its tracer.

Its functions have a file that function probes leave alone.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import time

import probescope

probescope.install()


def state(probe):
    return status(probe)[0]


def status(probe):
    """(state, reason)"""
    return probescope.status()["probes"][probe]


def on(*probes):
    """Until the hooks of these probes are in, and of GATE_ALSO: what is counted before a tracer's
    last probe came is in no interval.
    """
    probes += tuple(os.environ.get("GATE_ALSO", "").split())
    while not all(state(probe) in ("on", "degraded") for probe in probes):
        time.sleep(0.002)


def off(*probes):
    """Until they are out."""
    while not all(state(probe) == "off" for probe in probes):
        time.sleep(0.002)


def flushed(times=2):
    """Until all that happened so far has been fired."""
    before = probescope.status()["flushes"]
    while probescope.status()["flushes"] < before + times:
        time.sleep(0.005)


def open(name):
    """Until the test says so: it makes the file."""
    while not os.path.exists(os.path.join(os.environ["GATE_DIRECTORY"], name)):
        time.sleep(0.002)


def touch(name):
    """Opens such a gate from within."""
    with builtins.open(os.path.join(os.environ["GATE_DIRECTORY"], name), "w"):
        pass


def done(**report):
    """Tells the test what this program knows itself, and waits to be ended."""
    sys.stdout.write("report " + json.dumps(report) + "\n")
    sys.stdout.flush()
    while True:
        time.sleep(0.02)
