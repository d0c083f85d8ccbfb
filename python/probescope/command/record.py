"""Records call paths with weights over time, into a file."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Dict, List, Optional, Sequence, Tuple

from probescope.command import cells, lost, machine, trace
from probescope.command.convert import by_of
from probescope.command.crash import Crash, version
from probescope.command.definitions import MAP_KEYS, SCHEMA
from probescope.command.errors import CommandError
from probescope.command.interrupts import Interrupts
from probescope.command.programs import probes, program
from probescope.command.result import Result, iso, numbers, ratio
from probescope.command.stack_lines import StackLines
from probescope.command.terminal import Terminal
from probescope.command.text import clean, share, size, to_json
from probescope.profile.checkpoints import Checkpoints
from probescope.profile.destination import Destination
from probescope.profile.recorder import Recorder
from probescope.profile.recording import KINDS, Recording
from probescope.profile.tables import Tables

PROGRAM = "stacks"
# 4 MiB on each CPU: the first second of a large application describes thousands of paths.
PAGES = 1024
# Every limit of locked memory that systems have has room for so many pages on each CPU.
LEAST_PAGES = 64
STRINGS = 200
# Rows of each table.
TOP = 10
COMM_BYTES = 64
# The most threads with a name: an application may start one for each request.
THREAD_NAMES = 16_384


def run(options: Any) -> int:
    destination = Destination(options.output, options.force)
    path = program(PROGRAM)
    machine.kernel()
    bpftrace = machine.bpftrace()
    prefix = machine.privilege()
    process = trace.find_or_trust(options.pid, bool(prefix))
    names = probes(path)
    machine.check_numbers(bpftrace, names)
    semaphores = trace.check_process(process, names) if process else []
    output = Output(options, destination)
    if process:
        output.result.entry = process.entry()
    words = trace.command(bpftrace.path, options.pid, str(path), trace.closing_of(options.seconds), MAP_KEYS)
    # Behind `env -i`. The strings have two names, an old one and a new one.
    words[2:2] = [
        f"BPFTRACE_PERF_RB_PAGES={_pages()}",
        f"BPFTRACE_STRLEN={STRINGS}",
        f"BPFTRACE_MAX_STRLEN={STRINGS}",
    ]
    try:
        with Interrupts() as interrupts:
            measurement = trace.Measurement([*prefix, *words], output, process, names, interrupts=interrupts)
            try:
                _record(measurement, semaphores, options, output)
            except Exception as error:  # it does not lose what was recorded until then
                output.failed = error
                output.hold()
                measurement.end()
            recording, written = output.write()
    finally:
        output.release()
    return output.show(recording, written)


def _record(measurement: trace.Measurement, semaphores: List[int], options: Any, output: "Output") -> None:
    """Reads until the end of the recording, and ends bpftrace."""
    try:
        measurement.attach(semaphores)
        trace.check_served(options.pid, measurement.answers(), output)
        until = "" if options.seconds else ", until Ctrl-C"
        _tell(f"recording process {options.pid}{until}")
        measurement.read(options.seconds, options.max_overhead)
    except KeyboardInterrupt:
        output.interrupted = True
        measurement.read_to_the_flush()
    output.hold()
    measurement.close()


def _tell(line: str) -> None:
    """The terminal, or the reader of a pipe, may be gone: that is no reason to lose the figures."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: IO[str]) -> None:
    """For a stream that takes no more: what it still holds must not fail again when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _pages() -> int:
    """Returns the pages of bpftrace's buffer on each CPU for which there is room.

    Buffers are locked memory, of which a process may have 8 MiB by default. Above the limit, bpftrace
    does not start.
    """
    with contextlib.suppress(ValueError, OSError):  # without CAP_SYS_RESOURCE
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    limit, pages = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], PAGES
    if limit == resource.RLIM_INFINITY:
        return pages
    cpus = max(1, len(list(Path("/sys/devices/system/cpu").glob("cpu[0-9]*"))))
    # The kernel adds a page to each buffer.
    most = limit // resource.getpagesize() // cpus - 1
    while pages > max(most, LEAST_PAGES):
        pages //= 2
    return pages


class Output:
    """Takes bpftrace's output, and writes the file at the end."""

    def __init__(self, options: Any, destination: Destination) -> None:
        self.result = Result(options.pid, PROGRAM)
        # Whether Ctrl-C or a signal has ended it.
        self.interrupted = False
        # What has ended the trace, if that was a failure.
        self.failed: Optional[Exception] = None
        self._options = options
        self._destination = destination
        self._warnings: List[str] = []
        # The warnings that are held back.
        self._unsaid: Optional[List[str]] = None
        self._threads: Dict[str, str] = {}
        self._recorder = Recorder(KINDS)
        self._lines = StackLines(self._recorder, options.pid, self._name_threads)
        self._checkpoints = Checkpoints(destination, self._recording, self.say)

    def say(self, text: str) -> None:
        """Prints a warning on stderr, and adds it to the warnings in JSON. The same text is printed once."""
        if text in self._warnings:
            return
        self._warnings.append(text)
        if self._unsaid is None:
            self._print(text)
        else:
            self._unsaid.append(text)

    def hold(self) -> None:
        """Holds warnings back until the file is written: the terminal may be gone, or may take no more."""
        self._checkpoints.stop()  # its process has a copy of the pipe that keeps the trace going
        self._unsaid = self._unsaid or []

    def release(self) -> None:
        """Prints the warnings that are held back."""
        for text in self._unsaid or []:
            self._print(text)
        self._unsaid = None

    def _print(self, text: str) -> None:
        _tell(Terminal(sys.stderr, self._options.color).paint(f"probescope: {clean(text)}", "warning"))

    def take(self, line: bytes) -> List[str]:
        """Takes a line of `bpftrace -f json`. Returns the lines to print at once."""
        kind, data = trace.message(line)
        if kind in ("map", "hist"):
            self.result.add(data)
        elif kind == "lost_events":
            self.result.lost_events += int(data["events"])
        elif kind == "printf" and not self.failed:
            self._lines.receive(str(data).rstrip("\n"))
            if self._lines.wall_ns and self._unsaid is None:
                self._checkpoints.step()
        return []

    def write(self) -> Tuple[Recording, int]:
        """Writes the file. Returns the recording and the number of bytes. Raises CommandError when no
        second ended, and when the file cannot be written.
        """
        self.hold()
        if self._is_whole:
            self._lines.numbered.fired(self.result.sum("number"))
        self._lines.rest()
        if not self._lines.wall_ns:
            pid = self.result.pid
            raise self.failed or CommandError(
                f"nothing is known of process {pid}: no interval ended", f"{trace.CHECK} -p {pid}"
            )
        self._say_what_is_missing()
        recording, texts = self._chosen()
        for text in texts:
            self.say(text)
        recording.metadata["warnings"] = list(self._warnings)
        try:
            return recording, self._destination.write(recording)
        except CommandError as error:
            raise (_failure(self.failed, str(error)) if self.failed else error) from None

    def show(self, recording: Recording, written: int) -> int:
        """Prints the tables. Returns the exit status. Raises CommandError if the trace has failed."""
        tables, path = Tables(recording, by_of([recording], None), TOP), self._destination.path
        if self._options.json:
            told = {"schema": SCHEMA, "command": "record", **tables.fields(), "warnings": self._warnings}
            text = to_json({**told, "file": path, "bytes": written})
        else:
            text = "\n".join([*tables.lines(), "", f"{path}, {size(written)}"])
        try:
            print(text, flush=True)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            _discard(sys.stdout)  # the reader or the terminal is gone, and the file is written
        if self.failed:
            raise _failure(self.failed, f"{path} has what was recorded until then")
        return 0

    def _say_what_is_missing(self) -> None:
        for name, number in self._lost().items():
            if name in lost.WARNINGS and number:
                self.say(lost.WARNINGS[name].format(number=number))
        for text in self._lost_weights():
            self.say(text)
        missed = self.result.missed_by_ticks
        sampled = self.result.known.get("probes", {}).get("stack__cpu", {}).get("state") == "on"
        if missed is not None and sampled:
            self.say(lost.UNCOUNTED["missed_by_ticks"].format(share=share(missed), pid=self.result.pid))
        for text in self._recorder.truncated:
            self.say(f"shortened: {text}")
        if self._recorder.lost_paths:
            self.say(f"{self._recorder.lost_paths} paths have no names: they were lost")
        if self.interrupted:
            self.say(f"interrupted after {self._seconds():.1f} s")

    @property
    def _is_whole(self) -> bool:
        """Whether the interval has ended. If the process goes on, its lines after its last second are not
        in the recording, and bpftrace drops some of them while it ends.
        """
        return self.result.ended or not self.result.goes_on

    def _lost_weights(self) -> List[str]:
        """Returns a text for each kind of which figures did not arrive: the program adds up all of them."""
        if not self._is_whole:
            return []
        sums = {numbers(key)[-1]: int(weight) for key, weight in self.result.map("sum").items()}
        numbered = [(kind, kind.number) for kind in KINDS if kind.number is not None]
        missing = {kind: sums.get(one, 0) - self._lines.weights[one] for kind, one in numbered}
        rows = [
            (kind, {"weight": weight, "unit": kind.unit}) for kind, weight in missing.items() if weight > 0
        ]
        return [
            f"{cells.weight(row, 'weight')} of {kind.name} is in no row: it was lost with these events"
            for kind, row in rows
        ]

    def _lost(self) -> Dict[str, int]:
        lines = self._lines
        events = max(lines.numbered.missing, self.result.lost_events)
        rows = lines.dropped + lines.beyond + self._recorder.dropped
        paths = self._recorder.lost_paths
        return {"events": events, "rows": rows, "samples": lines.missed, "paths": paths}

    def _name_threads(self, threads: Sequence[int]) -> None:
        """A thread may have got another name meanwhile."""
        for number in threads:
            known = str(number) in self._threads
            name = _name(self.result.pid, number) if known or len(self._threads) < THREAD_NAMES else None
            if name is not None:
                self._threads[str(number)] = name

    def _seconds(self) -> float:
        return round((self._lines.end - (self._lines.began or 0)) / 1e9, 3)

    def _recording(self) -> Recording:
        return self._chosen()[0]

    def _chosen(self) -> Tuple[Recording, List[str]]:
        """Returns the recording with the application's files chosen, and texts about --own."""
        recording = self._recorder.recording(self._metadata())
        begin = self._moment(self._recorder.begin)
        recording.begin_ns = round(begin.timestamp() * 1e6) * 1000 if begin else 0
        recording.duration_ns = round(self._seconds() * 1e9)
        return recording, recording.choose_own(self._options.own, self.result.entry)

    def _moment(self, ns: Optional[int]) -> Optional[datetime]:
        return None if ns is None else self.result.monotonic(ns)

    def _metadata(self) -> Dict[str, Any]:
        """Returns the object that docs/schema/recording.json describes."""
        lines, known = self._lines, self.result.known
        begin, end = iso(self._moment(lines.began)), iso(self._moment(lines.end))
        looking = ratio(lines.looking_ns, lines.cpu_ns)
        process = {
            "pid": self.result.pid,
            "runtime": known.get("runtime"),
            "version": known.get("version"),
            "begin": begin,
            "end": end,
            "seconds": round(lines.wall_ns / 1e9, 3),
            "cpu_share": ratio(lines.cpu_ns, lines.wall_ns),
            "looking_share": looking,
            "left_out": None,
            "wall_ns": lines.wall_ns,
            "cpu_ns": lines.cpu_ns,
            "threads": dict(self._threads),
        }
        return {
            "schema": SCHEMA,
            "probescope": version(),
            "kinds": [kind.described() for kind in KINDS],
            "duration": self._options.seconds,
            "by_request": False,
            "begin": begin,
            "end": end,
            "seconds": self._seconds(),
            "bucket_ns": self._recorder.bucket_ns,
            "processes": [process],
            "looking_share": looking,
            "own": {"by": "process", "globs": []},
            "lost": self._lost(),
            "truncated": self._recorder.truncated,
            "not_covered": [],
            "warnings": list(self._warnings),
            "interrupted": self.interrupted,
            "ended": self.result.ended,
        }


def _failure(failed: Exception, outcome: str) -> CommandError:
    """failed: what has ended the trace. outcome: what has become of the figures."""
    error = failed if isinstance(failed, CommandError) else Crash(failed)
    return CommandError(f"{error}; {outcome}", error.next_step)


def _name(pid: int, thread: int) -> Optional[str]:
    try:
        with open(f"/proc/{pid}/task/{thread}/comm", "rb") as file:
            return file.read(COMM_BYTES).decode(errors="replace").rstrip("\n")
    except OSError:
        return None
