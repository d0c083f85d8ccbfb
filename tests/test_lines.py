"""Line events and deep nesting. While line events are on, the interpreter cannot run nested
generators, properties and the like in a single loop, and uses the C stack instead.
"""

from __future__ import annotations

import sys

import pytest
from tracing import python, wait_for

VERSION = sys.version_info[:2]

# Deeper than the interpreter's limit for nested C calls. Without a tool, the interpreter makes no
# such calls.
DEPTH = {(3, 12): 1600, (3, 13): 11_000}.get(VERSION, 0)
DEFINITIONS = f"""
import sys

depth = {DEPTH}
sys.setrecursionlimit(10 * depth + 1000)

class Link:
    def __init__(self, next): self.next = next

    @property
    def attribute(self):
        if not self.next: return 0
        return 1 + (self.next
            .attribute)

    def __getitem__(self, index):
        if not self.next: return 0
        return 1 + (self
            .next[
            index])

class Made:
    def __init__(self, n):
        self.inner = None
        if n:
            self.inner = Made(
                n - 1)

def linked(n):
    links = [None]
    for _ in range(n + 1): links.append(Link(links[-1]))
    return links

def passed_on(inner):
    for value in inner:
        yield value

def loop(n):
    generators = [iter(range(5))]
    for _ in range(n): generators.append(passed_on(generators[-1]))
    return list(generators[-1])

def attribute(n): return linked(n)[-1].attribute
def subscript(n): return linked(n)[-1][0]

def init(n):
    made = [Made(n)]
    while made[-1]: made.append(made[-1].inner)
    return len(made)

def outcome(function):
    function(20)
    try: return function(depth)
    except RecursionError: return "RecursionError"
"""

EXPECTED = {"loop": [0, 1, 2, 3, 4], "attribute": DEPTH, "subscript": DEPTH, "init": DEPTH + 2}
counts_c_calls = pytest.mark.skipif(
    not DEPTH, reason="of another CPython: 3.12 and 3.13, which count calls of C"
)
NESTED = [name for name in EXPECTED if name != "init" or VERSION == (3, 13)]

TOOL = """
monitoring = sys.monitoring
monitoring.use_tool_id(3, "plain")
monitoring.register_callback(3, monitoring.events.LINE, lambda *_: None)
monitoring.set_events(3, monitoring.events.LINE)
"""


def nested(name, trace, functions=DEFINITIONS):
    """Returns the result, the probe's state before, its status after, and the run."""
    run = trace(
        f"""{functions}
import gate
gate.on("line")
{name}(20)
before = gate.status("line")
result = outcome({name})
gate.flushed(1)
gate.done(result=result, before=before, after=gate.status("line"))
""",
        {"line": ["function", "line"]},
    )
    return run.report["result"], run.report["before"][0], run.report["after"], run


@counts_c_calls
@pytest.mark.parametrize("name", NESTED)
def test_line_events_end_before_they_bring_about_a_recursion_error(name, trace):
    ends = f"print(outcome({name}))"
    assert python("-c", f"{DEFINITIONS}{ends}").stdout == f"{EXPECTED[name]}\n"
    # Any tool with LINE events causes the error.
    assert python("-c", f"{DEFINITIONS}{TOOL}{ends}").stdout == "RecursionError\n"
    result, before, (state, reason), run = nested(name, trace)
    assert (result, before, state) == (EXPECTED[name], "on", "refused")
    assert "RecursionError" in reason
    assert run.events("line")


@counts_c_calls
def test_line_events_of_code_that_is_not_covered_do_not_bring_it_about(trace, tmp_path):
    (tmp_path / "site-packages").mkdir()
    one_line = DEFINITIONS.replace("for value in inner:\n        yield", "for value in inner: yield")
    (tmp_path / "site-packages/uncovered.py").write_text(one_line)
    functions = f"import sys; sys.path.append({str(tmp_path / 'site-packages')!r})\nfrom uncovered import *"
    result, before, (state, _), run = nested("loop", trace, functions=functions)
    assert (result, before, state) == (EXPECTED["loop"], "on", "refused")
    assert {event["function"] for event in run.events("line")} == {"<module>"}


def await_times(started, line, times):
    wait_for(f"{line!r}, {times} times", lambda: started.out.count(line) == times)


@counts_c_calls
def test_lines_are_there_again_for_the_next_tracer(program, attach):
    started = program(f"""{DEFINITIONS}
import gate
for _ in range(2):
    gate.on("line")
    result = outcome(loop)
    print(gate.state("line"), result, flush=True)
    gate.off("line")
    print("off", flush=True)
gate.done()
""")
    for times in (1, 2):
        attacher = attach(started, "line").attached()
        await_times(started, f"refused {EXPECTED['loop']}\n", times)
        attacher.finish()
        await_times(started, "off\n", times)
    started.line("report ")
