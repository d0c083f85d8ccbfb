"""The bpftrace programs. They are in the package, or in the checkout that it runs from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List

from probescope.command.errors import CommandError

PACKAGE = Path(__file__).resolve().parent.parent
# Commands of the gem whose program has another name. Each threshold of slow has its own program.
ALIASES = {"slow": "slow10ms", "slow_by_request": "slow10ms_by_request"}


def all_programs() -> Dict[str, Path]:
    """All programs by name, and also by the names of the gem's commands."""
    for folder in (PACKAGE / "programs", PACKAGE.parent.parent / "providers"):
        found = {path.stem: path for path in sorted(folder.glob("*.bt"))}
        if found:
            return {**found, **{name: found[of] for name, of in ALIASES.items()}}
    return {}


def program(name: str) -> Path:
    """Returns the program's path. Raises CommandError when there is none."""
    try:
        return all_programs()[name[: -len(".bt")] if name.endswith(".bt") else name]
    except KeyError:
        raise CommandError(f"there is no script {name!r}", "probescope script lists them") from None


def question(path: Path) -> str:
    """Returns the question that a program answers: the first line of its comment."""
    found = re.search(r"^ \* (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def tracepoints(path: Path) -> List[str]:
    """Returns the kernel's tracepoints that a program attaches to, as "category:name"."""
    return sorted(set(re.findall(r"^tracepoint:(\w+:\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)))


def probes(path: Path) -> List[str]:
    """Returns the names of the probes that a program attaches to."""
    return sorted(
        set(re.findall(r"^usdt:\$1:probescope:(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    )
