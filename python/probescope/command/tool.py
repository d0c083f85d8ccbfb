"""Programs of this machine that may run with privilege.

They are looked for in the system's own folders, never in PATH. Each file, folder and link on the
way has to be root's, and nobody else may write to it. lib/probescope/host/tool.rb has the same.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, Optional

from probescope.command.errors import CommandError

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# The environment of what runs with privilege.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# The initial user namespace has this number: PROC_USER_INIT_INO of the kernel, which asks for
# capabilities there.
INITIAL = "user:[4026531837]"
# As many as the kernel follows.
MOST_LINKS = 40


def tool(name: str) -> Optional[str]:
    """Absolute path of the first one that is root's alone; None where there is none of that name.

    Raises CommandError where somebody else than root could put another program in the place of each
    of them.
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
    """Why what lies there may be another's: "/opt/x belongs to user 1000".

    None where it is root's alone.
    """
    # In a user namespace files of the machine's root may be nobody's; nothing has privilege there
    # (machine.privilege).
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
    """Every folder, link and file that the kernel looks at on its way to an absolute path."""
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
