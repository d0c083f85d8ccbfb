"""Loaded before each program of test_hostile.py. With TRACED, waits until the hooks are installed."""

import os

if os.environ.get("TRACED"):
    import time

    import probescope

    # install() returns False in a subinterpreter.
    while probescope.install() and probescope.status()["probes"]["function__stats"][0] != "on":
        time.sleep(0.002)
    del probescope, time
