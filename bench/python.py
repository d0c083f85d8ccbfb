"""Measures what probescope costs Python programs, and writes the figures into docs/performance.md,
between the marks `bench/python.py` and `bench/python.py:samples`. What is written by hand is kept.

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


def run(python, script, *arguments, may_fail=False):
    print(f"{python} bench/{script}", file=sys.stderr, flush=True)
    done = subprocess.run([python, str(BENCH / script), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"bench/{script} failed: status {done.returncode}")
    return done.stdout.strip()


def section(pythons):
    parts = [
        INTRODUCTION.format(
            dated=performance_page.line(each="figures"),
            machine=f"Linux {platform.release()} {platform.machine()}",
            cpus=os.cpu_count(),
        )
    ]
    overhead = [run(python, "python_overhead.py") for python in pythons]
    parts += [re.sub(r"\ACPython (\S+), (.*)", r"### CPython \1\n\n\2", text) for text in overhead]
    parts += [IDLE, "\n".join(f"- {run(python, 'idle.py', may_fail=True)}" for python in pythons)]
    parts += [PROGRAMS, *(run(python, "python_programs.py") for python in pythons)]
    return "\n\n".join(part.strip() for part in parts)


def samples(pythons):
    """Returns the figures below the heading "Samples". The rest there is written by hand."""
    figures = "\n".join(f"- {run(python, 'sampling.py', '40')}" for python in pythons)
    return f"{performance_page.line()}\n\n{figures}"


def replaced(page, name, text):
    """Returns the page with this text between the marks of this name, which are kept."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = f"{begin}\n{text}\n{end}"
    found = re.search(f"{re.escape(begin)}.*{re.escape(end)}", page, re.DOTALL)
    return page.replace(found[0], text) if found else f"{page.rstrip()}\n\n{text}\n"


def main(pythons):
    if not pythons:
        sys.exit(__doc__)
    for name, measured in (("bench/python.py", section), ("bench/python.py:samples", samples)):
        text = measured(pythons)
        PAGE.write_text(replaced(PAGE.read_text(), name, text))


if __name__ == "__main__":
    main(sys.argv[1:])
