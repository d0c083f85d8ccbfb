"""Publishes OpenTelemetry's data of this process for outside tools, such as profilers.

The resource is published once (OTEP 4719). Each thread's current span is published whenever it
changes (OTEP 4947). The bridge does not need this module: each event carries the current span. Add
this after the SDK is configured:

    import probescope.otel
    probescope.otel.install()

Under `opentelemetry-instrument` nothing needs to be added: it finds and runs Instrumentor.
"""

from __future__ import annotations

import functools
import struct
import sys
from typing import Any, Callable, Collection, Mapping, TypeVar, cast

import probescope

__all__ = ["install", "Instrumentor"]

Function = TypeVar("Function", bound=Callable[..., Any])

# Tells readers the format of the threads' records.
SCHEMA: Mapping[str, Any] = {
    "threadlocal.schema_version": "tlsdesc_v1_dev",
    "threadlocal.attribute_key_map": (),
}

_installed = False


def install() -> bool:
    """Returns True when the resource and the spans are published from now on.

    Returns False where probes do not work (probescope.unavailable_reason()), where the system lacks
    the mappings that publishing needs, or without the package opentelemetry-api. Before Python 3.14
    the interpreter does not report when a thread switches to another task. There, asyncio's own
    event loop is followed, but other loops (uvloop) are not.
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
        context.get_current()  # the first call chooses the runtime context
        runtime: Any = type(context._RUNTIME_CONTEXT)
        runtime.attach = _then_publish(runtime.attach)
        runtime.detach = _then_publish(runtime.detach)
        if not _native().follow_contexts():
            _follow_tasks()
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    published: bool = _native().publish_process_context(_message(resource.attributes if resource else {}))
    return published


class Instrumentor:
    """The class that `opentelemetry-instrument` loads (entry point opentelemetry_instrumentor)."""

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
    """Wraps Handle._run: asyncio's event loop runs every callback through it, in a context."""
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


# The part of protobuf that the message ProcessContext needs.


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
