"""Only the main interpreter is traced. Others run beside it: with its GIL, and from 3.12 on also
with their own.
"""

from __future__ import annotations

import pytest

# Each interpreter runs the same code under a file name of its own. Only main.py's code is reported.
PROGRAM = """
import gate, os, sys, threading
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = '''
class Problem(Exception):
    pass
def numbers(n):
    yield n
    yield n
def leaf(n):
    try:
        raise Problem(n)
    except Problem:
        return sum(numbers(n))
def work():
    for n in range(2000):
        leaf(n)
work()
'''
here = os.path.dirname(os.path.abspath(__file__))

def source(name):
    return "exec(compile(%r, %r, 'exec'), {'__name__': 'code'})" % (CODE, os.path.join(here, name))

def create(kind):
    if sys.version_info >= (3, 13):
        return interpreters.create(kind)
    return interpreters.create(isolated=kind == "isolated")

def run(kind):
    number = create(kind)
    failed = (getattr(interpreters, "exec", None) or interpreters.run_string)(number, source(kind + ".py"))
    assert failed is None, failed
    # It is destroyed while other interpreters and the tracer go on.
    interpreters.destroy(number)
    ended.append(kind)

ended = []
gate.on("function__stats", "exception__stats", "gc__done")
kinds = ["legacy", "isolated"] * 3
threads = [threading.Thread(target=run, args=(kind,)) for kind in kinds]
for thread in threads: thread.start()
exec(source("main.py"))
for thread in threads: thread.join()
number = create("legacy")
gate.flushed()
print("ran", flush=True)
gate.open("again")
while gate.state("object__stats") != "refused": pass
reason = gate.status("object__stats")[1]
exec(source("main.py"))
interpreters.destroy(number)
gate.flushed()
gate.done(ended=sorted(ended), reason=reason)
"""


@pytest.mark.smoke
def test_what_is_told_is_the_main_interpreters_and_the_others_run_and_end(trace, attach):
    run = trace(PROGRAM, {
        "function__stats": ["function", "file", "calls", "resumed"],
        "exception__stats": ["type", "file", "raised", "rescued"],
    }, attach=["gc__done", "sample"], finish=False)  # fmt: skip
    run.program.line("ran")
    attach(run.program, "object__stats").attached()
    run.open("again")
    run.finish()
    assert run.report["ended"] == ["isolated"] * 3 + ["legacy"] * 3
    assert "subinterpreters" in run.report["reason"] or "without a GIL" in run.report["reason"]
    assert run.program.err == ""
    functions = {
        key: row
        for key, row in run.totals("function__stats", "function", "file").items()
        if key[1] != "app.py"
    }
    assert {file.split("/")[-1] for _, file in functions} - {"app.py", "threading.py"} == {"main.py"}
    calls = {
        function.split(".")[-1]: row
        for (function, file), row in functions.items()
        if file.endswith("main.py")
    }
    assert calls["leaf"] == {"calls": 4000, "resumed": 0}
    assert calls["numbers"] == {"calls": 4000, "resumed": 8000}
    exceptions = run.totals("exception__stats", "type", "file")
    problems = {key: row for key, row in exceptions.items() if key[0].endswith("Problem")}
    assert [row["raised"] for row in problems.values()] == [4000]
    assert all(file.endswith("main.py") for _, file in problems)
