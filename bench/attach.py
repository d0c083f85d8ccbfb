"""Measures how long hooks take to come in, in programs that use the GIL in different ways
(tests/temperaments.py).

    sudo python bench/attach.py [--cycles 100] [--busy 2] [--write] ["os.stat() every 2 ms" ...]

Measures from the moment when the watcher has seen the tracer (it looks every 50 ms) until the hooks
are in. --busy: runs this many processes in busy loops at the same time. --write puts the column of
this version of CPython into docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import performance_page  # noqa: E402
import temperaments  # noqa: E402
from attacher import Attacher  # noqa: E402
from tracing import start_program  # noqa: E402

PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- bench/attach.py -->\n", "<!-- end of bench/attach.py -->\n"
TEXT = """\
## Hooks of Python programs that are busy, or wait

{dated}

The time until hooks are installed, in Python programs that use the GIL in different ways
(`tests/temperaments.py`). A cell has the median / 99th percentile / longest of {cycles} attaches of
`exception__stats`, in ms. The time begins when the watcher has seen the tracer. The watcher looks
every 50 ms, so 25 ms pass before that on average. A command's first interval begins when the hooks
are installed. A thread in a call of C of 20 ms gets its hooks when the call ends.
"""


@contextlib.contextmanager
def spinning(count):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(name, cycles):
    with tempfile.TemporaryDirectory() as directory:
        temperaments.Counts(Path(directory))
        program = start_program(temperaments.source(name), Path(directory))
        try:
            program.line("ready")
            figures = Attacher(program.pid, "exception__stats", cycles=cycles, await_hooks=True).finish(1800)
        finally:
            program.kill()
    return sorted(cycle["switch_ms"] for cycle in figures)


def shown(times):
    places = (times[len(times) // 2], times[int(len(times) * 0.99)], times[-1])
    return " / ".join(f"{time:.1f}" if time < 100 else f"{time:.0f}" for time in places)


def table(text):
    """Returns {version: {program: figures}} of the page's section."""
    lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    if not lines:
        return {}
    head, _, *rows = lines
    return {version: {row[0]: row[at] for row in rows} for at, version in enumerate(head[1:], 1)}


def write(figures, column, cycles):
    page = PAGE.read_text()
    found = re.search(re.escape(BEGIN) + "(.*?)" + re.escape(END), page, re.DOTALL)
    known = found[0] if found else ""
    before = {name: rows for name, rows in table(known).items() if not name.startswith(f"{column}, load")}
    dated = performance_page.line(known, each="columns")
    columns = {**before, f"{column}, load {os.getloadavg()[1]:.0f} ({performance_page.date()})": figures}
    versions = sorted(columns, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    programs = list(dict.fromkeys(program for version in versions for program in columns[version]))
    lines = [f"| | {' | '.join(versions)} |", "|---" * (len(versions) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(columns[version].get(name, "") for version in versions) + " |"
        for name in programs
    ]
    by = (
        f"Written by `bench/attach.py --write` on {platform.machine()}, {os.cpu_count()} CPUs, "
        "run with each of these versions."
    )
    section = "\n".join([BEGIN.strip(), TEXT.format(cycles=cycles, dated=dated), *lines, "", by, END])
    PAGE.write_text(page.replace(found[0], section) if found else f"{page}\n{section}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    column = platform.python_version() + (f", {options.busy} processes spin" if options.busy else "")
    figures = {}
    with spinning(options.busy):
        for name in options.programs or temperaments.PROGRAMS:
            figures[name] = shown(measure(name, options.cycles))
            print(f"{column}: {name}: {figures[name]} ms, load {os.getloadavg()[0]:.1f}", flush=True)
    if options.write:
        write(figures, column, options.cycles)


if __name__ == "__main__":
    main()
