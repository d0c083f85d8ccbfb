"""Reads the parts of an ELF file (64-bit, little endian) that hold exported symbols and USDT
probes.

The files are mapped by arbitrary processes, so their contents are not trusted. Data that is
inconsistent, or larger than one of probescope's libraries can be, raises Malformed.
"""

from __future__ import annotations

import os
import struct
from typing import Iterator, List, NamedTuple, Optional, Set, Tuple

from probescope.command import bounds

PROGRAM_LOAD, SECTION_SYMTAB, SECTION_NOTE, SECTION_DYNSYM = 1, 2, 7, 11
# Types of symbols: a function, and one whose code the loader chooses; its address is that of the code
# that chooses.
FUNCTION, INDIRECT = 2, 10
SYMBOL = struct.Struct("<IBBHQQ")
NOTE_HEAD, NOTE_OF_PROBE = struct.Struct("<III"), 3


class Malformed(Exception):
    pass


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
    """Each method raises Malformed, and OSError where the file cannot be read."""

    def __init__(self, file: int) -> None:
        """file: a descriptor. The caller closes it."""
        self._file = file
        self._sections: Optional[List[Section]] = None
        head = self._read(0, 64)
        self.valid = head.startswith(b"\x7fELF\x02\x01")
        if self.valid:
            self._programs_at, self._sections_at = struct.unpack_from("<QQ", head, 32)
            sizes = struct.unpack_from("<HHHH", head, 54)
            self._program_bytes, self._program_count, self._section_bytes, self._section_count = sizes

    def symbol(self, name: str) -> Optional[int]:
        """Returns the virtual address of a defined dynamic symbol."""
        if not self.valid:
            return None
        sections = self._all_sections()
        table = next((section for section in sections if section.type == SECTION_DYNSYM), None)
        if not table or table.link >= len(sections):
            return None
        strings = sections[table.link]
        if max(table.bytes, strings.bytes) > bounds.ELF_SYMBOL_BYTES:
            raise Malformed("too many symbols")
        wanted = self._read(strings.offset, strings.bytes).find(b"\0%s\0" % name.encode()) + 1
        if not wanted:
            return None
        symbols = self._read(table.offset, table.bytes)
        # A name may be the tail of a longer one, so the symbols are searched by the offset of the
        # name.
        value: int
        whole = symbols[: len(symbols) // SYMBOL.size * SYMBOL.size]
        for string, _, _, section, value, _ in SYMBOL.iter_unpack(whole):
            if string == wanted and section:
                return value
        return None

    def functions(self, name: str) -> List[Tuple[int, int]]:
        """Returns (address, type) of each function of that name in the symbol tables."""
        if not self.valid:
            return []
        sections = self._all_sections()
        found: Set[Tuple[int, int]] = set()
        for table in sections:
            if table.type in (SECTION_DYNSYM, SECTION_SYMTAB) and table.link < len(sections):
                found.update(self._functions_in(table, sections[table.link], name.encode() + b"\0"))
        return sorted(found)

    def _functions_in(self, table: Section, strings: Section, name: bytes) -> Iterator[Tuple[int, int]]:
        wanted = _places(b"".join(self._parts(strings)), name)
        for symbols in self._parts(table) if wanted else ():
            whole = symbols[: len(symbols) // SYMBOL.size * SYMBOL.size]
            for string, info, _, section, value, _ in SYMBOL.iter_unpack(whole):
                if string in wanted and section and info & 15 in (FUNCTION, INDIRECT):
                    yield value, info & 15

    def _parts(self, section: Section) -> Iterator[bytes]:
        """Yields a section's bytes in parts, each of whole symbols."""
        if section.bytes > bounds.ELF_TABLE_BYTES:
            raise Malformed("too many symbols")
        step = bounds.ELF_BYTES // SYMBOL.size * SYMBOL.size
        for at in range(0, section.bytes, step):
            yield self._read(section.offset + at, min(step, section.bytes - at))

    def bias(self, start: int) -> int:
        """Returns the difference between addresses in the process and virtual addresses, when the
        file's first byte is mapped at `start`.
        """
        address: int
        for kind, offset, address in self._rows(
            self._programs_at, self._program_bytes, self._program_count, struct.Struct("<I4xQQ")
        ):
            if kind == PROGRAM_LOAD and offset == 0:
                return start - address
        return start

    def probes(self) -> List[Probe]:
        """Returns the probes from the notes that sys/sdt.h describes."""
        if not self.valid:
            return []
        notes = [section for section in self._all_sections() if section.type == SECTION_NOTE]
        if sum(section.bytes for section in notes) > bounds.ELF_NOTE_BYTES:
            raise Malformed("too many notes")
        found: List[Probe] = []
        for section in notes:
            for probe in _probes_in(self._read(section.offset, section.bytes)):
                found.append(probe)
                if len(found) > bounds.ELF_PROBES:
                    raise Malformed("too many probes")
        return found

    def _all_sections(self) -> List[Section]:
        if self._sections is None:
            rows = self._rows(
                self._sections_at, self._section_bytes, self._section_count, struct.Struct("<4xI16xQQI")
            )
            self._sections = [Section(*row) for row in rows]
        return self._sections

    def _rows(self, offset: int, size: int, count: int, form: struct.Struct) -> List[Tuple[int, ...]]:
        """Reads the rows of a table. Their size must lie within bounds."""
        if not count:
            return []
        if count > bounds.ELF_ROWS or not bounds.ELF_LEAST_ROW_BYTES <= size <= bounds.ELF_ROW_BYTES:
            raise Malformed(f"{count} rows of {size} bytes")
        data = self._read(offset, size * count)
        return [form.unpack_from(data, i * size) for i in range(count)]

    def _read(self, offset: int, size: int) -> bytes:
        if size > bounds.ELF_BYTES or offset + size > 1 << 63:
            raise Malformed(f"{size} bytes asked for")
        data = os.pread(self._file, size, offset) if size else b""
        if len(data) != size:
            raise Malformed("the file is shorter")
        return data


def _places(strings: bytes, text: bytes) -> Set[int]:
    """Returns the offsets at which a name ends with this text. A name may be the tail of another."""
    found: Set[int] = set()
    at = strings.find(text)
    while at >= 0:
        found.add(at)
        if len(found) > bounds.ELF_SAME_NAMES:
            raise Malformed("too many equal names")
        at = strings.find(text, at + 1)
    return found


def _probes_in(notes: bytes) -> Iterator[Probe]:
    at = 0
    while at + NOTE_HEAD.size <= len(notes):
        name, size, kind = NOTE_HEAD.unpack_from(notes, at)
        at += NOTE_HEAD.size
        described = at + _align(name)
        description = notes[described : described + size]
        # A description has three addresses, the last of which is the semaphore's, and three
        # strings.
        if (
            kind == NOTE_OF_PROBE
            and notes[at : at + name] == b"stapsdt\0"
            and description.count(b"\0", 24) >= 3
        ):
            texts = description[24:].split(b"\0", 3)
            names = [text.decode(errors="replace") for text in texts[:2]]
            semaphore = int.from_bytes(description[16:24], "little")
            yield Probe(names[0], names[1], len(texts[2].split()), semaphore)
        at = described + _align(size)


def _align(size: int) -> int:
    return (size + 3) // 4 * 4
