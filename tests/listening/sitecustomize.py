"""Before any program of test_hostile.py: with TRACED it has every hook in when it begins."""

import os

if os.environ.get("TRACED"):
    import time

    import probescope

    # Not in a subinterpreter.
    while probescope.install() and probescope.status()["probes"]["function__stats"][0] != "on":
        time.sleep(0.002)
    del probescope, time
