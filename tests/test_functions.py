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
