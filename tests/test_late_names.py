"""Rows have their names when they are fired, however late they were created. Counts are compared
with the program's own.
"""

from __future__ import annotations

import sys
import sysconfig

import pytest
from tracing import Run, maps_library, start_tracer, stop_tracer, text_of, wait_for

SITES = 400
# Each raise site has its own function. The exception is freed before the function returns.
PROGRAM = f"""
import gate, time

SITES = {SITES}
source = "".join(f'''
def raises_{{n}}():
    try:
        raise ValueError({{n}})
    except ValueError:
        pass
''' for n in range(SITES))
namespace = {{}}
exec(compile(source, __file__, "exec"), namespace)
raisers = [namespace[f"raises_{{n}}"] for n in range(SITES)]
classes = [type(f"Class{{n}}", (), {{}}) for n in range(SITES)]

def raise_all(times):
    for _ in range(times):
        for function in raisers: function()

def make_all(times):
    for _ in range(times):
        for made in classes: made()
"""
EXCEPTIONS = {"exception__stats": ["type", "file", "line", "raised", "function", "rescued"]}
OBJECTS = {"object__stats": ["class", "file", "line", "allocated"]}


def raised(run):
    return {
        name: row["raised"]
        for name, row in run.totals("exception__stats", "function").items()
        if name.startswith("raises_")
    }


EXPECTED = {f"raises_{n}": 3 for n in range(SITES)}


def lost(run):
    return sum(event["dropped"] for event in run.events("stats__done"))


def test_400_new_raise_sites_right_before_a_flush_are_named_in_it(trace):
    run = trace(
        PROGRAM
        + """
gate.on("exception__stats")
gate.flushed(1)
# So close to the next flush that there is no time to look up names before it.
time.sleep(0.97)
raise_all(3)
gate.done()
""",
        EXCEPTIONS,
    )
    assert raised(run) == EXPECTED
    assert lost(run) == 0


@pytest.mark.parametrize("times", [1, 3])
def test_400_new_raise_sites_right_before_the_end_are_named(program, children, bpf, times, tmp_path):
    run = end_of(
        program,
        children,
        tmp_path,
        f'gate.on("exception__stats", "stats__done")\nraise_all({times})\n',
        EXCEPTIONS,
    )
    assert raised(run) == dict.fromkeys(EXPECTED, times)
    assert lost(run) == 0


@pytest.mark.skipif(
    sys.version_info < (3, 13) or sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="of another CPython: tells classes",
)
def test_objects_of_400_classes_right_before_the_end_are_named(program, children, bpf, tmp_path):
    run = end_of(
        program, children, tmp_path, 'gate.on("object__stats", "stats__done")\nmake_all(3)\n', OBJECTS
    )
    found = {
        name: row["allocated"]
        for name, row in run.totals("object__stats", "class").items()
        if name.startswith("Class")
    }
    assert found == {f"Class{n}": 3 for n in range(SITES)}
    assert lost(run) == 0


def end_of(program, children, tmp_path, source, fields):
    """Runs a program that ends by itself. Returns the run with all events of its tracer."""
    fields = {"stats__done": ["sequence", "rows", "dropped"], **fields}
    started = program(PROGRAM + source)
    wait_for("the library", lambda: maps_library(started.pid))
    children.append(start_tracer(started.pid, text_of(fields)))
    assert started.wait() == 0, started
    run = Run(started, children[-1], fields, tmp_path)
    wait_for("the last flush", lambda: "stats__done" in run.tracer.out)
    stop_tracer(run.tracer)
    return run
