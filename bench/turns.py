"""Common parts of the Python benchmarks: turns with and without a tracer in one process, and the
mean of the differences.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import probescope  # noqa: E402
from attacher import Attacher  # noqa: E402


class Listener:
    """A tracer of this process. As a context it is attached, with the hooks in."""

    def __init__(self, *probes: str) -> None:
        self._probes = probes
        self._tracer = Attacher(os.getpid(), *probes, "stats__done").attached()
        self._say("detach", "off")

    def __enter__(self) -> None:
        self._say("attach", "on")

    def __exit__(self, *_: object) -> None:
        self._say("detach", "off")

    def finish(self) -> None:
        self._tracer.finish()

    def _say(self, word: str, state: str) -> None:
        self._tracer.process.stdin.write(f"{word}\n".encode())
        self._tracer.process.stdin.flush()
        deadline = time.monotonic() + 60
        while not all(self._state(probe, state) for probe in self._probes):
            if time.monotonic() > deadline:
                sys.exit(f"{self._probes} are not {state}: {probescope.status()['probes']}")
            time.sleep(0.002)

    @staticmethod
    def _state(probe: str, wanted: str) -> bool:
        state = probescope.status()["probes"][probe][0]
        return state in ("on", "degraded") if wanted == "on" else state == "off"


def middle(values):
    """Returns the mean of the middle half, because the machine has other work, and its error."""
    values = sorted(values)
    half = values[len(values) // 4 : len(values) - len(values) // 4]
    # The standard error comes from the distance between the quartiles, for a normal distribution.
    return statistics.mean(half), (half[-1] - half[0]) / 1.349 * 1.09 / len(values) ** 0.5


@contextlib.contextmanager
def nothing():
    yield


def interleaved(states, measure, rounds):
    """states: {name: context}.

    Each round measures all of them and starts with another one. Returns {name: [figures]}.
    """
    found = {name: [] for name in states}
    names = list(states)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with states[name]:
                found[name].append(measure())
    return found
