"""All reads of foreign processes and of the files that they map.

This code runs in a child (reader.py), because a process may map a file of FUSE, and such a file can
block every reader of the file or of the memory. Each question returns plain data. Expected errors
are CommandErrors with a reason; reader.py turns all other exceptions into one.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from probescope.command import c_function, entry_point, mappings
from probescope.command.elf import Elf, Malformed
from probescope.command.errors import NotLoaded, Refused
from probescope.command.info import Info
from probescope.command.mappings import DELETED, Mapped, files
from probescope.command.own import own_probes

SYMBOL = "probescope_info"
HOW_TO_LOAD = (
    "start it with PROBESCOPE=1 where the package is installed, or with `probescope run`; on Python 3.14 "
    "and later `probescope attach PID` loads it; where that was done, `probescope doctor` says whether the "
    "library was built"
)


class Place(NamedTuple):
    """The location of a process's probescope_info. born: start time in ticks after boot."""

    pid: int
    born: bytes
    file: Mapped
    address: int


class Handed(NamedTuple):
    """An answer with an open file: the reader receives a descriptor of its own."""

    descriptor: int
    answer: Any


def find(pid: int) -> Place:
    """Raises NotLoaded, with the next step, when the process has not loaded probescope."""
    _check(pid)
    born = _born(pid)
    for file in files(pid):
        offset = _offset(file)
        if offset is not None:
            return Place(pid, born, file, file.start + offset)
    raise NotLoaded(f"process {pid} does not have probescope loaded", HOW_TO_LOAD)


def snapshot(place: Place) -> Dict[str, Any]:
    """Returns Info.snapshot, and where the library is."""
    with _memory(place) as memory:
        known = Info(memory, place.address).snapshot()
    path = place.file.path.decode(errors="replace")
    return {**known, "pid": place.pid, "path": path, "deleted": not _on_disk(place)}


def status(place: Place) -> Dict[str, Any]:
    """Returns the snapshot, with `listened` for each probe, and `own` (own_probes)."""
    known = snapshot(place)
    with _memory(place) as memory:
        info = Info(memory, place.address)
        for probe in known["probes"].values():
            probe["listened"] = _listened(info, probe["semaphore"])
        return {**known, "own": own_probes(place.pid, lambda semaphore: _listened(info, semaphore))}


def flushes(place: Place) -> int:
    with _memory(place) as memory:
        return Info(memory, place.address).flushes()


def listened(place: Place, semaphores: List[int]) -> List[bool]:
    with _memory(place) as memory:
        info = Info(memory, place.address)
        return [info.listened(semaphore) for semaphore in semaphores]


def function(place: Place, name: bytes, symbol: str) -> Handed:
    """See c_function.find."""
    if _born(place.pid) != place.born:
        raise ProcessLookupError
    return Handed(*c_function.find(place.pid, name, symbol))


def runner(pid: int, file: Tuple[bytes, bytes]) -> Optional[str]:
    """See mappings.runner."""
    return mappings.runner(pid, file)


def entry(pid: int) -> List[str]:
    """See entry_point.globs."""
    return entry_point.globs(pid)


def _listened(info: Info, semaphore: int) -> Optional[bool]:
    """Returns None when the probe has no semaphore that can be read."""
    try:
        return info.listened(semaphore) if semaphore else None
    except Refused:
        return None


@contextmanager
def _memory(place: Place) -> Iterator[int]:
    """Opens the process's memory. Raises ProcessLookupError when its PID was reused."""
    memory = os.open(f"/proc/{place.pid}/mem", os.O_RDONLY)
    try:
        if _born(place.pid) != place.born:
            raise ProcessLookupError
        yield memory
    finally:
        os.close(memory)


def _born(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].split()[19]


def _on_disk(place: Place) -> bool:
    """Returns False when the library was deleted or replaced, so that bpftrace cannot find it."""
    try:
        found = os.stat(b"/proc/%d/root%s" % (place.pid, place.file.path)).st_ino
    except (OSError, ValueError):
        return False
    return not place.file.path.endswith(DELETED) and found == int(place.file.inode)


def _offset(file: Mapped) -> Optional[int]:
    """Returns the distance of the symbol from the file's first byte."""
    try:
        descriptor = file.open()
    except OSError:
        return None
    try:
        elf = Elf(descriptor)
        symbol = elf.symbol(SYMBOL)
        return None if symbol is None else symbol + elf.bias(0)
    except (OSError, Malformed):
        return None
    finally:
        os.close(descriptor)


def _check(pid: int) -> None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            status = file.read()
    except (FileNotFoundError, ProcessLookupError):
        raise Refused(
            "other", f"there is no process {pid}", "`ps aux | grep python` lists those of Python"
        ) from None
    group = re.search(rb"^Tgid:\s+(\d+)", status, re.MULTILINE)
    if group and int(group[1]) != pid:
        raise Refused("other", f"{pid} is a thread of process {int(group[1])}", f"use -p {int(group[1])}")
    if re.search(rb"^State:\s+[ZX]", status, re.MULTILINE):
        raise Refused("other", f"process {pid} has ended and waits for its parent (zombie)")
