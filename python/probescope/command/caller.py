"""The user who started this process through sudo. lib/probescope/tracing/caller.rb has the same."""

from __future__ import annotations

import os
import pwd
import sys
from typing import Dict, Optional

from probescope.command.errors import CommandError

# Variables that sudo sets. They are wrong for an application that no longer runs as root.
OF_SUDO = ("SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_COMMAND", "SUDO_HOME", "MAIL")


def caller() -> Optional[pwd.struct_passwd]:
    """Returns the user who ran sudo, or None when this process is not root or root started it."""
    uid = os.environ.get("SUDO_UID", "0")
    if os.geteuid() or uid == "0":
        return None
    try:
        return pwd.getpwuid(int(uid))
    except (ValueError, KeyError, OverflowError):
        raise _refused(f"user {uid!r}, whom the system does not know") from None


def become(user: pwd.struct_passwd) -> Dict[str, str]:
    """Switches this process to that user for good, with the user's groups and no capabilities.

    Returns the user's environment.
    """
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    except OSError as error:
        raise _refused(f"{user.pw_name} ({error.strerror})") from None
    print(f"probescope: `run` needs no sudo: the application runs as {user.pw_name}", file=sys.stderr)
    kept = {name: value for name, value in os.environ.items() if name not in OF_SUDO}
    return {
        **kept,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell,
    }


def _refused(whom: str) -> CommandError:
    return CommandError(
        f"sudo was called by {whom}: the privileges cannot be given back",
        "run it without sudo: `run` needs no privilege",
    )
