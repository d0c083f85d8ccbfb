"""Replaces this process by an application that loads probescope. Its child processes in Python load
probescope too.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import sys
from pathlib import Path
from typing import Any, Dict, List

import probescope
from probescope.command.caller import become, caller
from probescope.command.errors import CommandError, Usage

PACKAGE = Path(__file__).resolve().parent.parent
EXAMPLE = "probescope run app.py"


def run(options: Any) -> int:
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    if not arguments:
        raise Usage("which application?", EXAMPLE)
    first = arguments[0]
    if first in ("-m", "-c") and len(arguments) == 1:
        raise Usage(f"{first} needs an argument", EXAMPLE)
    if first.startswith("-") or _is_of_python(first):
        words = [sys.executable, *interpreter_options(), *arguments]
    else:
        program = shutil.which(first) or shutil.which(os.path.join(".", first))
        if not program and not os.path.exists(first):
            raise CommandError(f"there is no file and no program {first!r}", "check its name and the PATH")
        if not program:
            raise CommandError(
                f"{first!r} is neither a Python file nor executable", f"check its name, or chmod +x {first}"
            )
        words = [program, *arguments[1:]]
    _tell_of_no_probes()
    user = caller()
    environment = {**(become(user) if user else os.environ), **added_to_environment()}
    if options.functions:
        environment["PROBESCOPE_FUNCTIONS"] = options.functions
    sys.stdout.flush()
    try:
        os.execve(words[0], words, environment)
    except OSError as error:
        raise CommandError(f"cannot run {first!r}: {error.strerror}", "check its name and the PATH") from None


def _is_of_python(path: str) -> bool:
    """Whether the interpreter can run this path.

    False for an ELF file, such as a Python binary, and for a script of another language.
    """
    if not os.path.isfile(path):
        return os.path.exists(path)  # a folder, or a pipe, which must not be read here
    try:
        with open(path, "rb") as file:
            start = file.read(128)
    except OSError:
        return True  # the interpreter reports the error
    first_line = start.partition(b"\n")[0]
    return not start.startswith(b"\x7fELF") and (not start.startswith(b"#!") or b"python" in first_line)


def _tell_of_no_probes() -> None:
    """Warns only, because the application may run in another Python."""
    reason = probescope.unavailable_reason()
    if reason:
        told = f"programs of Python {platform.python_version()} have no probes: {reason}"
        print(f"probescope: {told}", file=sys.stderr, flush=True)


def added_to_environment() -> Dict[str, str]:
    """Returns the variables that load probescope.

    The .pth file of an installed package needs only PROBESCOPE=1. A checkout has no .pth file, so a
    folder with a sitecustomize is added to PYTHONPATH.
    """
    added = {"PROBESCOPE": "1"}
    places = [
        *getattr(site, "getsitepackages", list)(),
        site.getusersitepackages() if site.ENABLE_USER_SITE else "",
    ]
    folder = PACKAGE.parent
    real = [os.path.realpath(place) for place in places]
    if not (folder / "probescope.pth").exists() or str(folder) not in real:
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        wanted = [str(PACKAGE / "bootstrap"), str(folder)]
        others = [path for path in before if path and path not in wanted]
        added["PYTHONPATH"] = os.pathsep.join([*wanted, *others])
    return added


def interpreter_options() -> List[str]:
    """Returns this Python's options, which stand before -m probescope.

    Returns none when the command started itself with -c: see entry.py.
    """
    options: List[str] = []
    words = iter(sys.orig_argv[1:])
    for word in words:
        letters = word[1:]
        found = next((i for i, letter in enumerate(letters) if letter in "cmXW"), None)
        if word.startswith("--"):
            options += [word, next(words)] if word == "--check-hash-based-pycs" else [word]
        elif found is None:
            options.append(word)
        elif letters[found] == "c":
            return []
        elif letters[found] == "m":
            return options + ([f"-{letters[:found]}"] if found else [])
        else:
            options += [word] if letters[found + 1 :] else [word, next(words)]
    return []
