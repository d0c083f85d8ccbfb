"""A tracer keeps no object of the application alive, however long it stays attached. The memory
that the library used for the tracer is freed.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest
from probescope.abi import PROBES

HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
KNOWS_CLASSES = sys.version_info >= (3, 13) and HAS_GIL

# Each round creates classes, functions, a generator that is left half-way, and a task. It uses them
# and drops them.
ROUNDS = """
import asyncio, gate, gc, sys, time, weakref

def spin(seconds):
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends: pass

SOURCE = '''
import asyncio, traceback

class Box:
    def work(self, spin):
        spin(0.0004)
        return self

class Failure(Exception): pass

def raises(): raise Failure(Box())

def handled():
    try: raises()
    except Failure: return traceback.format_exc()

def generates(spin):
    box = Box()
    while True:
        spin(0.0004)
        yield box.work(spin)

async def awaits(spin):
    box = Box()
    await asyncio.sleep(0)
    try:
        raises()
    except Failure:
        box.work(spin)

async def both(spin):
    task = asyncio.create_task(awaits(spin))
    await awaits(spin)
    await task
'''

def one_round(number):
    made = {"__name__": "made"}
    exec(compile(SOURCE, f"{__file__[:-3]}_{number % 5}.py", "exec"), made)
    made["handled"]()
    generator = made["generates"](spin)
    next(generator), next(generator)
    asyncio.run(made["both"](spin))
    box = made["Box"]().work(spin)
    functions = [made[name] for name in ("raises", "handled", "generates", "awaits", "both")]
    objects = [made["Box"], made["Failure"], box, generator, *functions, *(one.__code__ for one in functions)]
    return [weakref.ref(one) for one in objects]

def alive(references):
    for _ in range(3): gc.collect()
    found = [one() for one in references]
    kinds = {type(one).__name__ for one in found if one is not None}
    return sorted(kinds), sum(one is not None for one in found)
"""

# A tracer like that of a command attaches its probes. A new probe belongs to one of them, or to
# NOTHING_OF_ITS_OWN.
COMMANDS = {
    "hot": ["sample__stats", "sample__frame", "sample", "stack__frame", "stack__cpu"],
    "calls": ["function__stats", "function__entry", "function__return", "function__here"],
    "slow": ["function__slow1ms", "function__slow10ms", "function__slow100ms"],
    "exceptions": ["exception__stats", "exception__detail", "exception__raise", "exception__rescue"],
    "backtraces": ["backtrace__done"],
    "alloc": ["object__stats", "object__alloc"],
    "lines": ["line"],
    "gc": ["gc__start", "gc__done"],
    "requests": ["request__start", "request__done", "stats__by_request", "sample__stats"],
}
# Has no hook, covers more functions, or is never served.
NOTHING_OF_ITS_OWN = {"stats__done", "status", "functions__all", "gvl__wait", "wait__stats"}


def test_the_commands_have_every_probe():
    attached = {probe for probes in COMMANDS.values() for probe in probes}
    assert attached | NOTHING_OF_ITS_OWN == set(PROBES)


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_application_is_kept_alive_while_a_tracer_is_attached(program, attach, command):
    if not HAS_GIL and command in ("hot", "alloc", "requests"):
        pytest.skip("of another CPython: with a GIL")
    probes = COMMANDS[command]
    target = program(
        ROUNDS
        + f"""
while not any(gate.state(probe) in ("on", "degraded") for probe in {probes!r}): time.sleep(0.002)
print("hooked", flush=True)
gate.open("go")
flushes = gate.probescope.status()["flushes"]
references = [one for number in range(150) for one in one_round(number)]
kinds, count = alive(references)
gate.done(kinds=kinds, count=count, all=len(references))
""",
        env={"PROBESCOPE_FORCE": "1"},
    )
    attach(target, *probes, "stats__done").attached()
    target.line("hooked")
    open_gate(target, "go")
    report = json.loads(target.line("report "))
    # The interpreter itself keeps a few objects: a thread's last exception and the loop's last
    # task, until others replace them.
    assert report["count"] <= 14, report
    assert report["all"] == 150 * 14


def open_gate(target, name):
    (Path(target.process.args[-1]).parent / name).touch()


def test_one_name_is_one_row_and_an_address_that_comes_again_misnames_nothing(trace):
    """10,000 short-lived classes and functions share 1,000 names and reuse addresses."""
    objects = {"object__stats": ["class", "line", "allocated"]} if KNOWS_CLASSES else {}
    run = trace(
        f"""
import gate, random
NAMES = 1_000
counts = {{}}
lines = {{}}

def in_class(name, times):
    kind = type(name, (Exception,), {{}})
    for _ in range(times):
        try: raise kind
        except kind: pass

def in_function(name, times):
    made = {{}}
    exec(compile(f"def {{name}}():\\n  raise ValueError", "/made/app.py", "exec"), made)
    for _ in range(times):
        try: made[name]()
        except ValueError: pass

gate.on("exception__stats", *{list(objects)})
gate.flushed(1)
chosen = random.Random(5)
for number in range(10_000):
    name, times = f"Made{{number * 7919 % NAMES}}", chosen.randint(1, 3)
    (in_class if number % 2 else in_function)(name, times)
    counts[name] = counts.get(name, 0) + times
gate.done(counts=counts)
""",
        {"exception__stats": ["type", "function", "line", "raised"], **objects},
    )
    counts = run.report["counts"]
    found = {}
    for row in run.events("exception__stats"):
        name = row["function"] if row["type"] == "ValueError" else row["type"]
        found[name] = found.get(name, 0) + row["raised"]
    assert found == counts
    assert sum(event["dropped"] for event in run.events("stats__done")) == 0
    # Odd numbers are classes.
    if KNOWS_CLASSES:
        made = {
            name: row["allocated"]
            for name, row in run.totals("object__stats", "class").items()
            if "Made" in name
        }
        assert made == {name: count for name, count in counts.items() if name in made}
        assert len(made) == 500


def test_memory_for_names_and_rows_is_given_back_after_each_detach(program, attach):
    probes = ["exception__stats", "sample__stats", "sample__frame", "function__stats", "backtrace__done"]
    probes += ["stack__frame", "stack__cpu"]
    probes += ["object__stats"] if HAS_GIL else []
    target = program(
        """
import gate, itertools, json, threading, time

def work():
    for number in itertools.count():
        made = {}
        exec(compile(f"class Made{number}(Exception): pass\\ndef raises{number}(): raise Made{number}",
                     f"/made/{number}.py", "exec"), made)
        try: made[f"raises{number}"]()
        except Exception: pass
        time.sleep(0.002)

threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
gate.open("detached")
while gate.probescope.status()["memory_used"] > 100_000: time.sleep(0.002)
status = gate.probescope.status()
gate.done(used=status["memory_used"], dropped=status["rows_dropped"])
"""
    )
    target.line("ready")
    attach(target, *probes, cycles=8, await_hooks=True).finish(within=120)
    open_gate(target, "detached")
    report = json.loads(target.line("report "))
    assert report["dropped"] == 0
