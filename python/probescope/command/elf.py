"""As much of an ELF file as it takes to find an exported symbol and USDT probes: 64-bit, little endian.

The files are those that some process maps, so nothing in them is believed: sizes are bounded, and whatever does not fit is "no such
symbol".
"""

from __future__ import annotations

import os
import struct
from typing import Iterator, List, NamedTuple, Optional

PROGRAM_LOAD, SECTION_NOTE, SECTION_DYNSYM = 1, 7, 11
SYMBOL_BYTES = 24
NOTE_HEAD, NOTE_OF_PROBE = struct.Struct("<III"), 3
MAX_BYTES = 64 << 20


class Section(NamedTuple):
    type: int
    offset: int
    bytes: int
    link: int


class Probe(NamedTuple):
    provider: str
    name: str
    arguments: int
    semaphore: int  # its virtual address, 0 for none


class Elf:
    def __init__(self, file: int) -> None:
        """file: a descriptor, which stays the caller's. Raises OSError."""
        self._file = file
        self._sections: Optional[List[Section]] = None
        head = os.pread(file, 64, 0)
        self.valid = len(head) == 64 and head.startswith(b"\x7fELF\x02\x01")
        if self.valid:
            self._programs_at, self._sections_at = struct.unpack_from("<QQ", head, 32)
            sizes = struct.unpack_from("<HHHH", head, 54)
            self._program_bytes, self._program_count, self._section_bytes, self._section_count = sizes

    def symbol(self, name: str) -> Optional[int]:
        """Virtual address of a defined dynamic symbol."""
        try:
            table = next(section for section in self._all_sections() if section.type == SECTION_DYNSYM)
            strings = self._all_sections()[table.link]
            wanted = self._read(strings.offset, strings.bytes).find(b"\0%s\0" % name.encode()) + 1
            symbols = self._read(table.offset, table.bytes - table.bytes % SYMBOL_BYTES)
        except (StopIteration, IndexError, struct.error, ValueError):
            return None
        # A name may be the tail of a longer one, so the table is searched for its offset.
        value: int
        for string, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
            if wanted and string == wanted and section:
                return value
        return None

    def bias(self, start: int) -> int:
        """What has to be added to a virtual address once the file's first bytes are mapped at `start`."""
        programs = self._read(self._programs_at, self._program_bytes * self._program_count)
        address: int
        for i in range(self._program_count):
            kind, _, offset, address = struct.unpack_from("<IIQQ", programs, i * self._program_bytes)
            if kind == PROGRAM_LOAD and offset == 0:
                return start - address
        return start

    def probes(self) -> List[Probe]:
        """Those of the notes that sys/sdt.h describes."""
        try:
            notes = [section for section in self._all_sections() if section.type == SECTION_NOTE]
            return [probe for section in notes for probe in _probes_in(self._read(section.offset, section.bytes))]
        except (struct.error, ValueError):
            return []

    def _all_sections(self) -> List[Section]:
        if self._sections is None:
            table = self._read(self._sections_at, self._section_bytes * self._section_count) if self.valid else b""
            count = self._section_count if self.valid else 0
            self._sections = [
                Section(*struct.unpack_from("<4xI16xQQI", table, i * self._section_bytes)) for i in range(count)
            ]
        return self._sections

    def _read(self, offset: int, size: int) -> bytes:
        """Raises ValueError for what is not there."""
        if size > MAX_BYTES or offset >= 1 << 63:
            raise ValueError(f"{size} bytes asked for")
        data = os.pread(self._file, size, offset) if size else b""
        if len(data) != size:
            raise ValueError("the file is shorter")
        return data


def _probes_in(notes: bytes) -> Iterator[Probe]:
    at = 0
    while at + NOTE_HEAD.size <= len(notes):
        name, size, kind = NOTE_HEAD.unpack_from(notes, at)
        at += NOTE_HEAD.size
        described = at + _align(name)
        description = notes[described : described + size]
        # Three addresses, the last one the semaphore's, and three strings.
        if kind == NOTE_OF_PROBE and notes[at : at + name] == b"stapsdt\0" and description.count(b"\0", 24) >= 3:
            texts = [text.decode(errors="replace") for text in description[24:].split(b"\0")]
            yield Probe(texts[0], texts[1], len(texts[2].split()), int.from_bytes(description[16:24], "little"))
        at = described + _align(size)


def _align(size: int) -> int:
    return (size + 3) // 4 * 4
