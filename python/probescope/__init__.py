"""USDT probes in this process: free until a tracer attaches, gone again when it leaves.

Where the application starts:

    import probescope
    probescope.install()
"""

from __future__ import annotations

import atexit
import os
import re
from typing import Any, Dict, List, Optional, Union

from probescope._coverage import Coverage

try:
    from probescope import _native
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _reason: Optional[str] = str(error)
else:
    _reason = None

__all__ = ["Error", "install", "uninstall", "status", "functions", "set_functions", "unavailable_reason"]

DEFAULT_MEMORY = 32 << 20


class Error(Exception):
    """Raised by set_functions() with bad patterns, and by nothing of ours while the application runs."""


_coverage = Coverage()


def install() -> bool:
    """Starts to look for tracers, and is safe to call again.

    True when probes can be attached from now on, False where they cannot: see unavailable_reason(). Installs no hook: that
    happens when a tracer comes.
    """
    global _reason
    if not _available():
        return False
    _coverage.apply(_native)
    try:
        _native.start(_memory_limit())
    except OSError as error:
        _reason = str(error)
        return False
    # What is told of the last part of a second. After the application's own handlers, as early as we are loaded.
    atexit.unregister(_native.stop)
    atexit.register(_native.stop)
    return True


def uninstall() -> bool:
    """Takes out all hooks and ends the watcher. True when something was installed."""
    return _available() and _native.stop()


def status() -> Dict[str, Any]:
    """What the process knows of itself.

    Keys: available, reason, installed, probes {name: (state, reason)}, clock, memory_used and memory_limit (bytes),
    rows_dropped, flushes.
    """
    known: Dict[str, Any] = {"available": _available(), "reason": unavailable_reason(), "installed": False}
    if _available():
        known.update(_native.status())
    return known


def functions() -> Union[str, List[str]]:
    """Which functions the function probes cover: "own" (the application's files), "all", or globs over paths and names."""
    return _coverage.functions


def set_functions(value: Union[str, List[str]]) -> None:
    """Changes what functions() says. Takes effect at once, also while a tracer listens. Raises Error."""
    _coverage.functions = value
    if _available():
        _coverage.apply(_native)


def unavailable_reason() -> Optional[str]:
    """Why there are no probes in this process; None when there are."""
    return _reason


def _available() -> bool:
    return unavailable_reason() is None


def _memory_limit() -> int:
    """PROBESCOPE_MEMORY in bytes, or with K or M."""
    match = re.fullmatch(r"(\d+)([KM]?)", os.environ.get("PROBESCOPE_MEMORY", ""), re.IGNORECASE)
    if not match:
        return DEFAULT_MEMORY
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2].upper()]
