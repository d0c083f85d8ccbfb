"""Finds programs that may run with privilege.

The search covers the system's folders, never PATH. Each file, folder and link on the path must
belong to root, and nobody else may write to it. lib/probescope/tracing/tool.rb has the same.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, Optional

from probescope.command.errors import CommandError

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# The environment of programs that run with privilege.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# The inode of the initial user namespace: the kernel's PROC_USER_INIT_INO. The kernel checks
# capabilities in that namespace.
INITIAL = "user:[4026531837]"
# The kernel's limit.
MOST_LINKS = 40


def tool(name: str) -> Optional[str]:
    """Returns the absolute path of the first match that only root can change, or None without a
    match.

    Raises CommandError when another user could replace every match.
    """
    paths = [os.path.join(folder, name) for folder in FOLDERS]
    found = [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]
    for path in found:
        if weakness(path) is None:
            return path
    if found:
        raise CommandError(
            f"{found[0]} is not run with privilege: {weakness(found[0])}",
            f"install {name} from the system's packages, or make it root's: chown root, chmod go-w",
        )
    return None


def initial_namespace() -> bool:
    return os.path.islink("/proc/self/ns/user") and os.readlink("/proc/self/ns/user") == INITIAL


def weakness(path: str) -> Optional[str]:
    """Returns why another user could replace the file: "/opt/x belongs to user 1000".

    Returns None when only root can change it.
    """
    # In a user namespace, files of the machine's root may belong to nobody. Nothing runs with
    # privilege there (machine.privilege).
    owners = (0,) if initial_namespace() else (0, 65534)
    try:
        for place in way(path):
            status = os.lstat(place)
            if status.st_uid not in owners:
                return f"{place} belongs to user {status.st_uid}"
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o022:
                return f"others than its owner may write to {place}"
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return None


def way(path: str) -> List[str]:
    """Every folder, link and file through which the kernel resolves an absolute path."""
    left = path.split("/")
    here, passed, links = "", ["/"], 0
    while left:
        name = left.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here).rstrip("/")
            continue
        place = f"{here}/{name}"
        passed.append(place)
        if not os.path.islink(place):
            here = place
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(place)
        if target.startswith("/"):
            here = ""
        left = [*target.split("/"), *left]
    return passed
