"""A traced program, the events that a real bpftrace printed, and the program's own report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from probescope.abi import PROBES

ROOT = Path(__file__).resolve().parent.parent
# Variables of this environment that a process inherits. rake memcheck:python sets all but PATH.
KEPT = ("PATH", "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONHOME")
ENVIRONMENT = {"LANG": "C.UTF-8", **{name: os.environ[name] for name in KEPT if name in os.environ}}


# A process that works uses at least this part of a CPU, also on a machine with 30 busy processes for
# each CPU. A process that polls uses less.
WORKS = 1 / 30


def wait_for(
    what: str,
    condition: Callable[[], Any],
    within: float = 30,
    used: Optional[Callable[[], float]] = None,
) -> Any:
    """Waits until the condition is true, and returns its value.

    The deadline only serves to end a test that would hang. used: returns the CPU time in s of the
    process that is waited for. As long as that process works, the deadline is in CPU time: how long
    the process waits for a CPU depends on the machine.
    """
    start, deadline = used() if used else 0, time.monotonic() + within
    last = start
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            now = used() if used else last
            if now - last < WORKS * within or now - start > within:
                raise AssertionError(f"not within {within} s: {what}")
            last, deadline = now, time.monotonic() + within
        time.sleep(0.002)


def cpu_time(pid: int) -> float:
    """Returns the CPU time in s that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """A process in a process group of its own, with threads that read its output."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._command = " ".join(map(str, command))
        # Readers of these lists copy them: without a GIL, a thread may append at the same time.
        self._lines: Dict[str, List[bytes]] = {"out": [], "err": []}
        options = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self._readers = [self._follow("out", self.process.stdout), self._follow("err", self.process.stderr)]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return b"".join(self._lines["out"].copy()).decode(errors="replace")

    @property
    def err(self) -> str:
        return b"".join(self._lines["err"].copy()).decode(errors="replace")

    def __str__(self) -> str:
        state = f"{self._command} (pid {self.pid}, {self.process.poll()})"
        return f"{state}\n--- stdout\n{self.out}--- stderr\n{self.err}---"

    def line(self, start: str, within: float = 60) -> str:
        """Waits for the first line that begins with `start`, and returns the rest of that line.

        within: in s of this process's CPU time while it works, as for wait_for().
        """

        def found() -> Optional[str]:
            for line in self.out.splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line[len(start) :].rstrip("\n") or " "
            if self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers):
                raise AssertionError(f"ended before a line {start!r}\n{self}")
            return None

        return wait_for(f"a line {start!r} of {self}", found, within, lambda: cpu_time(self.pid))

    def wait(self, within: float = 60) -> int:
        """Waits for the end of the process and of its output. Returns the status."""
        status = self.process.wait(within)
        for reader in self._readers:
            reader.join(5)
        return status

    def kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait()

    def _follow(self, name: str, stream: Any) -> threading.Thread:
        def read() -> None:
            for chunk in iter(lambda: os.read(stream.fileno(), 65536), b""):
                self._lines[name].append(chunk)
            stream.close()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


class Run:
    """A traced program.

    report: the argument of its gate.done(). events(): a dict for each event of a probe.
    """

    def __init__(self, program: Child, tracer: Child, fields: Dict[str, List[str]], directory: Path) -> None:
        self.program = program
        self.tracer = tracer
        self.report: Dict[str, Any] = {}
        self._fields = fields
        self.directory = directory

    def finish(self, within: float = 60) -> "Run":
        """Waits for the program's report, and until the tracer has printed all events before it."""
        self.report = json.loads(self.program.line("report ", within))
        self.await_flushes()
        stop_tracer(self.tracer)
        return self

    def open(self, name: str) -> None:
        """Opens the gate for which the program waits in gate.open(name)."""
        (self.directory / name).touch()

    def events(self, *probes: str) -> List[Dict[str, Any]]:
        """Returns the events of these probes in the order in which they fired. "probe" is the
        probe's name.
        """
        found = []
        for line in self.tracer.out.splitlines():
            name, *values = line.split("\t")
            if name not in probes or len(values) != len(self._fields[name]):
                continue
            types = {**PROBES[name].args, **PROBES[name].more}
            event = {field: types[field](value) for field, value in zip(self._fields[name], values)}
            found.append({"probe": name, **event})
        return found

    def totals(self, probe: str, *key: str) -> Dict[Any, Dict[str, int]]:
        """Sums the rows of a statistics probe by these fields, or by its first field."""
        names = key or tuple(self._fields[probe][:1])
        sums: Dict[Any, Dict[str, int]] = {}
        for event in self.events(probe):
            row = sums.setdefault(
                event[names[0]] if len(names) == 1 else tuple(event[name] for name in names), {}
            )
            for field, value in event.items():
                if isinstance(value, int) and field != "line":
                    row[field] = row.get(field, 0) + value
        return sums

    def await_flushes(self, within: float = 60) -> None:
        """Waits until the tracer has printed all earlier events.

        On a busy machine a tracer prints late, so the times of flushes are compared.
        """
        now = time.monotonic_ns()
        wait_for(
            f"two more flushes of {self.program}",
            lambda: sum(at > now for at in self._flushes()) >= 2,
            within,
        )

    def _flushes(self) -> List[int]:
        """Returns the times of flushes, in ns of the monotonic clock."""
        return [int(at) for at in re.findall(r"^flushed\t(\d+)$", self.tracer.out, re.MULTILINE)]


