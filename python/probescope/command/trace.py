"""Runs a bpftrace program on a process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Protocol, Tuple

from probescope.command import cells, columns, lost, machine, tables, thread_states
from probescope.command.bounds import PIPE_BYTES
from probescope.command.complaint import complaint
from probescope.command.definitions import MAP_KEYS, SCHEMA, Column
from probescope.command.errors import CommandError, Refused, Usage
from probescope.command.event import MOST_FRAMES, Event, parse
from probescope.command.interrupts import Interrupts
from probescope.command.probed_process import ProbedProcess, find, mapping
from probescope.command.programs import all_programs, probes, program, question, tracepoints
from probescope.command.reports import (
    BY_LINE,
    BY_OWN,
    BY_REQUEST,
    FILES,
    Report,
    SyscallsFiles,
    command_of,
    definition_of,
    file_lock,
    report_of,
)
from probescope.command.result import Result, clock, iso, ratio
from probescope.command.terminal import Terminal
from probescope.command.text import clean, share, to_json
from probescope.command.ticked_time import Ticked, missed, ticked
from probescope.command.tool import ENVIRONMENT

# Runs bpftrace until the standard input of this shell closes, which happens whenever the command
# ends, even by SIGKILL. bpftrace runs in its own session, so only the command gets Ctrl-C and
# Ctrl-Z. The shell also gets the HUP of a closed terminal, and a TERM to the whole group.
#
# Then the shell sends SIGINT, as soon as bpftrace has a handler for it. bpftrace 0.17 loses a
# signal that arrives while it reads events, and waits for events again, so the shell repeats SIGINT
# in that state. It does not repeat SIGINT while bpftrace prints its maps: that would end bpftrace,
# and the rest of the maps would be lost.
KEEPER = """
umask 077
cd /
trap '' INT TSTP HUP TERM
catches_int() {
  while read -r field mask; do
    if [ "$field" = SigCgt: ]; then
      case $mask in *[2367abef]) return 0 ;; *) return 1 ;; esac
    fi
  done </proc/$tracer/status
  return 1
}
waits_for_events() {
  read -r where </proc/$tracer/wchan
  case $where in *epoll* | ep_*) return 0 ;; *) return 1 ;; esac
}
setsid ${SETPRIV:+"$SETPRIV" --pdeathsig KILL --no-new-privs --inh-caps -all \
  --bounding-set "$BOUNDS" --} "$@" </dev/null &
