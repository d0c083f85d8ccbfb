"""Lets several tracers at once attach and detach on one Python process with eight threads under
load: does it grow, does it crash?

    sudo python bench/soak.py [CYCLES] [--write]

CYCLES is the number for all tracers together, 1,000 by default, without a warm-up. probescope must
be importable. The process runs with PROBESCOPE_FORCE=1. --write puts this version's line into
docs/performance.md. bench/attach.py measures how soon hooks come in.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import struct
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import performance_page  # noqa: E402
from attacher import Attacher, info_address, library  # noqa: E402
from tracing import Child, start_program, wait_for  # noqa: E402

LOAD = """
import gate, gc, threading, time, traceback
class Node:
    def __init__(self, n): self.me, self.n = self, bytearray(n)
def numbers(n):
    for i in range(n):
        yield i
def fails():
    raise ValueError("soft")
def inner(n):
    try:
        return n and fails() or sum(numbers(3))
    except ValueError:
        return len(traceback.format_exc()) if n == 10 else Node(n)
def outer(pause):
    while True:
        for n in range(20):
            inner(n)
        time.sleep(pause)
for _ in range(7):
    threading.Thread(target=outer, args=(0.0005,), daemon=True).start()
print("ready", flush=True)
outer(0)
"""
# Each line is a separate tracer, so each attaches while others are attached, attach or detach.
# Every second one waits for its hooks.
TRACERS = [
    ["function__stats"],
    ["exception__stats"],
    ["object__stats", "gc__start", "gc__done"],
    ["sample__stats"],
    ["backtrace__done"],
    ["function__entry", "line"],
    ["function__slow1ms", "object__alloc"],
    ["exception__raise", "stats__done", "sample__frame"],
]
WARM_UP = 80

OUTPUT = ROOT / "docs/performance.md"
SECTION = re.compile(r"^<!-- bench/soak.py -->\n.*^<!-- end of bench/soak.py -->\n", re.MULTILINE | re.DOTALL)
# Without this, `line` and `exception__raise` are refused before 3.12.
ENVIRONMENT = {"PROBESCOPE_FORCE": "1"}


class Holdings(NamedTuple):
    """A process's KiB of memory, bytes of the library, threads and open files, and how often it
    switched hooks.
    """

    rss: int
    ours: int
    threads: int
    files: int
    switches: int

    def line(self) -> str:
        return f"{self.rss} KiB, {self.ours} bytes of probescope, {self.threads} threads, {self.files} files"


class Target:
    """A busy process to trace."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.info = info_address(child.pid, library())

    def holdings(self) -> Holdings:
        place = Path(f"/proc/{self.child.pid}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        with open(place / "mem", "rb") as memory:
            memory.seek(self.info + 112)
            ours, _, _, switches = struct.unpack("4Q", memory.read(32))
        return Holdings(
            int(status["VmRSS"].split()[0]),
            ours,
            int(status["Threads"]),
            len(os.listdir(place / "fd")),
            switches,
        )

    def settled(self) -> Holdings:
        """Returns the holdings after the hooks are out.

        Our second thread has ended then. Once samples were taken, it stays (decision 213).
        """
        Attacher(self.child.pid, "status", cycles=1).finish(600)
        before = self.holdings()

        def at_rest() -> bool:
            nonlocal before
            time.sleep(0.2)
            before, last = self.holdings(), before
            return before.switches == last.switches and before.ours == last.ours and before.threads in (9, 10)

        wait_for(f"rest in {self.child}", at_rest, 60)
        return before

    def cycle(self, count: int) -> Holdings:
        """Returns the largest holdings during the cycles."""
        tracers = [
            Attacher(self.child.pid, *probes, cycles=count, await_hooks=number % 2 == 0)
            for number, probes in enumerate(TRACERS)
        ]
        most = self.holdings()
        while any(tracer.process.poll() is None for tracer in tracers):
            time.sleep(0.2)
            now = self.holdings()
            most = Holdings(*map(max, most, now))
        for tracer in tracers:
            tracer.finish(600)
        return most


@contextmanager
def started(source: str) -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as directory:
        child = start_program(source, Path(directory), env=ENVIRONMENT)
        try:
            child.line("ready")
            yield Target(child)
        finally:
            child.kill()


class Soak:
    """before, most and after: the holdings. failed: text of the failures."""

    def __init__(self, cycles: int) -> None:
        each = -(-cycles // len(TRACERS))
        self.cycles = each * len(TRACERS)
        with started(LOAD) as target:
            target.cycle(WARM_UP // len(TRACERS))
            self.before, began = target.settled(), time.monotonic()
            self.most = target.cycle(each)
            self.seconds = time.monotonic() - began
            self.after = target.settled()
            self.failed = target.child.err
        self.switches = self.after.switches - self.before.switches
        if self.after.rss - self.before.rss > int(os.environ.get("GROWTH", 4096)):
            self.failed += "the process has grown\n"
        if self.after.ours > self.before.ours:
            self.failed += "our memory has grown\n"
        if self.after[2:4] != self.before[2:4]:
            self.failed += "there are more threads or files than before\n"

    def row(self) -> str:
        pairs = zip(self.before, self.most, self.after)
        figures = [" / ".join(str(figure) for figure in three) for three in list(pairs)[:4]]
        version = f"{platform.python_version()} ({performance_page.date()})"
        cells = [version, str(self.cycles), str(self.switches), *figures]
        return "| " + " | ".join(cells) + " |"


def with_row(rows: List[str], row: str) -> str:
    """Returns the table's lines with this version's replaced, in the order of versions."""

    def version(line: str) -> "list[int]":
        return [int(number) for number in re.findall(r"\d+", line.split("|")[1].split("(")[0])]

    return "\n".join(sorted([line for line in rows if version(line) != version(row)] + [row], key=version))


def section(known: str, soak: Soak) -> str:
    table = re.search(r"^\|---.*\n((?:\|.*\n)*)", known, re.MULTILINE)
    soaks = table[1].splitlines() if table else []
    return f"""<!-- bench/soak.py -->
## Tracers that come and go on a Python process

{performance_page.line(known, each="rows")}

{len(TRACERS)} tracers at once attach to and detach from one process, after {WARM_UP} attaches to \
warm up. "Attaches" is
the number of all tracers together. The process has eight threads under load, which call functions,
raise, format tracebacks, allocate and collect garbage. It runs with PROBESCOPE_FORCE=1; otherwise
`line` and `exception__raise` would be refused before 3.12. Three figures in one cell are the value
before, the highest value, and the value afterwards.

| CPython | attaches | switches of hooks | memory of the process (KiB) \
| memory of probescope in it (bytes) | threads | files |
|---|---|---|---|---|---|---|
{with_row(soaks, soak.row())}

Written by `bench/soak.py --write` on {platform.machine()}, {os.cpu_count()} CPUs, run with each of \
these versions.
<!-- end of bench/soak.py -->
"""


def write(soak: Soak) -> None:
    text = OUTPUT.read_text()
    found = SECTION.search(text)
    new = section(found[0] if found else "", soak)
    OUTPUT.write_text(text.replace(found[0], new) if found else f"{text}\n{new}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cycles", type=int, nargs="?", default=1000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    soak = Soak(options.cycles)
    print(
        f"Python {platform.python_version()}: {soak.cycles} times in and out in {soak.seconds:.0f} s, "
        f"{soak.switches} switches"
    )
    print(f"  {soak.before.line()}\n  {soak.after.line()}\n{soak.failed}", end="", flush=True)
    if options.write and not soak.failed:
        write(soak)
    return bool(soak.failed)


if __name__ == "__main__":
    sys.exit(main())
