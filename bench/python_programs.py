"""Compares eight small programs with probescope loaded, without a tracer, with the same programs
without probescope.

    PYTHONPATH=python python bench/python_programs.py [PAIRS]

6 pairs by default, one and a half minutes.

Each pair is two processes, one with probescope and one without, which take turns piece by piece. A
pair's ratio is the median over its turns. A program's ratio is the geometric mean over the pairs,
with its standard error: two processes differ by more than two turns of one.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import sys

TURNS = 7
CHILD = r"""
import asyncio, copy, json, re, sys, time
if sys.argv[1] == "loaded":
    import probescope
    assert probescope.install()

def json_round(n=300):
    data = {"items": [{"sku": f"SKU-{i}", "grams": i * 17 % 900, "tags": ["a", "b"]} for i in range(60)]}
    for _ in range(n): assert json.loads(json.dumps(data)) == data

class Task:
    def __init__(self, number, work): self.number, self.work, self.next, self.done = number, work, None, 0
    def step(self):
        self.work -= 1
        self.done += self.number ^ self.work
        return self.work > 0

def scheduler(n=150_000):
    tasks = [Task(i, n // 10 + i) for i in range(10)]
    while tasks: tasks = [task for task in tasks if task.step()]

def planets(n=12_000):
    bodies = [
        [1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 1e-3],
        [4.0, 5.0, 6.0, 0.4, 0.5, 0.6, 2e-3],
        [7.0, 8.0, 1.0, 0.7, 0.8, 0.9, 3e-3],
    ]
    for _ in range(n):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1:]:
                dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
                pull = 0.01 / (dx * dx + dy * dy + dz * dz + 1) ** 1.5
                a[3] -= dx * b[6] * pull; b[3] += dx * a[6] * pull
        for body in bodies: body[0] += 0.01 * body[3]

def patterns(n=150):
    text = "GET /parcels/4711?sort=weight HTTP/1.1 host: depot.example\n" * 20
    for _ in range(n): re.findall(r"(\w+): (\S+)", text); re.sub(r"\d+", "N", text)

def copies(n=100):
    data = {i: [i, str(i), {"n": (i, i)}] for i in range(60)}
    for _ in range(n): copy.deepcopy(data)

def tree(n):
    if n: yield from tree(n - 1); yield n; yield from tree(n - 1)

def generators():
    assert sum(tree(15)) == 2 ** 16 - 17

def tasks(n=4_000):
    async def one(i):
        await asyncio.sleep(0)
        return i
    async def all_of_them():
        for _ in range(n // 50): await asyncio.gather(*(one(i) for i in range(50)))
    asyncio.run(all_of_them())

def raises(n=120_000):
    def weigh(item):
        if item % 3: return item
        raise ValueError(item)
    for i in range(n):
        try: weigh(i)
        except ValueError: pass

for line in sys.stdin:
    function = globals()[line.strip()]
    began = time.thread_time_ns()
    function()
    print(time.thread_time_ns() - began, flush=True)
"""
PROGRAMS = "json_round", "scheduler", "planets", "patterns", "copies", "generators", "tasks", "raises"


class Child:
    def __init__(self, how):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, how],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )

    def run(self, name):
        """Returns the CPU time in ns."""
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def pair():
    """Returns {program: (ns without, ratio)}."""
    plain, loaded = Child("plain"), Child("loaded")
    found = {}
    for name in PROGRAMS:
        plain.run(name), loaded.run(name)
        without, ratios = [], []
        for turn in range(TURNS):
            if turn % 2:
                a, b = plain.run(name), loaded.run(name)
            else:
                b, a = loaded.run(name), plain.run(name)
            without.append(a)
            ratios.append(b / a)
        found[name] = statistics.median(without), statistics.median(ratios)
    plain.end()
    loaded.end()
    return found


def mean_ratio(ratios):
    logs = [math.log(ratio) for ratio in ratios]
    mean = math.exp(statistics.mean(logs))
    return mean, mean * statistics.stdev(logs) / len(logs) ** 0.5


def main(pairs):
    found = [pair() for _ in range(pairs)]
    print(f"CPython {platform.python_version()}, load average {os.getloadavg()[0]:.1f}, {pairs} pairs.\n")
    print("| program | ms without | ratio, loaded |\n|---|---|---|")
    for name in PROGRAMS:
        ratio, error = mean_ratio([one[name][1] for one in found])
        ms = statistics.median(one[name][0] for one in found) / 1e6
        print(f"| {name} | {ms:.1f} | {ratio:.3f} ± {error:.3f} |")
    ratio, error = mean_ratio(
        [math.prod(value[1] for value in one.values()) ** (1 / len(PROGRAMS)) for one in found]
    )
    print(f"| all of them | | {ratio:.3f} ± {error:.3f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
