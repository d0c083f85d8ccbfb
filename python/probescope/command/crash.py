"""A fault of ours, as the user may report it."""

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
            f"report it as an issue of probescope's repository, with the line above and this one: {versions()}",
        )


def describe(error: Exception) -> str:
    """The exception's class and message, and the last line of ours that it came from."""
    passed = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(FOLDER)]
    place = f" at {passed[-1].filename[len(FOLDER) + 1 :]}:{passed[-1].lineno} in {passed[-1].name}" if passed else ""
    return f"{type(error).__name__}: {str(error)[:MESSAGE_LENGTH]}{place}"


def versions() -> str:
    import probescope
    from probescope.command import machine

    try:
        bpftrace = machine.bpftrace().version
    except CommandError as error:
        bpftrace = f"({error})"
    version = probescope.status().get("version", "without its native library")
    return (
        f"probescope {version}, {platform.python_implementation()} {platform.python_version()}, "
        f"{os.uname().sysname} {os.uname().release}, bpftrace {bpftrace}"
    )
