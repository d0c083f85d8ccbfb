"""USDT probes in this process: free until a tracer attaches, gone again when it leaves.

Where the application starts:

    import probescope
    probescope.install()
"""

from __future__ import annotations

import atexit
import os
import sys

if sys.version_info < (3, 11):
    raise ImportError("probescope needs Python 3.11 or later, and this is " + sys.version.split()[0])

from probescope._coverage import Coverage

# What PROBESCOPE=1 costs at the start of a Python is mostly imports: there are few, and none of
# typing, re or sysconfig.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from probescope._latency import latency
    from probescope.jobs import celery
    from probescope.provider import Provider
    from probescope.web import asgi, wsgi

__all__ = [
    "Error",
    "Provider",
    "asgi",
    "celery",
    "functions",
    "install",
    "latency",
    "set_functions",
    "status",
    "unavailable_reason",
    "uninstall",
    "wsgi",
]

DEFAULT_MEMORY = 32 << 20


class Error(Exception):
    """Raised by set_functions() with bad patterns, and by nothing of ours while the application
    runs.
    """


_coverage = Coverage()


def _load() -> str | None:
    """Loads the extension. Returns why that cannot be done."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} has no C API of CPython"
    try:
        import probescope._native  # noqa: F401 - and so it is this module's _native
    except ModuleNotFoundError:
        return _why_not_built()
    except ImportError as error:
        return f"the native library does not load: {error}"
    return None


def _why_not_built() -> str:
    try:
        with open(os.path.join(os.path.dirname(__file__), "unavailable.txt"), encoding="utf-8") as file:
            return f"the native library was not built: {file.read().strip()}"
    except OSError:
        here = os.listdir(os.path.dirname(__file__))
        built = sorted(
            name.split(".")[1] for name in here if name.startswith("_native.") and name.endswith(".so")
        )
        others = f", and this package has it for {', '.join(built)}" if built else ""
        return (
            f"the native library was not built for this Python ({sys.implementation.cache_tag}){others}: "
            "install it with it"
        )


_native: Any = None
_reason = _load()


def install(force: bool = False) -> bool:
    """Starts to look for tracers, and is safe to call again.

    True when probes can be attached from now on, False where they cannot: see unavailable_reason().
    Installs no hook: that happens when a tracer comes. force accepts probes that slow the whole
    program down while they are traced (docs/reference/environment.md says which), and
    PROBESCOPE_FORCE=1 does the same.
    """
    global _reason
    if not _available():
        return False
    _coverage.apply(_native)
    try:
        _native.start(_memory_limit(), force or os.environ.get("PROBESCOPE_FORCE") == "1")
    except OSError as error:
        _reason = str(error)
        return False
    # What is told of the last part of a second. After the application's own handlers, as early as
    # we are loaded.
    atexit.unregister(_native.stop)
    atexit.register(_native.stop)
    return True


def uninstall() -> bool:
    """Takes out all hooks and ends the watcher. True when something was installed."""
    return _available() and _native.stop()


def status() -> dict[str, Any]:
    """What the process knows of itself.

    Keys: version, available, reason, installed, probes {name: (state, reason)}, clock, memory_used
    and memory_limit (bytes), rows_dropped, flushes.
    """
    known: dict[str, Any] = {"available": _available(), "reason": unavailable_reason(), "installed": False}
    if _available():
        known["version"] = _native.VERSION
        known.update(_native.status())
    return known


def functions() -> str | list[str]:
    """Which functions the function probes cover: "own" (the application's files), "all", or globs
    over paths and names.
    """
    return _coverage.functions


def set_functions(value: str | list[str]) -> None:
    """Changes what functions() says.

    Takes effect at once, also while a tracer listens. Raises Error.
    """
    _coverage.functions = value
    if _available():
        _coverage.apply(_native)


def unavailable_reason() -> str | None:
    """Why there are no probes in this process; None when there are."""
    return _reason


_LATER = {
    "Provider": "probescope.provider",
    "asgi": "probescope.web",
    "celery": "probescope.jobs",
    "latency": "probescope._latency",
    "wsgi": "probescope.web",
}


def __getattr__(name: str) -> Any:
    """Imports what not every program needs when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)


def _available() -> bool:
    return unavailable_reason() is None


def _memory_limit() -> int:
    """PROBESCOPE_MEMORY in bytes, or with K or M."""
    text = os.environ.get("PROBESCOPE_MEMORY", "").upper()
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    digits = text if unit == 1 else text[:-1]
    # Python itself refuses to read a number of thousands of digits.
    if not digits.isdecimal() or len(digits) > 100:
        return DEFAULT_MEMORY
    return min(int(digits) * unit, sys.maxsize)