tracer=$!
exec 3<&0
(
  read -r _ <&3
  until catches_int; do kill -0 $tracer || exit; sleep 0.1; done
  kill -INT $tracer
  while sleep 3 && kill -0 $tracer; do waits_for_events && kill -INT $tracer; done
) >/dev/null 2>&1 &
wait $tracer
"""
# Limit on the time that bpftrace takes to attach, also with tracepoints: version 0.17 reads the
# kernel's list of events for each of them. After SOON_SECONDS, the command says that it takes long.
ATTACH_SECONDS = 30
LONG_ATTACH_SECONDS = 90
SOON_SECONDS = 2
SLOWLY = "bpftrace still attaches to the kernel's tracepoints; version 0.17 may take half a minute"
# A tracepoint of the program that follows all threads of a process (offcpu.bt). The fields of its
# tracepoints have the numbers of threads in the initial PID namespace.
NEW_THREAD = "task:task_newtask"
# The process flushes each second. The first flush comes when its hooks are installed. While other
# tracers detach, the process delays a flush for up to 3 s (LEAVING_FOR_NS in ext/core/agent/watcher.c).
NEXT_FLUSH_SECONDS = 4.5
FIRST_FLUSH_SECONDS = 5
# Flushes drift by some milliseconds. A flush that is at most this early ends the interval, both
# here and in the program.
EARLY = 0.25
# With other tracers, and a kernel that does not tell where bpftrace waits.
HIDDEN_SECONDS = 2.0
# A line that bpftrace prints when it reads events. One line may come before the attach.
OF_EVENTS = re.compile(rb'\{"type": "(?!attached_probes)')
# The process increments its flush counter just before the flush's last event.
SETTLE = 0.02
# Limit on the time that the process takes to install its hooks when its threads are busy.
HOOK_SECONDS = 2
# The probe of call paths.
PATHS = "stack__frame"
# Bytes of a path in programs of call paths; bpftrace 0.17 takes no more.
PATH_BYTES = 200
F_SETPIPE_SZ = 1031  # fcntl has the name from Python 3.10 on
# Limit on the search for processes that map the file of a uprobe.
MAPPING_SECONDS = 10
CHECK = "probescope doctor"


def run(options: Any) -> int:
    if options.output:
        return to_file(options)
    path = program(program_name(options))
    check_options(options, path.stem, report_of(path.stem))
    event = event_of(options, path.stem)
    for check in (machine.kernel, machine.uprobes, machine.tracefs):
        check()
    bpftrace = machine.bpftrace()
    prefix = machine.privilege()
    process = find_or_trust(options.pid, bool(prefix))
    asked, path = path, served_program(path, process, options)
    check_lines(path, process)
    report = report_of(path.stem)
    text = None
    if event:
        event, text = with_program(event, bpftrace, process, path, options.pid)
    names = probes(path)
    machine.check_numbers(bpftrace, names)
    events = tracepoints(path)
    if events:
        machine.check_tracepoints(events)
        machine.check_elsewhere(bpftrace, options.pid, command_of(path.stem), events)
        machine.check_namespace(options.pid)
    waits = NEW_THREAD in events
    if waits:
        machine.check_own_namespace()
    semaphores = check_process(process, names) if process else []
    output = Output(options, path.stem, names, event)
    if process and asked.stem.endswith(BY_OWN) and not path.stem.endswith(BY_OWN):
        library = process.to_dict()["library"]
        output.say(
            f"by self: the library in process {options.pid} ({library}) does not have the probe {PATHS}"
        )
    if process and path.stem.endswith(BY_OWN):
        output.result.entry = process.entry()
    words = command(
        bpftrace.path,
        options.pid,
        str(path),
        arguments(options, path.stem, report),
        keys(path.stem, report),
        text,
    )
    measurement = Measurement([*prefix, *words], output, process, names, bool(events), waits)
    try:
        measurement.attach(semaphores)
        check_served(options.pid, measurement.answers(), output)
        print(
            f"{question(path)} Process {options.pid}{'' if options.seconds else ', until Ctrl-C'}",
            file=sys.stderr,
        )
        for told in [event.reach()] if event else [report.BEFORE, *report.REACH] if report else []:
            if told:
                print(f"probescope: {clean(told)}", file=sys.stderr)
        _print(output.head())
        measurement.read(options.seconds, options.max_overhead)
    except KeyboardInterrupt:
        measurement.read_to_the_flush()
    except CommandError:
        measurement.end()
        raise
    measurement.close()
    _print(output.finish(measurement.room))
    return 0


# Programs that find in the kernel what a runtime does not report: {program: (the other program, its
# probe, the runtimes that it is for)}.
BY_KERNEL = {
    "waits": ("waits_kernel", "wait__stats", ("ruby", "python")),
    "waits_by_request": ("waits_kernel_by_request", "wait__stats", ("ruby", "python")),
    "gvl": ("gvl_kernel", "gvl__wait", ("python",)),
}


def served_program(path: Path, process: Optional[ProbedProcess], options: Any) -> Path:
    """Returns the program to use for a process that does not serve this one's probe. A process that
    only bpftrace may read is taken for one of Python. An older library has no call paths.
    """
    if path.stem.endswith(BY_OWN) and process and not options.by and not options.own:
        if PATHS not in process.to_dict()["probes"]:
            return program(command_of(path.stem))
    other, probe, runtimes = BY_KERNEL.get(path.stem, ("", "", ()))
    if not other:
        return path
    known = process.to_dict() if process else {"runtime": "python", "probes": {}}
    state = known["probes"].get(probe, {}).get("state", "unsupported")
    unserved = state in ("refused", "unsupported") and known["runtime"] in runtimes
    return program(other) if unserved else path


def check_lines(path: Path, process: Optional[ProbedProcess]) -> None:
    """Raises Usage where a program for lines would find none. A process that only bpftrace may read
    is taken for one of Python.
    """
    runtime = process.to_dict()["runtime"] if process else "python"
    if process and path.stem.startswith(BY_LINE) and runtime != "python":
        raise Usage(
            f"the lines of {runtime.capitalize()} are not known to the kernel (process {process.pid})",
            f"probescope trace syscalls -p {process.pid}: rows by function",
        )


def check_options(options: Any, program: str, report: Any) -> None:
    """Raises Usage for options that the program has no use for."""
    for name, value in (("--min", options.min), ("--sort", options.sort)):
        if value and not report:
            raise Usage(
                f"{name} is for tables, and {program} has none",
                f"probescope trace {program} -p {options.pid}",
            )
    if options.sort:
        sort_column(program, options.sort)
    if command_of(program) != "syscalls":
        for name in ("failed", "slower"):
            if getattr(options, name):
                raise Usage(f"--{name} is for syscalls", f"probescope trace syscalls -p {options.pid}")
    if command_of(program) != "on":
        for name in ("sum", "stack"):
            if getattr(options, name) is not None:
                raise Usage(f"--{name} is for on", f"probescope trace on software:cs -p {options.pid}")
    if options.json and not (report or columns.of(program).event):
        raise Usage(f"{program} has no JSON", f"probescope trace exceptions -p {options.pid} --json")


def event_of(options: Any, program: str) -> Optional[Event]:
    """Returns the event that `on` counts, and None for other programs. Raises Usage."""
    if command_of(program) != "on":
        return None
    if not options.event:
        raise Usage("which event?", f"probescope trace on software:page-faults -p {options.pid}")
    if options.stack is not None and not 1 <= options.stack <= MOST_FRAMES:
        raise Usage(f"--stack takes 1 to {MOST_FRAMES}", "--stack 4")
    return parse(options.event, options.sum)


def with_program(
    event: Event,
    bpftrace: machine.Bpftrace,
    process: Optional[ProbedProcess],
    path: Path,
    pid: int,
) -> Tuple[Event, str]:
    """Returns the event, with what is known of its file, and the text of its program. The file of a
    uprobe stays open in this process, and bpftrace reads it from there.
    """
    event.check_exists()
    machine.check_event(bpftrace, pid, event.kind)
    link = None
    if event.kind == "uprobe":
        if not process:
            raise CommandError(
                f"process {pid} may not be read, and so not its files", "run the command as root (sudo)"
            )
        descriptor, file = process.function(os.fsencode(event.names[0]), event.names[1])
        link = f"/proc/{os.getpid()}/fd/{descriptor}"
        event = event._replace(mapping=mapping(file, event.names[0], MAPPING_SECONDS))
    return event, event.program(path.read_text(encoding="utf-8"), link)


def to_file(options: Any) -> int:
    """The old file stays until the new one is complete."""
    path, options.output = options.output, None
    part = f"{path}.part"
    step = "-o a file in a folder that you may write to"
    try:
        with open(part, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            status = run(options)
        os.replace(part, path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", step) from None
    except CommandError:
        os.unlink(part)
        raise
    return status


# The thresholds of the programs for slow calls, in ms.
SLOW_MS = (1, 10, 100)


def program_name(options: Any) -> str:
    """Returns the program for the given name and options."""
    name: str = options.name
    if options.threshold and name in ("slow", "slow" + BY_REQUEST):
        least = [ms for ms in SLOW_MS if ms * 10**6 <= options.threshold]
        if not least:
            raise Usage("no probe fires for calls under 1ms", "--threshold 1ms, or probescope trace calls")
        name = f"slow{least[-1]}ms{name[len('slow') :]}"
    elif options.threshold:
        raise Usage("--threshold is for slow", f"probescope trace slow -p {options.pid} --threshold 25ms")
    if options.files:
        if name != "syscalls":
            raise Usage("--files is for syscalls", f"probescope trace syscalls -p {options.pid} --files")
        if f"{FILES}{os.uname().machine}" not in all_programs():
            raise CommandError(
                f"--files has no program for {os.uname().machine}",
                "probescope trace syscalls without --files",
            )
        name = f"{FILES}{os.uname().machine}"
    name = with_by(options, name)
    if options.by_request and name.startswith(FILES):
        raise Usage(
            "--files takes no --by-request", f"probescope trace syscalls -p {options.pid} --by-request"
        )
    if name == "on" and options.stack is not None:
        name = "on_stack"
    if options.by_request and not name.endswith(BY_REQUEST):
        name += BY_REQUEST
    return name


# {program: the values of --by that it takes}
BY = {"syscalls": ("line",), "hot": ("own", "self", "total"), "lines": ("own", "self")}


def with_by(options: Any, name: str) -> str:
    """Returns the program for --by and --own. Call paths have no requests: --by-request is by self."""
    taken = BY.get(name, ())
    if options.by is not None and options.by not in taken:
        by_line = options.by == "line"
        raise Usage(
            "--by line is for syscalls, without --files"
            if by_line
            else f"--by of {name} takes {' or '.join(taken)}, and not {options.by!r}"
            if taken
            else f"--by is for {', '.join(BY)}",
            f"probescope trace syscalls -p {options.pid} --by line"
            if by_line or not taken
            else f"probescope trace {name} -p {options.pid} --by {taken[0]}",
        )
    if options.by == "line":
        return BY_LINE
    own = "own" in taken and not options.by_request and options.by in (None, "own")
    if options.own and not own:
        raise Usage(
            "--own is for hot and lines, by own", f"probescope trace hot -p {options.pid} --own 'app/*'"
        )
    if options.by == "own" and options.by_request:
        raise Usage(
            "--by-request has no rows by call path", f"probescope trace {name} -p {options.pid} --by-request"
        )
    if options.by == "total":
        options.sort = options.sort or "TOTAL"
    return f"{name}{BY_OWN}" if own else name


def sort_column(name: str, heading: str) -> Column:
    """Returns the column with this heading. Raises Usage when there is none."""
    known = [] if command_of(name) == "slow" else definition_of(name).columns
    found = next((column for column in known if column.heading.lower() == heading.lower()), None)
    if found:
        return found
    raise Usage(
        f"{name} has no column {heading!r} to sort by",
        f"one of: {', '.join(one.heading for one in known) or 'none'}",
    )


def closing_of(seconds: Optional[float]) -> List[str]:
    """The argument that makes a program end the interval at its first flush after so many seconds."""
    return [str(max(1, round((seconds - EARLY) * 1e9)))] if seconds else []


def arguments(options: Any, name: str, report: Any) -> List[str]:
    """The program's arguments from $2 on. For slow: the threshold, and "keep". For reports: the
    time after which the program ends by itself. For syscalls: also the shortest call to count. For
    waits: also what a wait for a file lock is.
    """
    closing = "".join(closing_of(options.seconds)) if report else ""
    if command_of(name) == "syscalls":
        return [closing or "0", str(options.slower)]
    if command_of(name) in ("offcpu", "waits"):
        return [closing or "0", file_lock()]
    if command_of(name) == "on" and options.stack is not None:
        return [closing or "0", str(options.stack)]
    if name.startswith("slow"):
        return [str(options.threshold or 0), "keep", *filter(None, [closing])]
    return [closing] if closing else []


def keys(name: str, report: Any) -> int:
    """Returns the number of rows in each of bpftrace's maps."""
    definition = definition_of(name) if report else None
    default = MAP_KEYS
    if definition:
        default = definition.map_keys_by_request if name.endswith(BY_REQUEST) else definition.map_keys
    text = os.environ.get("PROBESCOPE_MAP_KEYS", str(default))
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise Usage("PROBESCOPE_MAP_KEYS is no number of rows", "unset PROBESCOPE_MAP_KEYS")
    return int(text)


