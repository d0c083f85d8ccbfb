"""A process that has loaded the library."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Tuple

from probescope.command.errors import Refused
from probescope.command.foreign import Place
from probescope.command.reader import Reader

# Seconds to wait for a process that is writing its data. Writing takes a moment, but on a busy
# machine the process may first have to wait for a CPU.
PATIENCE = 1.0
_READER = Reader()


class ProbedProcess:
    """All access to the process goes through Reader. So every method raises CommandError, and
    nothing else.
    """

    def __init__(self, place: Place) -> None:
        self.pid = place.pid
        self._place = place

    def to_dict(self) -> Dict[str, Any]:
        """Returns foreign.snapshot."""
        return self._patiently("snapshot")

    def status(self) -> Dict[str, Any]:
        """Returns foreign.status."""
        return self._patiently("status")

    def flushes(self) -> int:
        """Number of flushes so far."""
        number: int = _READER.ask("flushes", self._place)
        return number

    def listened(self, semaphores: List[int]) -> List[bool]:
        """Whether at least one tracer is attached to each of these semaphores now."""
        found: List[bool] = _READER.ask("listened", self._place, semaphores)
        return found

    def function(self, name: bytes, symbol: str) -> Tuple[int, Tuple[bytes, bytes]]:
        """See c_function.find."""
        found: Tuple[int, Tuple[bytes, bytes]] = _READER.ask("function", self._place, name, symbol)
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


def mapping(file: Tuple[bytes, bytes], seconds: float) -> Tuple[int, bool]:
    """Returns how many processes map code of a file, and whether all processes could be read. file: its
    device and inode in a list of mappings. seconds: for the search.
    """
    found, whole, deadline = 0, True, time.monotonic() + seconds
    for name in filter(str.isdigit, os.listdir("/proc")):
        if time.monotonic() > deadline:
            return found, False
        try:
            found += _READER.ask("maps", int(name), file)
        except Refused as error:
            whole = whole and error.kind == "gone"
    return found, whole


def find(pid: int) -> ProbedProcess:
    """Raises CommandError, with the next step, when there is nothing to trace."""
    return ProbedProcess(_READER.ask("find", pid))
