"""Opens a file that a foreign process chose, if it is a regular file.

Opening a FIFO would block, and opening a device may have side effects. So the path is first opened
with O_PATH, which does neither. Its type is checked, and the descriptor is then reopened.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import Optional, Tuple

LOOK = os.O_PATH | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# openat2(2) has this number on every architecture. It needs Linux 5.6.
OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT = 0x02, 0x04, 0x10
HOW_THROUGH_LINKS = struct.pack("<3Q", LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT)
HOW = struct.pack("<3Q", LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT)


def link(path: str) -> int:
    """Returns a descriptor for a magic link in /proc, such as those in map_files.

    Raises OSError.
    """
    return _reopened(os.open(path, LOOK))


def beneath(pid: int, path: bytes) -> int:
    """Returns a descriptor for a path below the root of a process. No part of the path may be a
    symbolic link. Raises OSError.
    """
    root = os.open(f"/proc/{pid}/root", LOOK)
    try:
        return _reopened(_openat2(root, path))
    finally:
        os.close(root)


def identity(pid: int, path: bytes) -> Optional[Tuple[int, int]]:
    """Returns device and inode of the regular file at that path below the root of a process, also
    through symbolic links, or None. The file itself is not opened.
    """
    try:
        root = os.open(f"/proc/{pid}/root", LOOK)
        try:
            found = _openat2(root, path, HOW_THROUGH_LINKS)
        finally:
            os.close(root)
        status = os.fstat(found)
        os.close(found)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _openat2(folder: int, path: bytes, how: bytes = HOW) -> int:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    found: int = call(OPENAT2, folder, path, how, ctypes.c_size_t(len(how)))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _reopened(looked: int) -> int:
    try:
        if not stat.S_ISREG(os.fstat(looked).st_mode):
            raise OSError(errno.ENXIO, "no regular file")
        return os.open(f"/proc/self/fd/{looked}", READ)
    finally:
        os.close(looked)
