"""The package that a process was started with.

That is `python -m PACKAGE`, or a script that only starts a package. This runs in the child that reads
foreign processes, because it opens a file that the process chose.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional, Tuple

from probescope.command import opened
from probescope.command.bounds import COMMAND_LINE_BYTES, SCRIPT_BYTES
from probescope.command.runners import RUNNERS

PYTHON = re.compile(rb"python[\d.]*t?")
# Options that take the next word, and the one with which there is no script.
TAKES = re.compile(rb"-[A-Za-z]*[WXQ]")
NO_SCRIPT = re.compile(rb"-[A-Za-z]*c")
MODULE = re.compile(rb"-[A-Za-z]*m(.*)", re.DOTALL)
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")
IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+(\w+))", re.MULTILINE)
# What scripts that start a package import besides it.
BESIDE = {b"re", b"sys", b"os", b"importlib", b"pkg_resources", b"__future__"}


def globs(pid: int) -> List[str]:
    """Returns globs of the package's files.

    Returns [] where the process was not started with a package, or with one of RUNNERS.
    """
    words = _command_line(pid)
    if not words or not PYTHON.fullmatch(os.path.basename(words[0])):
        return []
    name = _package(pid, words[1:])
    if not name or not NAME.fullmatch(name) or name.decode() in RUNNERS:
        return []
    return [f"*/{kind}-packages/{name.decode()}/*" for kind in ("site", "dist")]


def _package(pid: int, words: List[bytes]) -> Optional[bytes]:
    path, module = _script(words)
    if module:
        return module
    if not path or os.path.basename(os.path.dirname(path)) != b"bin":
        return None
    names = (found[1] or found[2] for found in IMPORT.finditer(_read(pid, path)))
    return next((name for name in names if name not in BESIDE), None)


def _script(words: List[bytes]) -> Tuple[Optional[bytes], Optional[bytes]]:
    """Returns the path of the script and the name of the module; one of them is None, or both."""
    left = iter(words)
    for word in left:
        if not word.startswith(b"-"):
            return word, None
        if NO_SCRIPT.match(word):
            break
        module = MODULE.fullmatch(word)
        if module:
            name = re.match(rb"\w+", module[1] or next(left, b""))
            return None, name and name[0]
        if TAKES.fullmatch(word):
            next(left, None)
    return None, None


def _command_line(pid: int) -> List[bytes]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read(COMMAND_LINE_BYTES).split(b"\0")


def _read(pid: int, path: bytes) -> bytes:
    """Returns the begin of the script; b"" where it cannot be read. No part of its path may be a link."""
    try:
        whole = os.path.join(os.readlink(b"/proc/%d/cwd" % pid), path)
        descriptor = opened.beneath(pid, whole)
        try:
            return os.read(descriptor, SCRIPT_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
