"""The parts of protobuf's wire format that pprof needs: varints, and fields with a length.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from typing import Iterator, List, Tuple, Union

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MASK = (1 << 64) - 1
Value = Union[int, bytes]


class Malformed(Exception):
    """A malformed message."""


def varint(number: int) -> bytes:
    """A number of 64 bits. Negative numbers are stored as two's complement."""
    number &= MASK
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field with a number; nothing for 0, which is the default."""
    return varint(field << 3) + varint(value) if value else b""


def bytes_(field: int, value: bytes) -> bytes:
    """A field with bytes: a text, a message or packed numbers."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint_at(data: bytes, at: int) -> Tuple[int, int]:
    """Returns a number and the place behind it."""
    found = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("it ends within a number")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & MASK, at
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")


def fields(data: bytes) -> Iterator[Tuple[int, Value]]:
    """Yields the number of each field and its value: a number, or the bytes of a field with a length.
    Raises Malformed.
    """
    at = 0
    while at < len(data):
        tag, at = _varint_at(data, at)
        wire = tag & 7
        if wire == VARINT:
            found, at = _varint_at(data, at)
            yield tag >> 3, found
            continue
        if wire == BYTES:
            size, at = _varint_at(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise Malformed(f"a field of wire type {wire}")
        if size > len(data) - at:
            raise Malformed("it ends within a field")
        yield tag >> 3, data[at : at + size]
        at += size


def numbers(value: Value, most: int) -> List[int]:
    """The numbers of a repeated field. value: its packed bytes, or one number. Raises Malformed where
    they are more than most.
    """
    if isinstance(value, int):
        return [value]
    found: List[int] = []
    at = 0
    while at < len(value):
        if len(found) == most:
            raise Malformed(f"it has more than {most} numbers in one place")
        one, at = _varint_at(value, at)
        found.append(one)
    return found
