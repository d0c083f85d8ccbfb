"""The requirements of tracing on this machine.

Each check returns a line for doctor, or raises CommandError with the next step.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import List, NamedTuple, Optional, Sequence, Tuple

from probescope.command.complaint import complaint
from probescope.command.errors import CommandError
from probescope.command.tool import ENVIRONMENT, FOLDERS, initial_namespace, tool

OLDEST_KERNEL = (4, 20)
OLDEST_BPFTRACE = (0, 17)
# From this version on, `-p` binds software events to the first thread of the process.
ONE_THREAD_SINCE = (0, 24)
# From this version on, `-p` leaves out what tracepoints report while another process is on the CPU.
FILTERS_SINCE = (0, 24)
# Tracepoints that report a thread of a process at such a time: it gets the CPU, or is woken.
ELSEWHERE = {"sched:sched_switch", "sched:sched_waking"}
# The inode of the initial PID namespace: the kernel's PROC_PID_INIT_INO.
INITIAL_PIDS = "pid:[4026531836]"
THREADS_FOR_PROCESSES = ((0, 23), (0, 24, 2))
# sudo is started with the caller's privileges, so it may be searched in the caller's PATH. The
# added folders are for Debian, where a user's PATH lacks those with sbin.
PATH = os.pathsep.join(filter(None, [os.environ.get("PATH"), "/usr/sbin:/usr/bin:/sbin:/bin"]))
# Uses what every program uses: a map, a user-space probe (BEGIN is one) and the verifier.
TRIAL = "BEGIN { @tried = 1; exit(); }"
TRIAL_SECONDS = 30
# The capabilities that bpftrace keeps. docs/how-to/run-the-bridge-as-a-service.md explains each.
# CAP_SYS_CHROOT lets it enter the mount namespace of a container.
TRACING = (
    "sys_admin sys_ptrace dac_read_search kill sys_resource sys_chroot perfmon bpf checkpoint_restore"
).split()
DAC_READ_SEARCH = 2
CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_SYS_PTRACE": 19}


class Bpftrace(NamedTuple):
    path: str
    version: str

    @property
    def numbers(self) -> Tuple[int, ...]:
        """The numbers of the version, to compare it."""
        return tuple(map(int, self.version.split(".")))


def kernel() -> str:
    if sys.platform != "linux":
        raise CommandError(
            f"USDT probes need Linux, and this is {sys.platform}", "run it where the process runs"
        )
    release = os.uname().release
    if tuple(map(int, re.findall(r"\d+", release)[:2])) < OLDEST_KERNEL:
        raise CommandError(
            f"Linux {release} does not count the tracers of a probe", "run it on Linux 4.20 or later"
        )
    return f"Linux {release}"


def uprobes() -> str:
    if os.path.exists("/sys/bus/event_source/devices/uprobe/type"):
        return "uprobes"
    raise CommandError(
        "the kernel has no uprobes (/sys/bus/event_source/devices/uprobe is missing)",
        "run a kernel with CONFIG_UPROBE_EVENTS=y, and mount sysfs on /sys where a container lacks it",
    )


def tracefs() -> str:
    # Reads the list of mounts, because only root may enter the folder itself.
    with open("/proc/self/mounts", errors="replace") as file:
        mounts = {(fields[2], fields[1]) for fields in map(str.split, file)}
    for point in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if ("tracefs", point) in mounts:
            return f"tracefs on {point}"
    raise CommandError("tracefs is not mounted", "sudo mount -t tracefs tracefs /sys/kernel/tracing")


# Where the kernel lists its tracepoints. Only root may enter the folders.
EVENTS = ("/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events")


def check_tracepoints(names: List[str], events: Sequence[str] = EVENTS) -> None:
    """Raises CommandError for the first tracepoint that the kernel does not have. If this user may
    not enter the folders, bpftrace itself reports what is missing. names: "category:name".
    """
    folder = next((path for path in events if os.path.isdir(path)), None)
    if not names or (folder is None and any(map(is_hidden, events))):
        return
    if folder is None:
        raise no_list(events)
    missing = next(
        (name for name in names if not os.path.isdir(os.path.join(folder, *name.split(":")))), None
    )
    if missing:
        raise CommandError(
            f"this kernel has no tracepoint {missing}, without which these events are not known",
            "run a kernel with CONFIG_FTRACE=y and CONFIG_FTRACE_SYSCALLS=y",
        )


def no_list(events: Sequence[str]) -> CommandError:
    return CommandError(
        f"this kernel lists no tracepoints ({events[0]} is missing)",
        "mount -t tracefs tracefs /sys/kernel/tracing, or run one with CONFIG_FTRACE=y",
    )


def is_hidden(path: str) -> bool:
    parent = os.path.dirname(path)
    return os.path.isdir(parent) and not os.access(parent, os.X_OK)


def check_namespace(pid: int) -> None:
    """Raises CommandError when bpftrace has no numbers for the process's threads."""
    try:
        own, other = (os.readlink(f"/proc/{one}/ns/pid") for one in ("self", pid))
    except OSError:  # it has ended
        return
    if own not in (INITIAL_PIDS, other):
        raise CommandError(
            f"process {pid} is in a PID namespace below this one, where bpftrace has no number for it",
            "run the command on the host",
        )


def check_own_namespace() -> None:
    """Raises CommandError where the kernel's numbers of threads, bpftrace's and those in /proc may
    differ.
    """
    if os.readlink("/proc/self/ns/pid") != INITIAL_PIDS:
        raise CommandError(
            "the kernel's events have the numbers of threads in the initial PID namespace, "
            "and this is another one",
            "run the command on the host",
        )


