"""Loads probescope into a process that never imported it, with CPython's own way in (PEP 768)."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any, Callable

from probescope.command.errors import CommandError
from probescope.command.target import find

SCRIPT = Path(__file__).resolve().parent.parent / "attached.py"
RESTART = "restart the process with PROBESCOPE=1 where the package is installed"
# The process runs the script when its main thread runs Python code the next time.
SECONDS = 10


def run(options: Any) -> int:
    pid = options.pid
    if installed(pid):
        print(f"process {pid} has probescope loaded already")
        return 0
    inject: Any = getattr(sys, "remote_exec", None)
    if not inject:
        raise CommandError(
            f"to attach takes Python 3.14 or later, here and in the process, and this is {platform.python_version()}",
            RESTART,
        )
    if not readable_for(pid):
        raise CommandError(
            f"process {pid} cannot read {SCRIPT}: it is in a container, or of a user who may not",
            "install the package where the process runs, and attach from there; or " + RESTART,
        )
    try:
        inject(pid, str(SCRIPT))
    except PermissionError:
        raise CommandError(f"process {pid} may not be touched", "run the command as root (sudo)") from None
    except ProcessLookupError:
        raise CommandError(f"process {pid} has just ended") from None
    except (RuntimeError, OSError) as error:
        step = f"run it with that Python: `readlink /proc/{pid}/exe` says which; or {RESTART}"
        raise CommandError(
            f"process {pid} is no Python {platform.python_version()} that can be attached to: {error}", step
        ) from None
    deadline = time.monotonic() + SECONDS
    while not installed(pid):
        if time.monotonic() > deadline:
            raise CommandError(
                f"process {pid} has not loaded it within {SECONDS} s: its main thread may wait in a system call, and loads it as soon "
                "as it runs Python code again",
                f"later: python -m probescope doctor -p {pid}",
            )
        time.sleep(0.02)
    print(f"process {pid} has probescope loaded now")
    return 0


def installed(pid: int) -> bool:
    """Raises CommandError for a process that is not there or may not be read."""
    try:
        target = find(pid)
    except CommandError as error:
        if "does not have" in str(error):
            return False
        raise
    known = target.to_dict()
    target.close()
    return "installed" in known["flags"]


def readable_for(pid: int) -> bool:
    """Can the process, in its root and as its user, read the script?"""
    with open(f"/proc/{pid}/status") as file:
        status = file.read()
    user, group = (int(re.search(rf"^{name}:\s+\d+\s+(\d+)", status, re.MULTILINE)[1]) for name in ("Uid", "Gid"))  # type: ignore
    path = f"/proc/{pid}/root{SCRIPT}"
    if os.geteuid() != 0 or user == 0:
        return os.access(path, os.R_OK)
    return in_child(lambda: as_user(user, group, path))


def as_user(user: int, group: int, path: str) -> bool:
    # The root of the process is entered first: afterwards that is not allowed.
    file = os.open(os.path.dirname(path), os.O_PATH)
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    return os.access(os.path.basename(path), os.R_OK, dir_fd=file) and os.access(SCRIPT.parent, os.X_OK)


def in_child(question: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if question() else 1)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
