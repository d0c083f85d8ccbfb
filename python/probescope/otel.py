"""Publishes what OpenTelemetry knows in this process for tools outside of it, such as profilers.

The resource once (OTEP 4719), and each thread's current span whenever it changes (OTEP 4947). The
bridge needs none of it: it is sent the current span with each event. One line, after the SDK is
configured:

    import probescope.otel
    probescope.otel.install()

Under `opentelemetry-instrument` nothing is to be done: it finds Instrumentor.
"""

from __future__ import annotations

import functools
import struct
import sys
from typing import Any, Callable, Collection, Mapping, TypeVar, cast

import probescope

__all__ = ["install", "Instrumentor"]

Function = TypeVar("Function", bound=Callable[..., Any])

# What readers need to know of the threads' records.
SCHEMA: Mapping[str, Any] = {
    "threadlocal.schema_version": "tlsdesc_v1_dev",
    "threadlocal.attribute_key_map": (),
}

_installed = False


def install() -> bool:
    """True when both are published from now on.

    False where probes cannot work (probescope.unavailable_reason()), where the system has no such
    mappings, or where the package opentelemetry-api is not installed. Before Python 3.14 the
    interpreter does not tell when a thread goes from one task to another: asyncio's own event loop
    is followed, other loops (uvloop) are not.
    """
    global _installed
    try:
        from opentelemetry import context, trace
    except ImportError:
        return False
    if not probescope.install():
        return False
    if not _installed:
        _installed = True
        context.get_current()  # it looks for its runtime when it is asked first
        runtime: Any = type(context._RUNTIME_CONTEXT)
        runtime.attach = _then_publish(runtime.attach)
        runtime.detach = _then_publish(runtime.detach)
        if not _native().follow_contexts():
            _follow_tasks()
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    published: bool = _native().publish_process_context(_message(resource.attributes if resource else {}))
    return published


class Instrumentor:
    """What `opentelemetry-instrument` looks for (entry point opentelemetry_instrumentor)."""

    def instrument(self, **options: Any) -> None:
        install()

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()


def _native() -> Any:
    return sys.modules["probescope._native"]


def _then_publish(function: Function) -> Function:
    publish = _native().publish_thread_context

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            publish()

    return cast(Function, wrapped)


def _follow_tasks() -> None:
    """Everything that asyncio's event loop runs is run by a Handle, in a context."""
    from asyncio import events

    publish = _native().publish_thread_context
    handle: Any = events.Handle
    run = handle._run

    @functools.wraps(run)
    def wrapped(self: Any) -> Any:
        self._context.run(publish)
        try:
            return run(self)
        finally:
            publish()

    handle._run = wrapped


# As much of protobuf as the message ProcessContext takes.


def _message(resource: Mapping[str, Any]) -> bytes:
    attributes = b"".join(_field(1, _pair(name, value)) for name, value in resource.items())
    return _field(1, attributes) + b"".join(_field(2, _pair(name, value)) for name, value in SCHEMA.items())


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _pair(name: str, value: Any) -> bytes:
    return _field(1, name.encode(errors="replace")) + _field(2, _any(value))


def _any(value: Any) -> bytes:
    if isinstance(value, bool):
        return _varint(2 << 3) + _varint(value)
    if isinstance(value, int):
        return _varint(3 << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(4 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, (list, tuple)):
        return _field(5, b"".join(_field(1, _any(one)) for one in value))
    return _field(1, str(value).encode(errors="replace"))
