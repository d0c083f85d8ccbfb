"""USDT probes in this process. They cost nothing until a tracer attaches, and nothing again after it
has left.

Call this where the application starts:

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

# With PROBESCOPE=1 this module is loaded at each start of Python. Most of that cost is imports. So
# the module imports little, and neither typing nor re nor sysconfig.
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
    """Raised for wrong arguments to set_functions(), Provider and latency. Probes raise no Error
    while the application runs.
    """


_coverage = Coverage()


def _load() -> str | None:
    """Loads the extension. Returns the reason when that fails."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} does not have CPython's C API"
    try:
        import probescope._native  # noqa: F401 - the import binds probescope._native
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
            "install the package with this Python"
        )


_native: Any = None
_reason = _load()
# Free-threaded CPython 3.13 crashes if two threads change atexit's list at once. So the list is
# changed once there, by the thread that imports this module.
_REGISTERS_ONCE = "t" in sys.abiflags
if _native and _REGISTERS_ONCE:
    atexit.register(_native.stop)


def install(force: bool = False) -> bool:
    """Starts the watcher, which looks for tracers. Further calls are safe.

    Returns True when probes can be attached from now on. Returns False when they cannot be;
    unavailable_reason() says why. Installs no hook: the watcher installs hooks when a tracer
    attaches. `force` permits probes that slow the whole program down while they are traced (listed
    in docs/reference/environment.md). PROBESCOPE_FORCE=1 has the same effect.
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
    # stop() flushes the last part of a second. Handlers run in reverse order, so those that the
    # application registers after this line run before stop().
    if not _REGISTERS_ONCE:
        atexit.unregister(_native.stop)
        atexit.register(_native.stop)
    return True


def uninstall() -> bool:
    """Removes all hooks and ends the watcher. Returns True when something was installed."""
    return _available() and _native.stop()


def status() -> dict[str, Any]:
    """The state of probescope in this process.

    Keys: version, available, reason, installed, probes {name: (state, reason)}, clock, memory_used
    and memory_limit (bytes), rows_dropped, flushes.
    """
    known: dict[str, Any] = {"available": _available(), "reason": unavailable_reason(), "installed": False}
    if _available():
        known["version"] = _native.VERSION
        known.update(_native.status())
    return known


def functions() -> str | list[str]:
    """Returns which functions the function probes cover: "own" (those in the application's files),
    "all", or a list of globs over paths and names.
    """
    return _coverage.functions


def set_functions(value: str | list[str]) -> None:
    """Sets which functions the function probes cover.

    Takes effect at once, also while a tracer is attached. Raises Error.
    """
    _coverage.functions = value
    if _available():
        _coverage.apply(_native)


def unavailable_reason() -> str | None:
    """Returns why this process has no probes, or None when it has them."""
    return _reason


_LATER = {
    "Provider": "probescope.provider",
    "asgi": "probescope.web",
    "celery": "probescope.jobs",
    "latency": "probescope._latency",
    "wsgi": "probescope.web",
}


def __getattr__(name: str) -> Any:
    """Imports, on first use, the parts that not every program needs."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)


def _available() -> bool:
    return unavailable_reason() is None


def _memory_limit() -> int:
    """Returns PROBESCOPE_MEMORY in bytes. Its value may end in K or M."""
    text = os.environ.get("PROBESCOPE_MEMORY", "").upper()
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    digits = text if unit == 1 else text[:-1]
    # int() raises ValueError for numbers of thousands of digits.
    if not digits.isdecimal() or len(digits) > 100:
        return DEFAULT_MEMORY
    return min(int(digits) * unit, sys.maxsize)
