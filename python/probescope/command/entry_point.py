"""The package that a process was started with.

That is `python -m PACKAGE`, or a script that only starts a package or a gem. This runs in the child
that reads foreign processes, because it opens a file that the process chose.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional, Tuple

from probescope.command import opened
from probescope.command.bounds import COMMAND_LINE_BYTES, SCRIPT_BYTES
from probescope.command.runners import RUNNERS

PYTHON = re.compile(rb"python[\d.]*t?")
RUBY = re.compile(rb"ruby[\d.]*")
# Options of the interpreters that take the next word, and those with which there is no script.
TAKES = {PYTHON: re.compile(rb"-[A-Za-z]*[WXQ]"), RUBY: re.compile(rb"-[ICErxSF]")}
NO_SCRIPT = {PYTHON: re.compile(rb"-[A-Za-z]*c"), RUBY: re.compile(rb"-e")}
MODULE = re.compile(rb"-[A-Za-z]*m(.*)", re.DOTALL)
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")
IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+(\w+))", re.MULTILINE)
# What scripts that start a package import besides it.
BESIDE = {b"re", b"sys", b"os", b"importlib", b"importlib_metadata", b"pkg_resources", b"__future__"}
# The distribution that a script of setuptools starts; its package mostly has the same name.
REQUIRES = re.compile(rb"^__requires__\s*=\s*[\"']([A-Za-z0-9_.-]+)", re.MULTILINE)

BIN_PATH = re.compile(rb"bin_path\(?\s*[\"']([A-Za-z0-9_.-]+)[\"']")
# The script of a gem: gems/NAME-VERSION/exe/SCRIPT. gems/ruby-VERSION is no gem, but RVM's folder for the
# gems of a version of Ruby.
IN_GEM = re.compile(
    rb"/gems/(?!(?:j|truffle)?ruby-\d)([A-Za-z0-9_.-]+?)-\d[A-Za-z0-9_.-]*/(?:exe|bin)/[^/]+\Z"
)


def globs(pid: int) -> List[str]:
    """Returns globs of the package's files.

    Returns [] where the process was not started with a package, or with one of RUNNERS.
    """
    words = _command_line(pid)
    interpreter = os.path.basename(words[0]) if words else b""
    if PYTHON.fullmatch(interpreter):
        name = _named(_package(pid, words[1:]))
        return [f"*/{kind}-packages/{name}/*" for kind in ("site", "dist")] if name else []
    if RUBY.fullmatch(interpreter):
        name = _named(_gem(pid, words[1:]))
        return [f"*/gems/{name}-*/*"] if name else []
    return []


def _named(name: Optional[bytes]) -> Optional[str]:
    if not name or not NAME.fullmatch(name) or name.decode() in RUNNERS:
        return None
    return name.decode()


def _package(pid: int, words: List[bytes]) -> Optional[bytes]:
    path, module = _script(words, PYTHON)
    if module:
        return module
    if not path or os.path.basename(os.path.dirname(path)) != b"bin":
        return None
    text = _read(pid, path)
    required = REQUIRES.search(text)
    if required:
        return required[1].lower().translate(bytes.maketrans(b"-.", b"__"))
    names = (found[1] or found[2] for found in IMPORT.finditer(text))
    return next((name for name in names if name not in BESIDE), None)


def _gem(pid: int, words: List[bytes]) -> Optional[bytes]:
    path, _ = _script(words, RUBY)
    found = path and (IN_GEM.search(path) or BIN_PATH.search(_read(pid, path)))
    return found[1] if found else None


def _script(words: List[bytes], language: "re.Pattern[bytes]") -> Tuple[Optional[bytes], Optional[bytes]]:
    """Returns the path of the script and the name of the module; one of them is None, or both."""
    left = iter(words)
    for word in left:
        if not word.startswith(b"-"):
            return word, None
        if NO_SCRIPT[language].match(word):
            break
        module = MODULE.fullmatch(word) if language is PYTHON else None
        if module:
            name = re.match(rb"\w+", module[1] or next(left, b""))
            return None, name[0] if name else None
        if TAKES[language].fullmatch(word):
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
