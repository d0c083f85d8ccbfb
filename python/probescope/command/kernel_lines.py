"""Lines at which functions of CPython were, from what the part "line" of a program has stored."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from probescope.command import line_table
from probescope.command.result import ID, Result, numbers

# What the line of a row is.
CURRENT = "current"
DEFINITION = "definition"


class KernelLines:
    """The lines of a result."""

    def __init__(self, result: Result) -> None:
        self._codes = {numbers(key): [int(one) for one in found] for key, found in result.map("code").items()}
        self._words = {numbers(key): words for key, words in result.map("table").items()}

    def place(self, pid: int, instruction: int, defined: Any) -> Dict[str, Any]:
        """Returns line and line_is of a function that was at this instruction. defined: the line of
        its definition, None or 0 where that is not known.
        """
        defined = int(defined or 0) or None
        line = self._current(pid, instruction, defined)
        line_is = CURRENT if line else DEFINITION if defined else None
        return {"line": line or defined, "line_is": line_is}

    def _current(self, pid: int, instruction: int, defined: Optional[int]) -> Optional[int]:
        """Returns None where it is not known, or where the code is another function's."""
        start, table, size, first = self._codes.get((pid, instruction), (0, 0, 0, 0))
        if not start or first != defined:
            return None
        return line_table.line(self._table(pid, table)[:size], first, instruction - start)

    def _table(self, pid: int, address: int) -> bytes:
        """Returns the beginning of a line table, as far as it was read."""
        words: List[int] = []
        part = 0
        while (pid, address, part) in self._words:
            words += (int(word) & ID for word in self._words[pid, address, part])
            part += 1
        return b"".join(word.to_bytes(8, "little") for word in words)
