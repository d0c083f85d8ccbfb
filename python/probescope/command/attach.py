"""Loads probescope into a running process, by CPython's remote debugging interface (PEP 768)."""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence

from probescope.command.errors import CommandError, NotLoaded, Refused
from probescope.command.probed_process import find

PACKAGE = Path(__file__).resolve().parent.parent
RESTART = "restart the process with PROBESCOPE=1 where the package is installed"
# The process runs the script when its main thread next runs Python code.
SECONDS = 10
CHILD_SECONDS = 5.0


def run(options: Any) -> int:
    pid = options.pid
    if installed(pid):
        print(f"process {pid} has probescope loaded already")
        return 0
    inject: Any = getattr(sys, "remote_exec", None)
    if not inject:
        raise CommandError(
            "attaching takes Python 3.14 or later, here and in the process, "
            f"and this is {platform.python_version()}",
            RESTART,
        )
    with script_for(pid) as script:
        send(inject, pid, script)
        await_installed(pid, script)
    print(f"process {pid} has probescope loaded now")
    return 0


@contextmanager
def script_for(pid: int) -> Iterator[str]:
    """Writes the file that the process runs, and deletes it afterwards."""
    path = written_for(pid)
    try:
        yield path
    except StillWaiting:  # the process may still run the file, which then deletes itself
        raise
    except BaseException:
        remove(path)
        raise
    remove(path)


def written_for(pid: int) -> str:
    """Writes the file where the process can read it, and returns its path.

    The file contains the package's folder, because CPython does not tell a script its path.
    """
    text = (PACKAGE / "attached.py").read_text(encoding="utf-8")
    # The process may have another /tmp: systemd's PrivateTmp.
    for folder in (tempfile.gettempdir(), "/run"):
        try:
            file, path = tempfile.mkstemp(".py", "probescope-attach-", folder)
        except OSError:
            continue
        with open(file, "w", encoding="utf-8") as script:
            script.write(
                f"{text}\n_probescope_attach({str(PACKAGE.parent)!r}, {path!r})\ndel _probescope_attach\n"
            )
        os.chmod(path, 0o644)
        if readable_for(pid, path, str(PACKAGE / "__init__.py")):
            return path
        os.unlink(path)
    raise CommandError(
        f"process {pid} cannot read {PACKAGE}: it runs in a container, or as a user without permission",
        "install the package where the process runs, and attach from there; or " + RESTART,
    )


class StillWaiting(CommandError):
    pass


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def send(inject: Any, pid: int, script: str) -> None:
    try:
        inject(pid, script)
    except PermissionError:
        raise CommandError(
            f"no permission to attach to process {pid}", "run the command as root (sudo)"
        ) from None
    except ProcessLookupError:
        raise CommandError(f"process {pid} has just ended") from None
    except (RuntimeError, OSError) as error:
        disabled = "was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug"
        if "in the remote process" in str(error):
            raise CommandError(f"process {pid} {disabled}", RESTART) from None
        if "not enabled" in str(error):
            raise CommandError(f"this Python {disabled}", "run the command without that") from None
        step = f"run it with that Python: `readlink /proc/{pid}/exe` says which; or {RESTART}"
        raise CommandError(
            f"process {pid} is no Python {platform.python_version()} that can be attached to: {error}", step
        ) from None


def await_installed(pid: int, script: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not installed(pid):
        if time.monotonic() > deadline:
            if not os.path.exists(script):
                step = f"`readlink /proc/{pid}/exe` says which Python that is; or {RESTART}"
                raise CommandError(f"process {pid} cannot load the probescope in {PACKAGE.parent}", step)
            raise StillWaiting(
                f"process {pid} has not loaded it within {SECONDS} s: its main thread may wait in a system "
                "call, and loads it as soon as it runs Python code again",
                f"later: probescope doctor -p {pid}",
            )
        time.sleep(0.02)


def installed(pid: int) -> bool:
    """Raises CommandError when the process does not exist or may not be read."""
    try:
        return "installed" in find(pid).to_dict()["flags"]
    except NotLoaded:
        return False
    except Refused as error:
        if error.kind == "busy":
            return False
        raise


def readable_for(pid: int, *paths: str) -> bool:
    """Whether the process can read these files, in its root and as its user."""
    with open(f"/proc/{pid}/status") as file:
        found = dict(re.findall(r"^(Uid|Gid|Groups):[ \t]*(.*)", file.read(), re.MULTILINE))
    user, group = (int(found[name].split()[1]) for name in ("Uid", "Gid"))
    if os.geteuid() != 0 or user == 0:
        return in_child(lambda: all(os.access(f"/proc/{pid}/root{path}", os.R_OK) for path in paths))
    return in_child(lambda: readable_as(pid, user, group, list(map(int, found["Groups"].split())), paths))


def readable_as(pid: int, user: int, group: int, groups: List[int], paths: Sequence[str]) -> bool:
    os.chroot(f"/proc/{pid}/root")
    os.setgroups(groups)
    os.setgid(group)
    os.setuid(user)
    return all(os.access(path, os.R_OK) for path in paths)


def in_child(question: Callable[[], bool]) -> bool:
    """Calls `question` in a child with a time limit, because a file system in the process's root
    may hang. Returns False when the limit is reached.
    """
    pid = os.fork()
    if pid == 0:
        answer = False
        try:
            answer = question()
        finally:
            os._exit(0 if answer else 1)
    deadline = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return False
