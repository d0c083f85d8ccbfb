"""Counts the instructions of the application's thread for calls, a generator and a raise: without
probescope, and with it loaded but without a tracer.

    python bench/idle.py      # needs valgrind; probescope must be importable

callgrind counts them. The figure is the difference between two numbers of rounds, so it does not
include starting and loading. Exits with 1 if the two cases differ by more than 0.1 %.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROUNDS = 500, 5500
LIMIT = 0.001
PROGRAM = """
import gc, sys, threading
# The process has several threads, like a server. From the second thread on, whoever starts it,
# glibc's malloc takes locks.
threading.Thread(target=threading.Event().wait, daemon=True).start()
# A collection walks all loaded objects, and probescope adds some.
gc.disable()
# These are the standard modules that probescope imports. How full tables and free lists are depends
# on everything that was loaded.
import atexit, contextlib, functools, os, re, site, sysconfig, typing
if sys.argv[1] == "loaded":
    import probescope
    assert probescope.install()

class Item:
    def pay(self, n):
        return call(n)

def call(n):
    return n

def numbers():
    while True:
        yield 1

def raises():
    raise ValueError

item, count = Item(), numbers()

def work():
    item.pay(1)
    next(count)
    try:
        raises()
    except ValueError:
        pass

for n in range(int(sys.argv[2])):
    work()
"""


def instructions(how: str, rounds: int) -> int:
    """Returns the instructions of the main thread in one run."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "app.py")
        program.write_text(PROGRAM)
        out = Path(directory, "out")
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}",
                   sys.executable, "-S", str(program), how, str(rounds)]  # fmt: skip
        # With -S, Python does not look for the package. The settings below give the same
        # dictionaries each time, and no memory pools, whose borders vary.
        where = str(Path(find_spec("probescope").origin).parent.parent)
        same = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONMALLOC": "malloc"}
        env = {**os.environ, "PYTHONPATH": where, **same}
        done = subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        text = Path(f"{out}-01").read_text(errors="replace")
        return int(re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)[1])


def per_round(how: str) -> float:
    few, many = (instructions(how, rounds) for rounds in ROUNDS)
    return (many - few) / (ROUNDS[1] - ROUNDS[0])


if __name__ == "__main__":
    plain, loaded = per_round("plain"), per_round("loaded")
    difference = loaded / plain - 1
    print(
        f"Python {sys.version.split()[0]}: {plain:.1f} instructions a round without probescope, "
        f"{loaded:.1f} with it loaded ({difference:+.4%})"
    )
    sys.exit(abs(difference) > LIMIT)