def bpftrace() -> Bpftrace:
    path = tool("bpftrace")
    if not path:
        step = "install it: apt install bpftrace, or dnf install bpftrace"
        raise CommandError(f"there is no bpftrace in {', '.join(FOLDERS)}", step)
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", text)
    version = found[0] if found else "of an unknown version"
    if not found or tuple(map(int, version.split(".")[:2])) < OLDEST_BPFTRACE:
        raise CommandError(
            f"{path} is bpftrace {version}, and 0.17 is the oldest that works",
            "update it: apt install bpftrace",
        )
    return Bpftrace(path, version)


def check_numbers(found: Bpftrace, probes: List[str]) -> None:
    """Raises CommandError when bpftrace would report thread ids as process ids.

    bpftrace 0.23.0 to 0.24.1 swaps `pid` and `tid` in a PID namespace other than the initial one
    (bpftrace#4813). Statistics are not affected: one thread fires all rows of a flush. Other events
    come from the application's threads.
    """
    if os.readlink("/proc/self/ns/pid") == INITIAL_PIDS or all(
        re.search("__stats$|^stats__done$|^stack__", name) for name in probes
    ):
        return
    if THREADS_FOR_PROCESSES[0] <= found.numbers < THREADS_FOR_PROCESSES[1]:
        raise CommandError(
            f"bpftrace {found.version} takes threads for processes in a PID namespace like this one",
            "use bpftrace 0.24.2 or later, or run the command on the host; "
            "exceptions, hot, lines, record, calls and alloc work",
        )


def check_elsewhere(found: Bpftrace, pid: int, name: str, tracepoints: Sequence[str]) -> None:
    """Raises CommandError when `bpftrace -p` would miss some events of these tracepoints."""
    if ELSEWHERE & set(tracepoints) and found.numbers >= FILTERS_SINCE:
        raise CommandError(
            f"bpftrace {found.version} with -p misses switches and wake-ups of the process's threads",
            f"use the gem's command: probescope {name} -p {pid}",
        )


def check_event(found: Bpftrace, pid: int, kind: str) -> None:
    """Raises CommandError when `bpftrace -p` would miss some of these events of the process."""
    if kind == "software" and found.numbers >= ONE_THREAD_SINCE:
        raise CommandError(
            f"bpftrace {found.version} counts software events in the first thread of a process only",
            f"use the gem's command: probescope on -p {pid}",
        )
    if kind == "uprobe" and os.readlink("/proc/self/ns/mnt") != os.readlink(f"/proc/{pid}/ns/mnt"):
        raise CommandError(
            f"process {pid} has other mounts (a container), where bpftrace does not find the file",
            f"use the gem's command: probescope on -p {pid}",
        )


def setpriv() -> str:
    path = tool("setpriv")
    if not path:
        raise CommandError(
            "no setpriv: a command that is killed with -9 leaves bpftrace behind", "install util-linux"
        )
    return path


def bounds() -> str:
    """Returns the capabilities that bpftrace may have, in the syntax of setpriv."""
    lacks = os.geteuid() == 0 and not _capabilities() >> DAC_READ_SEARCH & 1
    # In a container, root may have dac_override without dac_read_search.
    kept = [*TRACING, *(["dac_override"] if lacks else [])]
    return ",".join(["-all", *(f"+{name}" for name in kept)])


def _capabilities() -> int:
    """Returns this process's effective capabilities as a mask."""
    with open("/proc/self/status") as file:
        kept = re.search(r"^CapEff:\s+([0-9a-f]+)", file.read(), re.MULTILINE)
    return int(kept[1], 16) if kept else 0


def privilege() -> List[str]:
    """Returns the words to put before a command so that it may trace."""
    if not initial_namespace():
        raise CommandError(
            "this is a user namespace (a rootless container, unshare -U): its root has no privilege to trace",
            "run the command on the host, or in a container that is not rootless",
        )
    if os.geteuid() == 0:
        bits = _capabilities()
        missing = [name for name, bit in CAPABILITIES.items() if not bits >> bit & 1]
        if missing:
            raise CommandError(
                f"root lacks {' and '.join(missing)} here",
                "in a container: start it with --privileged --pid=host, or run the command on the host",
            )
        return []
    sudo = shutil.which("sudo", path=PATH)
    if not sudo:
        raise CommandError("tracing needs root, and there is no sudo", "run the command as root")
    return [sudo, "-p", "[probescope] sudo password for %p: ", "--"]


def tried_privilege() -> str:
    """Has bpftrace run a program, through sudo if needed. sudo alone does not imply the privilege
    to trace.
    """
    prefix = privilege()
    by_sudo = [prefix[0], "-n", "--"] if prefix else []
    if by_sudo:
        asked = _run([*by_sudo, "/bin/true"])
        if asked.returncode:
            why = " ".join(asked.stderr.split())
            raise CommandError(
                f"sudo does not let this user trace without more ado: {why}", "run the command as root (sudo)"
            )
    settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    tried = _run([*by_sudo, "/usr/bin/env", "-i", *settings, bpftrace().path, "-e", TRIAL])
    if tried.returncode or "@tried" not in tried.stdout:
        raise complaint(tried.stdout + tried.stderr, "does not run a program", "probescope doctor, as root")
    return f"the privilege to trace{', through sudo' if prefix else ''}: bpftrace has run a program"


def _run(words: List[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"it did not end within {TRIAL_SECONDS} s")


def library() -> Tuple[Optional[str], int]:
    """Returns the path of this Python's extension, or None, and the number of its probes."""
    from probescope import _native, abi
    from probescope.command.elf import Elf

    if _native is None:
        return None, 0
    with open(_native.__file__, "rb") as file:
        probes = Elf(file.fileno()).probes()
    return _native.__file__, sum(probe.provider == abi.PROVIDER for probe in probes)
