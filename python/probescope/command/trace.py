"""Runs a bpftrace program on a process."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from probescope.command import columns, machine
from probescope.command.errors import CommandError
from probescope.command.programs import probes, program, question
from probescope.command.tables import Tables, has_table
from probescope.command.target import Target, find
from probescope.command.text import clean

# Runs bpftrace until its input ends, which it does whenever this command ends, also when that is killed. Ctrl-C is for this command:
# bpftrace has a session of its own. 0.17 may lose a signal that comes while it attaches, so it is sent again.
KEEPER = """
trap '' INT
setsid ${SETPRIV:+"$SETPRIV" --pdeathsig KILL --} "$@" </dev/null &
tracer=$!
exec 3<&0
(read -r _ <&3; while kill -INT $tracer; do sleep 3; done) >/dev/null 2>&1 &
wait $tracer
"""
# How long bpftrace may take to attach.
ATTACH_SECONDS = 30
# The process flushes each second.
FLUSH_SECONDS = 1.2
# How long it may take to switch its hooks, when its threads have much to do.
HOOK_SECONDS = 2
# How long it may take until its hooks are in and its interval begins.
FIRST_FLUSH_SECONDS = 5
# Flushes drift: one that comes so many seconds before the time is up ends the interval.
EARLY_SECONDS = 0.25


def run(options: Any) -> int:
    path = program(options.name)
    for check in (machine.kernel, machine.uprobes, machine.tracefs):
        check()
    bpftrace = machine.bpftrace()
    prefix = machine.privilege()
    target = find_or_trust(options.pid, bool(prefix))
    names = probes(path)
    semaphores = check_target(target, names) if target else []
    words = [*command(bpftrace.path, options.pid, str(path)), *arguments(path.stem, options.seconds)]
    tracer = Tracer([*prefix, *words], options.pid, path.stem)
    try:
        tracer.attach(target, semaphores)
        check_served(options.pid, tracer.answers(target, names))
        print(f"{question(path)} Process {options.pid}{'' if options.seconds else ', until Ctrl-C'}", file=sys.stderr)
        tracer.head()
        if FLUSH in names:
            tracer.begin(target)
        tracer.read(options.seconds, target)
    except KeyboardInterrupt:
        pass
    except CommandError:
        tracer.end()
        raise
    return tracer.finish(FLUSH in names)


def arguments(name: str, seconds: Optional[float]) -> List[str]:
    """What a program finds in $2: one with a table ends its interval by itself, at the first flush after so many ns."""
    if not seconds or not has_table(name):
        return []
    return [str(max(1, round((seconds - EARLY_SECONDS) * 1e9)))]


def command(bpftrace: str, pid: int, path: str) -> List[str]:
    # Both names of the same setting; newer ones know both.
    settings = {"BPFTRACE_MAP_KEYS_MAX": "16384", "BPFTRACE_MAX_MAP_KEYS": "16384", "LANG": "C.UTF-8"}
    settings["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        settings["SETPRIV"] = machine.setpriv()
    except CommandError:
        pass  # doctor says what that means
    words = [f"{name}={value}" for name, value in settings.items()]
    return ["env", "-i", *words, "sh", "-c", KEEPER, "probescope", bpftrace, "-f", "json", "-p", str(pid), path, "*"]


def find_or_trust(pid: int, through_sudo: bool) -> Optional[Target]:
    """The process, or None when only bpftrace, through sudo, may look at it."""
    try:
        return find(pid)
    except CommandError as error:
        if through_sudo and isinstance(error.__cause__, PermissionError):
            return None
        raise


def check_target(target: Target, names: List[str]) -> List[int]:
    """Says what this process does not serve of a program. Returns the addresses of the semaphores."""
    known = target.to_dict()
    if "watcher" not in known["flags"]:
        step = "call probescope.install() there, or restart it with PROBESCOPE=1"
        raise CommandError(f"nobody looks for tracers in process {target.pid}: its watcher does not run", step)
    if known["deleted"]:
        raise CommandError(f"its library was replaced or deleted on disk ({known['path']})", "restart the process")
    found: Dict[str, Any] = {name: known["probes"].get(name) for name in names}
    missing = [name for name, probe in found.items() if not probe]
    if missing:
        step = "restart the process with the probescope that is installed now"
        raise CommandError(f"its probescope {known['library']} has no {missing[0]}", step)
    return [probe["semaphore"] for probe in found.values()]


def check_served(pid: int, found: Dict[str, Any]) -> None:
    """Says what the process serves in part or not at all. found: as Tracer.answers."""
    states = {name: probe["state"] for name, probe in found.items() if name != "stats__done"}
    for name, state in states.items():
        if state in ("refused", "unsupported", "degraded"):
            print(clean(f"{name} is {state}: {found[name]['reason']}"), file=sys.stderr)
    if states and set(states.values()) <= {"refused", "unsupported"}:
        raise CommandError(f"process {pid} serves none of the program's probes", f"{CHECK} -p {pid}")


def message(line: bytes) -> Tuple[str, Any]:
    """What one line of `bpftrace -f json` says: its type and its data. Of what is no JSON, as a warning, nothing.

    Up to 0.27 a byte >= 0x80 is printed as a sign-extended \\uffffffXX.
    """
    try:
        told = json.loads(re.sub(rb"\\(?:uffffff(..)|.)", unescape, line).decode(errors="replace"))
        return told["type"], told["data"]
    except (ValueError, TypeError, KeyError):
        return "", None


def unescape(match: "re.Match[bytes]") -> bytes:
    return bytes([int(match[1], 16)]) if match[1] else match[0]


def has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True


CHECK = "python -m probescope doctor"
# The probe that ends an interval.
FLUSH = "stats__done"


class Shown:
    """What `bpftrace -f json` says, as lines to print."""

    def __init__(self, pid: int, program: str) -> None:
        self._tables = Tables(pid, program)
        self._columns = columns.of(program)
        self._heading = self._columns.heading
        self._lost = 0
        self._printed = False

    def head(self) -> List[str]:
        """Once, before the first line."""
        heading, self._heading = self._heading, ""
        return [heading] if heading else []

    def take(self, line: bytes) -> List[str]:
        """What is to be printed at once of a line of it."""
        kind, data = message(line)
        if kind == "map":
            self._tables.add(data)
        elif kind == "printf":
            shown = self._columns.show(str(data).rstrip("\n"))
            self._printed = self._printed or bool(shown)
            return [*self.head(), shown] if shown else []
        elif kind == "lost_events":
            self._lost += int(data["events"])
        return []

    def known(self) -> bool:
        """Whether anything is: an interval ended, or a line came."""
        return self._printed or self._tables.covered()

    def rest(self) -> List[str]:
        """What is to be printed at its end."""
        lost = [f"{self._lost:,} events were lost between the kernel and bpftrace"] if self._lost else []
        return [*self._tables.lines(), *lost]


class Tracer:
    def __init__(self, words: List[str], pid: int, program: str) -> None:
        pipe = subprocess.PIPE
        self._pid = pid
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
        self._shown = Shown(pid, program)
        self._rest = {"out": b"", "err": b""}
        self._streams = {self._process.stdout: "out", self._process.stderr: "err"}
        self._errors: List[str] = []

    def attach(self, target: Optional[Target], semaphores: List[int]) -> None:
        """Waits until the kernel counts a tracer on each probe, or until bpftrace has ended."""
        deadline = time.monotonic() + ATTACH_SECONDS
        while target and self._streams and time.monotonic() < deadline:
            try:
                if all(target.info.listened(semaphore) for semaphore in semaphores):
                    return
            except OSError:  # the process has ended, and so will bpftrace
                return
            self._take(0.05)

    def answers(self, target: Optional[Target], names: List[str]) -> Dict[str, Any]:
        """What the process says of these probes once it was asked: {name: {state, reason}}. Empty when nobody knows."""
        found: Dict[str, Any] = {}
        deadline = time.monotonic() + HOOK_SECONDS
        while target and self._streams and time.monotonic() < deadline:
            try:
                known = target.to_dict()["probes"]
            except CommandError:  # the process has ended, and so will bpftrace
                return {}
            found = {name: known[name] for name in names}
            if all(probe["state"] != "off" for probe in found.values()):
                break
            self._take(0.05)
        return found

    def head(self) -> None:
        """Once, before the first line."""
        _print(self._shown.head())

    def begin(self, target: Optional[Target]) -> None:
        """Waits for the first flush, which comes when every hook is in, or until bpftrace has ended."""
        try:
            before = target.info.flushes() if target else 0
            deadline = time.monotonic() + FIRST_FLUSH_SECONDS
            while target and self._streams and time.monotonic() < deadline and not has_ended(self._pid):
                if target.info.flushes() != before:
                    return
                self._take(0.02)
        except OSError:  # the process has ended
            pass

    def read(self, seconds: Optional[float], target: Optional[Target]) -> None:
        """For so long, and to the end of the second that the process is in."""
        end = None if seconds is None else time.monotonic() + seconds
        # Not every bpftrace ends with the process.
        while self._streams and not has_ended(self._pid) and (end is None or time.monotonic() < end):
            self._until(min(end or float("inf"), time.monotonic() + 0.5))
        if not (self._streams and target) or has_ended(self._pid):
            return
        try:
            before = target.info.flushes()
            deadline = time.monotonic() + FLUSH_SECONDS
            while self._streams and time.monotonic() < deadline and target.info.flushes() == before:
                self._take(0.02)
        except OSError:
            pass

    def end(self) -> int:
        """Returns bpftrace's exit status."""
        assert self._process.stdin
        while True:
            try:
                self._process.stdin.close()
                self._until(None)
                return self._process.wait()
            except KeyboardInterrupt:
                continue  # it is ending

    def finish(self, flushes: bool) -> int:
        """Ends it and prints what it has to say. flushes: whether its program knows of intervals. Returns the exit status."""
        ended = has_ended(self._pid)
        status = self.end()
        if status:
            errors = [line for line in self._errors if "RLIMIT_MEMLOCK" not in line] or [f"exit status {status}"]
            raise CommandError(f"process {self._pid} has ended" if ended else f"bpftrace: {errors[-1]}", CHECK)
        if flushes and not self._shown.known():
            raise CommandError(f"nothing is known of process {self._pid}: no interval ended", f"{CHECK} -p {self._pid}")
        _print(self._shown.rest())
        return 0

    def _until(self, deadline: Optional[float]) -> None:
        while self._streams and (deadline is None or time.monotonic() < deadline):
            self._take(1 if deadline is None else min(1, max(0, deadline - time.monotonic())))

    def _take(self, seconds: float) -> None:
        for stream in select.select(list(self._streams), [], [], seconds)[0]:
            name = self._streams[stream]
            data = os.read(stream.fileno(), 65536)
            if not data:
                del self._streams[stream]
                stream.close()
                data = b"\n" if self._rest[name] else b""
            *lines, self._rest[name] = (self._rest[name] + data).split(b"\n")
            for line in lines:
                self._line(name, line)

    def _line(self, name: str, line: bytes) -> None:
        if name == "err":
            if line.strip():
                self._errors.append(line.decode(errors="replace"))
            return
        _print(self._shown.take(line))


def _print(lines: List[str]) -> None:
    for line in lines:
        print(line, flush=True)