def text_of(fields: Dict[str, List[str]]) -> str:
    """Returns a bpftrace program that prints a line with these fields for each event."""
    lines = []
    for probe, names in fields.items():
        types = {**PROBES[probe].args, **PROBES[probe].more}
        form = "\\t".join([probe] + ["%s" if types[name] is str else "%llu" for name in names])
        values = ", ".join([f'"{form}\\n"'] + [PROBES[probe].place(name) for name in names])
        flushed = ' printf("flushed\\t%llu\\n", nsecs);' if probe == "stats__done" else ""
        lines.append(f"usdt:*:probescope:{probe} {{ printf({values});{flushed} }}")
    return "\n".join(lines)


def python(*arguments: str, env: Optional[Dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
    """Runs Python with these arguments and a small environment, until it ends."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**ENVIRONMENT, **kept, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def start_program(
    source: str,
    directory: Path,
    env: Optional[Dict[str, str]] = None,
    options: Sequence[str] = (),
    **process: Any,
) -> Child:
    """Writes a program to its own file and starts it. `import gate` in it installs probescope."""
    path = directory / "app.py"
    path.write_text(source)
    environment = {**ENVIRONMENT, "GATE_DIRECTORY": str(directory), **(env or {})}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # The working directory is not that of gate.py, so gate.py does not belong to the application.
    return Child([sys.executable, *options, str(path)], env=environment, cwd=directory, **process)


def start_tracer(pid: Optional[int], text: str) -> Child:
    """pid None: the program text names the library, and traces every process that maps it."""
    return Child(
        ["bpftrace", *(["-p", str(pid)] if pid else []), "-e", text],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )


def stop_tracer(tracer: Child) -> None:
    """Ends the tracer as Ctrl-C does.

    bpftrace 0.17 can lose a signal that arrives while it attaches, so the signal is repeated.
    """
    sent = 0.0

    def ended() -> bool:
        nonlocal sent
        if time.monotonic() - sent > 3:
            sent = time.monotonic()
            tracer.process.send_signal(signal.SIGINT)
        return tracer.process.poll() is not None

    wait_for("the end of the tracer", ended, 60)
    tracer.wait()


def maps_library(pid: int) -> bool:
    """Whether the process has loaded the extension."""
    return "/probescope/_native" in Path(f"/proc/{pid}/maps").read_text()
