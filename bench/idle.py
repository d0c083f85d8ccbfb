"""Instructions of the application's thread for calls, a generator and a raise: without probescope,
and loaded while nobody listens.

    python bench/idle.py      # wants valgrind; probescope has to be importable

Counted by callgrind, as the difference between two numbers of rounds, so that starting and loading
are not in it. Exits 1 when they differ by more than 0.1 %.
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
# A process of several threads, as servers are: from the second on, whoever starts it, glibc's
# malloc takes locks.
threading.Thread(target=threading.Event().wait, daemon=True).start()
# A collection looks at all that was loaded, which is more with us.
gc.disable()
# Modules of the standard library that ours imports: how tables and free lists are filled depends on
# all that was loaded.
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
    """Of the main thread of one run."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "app.py")
        program.write_text(PROGRAM)
        out = Path(directory, "out")
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}",
                   sys.executable, "-S", str(program), how, str(rounds)]  # fmt: skip
        # -S does not look for the package. The same dictionaries each time, and no pools, whose
        # borders fall now here and now there.
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
        f"Python {sys.version.split()[0]}: {plain:.1f} instructions a round plain, "
        f"{loaded:.1f} loaded ({difference:+.4%})"
    )
    sys.exit(abs(difference) > LIMIT)
