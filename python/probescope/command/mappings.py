"""The files that a process maps, from /proc/PID/maps."""

from __future__ import annotations

import errno
import os
import re
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Tuple

from probescope.command import bounds, opened
from probescope.command.errors import Refused

LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) ([1-9][0-9]*) +(.*)$", re.MULTILINE)
DELETED = b" (deleted)"
CHUNK = 1 << 18


class Mapped(NamedTuple):
    """A file that the process maps.

    range names the mapping in map_files; start is where its first byte is.
    """

    pid: int
    device: bytes
    inode: bytes
    path: bytes
    range: str
    start: int

    def open(self) -> int:
        """A descriptor: through map_files, which also reaches files that were deleted or replaced;
        without the privilege for that by its path in the process's own root, as long as that leads
        to the same file. Raises OSError.
        """
        try:
            return opened.link(f"/proc/{self.pid}/map_files/{self.range}")
        except (PermissionError, FileNotFoundError):
            if self.path.endswith(DELETED):
                raise
        file = opened.beneath(self.pid, self.path)
        if os.fstat(file).st_ino == int(self.inode):
            return file
        os.close(file)
        raise OSError(errno.ESTALE, "another file")


def files(pid: int) -> List[Mapped]:
    """Each executable file once, those first that are named like the library. Raises OSError when
    the process is gone or not to be read, and Refused.
    """
    with open(f"/proc/{pid}/maps", "rb") as maps:
        return in_text(maps, pid)


def in_text(text: BinaryIO, pid: int) -> List[Mapped]:
    """text: a file with that text."""
    first: Dict[Tuple[bytes, bytes], List[Mapped]] = {}
    executable = set()
    for start, end, rights, offset, device, inode, path in _lines(text):
        key = (device, inode)
        if key not in first and len(first) >= bounds.MAPS_FILES:
            continue
        found = first.setdefault(key, [])
        if not found and int(offset, 16) == 0:
            found.append(Mapped(pid, device, inode, path, f"{start.decode()}-{end.decode()}", int(start, 16)))
        if b"x" in rights:
            executable.add(key)
    wanted = [found[0] for key, found in first.items() if found and key in executable]
    return sorted(wanted, key=lambda file: b"probescope" not in file.path.rpartition(b"/")[2])


def _lines(text: BinaryIO) -> Iterator[Tuple[bytes, ...]]:
    """The fields of each line that is about a file."""
    rest, size = b"", 0
    while chunk := text.read(CHUNK):
        size += len(chunk)
        if size > bounds.MAPS_BYTES:
            raise Refused("malformed", f"what it maps is more than {bounds.MAPS_BYTES >> 20} MiB of text")
        whole, _, rest = (rest + chunk).rpartition(b"\n")
        yield from LINE.findall(whole)
