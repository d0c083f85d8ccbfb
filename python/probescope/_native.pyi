"""The extension (ext/python/module.c). What an application calls is in the package itself."""

from typing import Any, Dict, Iterable, Optional

VERSION: str

def start(memory_limit: int, force: bool = False) -> bool:
    """Starts to look for tracers; memory in bytes, 0 for the default. False when it did already. Raises OSError."""

def stop() -> bool:
    """Flushes, ends the watcher and takes all hooks out. False when nothing was installed."""

def cover(roots: Iterable[str], outside: Iterable[str], ours: Iterable[str], patterns: Optional[Iterable[str]]) -> None:
    """Which functions are covered: see probescope._coverage."""

def status() -> Dict[str, Any]:
    """What the process knows of itself."""

def publish_thread_context() -> None:
    """Publishes the current span of this thread (OTEP 4947)."""

def follow_contexts() -> bool:
    """Has that done at each switch of contexts. False where the interpreter tells of none."""

def publish_process_context(payload: bytes, /) -> bool:
    """Publishes an encoded ProcessContext (OTEP 4719). False where that cannot be."""
