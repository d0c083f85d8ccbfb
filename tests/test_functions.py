from __future__ import annotations

import pytest

PROGRAM = """
import gate

def leaf(n):
    return n + 1

def numbers(n):
    for i in range(n):
        yield leaf(i)

class Shop:
    def pay(self, n):
        return sum(numbers(n))

gate.on("function__stats")
for _ in range(100):
    Shop().pay(10)
gate.flushed()
gate.done()
"""


@pytest.mark.smoke
def test_calls_are_counted_exactly(trace):
    run = trace(PROGRAM, {"function__stats": ["function", "calls", "resumed", "raised"]})
    rows = run.totals("function__stats")
    calls = {name: row["calls"] for name, row in rows.items()}
    assert calls == {"leaf": 1000, "numbers": 100, "Shop.pay": 100}
    assert rows["numbers"]["resumed"] == 1000
    assert all(row["raised"] == 0 for row in rows.values())


@pytest.mark.parametrize("name", ["f", "f" * 200], ids=["rows", "names"])
def test_calls_without_memory_are_counted_one_by_one_as_dropped(trace, name):
    """GIVEN too little memory for rows, or for names as well."""
    run = trace(f"""
import gate

functions = []
for n in range(600):
    exec(compile(f"def {name}{{n}}(): pass\\nfunctions.append({name}{{n}})", __file__, "exec"))

gate.on("function__stats")
gate.flushed(1)
for _ in range(5):
    for function in functions:
        function()
gate.flushed()
gate.done()
""", {"function__stats": ["function", "calls"]}, env={"PROBESCOPE_MEMORY": "128K"})  # fmt: skip
    rows = run.totals("function__stats")
    shown, overflow = sum(row["calls"] for row in rows.values()), rows["(overflow)"]["calls"]
    dropped = run.totals("stats__done", "probe")["stats__done"]["dropped"]
    assert overflow > 500
    # Without memory for what is known of a function its calls are in no row. Functions that are not
    # covered are then dropped, too.
    assert dropped >= overflow
    assert shown <= 3000 <= shown + dropped - overflow