def command(
    bpftrace: str, pid: int, path: str, more: List[str], room: int, text: Optional[str] = None
) -> List[str]:
    """text: of a program that is in no file."""
    # Two names of one setting. Newer versions of bpftrace know both.
    settings = {**ENVIRONMENT, "BPFTRACE_MAP_KEYS_MAX": str(room), "BPFTRACE_MAX_MAP_KEYS": str(room)}
    strings = (
        SyscallsFiles.CUT + 1 if FILES in path else PATH_BYTES if path.endswith(f"{BY_OWN}.bt") else None
    )
    if strings:  # the paths have room for so many bytes with a NUL
        settings.update({"BPFTRACE_STRLEN": str(strings), "BPFTRACE_MAX_STRLEN": str(strings)})
    try:
        settings["SETPRIV"] = machine.setpriv()
        settings["BOUNDS"] = machine.bounds()
    except CommandError:
        pass  # doctor explains the consequences
    words = [f"{name}={value}" for name, value in settings.items()]
    return [
        "/usr/bin/env",
        "-i",
        *words,
        "/bin/sh",
        "-c",
        KEEPER,
        "probescope",
        bpftrace,
        "-f",
        "json",
        "-p",
        str(pid),
        *(["--", path] if text is None else ["-e", text, "--"]),
        "*",
        *more,
    ]


