"""A process with the library in it."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from probescope.command.elf import Elf
from probescope.command.errors import CommandError, NotLoaded
from probescope.command.info import Info

SYMBOL = "probescope_info"
HOW_TO_LOAD = (
    "start it with PROBESCOPE=1 where the package is installed, or with `probescope run`; on Python 3.14 and later "
    "`probescope attach PID` loads it"
)
LINE = re.compile(rb"([0-9a-f]+-[0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) +(.*)", re.DOTALL)


class Mapped(NamedTuple):
    """A file that the process maps. range names the mapping in map_files; start is where its first byte is."""

    pid: int
    path: str
    range: str
    start: int
    inode: int

    def open(self) -> int:
        """Through map_files, which also reaches deleted files, or by its path in the process's own root. Raises OSError."""
        try:
            return os.open(f"/proc/{self.pid}/map_files/{self.range}", os.O_RDONLY)
        except OSError:
            return os.open(f"/proc/{self.pid}/root{self.path}", os.O_RDONLY)


class Target:
    """Closes what it holds with close()."""

    def __init__(self, pid: int, file: Mapped, address: int) -> None:
        self.pid = pid
        self.file = file
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self.info = Info(self._memory, address)

    def on_disk(self) -> bool:
        """False when bpftrace would not find the library through its path: it was deleted or replaced."""
        try:
            return os.stat(f"/proc/{self.pid}/root{self.file.path}").st_ino == self.file.inode
        except OSError:
            return False

    def to_dict(self) -> Dict[str, Any]:
        """As Info.snapshot, and where it is. Raises CommandError."""
        try:
            return {**self.info.snapshot(), "pid": self.pid, "path": self.file.path, "deleted": not self.on_disk()}
        except OSError:
            raise _ended(self.pid) from None

    def close(self) -> None:
        os.close(self._memory)


def find(pid: int) -> Target:
    """Raises CommandError, with the next step, when there is nothing to trace."""
    _check(pid)
    try:
        target = _locate(pid)
    except PermissionError as error:
        step = (
            "run the command as root (sudo)" if os.geteuid() else "run the command on the host, outside of containers"
        )
        raise CommandError(f"process {pid} may not be read", step) from error
    except (FileNotFoundError, ProcessLookupError):
        raise _ended(pid) from None
    if not target:
        raise NotLoaded(f"process {pid} does not have probescope loaded", HOW_TO_LOAD)
    return target


def files(pid: int) -> List[Mapped]:
    """Each executable file once, those first that are named like the library. Raises OSError."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        mapped = [match.groups() for match in map(LINE.fullmatch, maps.read().split(b"\n")) if match]
    by_file: Dict[Any, List[Any]] = {}
    for line in mapped:
        if line[4] != b"0":
            by_file.setdefault((line[3], line[4]), []).append(line)
    found = []
    for (_, inode), lines in by_file.items():
        first = next((line for line in lines if int(line[2], 16) == 0), None)
        if first and any(b"x" in line[1] for line in lines):
            start = int(first[0].split(b"-")[0], 16)
            found.append(Mapped(pid, os.fsdecode(first[5]), first[0].decode(), start, int(inode)))
    return sorted(found, key=lambda file: "probescope" not in file.path)


def _check(pid: int) -> None:
    try:
        with open(f"/proc/{pid}/status") as file:
            status = file.read()
    except (FileNotFoundError, ProcessLookupError):
        raise CommandError(f"there is no process {pid}", "`ps aux | grep python` lists those of Python") from None
    group = re.search(r"^Tgid:\s+(\d+)", status, re.MULTILINE)
    if group and int(group[1]) != pid:
        raise CommandError(f"{pid} is a thread of process {group[1]}", f"use -p {group[1]}")
    if re.search(r"^State:\s+[ZX]", status, re.MULTILINE):
        raise CommandError(f"process {pid} has ended and waits for its parent (zombie)")


def _locate(pid: int) -> Optional[Target]:
    for file in files(pid):
        for address in _addresses(file):
            return Target(pid, file, address)
    return None


def _addresses(file: Mapped) -> Iterator[int]:
    try:
        descriptor = file.open()
    except OSError:
        return
    try:
        elf = Elf(descriptor)
        symbol = elf.symbol(SYMBOL)
        if symbol is not None:
            yield symbol + elf.bias(file.start)
    except (OSError, ValueError):
        return
    finally:
        os.close(descriptor)


def _ended(pid: int) -> CommandError:
    return CommandError(f"process {pid} has just ended")
