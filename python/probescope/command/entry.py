"""The wheel's command `probescope`, as pip installs it."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

# What the command begins as: without the folders of PYTHON* and of the user, and without the
# current one, where anybody may have put a module of any name. Whoever traces is root.
ISOLATED = "from probescope.command.entry import main; main()"


def main() -> None:
    of_user = site.ENABLE_USER_SITE and _folder() == os.path.realpath(site.getusersitepackages())
    if of_user and os.geteuid() == 0:
        sys.exit(
            "probescope: it is installed for one user, and root imports nothing from there\n"
            "  try: install it into a virtualenv"
        )
    if not (of_user or sys.flags.isolated):
        os.execv(sys.executable, [sys.executable, "-I", "-c", ISOLATED, *sys.argv[1:]])
    from probescope.command.main import main as command

    sys.exit(command(sys.argv[1:]))


def _folder() -> str:
    """Where the package lies."""
    return str(Path(__file__).resolve().parent.parent.parent)