def find_or_trust(pid: int, through_sudo: bool) -> Optional[ProbedProcess]:
    """Returns the process, or None when only bpftrace, through sudo, may read it."""
    try:
        return find(pid)
    except Refused as error:
        if through_sudo and error.kind == "denied":
            return None
        raise


def check_process(process: ProbedProcess, names: List[str]) -> List[int]:
    """Raises CommandError when the process does not serve the program. Returns the addresses of the
    semaphores.
    """
    known = process.to_dict()
    if "watcher" not in known["flags"]:
        step = "call probescope.install() there, or restart it with PROBESCOPE=1"
        raise CommandError(
            f"nobody looks for tracers in process {process.pid}: its watcher does not run", step
        )
    if known["deleted"]:
        raise CommandError(
            f"its library was replaced or deleted on disk ({known['path']})", "restart the process"
        )
    found: Dict[str, Any] = {name: known["probes"].get(name) for name in names}
    missing = [name for name, probe in found.items() if not probe]
    if missing:
        step = "restart the process with the probescope that is installed now"
        raise CommandError(f"its probescope {known['library']} has no {missing[0]}", step)
    return [probe["semaphore"] for probe in found.values()]


def check_served(pid: int, found: Dict[str, Any], output: Taker) -> None:
    """Warns of probes that the process serves in part or not at all. found: from Measurement.answers."""
    states = {name: probe["state"] for name, probe in found.items() if name != "stats__done"}
    for name, state in states.items():
        if state in ("refused", "unsupported", "degraded"):
            output.say(f"{name} is {state}: {found[name]['reason']}")
    if states and set(states.values()) <= {"refused", "unsupported"}:
        raise CommandError(f"process {pid} serves none of the program's probes", f"{CHECK} -p {pid}")


