"""The wheel's command `probescope`, as pip installs it."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

# The command restarts itself in isolated mode, without PYTHON* variables, the user's site-packages
# and the current directory. Others may have put modules of any name there, and the command runs as
# root.
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
    """The folder that contains the package."""
    return str(Path(__file__).resolve().parent.parent.parent)
