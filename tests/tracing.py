"""A program, the events that a real bpftrace saw of it, and what the program itself knows."""

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
# What a process gets of our environment: the rest is what rake memcheck:python sets.
KEPT = ("PATH", "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONHOME")
ENVIRONMENT = {"LANG": "C.UTF-8", **{name: os.environ[name] for name in KEPT if name in os.environ}}


def wait_for(what: str, condition: Callable[[], Any], within: float = 30) -> Any:
    """What the condition returns as soon as it is true.

    The deadline only ends a test that would hang.
    """
    deadline = time.monotonic() + within
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.002)


class Child:
    """A started process whose output is read as it comes, in a process group of its own."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._command = " ".join(map(str, command))
        # Copied where it is read: without a GIL a reader appends meanwhile.
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
        """The rest of the first line that starts so."""

        def found() -> Optional[str]:
            for line in self.out.splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line[len(start) :].rstrip("\n") or " "
            if self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers):
                raise AssertionError(f"ended before a line {start!r}\n{self}")
            return None

        return wait_for(f"a line {start!r} of {self}", found, within)

    def wait(self, within: float = 60) -> int:
        """Waits for the end and for all of the output. Returns the status."""
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

    report is what it passed to gate.done(); events() has a dict for each event of a probe.
    """

    def __init__(self, program: Child, tracer: Child, fields: Dict[str, List[str]], directory: Path) -> None:
        self.program = program
        self.tracer = tracer
        self.report: Dict[str, Any] = {}
        self._fields = fields
        self._directory = directory

    def finish(self, within: float = 60) -> "Run":
        """Waits for the program's report, and until the tracer has printed all that came before it."""
        self.report = json.loads(self.program.line("report ", within))
        self.await_flushes()
        stop_tracer(self.tracer)
        return self

    def open(self, name: str) -> None:
        """Lets the program through gate.open(name)."""
        (self._directory / name).touch()

    def events(self, *probes: str) -> List[Dict[str, Any]]:
        """Of these probes, in the order in which they fired; "probe" names which one it was."""
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
        """Sums of the rows of a statistics probe, by its first field or by those given."""
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
        """Until the tracer has printed all that came before.

        What the tracer prints comes late on a busy machine, so the flushes tell when they were.
        """
        now = time.monotonic_ns()
        wait_for(
            f"two more flushes of {self.program}",
            lambda: sum(at > now for at in self._flushes()) >= 2,
            within,
        )

    def _flushes(self) -> List[int]:
        """When they were, in ns of the monotonic clock."""
        return [int(at) for at in re.findall(r"^flushed\t(\d+)$", self.tracer.out, re.MULTILINE)]


def text_of(fields: Dict[str, List[str]]) -> str:
    """A bpftrace program that prints these fields of these probes, a line an event."""
    lines = []
    for probe, names in fields.items():
        types = {**PROBES[probe].args, **PROBES[probe].more}
        form = "\\t".join([probe] + ["%s" if types[name] is str else "%llu" for name in names])
        values = ", ".join([f'"{form}\\n"'] + [PROBES[probe].place(name) for name in names])
        flushed = ' printf("flushed\\t%llu\\n", nsecs);' if probe == "stats__done" else ""
        lines.append(f"usdt:*:probescope:{probe} {{ printf({values});{flushed} }}")
    return "\n".join(lines)


def python(*arguments: str, env: Optional[Dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
    """A Python with these arguments and little in its environment, until it ends."""
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
    """Writes a program to a file of its own and starts it; `import gate` in it installs the probes."""
    path = directory / "app.py"
    path.write_text(source)
    environment = {**ENVIRONMENT, "GATE_DIRECTORY": str(directory), **(env or {})}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # From its own folder, so that the functions of gate.py are none of the application.
    return Child([sys.executable, *options, str(path)], env=environment, cwd=directory, **process)


def start_tracer(pid: Optional[int], text: str) -> Child:
    """pid None: the program names the library itself, and sees every process that maps it."""
    return Child(
        ["bpftrace", *(["-p", str(pid)] if pid else []), "-e", text],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )


def stop_tracer(tracer: Child) -> None:
    """Ends it as Ctrl-C does.

    bpftrace 0.17 can lose a signal that comes while it attaches, so it is sent again.
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
    """Has this process loaded the extension?"""
    return "/probescope/_native" in Path(f"/proc/{pid}/maps").read_text()
