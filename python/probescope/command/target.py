"""A process with the library in it."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from probescope.command.errors import Refused
from probescope.command.foreign import Place
from probescope.command.reader import Reader

# Seconds for a process to end what it is writing: a moment on a busy machine, in which a process
# that was given a CPU once more has written.
PATIENCE = 1.0
_READER = Reader()


class Target:
    """What is asked of the process goes through Reader; so all of it raises CommandError, and
    nothing else.
    """

    def __init__(self, place: Place) -> None:
        self.pid = place.pid
        self._place = place

    def to_dict(self) -> Dict[str, Any]:
        """As foreign.snapshot."""
        return self._patiently("snapshot")

    def status(self) -> Dict[str, Any]:
        """As foreign.status."""
        return self._patiently("status")

    def flushes(self) -> int:
        """Number of flushes so far."""
        number: int = _READER.ask("flushes", self._place)
        return number

    def listened(self, semaphores: List[int]) -> List[bool]:
        """Whether a tracer listens to each of these now. Several tracers need not count as several."""
        found: List[bool] = _READER.ask("listened", self._place, semaphores)
        return found

    def _patiently(self, question: str) -> Dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                known: Dict[str, Any] = _READER.ask(question, self._place)
                return known
            except Refused as error:
                if error.kind != "busy" or time.monotonic() > deadline:
                    raise
                time.sleep(0.001)


def find(pid: int) -> Target:
    """Raises CommandError, with the next step, when there is nothing to trace."""
    return Target(_READER.ask("find", pid))
