"""Finds the C function for `probescope trace on uprobe:FILE:SYMBOL` in a file whose code a process
maps. FILE is compared, and the mapped file is opened: a link or a file that is replaced meanwhile
changes nothing. lib/probescope/tracing/c_function.rb has the same.
"""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from probescope.command import opened
from probescope.command.elf import INDIRECT, Elf, Malformed
from probescope.command.errors import Refused
from probescope.command.mappings import DELETED, Mapped, files


def find(pid: int, name: bytes, symbol: str) -> Tuple[int, Tuple[bytes, bytes]]:
    """Returns a descriptor of the file, and device and inode in the process's list of mappings. name:
    the file's whole path or its name. Raises Refused.
    """
    file = _mapped(pid, name)
    descriptor = file.open()
    try:
        # The process may have mapped another file at that address meanwhile.
        if os.fstat(descriptor).st_ino != int(file.inode):
            raise Refused("other", f"process {pid} maps {_shown(name)} no more")
        _check(Elf(descriptor), name, symbol)
        return os.dup(descriptor), (file.device, file.inode)
    except Malformed:
        raise Refused("malformed", f"{_shown(name)} is no ELF file that can be read") from None
    finally:
        os.close(descriptor)


def _mapped(pid: int, name: bytes) -> Mapped:
    """The file that the user means."""
    every = files(pid)
    if name.startswith(b"/"):
        found = _with_path(pid, every, name)
    else:
        found = [file for file in every if _plain(file.path).rpartition(b"/")[2] == name]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(
            "other", f"process {pid} maps no code of a file {_shown(name)}", f"grep r-x /proc/{pid}/maps"
        )
    raise Refused(
        "other",
        f"process {pid} maps {len(found)} files {_shown(name)}",
        f"give the whole path: uprobe:{_shown(_plain(found[0].path))}:SYMBOL",
    )


def _with_path(pid: int, every: List[Mapped], name: bytes) -> List[Mapped]:
    """The file at that path in the process's root, by device and inode; else the one that was mapped
    from that path.
    """
    wanted = opened.identity(pid, name)
    same = [file for file in every if wanted and int(file.inode) == wanted[1] and _identity(file) == wanted]
    return same[:1] or [file for file in every if _plain(file.path) == name]


def _identity(file: Mapped) -> Optional[Tuple[int, int]]:
    try:
        descriptor = file.open()
    except OSError:
        return None
    status = os.fstat(descriptor)
    os.close(descriptor)
    return status.st_dev, status.st_ino


def _check(elf: Elf, name: bytes, symbol: str) -> None:
    found = elf.functions(symbol)
    step = "name a function that it calls, or that calls it"
    if not found:
        raise Refused(
            "other",
            f"{_shown(name)} has no function {symbol} in its symbol tables",
            "nm -D FILE lists those that other files may call",
        )
    if any(kind == INDIRECT for _, kind in found):
        raise Refused(
            "other",
            f"{symbol} of {_shown(name)} has several versions, of which the loader chooses one for each "
            "processor (IFUNC)",
            step,
        )
    if len({address for address, _ in found}) > 1:
        raise Refused(
            "other", f"{_shown(name)} has {len(found)} functions {symbol}, and bpftrace finds only one", step
        )


def _plain(path: bytes) -> bytes:
    """The kernel appends " (deleted)" to the path of a file that was deleted or replaced."""
    return path[: -len(DELETED)] if path.endswith(DELETED) else path


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")[:200]
