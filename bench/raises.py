"""What listening to exceptions costs a raise in Python that is handled so many frames further up.

    sudo python bench/raises.py [--write] [python ...]

Prints the section of docs/performance.md, or writes it (--write). Each python (default: this one) must be able to import the extension
built for it; PYTHONPATH=python after `python setup.py build_ext --inplace`. Figures are ns of the thread's own CPU, least of several
rounds in which nobody listens, a tracer does, and nobody again, all in one process.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = "## One raise in Python"
DEPTHS = (1, 10, 100)
LISTENED = {
    "`exception__stats`": ["exception__stats", "stats__done"],
    "the same and `exception__rescue`, which fires for each": ["exception__stats", "exception__rescue", "stats__done"],
}


class Passing(Exception):
    pass


def fall(n: int) -> None:
    if n == 1:
        raise Passing
    fall(n - 1)


def one_raise(depth: int, rounds: int = 60) -> float:
    count = 8000 // (depth + 9)
    least = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(count):
            try:
                fall(depth)
            except Passing:
                pass
        least = min(least, (time.thread_time_ns() - began) / count)
    return least


def measure() -> None:
    """In a process of its own: prints {probes: [[idle, listened to, idle again] for each depth]}."""
    sys.path.insert(0, str(ROOT / "tests"))
    import probescope
    from attacher import Attacher

    probescope.install()
    found = {}
    for label, probes in LISTENED.items():
        if sys.version_info < (3, 12) and "exception__rescue" in probes:
            continue
        before = [one_raise(depth) for depth in DEPTHS]
        tracer = Attacher(os.getpid(), *probes)
        while probescope.status()["probes"]["exception__stats"][0] != "on":
            time.sleep(0.01)
        during = [one_raise(depth) for depth in DEPTHS]
        tracer.finish()
        while probescope.status()["probes"]["exception__stats"][0] != "off":
            time.sleep(0.01)
        after = [one_raise(depth) for depth in DEPTHS]
        found[label] = list(zip(before, during, after))
    print(json.dumps(found))


def section(pythons: "list[str]") -> str:
    lines = [HEADING, "", "Handled so many frames above; what it costs by itself, and what is added while a tracer listens.", "",
             "| CPython | listened to | " + " | ".join(f"{depth} frames: raise, added" for depth in DEPTHS) + " |",
             "|---|---|" + "---|" * len(DEPTHS)]  # fmt: skip
    for python in pythons:
        version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], stdout=subprocess.PIPE,
                                 check=True).stdout.decode().strip()  # fmt: skip
        ran = subprocess.run([python, __file__, "--measure"], stdout=subprocess.PIPE, check=True)
        for label, figures in json.loads(ran.stdout).items():
            cells = [f"{min(a, c):.0f}, {b - min(a, c):+.0f} ns" for a, b, c in figures]
            lines.append(f"| {version} | {label} | " + " | ".join(cells) + " |")
    load = os.getloadavg()[0]
    lines += ["", f"By `bench/raises.py` on {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}.", "",
              "`backtrace_cost` is the depth times what one entry of a traceback costs, timed at the attach with frames "
              "that run nothing. Against a differential run (passing a frame by an exception, less returning from it) "
              "it is within a factor of three."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    if "--measure" in sys.argv:
        measure()
        return
    text = section([argument for argument in sys.argv[1:] if not argument.startswith("--")] or [sys.executable])
    if "--write" not in sys.argv:
        print(text)
        return
    path = ROOT / "docs/performance.md"
    old = re.sub(rf"^{HEADING}$.*?(?=^## |\Z)", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    path.write_text(old.rstrip("\n") + "\n\n" + text)


if __name__ == "__main__":
    main()
