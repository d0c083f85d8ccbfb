"""Measures what a tracer of exceptions adds to a raise in Python that is handled some frames
further up.

    sudo python bench/raises.py [--write] [--turns N] [python ...]

Prints the section of docs/performance.md, or writes it (--write). Each python (default: this one)
must be able to import the extension built for it: PYTHONPATH=python after `python setup.py
build_ext --inplace`.

A raise through 100 frames takes 10 us, and the tracer adds a hundredth of that. Comparing a run
before with a run after cannot show it. So a tracer attaches and detaches in one process, and each
short turn with it is compared with the turns before and after it. Figures are ns of the thread's
own CPU: the median over the turns, and its standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import performance_page

ROOT = Path(__file__).resolve().parent.parent
HEADING = "## One raise in Python"
BEGIN, END = "<!-- bench/raises.py -->\n", "<!-- end of bench/raises.py -->\n"
DEPTHS = (1, 10, 100)
TURN_NS = 50_000_000
LISTENED = {
    "`exception__stats`": ["exception__stats", "stats__done"],
    "`exception__stats` and `exception__rescue`, which fires for each exception": [
        "exception__stats",
        "exception__rescue",
        "stats__done",
    ],
}
FORCED = ["exception__raise", "stats__done"]  # before 3.12


class Passing(Exception):
    pass


def fall(n: int) -> None:
    if n == 1:
        raise Passing
    fall(n - 1)


def step(n: int) -> int:
    more = n + 1
    more *= 2
    return more


def least(action: "Callable[[int], object]", argument: int, count: int) -> float:
    """Returns ns: the fastest fifth of a turn's batches was below it. The others were disturbed."""
    batches: "list[float]" = []
    began = time.thread_time_ns()
    end = began + TURN_NS
    while began < end:
        for _ in range(count):
            try:
                action(argument)
            except Passing:
                pass
        now = time.thread_time_ns()
        batches.append((now - began) / count)
        began = now
    return sorted(batches)[len(batches) // 5]


def raises() -> "list[float]":
    return [least(fall, depth, 10_000 // (depth + 19)) for depth in DEPTHS]


def calls() -> "list[float]":
    return [least(step, 1, 2000)]


def in_turns(turns: int, probes: "list[str]", sample: "Callable[[], list[float]]") -> "list[list]":
    """Returns [[ns of one, [ns that each turn with a tracer adds]]] for each kind in sample()."""
    import probescope
    from attacher import Attacher

    def await_hooks(on: bool) -> None:
        while (probescope.status()["probes"][probes[0]][0] == "off") == on:
            time.sleep(0.002)

    idle, listened = [sample()], []
    for _ in range(turns):
        tracer = Attacher(os.getpid(), *probes)
        await_hooks(True)
        listened.append(sample())
        tracer.finish()
        await_hooks(False)
        idle.append(sample())
    added = [[on - (before + after) / 2 for before, on, after in zip(*figures)]
             for figures in zip(zip(*idle), zip(*listened), zip(*idle[1:]))]  # fmt: skip
    return [[statistics.median(times), more] for times, more in zip(zip(*idle), added)]


def measure(turns: int) -> None:
    """Runs in its own process. Prints {"raises": {traced probes: in_turns()}, "calls": in_turns()
    if calls are traced}.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    import probescope

    probescope.install(force=True)
    found: "dict[str, Any]" = {"raises": {}}
    for label, probes in LISTENED.items():
        if sys.version_info >= (3, 12) or "exception__rescue" not in probes:
            found["raises"][label] = in_turns(turns, probes, raises)
    if sys.version_info < (3, 12):
        found["calls"] = in_turns(turns, FORCED, calls)
    print(json.dumps(found))


def middle(figures: "list[float]") -> "tuple[float, float]":
    """Returns the median and its standard error, which a few disturbed turns do not change."""
    median = statistics.median(figures)
    spread = 1.4826 * statistics.median(abs(figure - median) for figure in figures)
    return median, 1.2533 * spread / len(figures) ** 0.5


def cells(figures: "list[list]") -> "list[str]":
    texts = []
    for raised, added in figures:
        texts.append("{:.0f}, {:+.0f} ± {:.0f} ns".format(raised, *middle(added)))
    frames = DEPTHS[-1] - DEPTHS[0]
    a_frame = [(deep - shallow) / frames for shallow, deep in zip(figures[0][1], figures[-1][1])]
    return [*texts, "{:+.1f} ± {:.1f} ns".format(*middle(a_frame))]


def section(pythons: "list[str]", turns: int) -> str:
    depths = " | ".join(f"{depth} {'frames' if depth > 1 else 'frame'}: raise, added" for depth in DEPTHS)
    lines = [f"{BEGIN}{HEADING}", "", performance_page.line(), "",
             "The exception is handled 1, 10 or 100 frames above the raise. A cell has the cost of the "
             "raise without a tracer, and what the tracer adds. The last column is what the tracer adds "
             "for each frame that the exception passes.", "",
             f"| CPython | traced | {depths} | added for each frame |",
             "|---|---|" + "---|" * (len(DEPTHS) + 1)]  # fmt: skip
    forced = ["",
              "Before 3.12 `exception__raise` and `exception__rescue` are refused unless they are forced. "
              "The table has a call of three lines that raises nothing, without a tracer and under "
              "`exception__raise`.", "",
              "| CPython | without a tracer | traced | factor |",
              "|---|---|---|---|"]  # fmt: skip
    for python in pythons:
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        version = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        ran = subprocess.run(
            [python, __file__, "--measure", "--turns", str(turns)], stdout=subprocess.PIPE, check=True
        )
        found = json.loads(ran.stdout)
        for label, figures in found["raises"].items():
            lines.append(f"| {version} | {label} | " + " | ".join(cells(figures)) + " |")
        for alone, added in found.get("calls", []):
            slow = alone + middle(added)[0]
            forced.append(f"| {version} | {alone:.0f} ns | {slow:.0f} ns | {slow / alone:.1f} |")
    load = os.getloadavg()[0]
    lines += [*(forced if len(forced) > 6 else []), "",
              f"Measured by `bench/raises.py` on {platform.machine()}, {os.cpu_count()} CPUs, load "
              f"{load:.1f}. Figures are medians of {turns} turns with a tracer, each compared with the turns "
              "before and after it, and their standard errors.", "",
              "`backtrace_cost` is the depth times the cost of one entry of a traceback. The library "
              "measures that cost at the attach, with frames that run nothing. It is within a factor of "
              "three of a differential measurement: the time in which an exception passes a frame, less the "
              "time of a return from it."]  # fmt: skip
    return "\n".join(lines) + f"\n{END}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    options = parser.parse_args()
    if options.measure:
        measure(options.turns)
        return
    text = section(options.python, options.turns)
    if not options.write:
        print(text)
        return
    path = ROOT / "docs/performance.md"
    page = path.read_text()
    found = re.search(rf"^{BEGIN}.*^{END}", page, re.MULTILINE | re.DOTALL)
    path.write_text(page.replace(found[0], text) if found else f"{page}\n{text}")


if __name__ == "__main__":
    main()
