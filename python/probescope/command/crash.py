"""An exception in the command itself, with the data that a bug report needs."""

from __future__ import annotations

import os
import platform
import traceback
from pathlib import Path

from probescope.command.errors import CommandError

FOLDER = str(Path(__file__).resolve().parent.parent)
MESSAGE_LENGTH = 300


class Crash(CommandError):
    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"this is a fault of probescope: {describe(error)}",
            "report it as an issue of probescope's repository, with the line above and this one: "
            f"{versions()}",
        )


def describe(error: Exception) -> str:
    """The exception's class and message, and the last frame inside the package."""
    frames = traceback.extract_tb(error.__traceback__)
    passed = [frame for frame in frames if frame.filename.startswith(FOLDER)]
    last = passed[-1] if passed else None
    place = f" at {last.filename[len(FOLDER) + 1 :]}:{last.lineno} in {last.name}" if last else ""
    return f"{type(error).__name__}: {str(error)[:MESSAGE_LENGTH]}{place}"


def version() -> str:
    """The version of the command."""
    import probescope

    return str(probescope.status().get("version", "(without its native library)"))


def versions() -> str:
    from probescope.command import machine

    try:
        bpftrace = machine.bpftrace().version
    except CommandError as error:
        bpftrace = f"({error})"
    return (
        f"probescope {version()}, {platform.python_implementation()} {platform.python_version()}, "
        f"{os.uname().sysname} {os.uname().release}, bpftrace {bpftrace}"
    )
