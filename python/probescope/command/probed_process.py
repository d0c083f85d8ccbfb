"""A process that has loaded the library."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from probescope.command.errors import CommandError, Refused
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

    def entry(self) -> List[str]:
        """See entry_point.globs. Empty when the command line cannot be read."""
        try:
            found: List[str] = _READER.ask("entry", self.pid)
            return found
        except Refused:
            return []

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


def mapping(file: Tuple[bytes, bytes], name: str, seconds: float) -> Tuple[int, bool]:
    """Returns how many processes map code of a file, and whether all processes could be read. Raises
    CommandError where valgrind runs one of them: valgrind reads the breakpoint of a uprobe as an
    instruction of the program. file: its device and inode in a list of mappings. name: of the file, for
    the message. seconds: for the search.
    """
    runners: Dict[int, Optional[str]] = {}
    whole, deadline = True, time.monotonic() + seconds
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if time.monotonic() > deadline:
            whole = False
            break
        try:
            runners[pid] = _READER.ask("runner", pid, file)
        except Refused as error:
            whole = whole and error.kind == "gone"
    if ended := [str(pid) for pid, runner in runners.items() if runner == "valgrind"]:
        them = f"process{'' if len(ended) == 1 else 'es'} {', '.join(ended)}"
        raise CommandError(
            f"a uprobe in {name} could end {them}, which valgrind runs",
            "run the command when valgrind has ended",
        )
    return list(runners.values()).count("kernel"), whole


def find(pid: int) -> ProbedProcess:
    """Raises CommandError, with the next step, when there is nothing to trace."""
    return ProbedProcess(_READER.ask("find", pid))
