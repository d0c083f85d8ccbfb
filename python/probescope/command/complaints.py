"""Messages of bpftrace, with their meaning and the next step.

Generated from providers/tracing.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

import re
from typing import Pattern, Tuple

CONTAINER = (
    "run it as root on the host, or in a container with --pid=host --cap-add SYS_ADMIN --cap-add "
    "SYS_PTRACE --security-opt seccomp=unconfined"
)
# The first pattern that matches counts.
MEANINGS: Tuple[Tuple[Pattern[str], str, str], ...] = (
    (
        re.compile(r"running as the root user|Missing CAP_\w+ capability"),
        "bpftrace refuses to run without root's privilege",
        "run it as root (sudo)",
    ),
    (
        re.compile(r"(?i)lockdown"),
        "the kernel is locked down, and forbids BPF",
        "boot it without lockdown=confidentiality",
    ),
    (
        re.compile(r"Operation not permitted|Permission denied"),
        "the kernel forbids BPF here: a capability is missing, or seccomp or a user namespace of a container prevents it",
        CONTAINER,
    ),
    (
        re.compile(r"Argument list too long|Cannot allocate memory"),
        "the kernel has no memory for so many rows in bpftrace's maps",
        "PROBESCOPE_MAP_KEYS=4096 makes them smaller",
    ),
    (
        re.compile(r"Too many open files"),
        "bpftrace may not open so many files",
        "ulimit -n 65536",
    ),
    (
        re.compile(r"No such process"),
        "the process ended while bpftrace attached to it",
        "`probescope ps` lists the processes that can be traced",
    ),
    (
        re.compile(r"(?i)tracepoints? not found"),
        "this kernel does not have a tracepoint of the program",
        "run a kernel with CONFIG_FTRACE=y and CONFIG_FTRACE_SYSCALLS=y",
    ),
    (
        re.compile(r"No probes to attach|no valid attach points|usdt target file"),
        "bpftrace finds no probes: the process's library was replaced on disk, or is stripped of its notes",
        "restart the process",
    ),
    (
        re.compile(r"tracefs|debugfs|available_events"),
        "bpftrace finds no tracefs",
        "mount -t tracefs tracefs /sys/kernel/tracing",
    ),
    (
        re.compile(r"attach"),
        "the kernel does not let bpftrace attach",
        CONTAINER,
    ),
    (
        re.compile(r"(?i)loading program|BPF object"),
        "the kernel does not take bpftrace's program: a privilege is missing, or the kernel is too old for the program",
        CONTAINER,
    ),
)
# Lines that bpftrace also prints when nothing is wrong.
NOISE = re.compile(r"RLIMIT_MEMLOCK|\AWARNING|\AAttach(ing|ed) \d+ probe|\A@\w*(\[|:)")
