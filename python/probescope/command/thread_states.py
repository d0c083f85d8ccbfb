"""What /proc tells of the threads of a process and of its open files. A thread that sleeps for the
whole interval has no event, so the kernel's tracepoints do not tell of it.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

# The most threads and open files that are read.
MOST = 4096
FILES = {
    "socket:": "socket",
    "pipe:": "pipe",
    "anon_inode:[timerfd": "timer",
    "anon_inode:[eventfd": "event",
    "/": "file",
}

# The number of a system call, and its first two arguments.
Call = Tuple[int, int, int]


class State(NamedTuple):
    """threads: {thread id: (CPU time in ns, the system call in which it is)}; None for the call where
    it is in none, or cannot be read. more: how many other threads there are. files: {descriptor:
    kind}.
    """

    threads: Dict[int, Tuple[int, Optional[Call]]]
    more: int
    files: Dict[int, str]


class Quiet(NamedTuple):
    """What holds for the time between two States. threads: [(thread id, CPU time meanwhile, call)]
    of those that are in both.
    """

    threads: List[Tuple[int, int, Optional[Call]]]
    more: int
    files: Dict[int, str]


def state_of(pid: int) -> State:
    try:
        ids = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return State({}, 0, {})
    threads = {int(one): _thread(f"/proc/{pid}/task/{one}") for one in ids[:MOST]}
    found = {one: told for one, told in threads.items() if told}
    return State(found, max(0, len(ids) - MOST), _files(f"/proc/{pid}/fd"))


def between(before: State, after: State) -> Quiet:
    threads = [
        (one, ran - before.threads[one][0], call if call == before.threads[one][1] else None)
        for one, (ran, call) in after.threads.items()
        if one in before.threads
    ]
    changed = {fd for fd, kind in before.files.items() if after.files.get(fd, kind) != kind}
    files = {fd: kind for fd, kind in {**before.files, **after.files}.items() if fd not in changed}
    return Quiet(threads, after.more, files)


def _thread(folder: str) -> Optional[Tuple[int, Optional[Call]]]:
    try:
        with open(f"{folder}/schedstat") as file:
            ran = int(file.read().split()[0])
    except (OSError, IndexError):  # it has ended, or the kernel does not count it
        return None
    return ran, _call(f"{folder}/syscall")


def _call(path: str) -> Optional[Call]:
    """The file has "running", "-1 SP PC" outside of a system call, or the number and six arguments."""
    try:
        with open(path) as file:
            words = file.read().split()
    except OSError:
        return None
    return (int(words[0]), int(words[1], 16), int(words[2], 16)) if words and words[0].isdigit() else None


def _files(folder: str) -> Dict[int, str]:
    found = {}
    try:
        for name in os.listdir(folder)[:MOST]:
            kind = _kind(f"{folder}/{name}")
            if kind:
                found[int(name)] = kind
    except OSError:  # of another user
        pass
    return found


def _kind(path: str) -> Optional[str]:
    """The name itself is of no interest, and is not passed on."""
    try:
        name = os.readlink(path)
    except OSError:
        return None
    return next((kind for start, kind in FILES.items() if name.startswith(start)), "other")
