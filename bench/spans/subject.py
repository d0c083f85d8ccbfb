"""The process that bench/spans.rb measures, in Python. It reads one command a line and answers with
one line: "ns FIGURE" for a measurement, in ns of this thread's CPU, or "ok".
"""

from __future__ import annotations

import asyncio
import sys
import time

import probescope.otel
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

NESTED = 100  # nested calls, all of them slow
SLEEP = 0.0015  # longer than the threshold of function__slow1ms
BATCHES = 12


def nested(left):
    if left:
        return nested(left - 1)
    return time.sleep(SLEEP)


def slow():
    """One slow call."""

    def some():
        for _ in range(5):
            nested(NESTED - 1)

    return least(some, 5 * NESTED)


def change():
    """One change of the current span: attach and detach."""
    current = context.get_current()

    def some():
        for _ in range(2000):
            context.detach(context.attach(current))

    return least(some, 4000)


def switch():
    """One step of a task of asyncio among others."""

    async def steps():
        for _ in range(1000):
            await asyncio.sleep(0)

    async def tasks():
        await asyncio.gather(steps(), steps())

    return least(lambda: asyncio.run(tasks()), 2000)


def least(some, count):
    """Returns the ns of one; the fastest quarter of the batches was below it."""
    batches = []
    for _ in range(BATCHES):
        began = time.thread_time_ns()
        some()
        batches.append((time.thread_time_ns() - began) / count)
    return sorted(batches)[BATCHES // 4]


def within_span(measure):
    with trace.get_tracer("bench").start_as_current_span("request"):
        return measure()


def main():
    trace.set_tracer_provider(TracerProvider())
    print("ready", flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "slow":
            answer = f"ns {slow()}"
        elif command == "slow in a span":
            answer = f"ns {within_span(slow)}"
        elif command in ("change", "switch"):
            answer = f"ns {within_span({'change': change, 'switch': switch}[command])}"
        elif command == "install":
            answer = "ok" if probescope.otel.install() else "no"
        else:
            answer = f"ok {sum(range(1_000_000))}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
