"""What bpftrace complains of, in words of ours, with its own behind them. lib/probescope/host/complaint.rb has the same."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from probescope.command.errors import CommandError

CONTAINER = (
    "run it as root on the host, or in a container with --pid=host --cap-add SYS_ADMIN --cap-add SYS_PTRACE "
    "--security-opt seccomp=unconfined"
)
# What bpftrace says, by 0.17 to 0.27: (what that means, the next step); the first that fits.
MEANINGS: Dict[str, Tuple[str, str]] = {
    r"running as the root user|Missing CAP_\w+ capability": (
        "bpftrace refuses to run without root's privilege",
        "run it as root (sudo)",
    ),
    r"(?i)lockdown": ("the kernel is locked down, and forbids BPF", "boot it without lockdown=confidentiality"),
    r"Operation not permitted|Permission denied": (
        "the kernel forbids BPF here: a capability is missing, or seccomp or a user namespace of a container is in the way",
        CONTAINER,
    ),
    r"Argument list too long|Cannot allocate memory": (
        "the kernel has no memory for so many rows in bpftrace's maps",
        "PROBESCOPE_MAP_KEYS=4096 makes them smaller",
    ),
    r"Too many open files": ("bpftrace may not open so many files", "ulimit -n 65536"),
    r"No such process": (
        "the process ended while bpftrace attached to it",
        "`probescope ps` lists those that can be traced",
    ),
    r"No probes to attach|no valid attach points|usdt target file": (
        "bpftrace finds no probes: the process's library was replaced on disk, or is stripped of its notes",
        "restart the process",
    ),
    r"tracefs|debugfs|available_events": (
        "bpftrace finds no tracefs",
        "mount -t tracefs tracefs /sys/kernel/tracing",
    ),
    r"attach": ("the kernel does not let bpftrace attach", CONTAINER),
    r"(?i)loading program|BPF object": (
        "the kernel does not take bpftrace's program: a privilege is missing, or it is too old for it",
        CONTAINER,
    ),
}
# What it says where all is well, too.
NOISE = re.compile(r"RLIMIT_MEMLOCK|^WARNING|^Attach(ing|ed) \d+ probe|^@\w*(\[|:)")
MOST_LINES = 20


def complaint(text: str, what: str, next_step: str) -> CommandError:
    """An error for that text of bpftrace's. what: what it was to do. next_step: where the text is none that we know."""
    said = lines(text)
    if said and said[0].startswith("sudo: "):  # bpftrace never began
        step = "run the command as root, or as a user who may use sudo"
        return CommandError(f"cannot get the privilege to trace: {'; '.join(said)}", step)
    meaning, step = next(
        (found for pattern, found in MEANINGS.items() if any(re.search(pattern, line) for line in said)),
        ("", next_step),
    )
    more = len(said) - MOST_LINES
    shown = [*said[:MOST_LINES], f"and {more} more lines"] if more > 0 else said
    own = f"it says: {'; '.join(shown)}" if said else "it ended by itself"
    return CommandError(f"bpftrace {what}{': ' if meaning else ''}{meaning}; {own}", step)


def lines(text: str) -> List[str]:
    """Without noise."""
    return [line for line in map(str.strip, text.splitlines()) if line and not NOISE.search(line)]