def message(line: bytes) -> Tuple[str, Any]:
    """Returns the type and the data of a line of `bpftrace -f json`. Returns "" and None for a line
    that is not JSON, such as a warning.

    bpftrace up to 0.27 prints a byte >= 0x80 as a sign-extended \\uffffffXX.
    """
    try:
        text = re.sub(rb"\\(?:uffffff(..)|.)", unescape, line).decode(errors="surrogateescape")
        told = json.loads(text)
        data = told["data"]
        return told["type"], data if text.isascii() else whole(data)
    except (ValueError, TypeError, KeyError):
        return "", None


def whole(value: Any) -> Any:
    """Returns the value with U+FFFD for each byte that is no UTF-8, and with keys that stay
    different.
    """
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, list):
        return [whole(one) for one in value]
    if isinstance(value, dict):
        return {key: whole(one) for key, one in value.items()}
    return value


def unescape(match: "re.Match[bytes]") -> bytes:
    return bytes([int(match[1], 16)]) if match[1] else match[0]


def has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True


class Taker(Protocol):
    """Takes what bpftrace prints of one process. `record` has another one than Output."""

    result: Result

    def say(self, text: str) -> None: ...

    def take(self, line: bytes) -> List[str]: ...


class Output:
    """The output for one process, as text or JSON: lines to print.

    names: the program's probes. event: of `on`.
    """

    def __init__(self, options: Any, program: str, names: List[str], event: Optional[Event] = None) -> None:
        self.result = Result(options.pid, program)
        self._json = options.json
        self._options = options
        self._terminal = Terminal(sys.stdout, options.color)
        self._names = names
        self._event = event
        self._report = report_of(program)
        self._columns = columns.of(program)
        self._heading = "" if options.json else self._columns.heading
        self._warnings: List[str] = []
        self._told = False
        # Whether the figures have an interval.
        self._timed = "stats__done" in names

    def say(self, text: str) -> None:
        """Prints a warning on stderr, and adds it to the warnings in JSON."""
        self._warnings.append(text)
        line = Terminal(sys.stderr, self._options.color).paint(f"probescope: {clean(text)}", "warning")
        print(line, file=sys.stderr)

    def head(self) -> List[str]:
        """Returns the heading the first time, and nothing afterwards."""
        heading, self._heading = self._heading, ""
        return [heading] if heading else []

    def take(self, line: bytes) -> List[str]:
        """Takes a line of `bpftrace -f json`. Returns the lines to print at once."""
        kind, data = message(line)
        if kind in ("map", "hist"):
            self.result.add(data)
        elif kind == "lost_events":
            self.result.lost_events += int(data["events"])
        elif kind == "printf":
            text = str(data).rstrip("\n")
            shown = (
                self._columns.json(text, self.result) if self._json else self._columns.show(text, self.result)
            )
            self._told = self._told or bool(shown)
            return [*self.head(), shown] if shown else []
        return []

    def finish(self, room: int) -> List[str]:
        """Returns the last lines. room: rows in each map. Raises CommandError when no interval
        ended.
        """
        for text in tables.lost(self.result, room):
            self.say(text)
        if self._timed and self._told and not self.result.has_maps:
            self.say(lost.UNCOUNTED["cut_off"])
        if not self.result.wall_ns and (self._report or (self._timed and not self._told)):
            pid = self.result.pid
            raise CommandError(f"nothing is known of process {pid}: no interval ended", f"{CHECK} -p {pid}")
        if not self._report:
            return []
        self._say_taken_out()
        report = self._report(
            self.result,
            whole=self._json,
            failed=self._options.failed,
            slower=self._options.slower,
            event=self._event,
            own=self._options.own,
        )
        report.check()
        for text in [*report.silent(), *report.warnings(room)]:
            self.say(text)
        self._say_what_ticks_missed()
        return self._rows(report)

    def _say_what_ticks_missed(self) -> None:
        """Samples are taken at ticks only where the state of the probe is "on"."""
        part, probes = self.result.missed_by_ticks, self.result.known.get("probes", {})
        on = [name for name in self._names if probes.get(name, {}).get("state") == "on"]
        if part is not None and any(name.startswith(("sample", "stack__cpu")) for name in on):
            text = lost.UNCOUNTED["missed_by_ticks"]
            self.say(text.format(share=share(part), pid=self.result.pid))

    def _say_taken_out(self) -> None:
        known, pid = self.result.known, self.result.pid
        if known.get("note"):
            self.say(f"process {pid} says: {known['note']}")
        probes = {name: probe for name, probe in known.get("probes", {}).items() if name in self._names}
        for name, at in self.result.taken_out.items():
            if name in probes:
                self.say(f"{name} of process {pid} counts until {clock(at)} alone: {probes[name]['reason']}")
        for name, probe in probes.items():
            if probe.get("state") == "degraded" and "PROBESCOPE_MAX_OVERHEAD" in probe.get("reason", ""):
                self.say(f"{name} is degraded: {probe['reason']}")

    def _rows(self, report: Report) -> List[str]:
        every = report.rows()
        least = self._options.min
        rows = [row for row in every if (report.share(row) or 0) * 100 >= least] if least else every
        if self._options.sort:
            rows = cells.ordered(rows, sort_column(self.result.program, self._options.sort))
        left_out = len(every) - len(rows)
        name = command_of(self.result.program)
        if self._json:
            return [to_json(self._object(name, report, rows, left_out))]
        table = tables.table(report, rows, self._options.top, self._terminal, left_out, least)
        return [*tables.head(name, self.result), *tables.above(report), *table]

    def _object(self, name: str, report: Report, rows: List[Dict[str, Any]], left_out: int) -> Dict[str, Any]:
        """Returns the object that docs/schema describes."""
        result = self.result
        interval = self._interval()
        return {
            "schema": SCHEMA,
            "command": name,
            "pids": [result.pid],
            **interval,
            **({"sample_rate": result.sample_rate} if report.definition.samples else {}),
            **report.more(),
            "processes": [self._covered(interval)],
            "rows": [
                {name: row[name] for name in row if name in report.definition.fields}
                for row in [*rows, *report.rest()]
            ],
            "rows_left_out": left_out,
            "not_covered": report.not_covered(),
            "lost": result.lost(),
            "others": {"processes": 0, "rows": 0},
            "warnings": self._warnings,
        }

    def _interval(self) -> Dict[str, Any]:
        result = self.result
        return {
            "begin": iso(result.interval[0]),
            "end": iso(result.interval[1]),
            "seconds": result.seconds,
            "cpu_share": ratio(result.cpu_ns, result.wall_ns),
            "looking_share": result.looking_share,
        }

    def _covered(self, interval: Dict[str, Any]) -> Dict[str, Any]:
        """Returns how the process was covered: the whole interval, since it is the only one."""
        taken_out = [
            {"probe": name, "at": iso(at)}
            for name, at in self.result.taken_out.items()
            if name in self._names
        ]
        return {
            "pid": self.result.pid,
            **interval,
            "waited_ns": self.result.waited_ns,
            "left_out": None,
            "taken_out": taken_out,
        }


