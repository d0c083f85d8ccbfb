"""The files that a process maps, from /proc/PID/maps."""

from __future__ import annotations

import errno
import os
import re
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from probescope.command import bounds, opened
from probescope.command.errors import Refused

LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) ([1-9][0-9]*) +(.*)$", re.MULTILINE)
DELETED = b" (deleted)"
CHUNK = 1 << 18
# The program of a valgrind tool: /usr/libexec/valgrind/memcheck-amd64-linux
VALGRIND = re.compile(rb"/valgrind/[^/]+-linux\Z")


class Mapped(NamedTuple):
    """A file that the process maps.

    range: the mapping's name in map_files. start: the address of the file's first byte.
    """

    pid: int
    device: bytes
    inode: bytes
    path: bytes
    range: str
    start: int

    def open(self) -> int:
        """Returns a descriptor. map_files also reaches files that were deleted or replaced, but
        needs a privilege. Without it, the file is opened by its path in the process's root, if that
        path still leads to the same inode. Raises OSError.
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
    """Returns each executable file once. Those with "probescope" in their names come first. Raises
    Refused, and OSError when the process has ended or may not be read.
    """
    with open(f"/proc/{pid}/maps", "rb") as maps:
        return in_text(maps, pid)


def in_text(text: BinaryIO, pid: int) -> List[Mapped]:
    """text: an open file with the text of /proc/PID/maps."""
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


def runner(pid: int, file: Tuple[bytes, bytes]) -> Optional[str]:
    """Returns who runs the process's code of the file with this device and inode: "kernel" or
    "valgrind". None: the process maps no code of it.
    """
    code = valgrind = False
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for _, _, rights, _, device, inode, path in _lines(maps):
            code = code or (b"x" in rights and (device, inode) == file)
            valgrind = valgrind or VALGRIND.search(path) is not None
    return ("valgrind" if valgrind else "kernel") if code else None


def _lines(text: BinaryIO) -> Iterator[Tuple[bytes, ...]]:
    """Yields the fields of each line with a file."""
    rest, size = b"", 0
    while chunk := text.read(CHUNK):
        size += len(chunk)
        if size > bounds.MAPS_BYTES:
            raise Refused("malformed", f"what it maps is more than {bounds.MAPS_BYTES >> 20} MiB of text")
        whole, _, rest = (rest + chunk).rpartition(b"\n")
        yield from LINE.findall(whole)
