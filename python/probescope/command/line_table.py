"""The line table of a code object of CPython 3.11 and later (co_linetable).

Each entry has a byte with its form and the number of its instructions, and then what the form says
(Objects/locations.md of CPython). Columns are left out.
"""

from __future__ import annotations

from typing import Iterator, Optional

# Bytes of an instruction.
UNIT = 2
# Forms of entries. Those below ONE_LINE have one more byte and the line of the entry before.
ONE_LINE = 10
NO_COLUMNS = 13
LONG = 14
NONE = 15


def line(table: bytes, first: int, offset: int) -> Optional[int]:
    """Returns the line of an instruction, or None. table: its first bytes, or all. first: the
    code's first line. offset: of the instruction, in bytes.
    """
    told = iter(table)
    passed, found = 0, first
    try:
        for head in told:
            form = head >> 3 & 15
            found += _difference(form, told)
            passed += ((head & 7) + 1) * UNIT
            if offset < passed:
                return None if offset < 0 or form == NONE else found
    except StopIteration:  # the rest of the table is not known
        pass
    return None


def _difference(form: int, told: Iterator[int]) -> int:
    """Reads the rest of an entry. Returns its line minus that of the entry before."""
    if form == NONE:
        return 0
    found = _signed(told) if form >= NO_COLUMNS else max(form - ONE_LINE, 0)
    if form == LONG:
        for _ in range(3):
            _number(told)
    elif form != NO_COLUMNS:
        for _ in range(1 if form < ONE_LINE else 2):
            next(told)
    return found


def _number(told: Iterator[int]) -> int:
    """Reads a number in six bits a byte, the lowest first. Bit 6 tells that another byte follows."""
    found = shift = 0
    while True:
        byte = next(told)
        found |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return found


def _signed(told: Iterator[int]) -> int:
    """The lowest bit is the sign."""
    found = _number(told)
    return -(found >> 1) if found & 1 else found >> 1
