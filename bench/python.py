"""Measures what probescope costs Python programs, and writes that part of docs/performance.md.

    sudo rake bench:python PYTHON="/opt/venv3.11/bin/python /opt/venv3.13/bin/python"

Takes about three minutes for each Python on an idle machine. Each Python needs setuptools, and
valgrind must be installed. yappi is measured with each Python that can import it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import performance_page

BENCH = Path(__file__).resolve().parent
PAGE = BENCH.parent / "docs/performance.md"
MARKS = "<!-- bench/python.py -->", "<!-- end of bench/python.py -->"
INTRODUCTION = """## Python

{dated}

Written by `rake bench:python` (bench/python.py) on {machine}, {cpus} CPUs; each part
gives the machine's load average. Times are CPU time of the working thread. The rows of a table are
measured in turns in one process. "Added" is the difference between a turn and the turn of the first
row in the same round: the mean of the middle half of these differences, with its standard error.
"Ratio" divides "added" by that of the last row. Compare only figures of the same table.

The cost of `exception__stats` is above, under "One raise in Python".
"""
IDLE = """### Instructions without a tracer

A round is a call, a step of a generator and a raise that is caught. Callgrind counts its
instructions (`bench/idle.py`):
"""
PROGRAMS = """### Whole programs without a tracer

Measured by `bench/python_programs.py`. Each pair is one process with probescope loaded and one
without; the two take turns. A ratio is the CPU time with probescope loaded divided by that without.
"""
SAMPLES = """### Samples

`sample__stats` at 99 samples a second in a process that works all the time (`bench/sampling.py`).
Ticks follow the wall clock. On a busy machine, where the process has less than one CPU, their share
of its CPU time is larger. The cost of waking a thread so often depends on the machine, so the
benchmark also measures a process that only sleeps and wakes.
"""


def run(python, script, *arguments, may_fail=False):
    print(f"{python} bench/{script}", file=sys.stderr, flush=True)
    done = subprocess.run([python, str(BENCH / script), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"bench/{script} failed: status {done.returncode}")
    return done.stdout.strip()


def section(pythons):
    parts = [
        INTRODUCTION.format(
            dated=performance_page.line(),
            machine=f"Linux {platform.release()} {platform.machine()}",
            cpus=os.cpu_count(),
        )
    ]
    overhead = [run(python, "python_overhead.py") for python in pythons]
    parts += [re.sub(r"\ACPython (\S+), (.*)", r"### CPython \1\n\n\2", text) for text in overhead]
    parts += [IDLE, "\n".join(f"- {run(python, 'idle.py', may_fail=True)}" for python in pythons)]
    parts += [PROGRAMS, *(run(python, "python_programs.py") for python in pythons)]
    parts += [SAMPLES, "\n".join(f"- {run(python, 'sampling.py', '40')}" for python in pythons)]
    return "\n\n".join(part.strip() for part in parts)


def main(pythons):
    if not pythons:
        sys.exit(__doc__)
    text = "\n".join([MARKS[0], section(pythons), MARKS[1]])
    page = PAGE.read_text()
    found = re.search(f"{re.escape(MARKS[0])}.*{re.escape(MARKS[1])}", page, re.DOTALL)
    PAGE.write_text(page.replace(found[0], text) if found else f"{page.rstrip()}\n\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
