"""Opens a file that a foreign process chose, and nothing but a regular file.

A FIFO would hang whoever opens it, and to open a device may do something. So a file is looked at
first (O_PATH), which opens nothing, and then opened by what was looked at.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

LOOK = os.O_PATH | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# openat2(2), which has that number on every architecture. Linux 5.6.
OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT = 0x02, 0x04, 0x10
HOW = struct.pack("<3Q", LOOK, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT)


def link(path: str) -> int:
    """The file of a link in /proc, which the kernel leads to an open file: a descriptor.

    Raises OSError.
    """
    return _reopened(os.open(path, LOOK))


def beneath(pid: int, path: bytes) -> int:
    """The file of that path below the root of a process, where no part of the path is a link: a
    descriptor. Raises OSError.
    """
    root = os.open(f"/proc/{pid}/root", LOOK)
    try:
        return _reopened(_openat2(root, path))
    finally:
        os.close(root)


def _openat2(folder: int, path: bytes) -> int:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    found: int = call(OPENAT2, folder, path, HOW, ctypes.c_size_t(len(HOW)))
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
