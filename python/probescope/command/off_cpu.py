"""The time of all threads in a result of offcpu.bt: what the program added up, and what was under way
at the end of the interval, which it leaves in its maps. Threads without any event are those that
slept, or ran, for the whole interval.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from probescope.command import syscalls
from probescope.command.result import Result
from probescope.command.thread_states import Call

# What the program knows beside the numbers of system calls.
OTHER_THAN_CALLS = {
    60_001: "page_fault",
    60_002: "vm_lock",
    60_003: "preempted",
    60_004: "stopped",
    60_005: "other",
    60_006: "starting",
}
OTHER = 60_005
NO_FILE = 65_534
NOT_KNOWN = 65_535
WHY = (1 << 23) - 1
# A lock, a timer and the end of a child are one call in Ruby.
RUBY = "timer_lock_or_child"
POLLS = ("poll", "ppoll")
SELECTS = ("select", "pselect6")
SIGNALS = ("pause", "rt_sigtimedwait", "rt_sigsuspend")
# Calls that wait for the file in their first argument.
OF_A_FILE = syscalls.BYTES | {"ioctl", "fcntl", "close"}
# A thread without any event in the interval ran all the time or never. /proc is read some ms before
# and after.
RAN = 0.9
SLEPT_NS = 1_000_000
# What the program has for a thread that is on a CPU.
ON_CPU = 1


class Wait(NamedTuple):
    """site: address of the site of the innermost traced function, 0 without one, 1 if memory could not be
    read. what: as in the program. request: a number of Result.requests, 0 for none; always 0 if the
    program does not tell requests apart.
    """

    site: int
    what: int
    request: int
    blocked: int
    queued: int
    times: int
    longest: int


class OffCpu:
    def __init__(self, result: Result, by_request: bool = False) -> None:
        """by_request: whether the program's keys have the request."""
        self._result = result
        self._by_request = by_request
        self._numbers: Dict[str, Dict[Tuple[int, ...], int]] = {}
        self._sites = {_key(key): row[:3] for key, row in result.map("row").items()}
        self.waits = self._summed()
        # Numbers of threads, and their times in ns.
        self.threads, self.thread_ns, self.on_cpu_ns = (
            result.sum(name) for name in ("threads", "thread_ns", "on_cpu_ns")
        )
        # Threads of which nothing is known, because there are too many.
        self.more_threads = 0
        self._open_ones()
        self._quiet_ones()

    @property
    def queued_ns(self) -> int:
        return sum(wait.queued for wait in self.waits)

    @property
    def blocked_ns(self) -> Dict[str, int]:
        """{reason: ns}, the most time first."""
        found: Dict[str, int] = {}
        for wait in self.waits:
            if wait.blocked > 0:
                reason, _ = self.reason(wait.what)
                found[reason] = found.get(reason, 0) + wait.blocked
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))

    @property
    def left_over_ns(self) -> int:
        return self.thread_ns - self.on_cpu_ns - sum(wait.blocked + wait.queued for wait in self.waits)

    @property
    def beyond_cpu_ns(self) -> int:
        """By how much the times on the CPU exceed the CPU time of the process. A time off the CPU whose
        switches were not seen counts as on the CPU. 0 if the program did not end the interval itself:
        then the two cover different times.
        """
        if self._result.sum("followed") != 2:
            return 0
        return max(0, self.on_cpu_ns - self._result.cpu_ns)

    def site(self, site: int) -> Optional[List[Any]]:
        """Returns name, file and line of a site, or None if it is not known."""
        return self._sites.get((self._result.pid, site))

    def key(self, wait: Wait) -> Tuple[int, ...]:
        """Returns the key of a wait in the program's maps, behind the pid."""
        return (wait.site, wait.what, *((wait.request,) if self._by_request else ()))

    def woken(self) -> Dict[Tuple[int, ...], Dict[int, int]]:
        """{key() of a sleeper: {site of the waker: ns}}"""
        found: Dict[Tuple[int, ...], Dict[int, int]] = {}
        for (_, *sleeper, waker), ns in self.numbers("woken_ns").items():
            found.setdefault(tuple(sleeper), {})[waker] = ns
        return found

    @property
    def runtime(self) -> Optional[str]:
        return self._result.known.get("runtime")

    @property
    def lock_known(self) -> bool:
        """Whether the place of the VM lock is known."""
        return self._result.sum("gil") > 0

    def numbers(self, name: str) -> Dict[Tuple[int, ...], int]:
        if name not in self._numbers:
            self._numbers[name] = {_key(key): int(value) for key, value in self._result.map(name).items()}
        return self._numbers[name]

    def interval(self) -> Optional[Tuple[int, int]]:
        """Begin and end in bpftrace's `nsecs`. If the program did not end the interval itself, it is the
        last event that counts.
        """
        began, ended, last, state = (
            self._result.sum(name) for name in ("began", "ended", "until", "followed")
        )
        return (began, ended if state == 2 else max(ended, last)) if began and ended else None

    def _summed(self) -> List[Wait]:
        """What ended in the interval."""
        maps = [self.numbers(name) for name in ("blocked_ns", "queued_ns", "times", "longest_ns")]
        keys = dict.fromkeys(key for one in maps[:3] for key in one)
        found = []
        for key in keys:
            _, site, what, *request = key
            found.append(Wait(site, what, sum(request), *(one.get(key, 0) for one in maps)))
        return found

    def _open_ones(self) -> None:
        """Threads that were alive at the end of the interval."""
        found = self.interval()
        if not found:
            return
        began, ended = found
        since, what = self.numbers("since"), self.numbers("what")
        for key, at in self.numbers("at").items():
            self._lived(ended - max(began, since.get(key, 0)))
            start = max(at, began)
            if what.get(key, 0) > ON_CPU:
                self._waiting(key, what[key], start, ended, at)
            else:
                self._ran(ended - start)

    def _lived(self, ns: int) -> None:
        self.threads += 1
        self.thread_ns += max(0, ns)

    def _ran(self, ns: int) -> None:
        self.on_cpu_ns += max(0, ns)

    def _waiting(self, key: Tuple[int, ...], what: int, start: int, ended: int, at: int) -> None:
        woken, site, request = (self.numbers(name).get(key, 0) for name in ("woken", "site", "works_for"))
        ready = min(max(woken, start), max(start, ended)) if woken > 1 else ended
        self.waits.append(
            Wait(site, what, request, max(0, ready - start), max(0, ended - ready), 1, max(0, ended - at))
        )

    def _quiet_ones(self) -> None:
        """Threads without any event in the interval."""
        found, quiet = self.interval(), self._result.quiet
        if not found or not quiet:
            return
        length = found[1] - found[0]
        self.more_threads = quiet.more
        for thread, ran, call in quiet.threads:
            if (self._result.pid, thread) in self.numbers("at"):
                continue
            self._lived(length)
            if ran > RAN * length:
                self._ran(length)
            elif ran < SLEPT_NS:
                self.waits.append(Wait(0, _what(call), 0, length, 0, 1, length))

    def reason(self, what: int) -> Tuple[str, Optional[str]]:
        """The reason of a wait, and the name of the system call or None."""
        why, file = what >> 17 & WHY, what & NOT_KNOWN
        if why in OTHER_THAN_CALLS:
            return OTHER_THAN_CALLS[why], None
        call = syscalls.NUMBERS.get(os.uname().machine, {}).get(why - 1, f"syscall {why - 1}")
        if what >> 40 and call in POLLS:
            return self._of_two_files(file, (what >> 40) - 1), call
        return self._of_a_call(call, bool(what >> 16 & 1), file), call

    def _of_a_call(self, call: str, deep: bool, file: int) -> str:
        kind = syscalls.KINDS.get(call, "other")
        if kind == "lock":
            return RUBY if self._is_ruby else "lock"
        if kind == "file":
            return "file" if deep or call not in OF_A_FILE else self._of_a_file(file)
        return self._of_files(call, file) if kind == "ready" else kind

    @property
    def _is_ruby(self) -> bool:
        return self.runtime == "ruby"

    def _of_files(self, call: str, file: int) -> str:
        if call in SIGNALS:
            return "other"
        if call in SELECTS:
            return "ready" if file else "timer"
        if call not in POLLS or file == NOT_KNOWN:
            return "ready"
        if file == NO_FILE:
            return RUBY if self._is_ruby else "timer"
        return self._of_a_file(file)

    def _of_two_files(self, file: int, also: int) -> str:
        """A thread of Ruby up to 3.2 polls Ruby's eventfd beside the file that it waits for. If another
        thread does that already, the main thread polls an eventfd of its own beside it."""
        kind = self._result.quiet.files.get(also) if self._result.quiet else None
        return self._of_a_file(file) if self._is_ruby and kind == "event" else "ready"

    def _of_a_file(self, file: int) -> str:
        """Ruby wakes its own threads by an eventfd."""
        kind = self._result.quiet.files.get(file) if self._result.quiet else None
        if kind in ("file", "socket", "pipe", "timer"):
            return str(kind)
        return RUBY if kind == "event" and self._is_ruby else "other"


def _key(text: str) -> Tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _what(call: Optional[Call]) -> int:
    """As the program has it."""
    if not call:
        return (OTHER << 17) + NOT_KNOWN
    number, first, second = call
    file = first if first < NO_FILE else NOT_KNOWN if second else NO_FILE
    return ((number + 1) << 17) + file
