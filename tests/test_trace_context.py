"""The application's current OpenTelemetry span, in the events that carry it: they say what OpenTelemetry itself says."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

COMMON = """
import asyncio, gate, threading, time

said = {}

def slow(name):
    until = time.perf_counter() + 0.0015
    while time.perf_counter() < until:
        pass

def run(name):
    # A function of that name, called once: the event tells which case it was.
    code = slow.__code__.replace(co_name=name, **({"co_qualname": name} if hasattr(slow.__code__, "co_qualname") else {}))
    context = trace.get_current_span().get_span_context()
    flags = context.trace_flags & 0xFF
    said[name] = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}" if context.is_valid else ""
    type(slow)(code, globals())(name)
"""

SPANS = f"""{COMMON}
gate.on("function__slow1ms")
slow("before OpenTelemetry is there")
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

tracer = TracerProvider().get_tracer("test")
never = TracerProvider(sampler=ALWAYS_OFF).get_tracer("test")
remote = trace.NonRecordingSpan(trace.SpanContext(2**128 - 3, 2**64 - 5, True, trace.TraceFlags(0xA1)))

def in_a_thread():
    run("bare_thread")
    with tracer.start_as_current_span("thread"):
        run("thread")

async def task(name):
    with tracer.start_as_current_span(name):
        await asyncio.sleep(0)
        run(name)
        await asyncio.sleep(0)

async def tasks():
    await asyncio.gather(*(task(f"task_{{i}}") for i in range(3)))
    run("after_tasks")

run("bare")
with tracer.start_as_current_span("outer"):
    run("outer")
    with tracer.start_as_current_span("inner"):
        run("inner")
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
    run("outer_again")
    asyncio.run(tasks())
    token = context.attach(context.set_value("key of somebody else", 1))
    run("other_value")
    context.detach(token)
with never.start_as_current_span("never"):
    run("not_sampled")
with trace.use_span(remote):
    run("remote")
with trace.use_span(trace.INVALID_SPAN):
    run("invalid")
gate.flushed()
gate.done(said=said, state=gate.state("function__slow1ms"))
"""


@pytest.mark.smoke
def test_slow_calls_name_the_current_span(trace):
    run = trace(SPANS, {"function__slow1ms": ["function", "traceparent"]})
    heard = {event["function"]: event["traceparent"] for event in run.events("function__slow1ms")}
    said = run.report["said"]
    assert heard.pop("slow") == ""
    assert {name: heard[name] for name in said} == said
    assert said["inner"] != said["outer"] == said["outer_again"]
    # A thread of a free-threaded build begins with the context of the one that started it.
    inherits = getattr(sys.flags, "thread_inherit_context", False)
    assert bool(said["bare_thread"]) == bool(inherits) and said["invalid"] == ""
    assert len({said[f"task_{i}"] for i in range(3)}) == 3
    assert said["remote"].endswith("-a1")
    assert int(said["inner"][-2:], 16) & 1 == 1 and int(said["not_sampled"][-2:], 16) & 1 == 0
    assert run.report["state"] == "on"


HOSTILE = f"""{COMMON}
from opentelemetry import context, trace
from opentelemetry.trace.propagation import _SPAN_KEY
import opentelemetry.context

ran = []
armed = False

class Curious(trace.NonRecordingSpan):
    def __getattribute__(self, name):
        ran.append(name)
        raise KeyboardInterrupt(name)

class Computed:
    @property
    def _context(self):
        ran.append("property")
        raise SystemExit

class Key:
    def __hash__(self):
        return hash(_SPAN_KEY)
    def __eq__(self, other):
        if armed:
            ran.append("eq")
        return False

class Negative(int):
    def __and__(self, other):
        ran.append("and")

class Lying(trace.SpanContext):
    def __getitem__(self, at):
        ran.append("getitem")
        raise MemoryError

def known(*fields):
    span = trace.NonRecordingSpan(None)
    span._context = tuple(fields)
    return span

def within(span):
    global armed
    entries = context.Context({{Key(): 1}})
    dict.__setitem__(entries, _SPAN_KEY, span)
    token = opentelemetry.context._RUNTIME_CONTEXT.attach(entries)
    try:
        armed = True
        slow("one")
        armed = False
    finally:
        opentelemetry.context._RUNTIME_CONTEXT.detach(token)
    assert not ran, ran

gate.on("function__slow1ms")
curious = Curious(trace.SpanContext(1, 2, False))
within(curious)
lying = trace.NonRecordingSpan(Lying(3, 4, False))
within(lying)
assert gate.state("function__slow1ms") == "on"
for odd in Computed(), None, object(), 7, type, known(), known("a", 2, False, 1, None, True), known(1, 2, False, 1, None, 5):
    within(odd)
within(known(-1, -1, False, Negative(-1), None, True))
degraded = gate.status("function__slow1ms")
class Other:
    pass
runtime, opentelemetry.context._RUNTIME_CONTEXT = opentelemetry.context._RUNTIME_CONTEXT, Other()
slow("other runtime")
runtime._current_context = "no variable"
opentelemetry.context._RUNTIME_CONTEXT = runtime
slow("other variable")
del opentelemetry.context._RUNTIME_CONTEXT
slow("none")
gate.flushed()
gate.done(degraded=degraded, ran=ran)
"""


def test_a_span_that_is_not_as_it_should_be_is_none(trace):
    run = trace(HOSTILE, {"function__slow1ms": ["function", "traceparent"]})
    heard = [event["traceparent"] for event in run.events("function__slow1ms") if event["function"] == "slow"]
    assert heard[:2] == [f"00-{1:032x}-{2:016x}-00", f"00-{3:032x}-{4:016x}-00"]
    assert heard[2:10] == [""] * 8 and heard[11:] == [""] * 3
    assert heard[10] == f"00-{'f' * 32}-{'f' * 16}-ff"
    state, reason = run.report["degraded"]
    assert state == "degraded" and "OpenTelemetry is loaded" in reason
    assert run.report["ran"] == []