def waits_for_events(pid: int) -> Optional[bool]:
    """Whether the bpftrace below this process waits for events: then all its probes are attached.
    None where the kernel does not tell. bpftrace's message of the attach does not tell it: up to 0.23
    this message comes before the attach.
    """
    process = Path(f"/proc/{pid}")
    try:
        if (process / "comm").read_text() == "bpftrace\n":
            place = (process / "wchan").read_text()
            sleeps = (process / "stat").read_text().rpartition(")")[2].split()[0] == "S"
            # That of a process that runs is "0", too.
            return None if place in ("", "0") and sleeps else "epoll" in place
        words = [path.read_text() for path in process.glob("task/*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return None
    if not words:
        return None
    found = [waits_for_events(int(child)) for line in words for child in line.split()]
    return True if True in found else None if None in found else False


class Measurement:
    """bpftrace on one process, for one interval.

    process: None when only bpftrace may read it. names: the program's probes. tracepoints: whether it
    has tracepoints of the kernel. waits: whether it tells of threads that sleep.
    """

    def __init__(
        self,
        words: List[str],
        output: Taker,
        process: Optional[ProbedProcess],
        names: List[str],
        tracepoints: bool = False,
        waits: bool = False,
        interrupts: Optional[Interrupts] = None,
    ) -> None:
        pipe = subprocess.PIPE
        self._output = output
        self._pid = output.result.pid
        self._process = process
        self._names = names
        self._tracepoints = tracepoints
        self._waits = waits
        self._interrupts = interrupts
        self._threads_before: Optional[thread_states.State] = None
        self._began_ns = time.monotonic_ns()
        self._ticked_before: Optional[Ticked] = None
        self.room = int(
            next(word.partition("=")[2] for word in words if word.startswith("BPFTRACE_MAP_KEYS_MAX="))
        )
        self._keeper = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self._keeper.stdout
        with contextlib.suppress(OSError):  # a user with very many pipes may not have larger ones
            fcntl.fcntl(self._keeper.stdout, F_SETPIPE_SZ, PIPE_BYTES)
        self._rest = {"out": b"", "err": b""}
        self._streams = {self._keeper.stdout: "out", self._keeper.stderr: "err"}
        self._errors: List[str] = []
        self._reads = False  # whether bpftrace has begun to read events

    def attach(self, semaphores: List[int]) -> None:
        """Waits until the kernel counts a tracer on each probe, or until bpftrace has ended. The kernel
        counts places and not tracers: beside others, bpftrace has to wait for events, too. Raises
        CommandError after the limit: what happened until then would be missing.
        """
        began = time.monotonic()
        limit = LONG_ATTACH_SECONDS if self._tracepoints else ATTACH_SECONDS
        told = not self._tracepoints
        others: Optional[bool] = None  # whether other tracers listened before
        raised_at: Optional[float] = None
        while self._process and self._streams and time.monotonic() - began < limit:
            if not told and time.monotonic() - began > SOON_SECONDS:
                print(f"probescope: {SLOWLY}", file=sys.stderr)
                told = True
            try:
                listened = self._process.listened(semaphores)
                others = any(listened) if others is None else others
                if all(listened):
                    raised_at = raised_at or time.monotonic()
                    # If events come faster than bpftrace reads them, it never waits for them.
                    waits = self._reads or not others or waits_for_events(self._keeper.pid)
                    if waits or (waits is None and time.monotonic() - raised_at > HIDDEN_SECONDS):
                        return
            except Refused:  # the process has ended, and bpftrace will end too
                return
            self._take(0.05)
        if self._process and self._streams:
            raise CommandError(f"bpftrace did not attach within {limit} s", f"{CHECK} -p {self._pid}")

    def answers(self) -> Dict[str, Any]:
        """Returns the states of the probes once the process has handled the request: {name: {state,
        reason}}.

        Empty when the process cannot be read.
        """
        found: Dict[str, Any] = {}
        deadline = time.monotonic() + HOOK_SECONDS
        while self._streams and time.monotonic() < deadline:
            if not self._look():
                # The process has ended, and bpftrace will end too. Or only bpftrace may read the
                # process.
                return {}
            found = {name: self._output.result.known["probes"][name] for name in self._names}
            if all(probe["state"] != "off" for probe in found.values()):
                break
            self._take(0.05)
        return found

    def read(self, seconds: Optional[float], max_overhead: Optional[float] = None) -> None:
        """Reads events for `seconds`: from the process's first flush to the flush that is due at
        the end. max_overhead: a share of the process's CPU time. The first flush above it is the
        last one.
        """
        began, flushes = None, self._flushes()
        first: Dict[str, Any] = {}
        started = time.monotonic()
        # Not every version of bpftrace ends with the process.
        while self._streams and not has_ended(self._pid):
            now, seen = time.monotonic(), self._flushes()
            if seen != flushes:
                flushes = seen
                self._look()
                if began is None:
                    began, first = now, self._output.result.known
                    self._ticked_before = ticked(self._pid, first)
                    self._threads_before = thread_states.state_of(self._pid) if self._waits else None
                    if max_overhead and first.get("looking_ns") is None:
                        self._output.say(
                            f"process {self._pid} does not tell what looking takes: "
                            "--max-overhead has no effect"
                        )
                elif self._is_too_dear(max_overhead, first, now - began):
                    return self._until(now + SETTLE)
                elif seconds and now - began >= seconds - EARLY:
                    return self._until(now + SETTLE)
            if seconds and now - (began or started) > seconds + NEXT_FLUSH_SECONDS + (
                0 if began else FIRST_FLUSH_SECONDS
            ):
                return
            self._take(0.05 if self._process else 0.5)

    def _is_too_dear(self, limit: Optional[float], first: Dict[str, Any], seconds: float) -> bool:
        """Warns when the overhead is above the limit. first: the state when the interval began."""
        known = self._output.result.known
        if limit is None or first.get("looking_ns") is None or known.get("looking_ns") is None:
            return False
        looking, cpu = (known[name] - first[name] for name in ("looking_ns", "looked_cpu_ns"))
        if looking <= limit * cpu:
            return False
        self._output.say(
            f"ended after {seconds:.1f} s: looking took {share(looking / cpu)} of the CPU time, "
            f"more than --max-overhead {limit * 100:g}%"
        )
        return True

    def read_to_the_flush(self) -> None:
        """Handles a first Ctrl-C: reads on to the next flush, so that the current second is
        included.

        A second Ctrl-C ends the command at once.
        """
        before = self._flushes()
        deadline = time.monotonic() + NEXT_FLUSH_SECONDS
        try:
            while (
                self._streams
                and before is not None
                and time.monotonic() < deadline
                and not has_ended(self._pid)
            ):
                if self._flushes() != before:
                    self._until(time.monotonic() + SETTLE)
                    break
                self._take(SETTLE)
        except KeyboardInterrupt:
            pass

    def end(self) -> int:
        """Ends bpftrace. Returns its exit status."""
        assert self._keeper.stdin
        while True:
            try:
                self._drain()
                self._keeper.stdin.close()
                self._until(None)
                return self._keeper.wait()
            except KeyboardInterrupt:
                continue  # bpftrace is ending already

    def close(self) -> None:
        """Ends bpftrace. Raises CommandError when bpftrace has failed."""
        ended = has_ended(self._pid)
        self._look()
        self._output.result.missed_by_ticks = missed(
            self._ticked_before, ticked(self._pid, self._output.result.known)
        )
        if self._threads_before:
            quiet = thread_states.between(self._threads_before, thread_states.state_of(self._pid))
            self._output.result.quiet = quiet
        status = self.end()
        self._output.result.ended = ended
        if status and ended:
            raise CommandError(f"process {self._pid} has ended", CHECK)
        if status:
            errors = "\n".join(self._errors) or f"exit status {status}"
            raise complaint(errors, "failed", f"{CHECK} -p {self._pid}")
        if ended:
            self._output.say(
                f"process {self._pid} ended while it was traced; this is what was told until then"
            )

    def _look(self) -> bool:
        """Stores the current state of the process. Returns False when it cannot be read."""
        if not self._process:
            return False
        try:
            known = self._process.to_dict()
        except CommandError:
            return False
        self._output.result.known = known
        asked, hooks_in = known.get("asked_ns") or 0, known.get("hooks_in_ns") or 0
        # The wait is 0 when another tracer had the hooks installed already.
        if hooks_in and self._output.result.waited_ns is None:
            self._output.result.waited_ns = max(0, hooks_in - max(asked, self._began_ns))
        return True

    def _flushes(self) -> Optional[int]:
        """The number of flushes, or None when it cannot be read. Without it, seconds are
        counted instead.
        """
        if not self._process:
            return int(time.monotonic())
        try:
            return self._process.flushes()
        except Refused:
            return None

    def _drain(self) -> None:
        """Takes what is in the pipe. A SIGINT makes a write fail that waits for room in the pipe, and
        after a failed write bpftrace prints nothing more (decision 229). bpftrace needs much longer
        to fill the pipe again than the signal to arrive.
        """
        out = self._keeper.stdout
        if out and out in self._streams and select.select([out], [], [], 0)[0]:
            self._rest["out"] += os.read(out.fileno(), PIPE_BYTES)

    def _until(self, deadline: Optional[float]) -> None:
        while self._streams and (deadline is None or time.monotonic() < deadline):
            self._take(1 if deadline is None else min(1, max(0, deadline - time.monotonic())))

    def _take(self, seconds: float) -> None:
        if self._interrupts:
            self._interrupts.check()
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
        self._reads = self._reads or OF_EVENTS.match(line) is not None
        _print(self._output.take(line))


def _print(lines: List[str]) -> None:
    for line in lines:
        print(line, flush=True)
