"""The extension (ext/python/module.c). What an application calls is in the package itself."""

from types import CodeType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union, final

VERSION: str
PROVIDERS: str
MOST_ARGUMENTS: int

def start(memory_limit: int, force: bool = False) -> None:
    """Starts to look for tracers; memory in bytes, 0 for the default.

    False when it did already. Raises OSError.
    """

def stop() -> bool:
    """Flushes, ends the watcher and takes all hooks out. False when nothing was installed."""

def cover(
    roots: Iterable[str], outside: Iterable[str], ours: Iterable[str], patterns: Optional[Iterable[str]]
) -> None:
    """Which functions are covered: see probescope._coverage."""

def status() -> Dict[str, Any]:
    """What the process knows of itself."""

def publish_thread_context() -> None:
    """Publishes the current span of this thread (OTEP 4947)."""

def follow_contexts() -> bool:
    """Has that done at each switch of contexts. False where the interpreter tells of none."""

def publish_process_context(payload: bytes, /) -> bool:
    """Publishes an encoded ProcessContext (OTEP 4719). False where that cannot be."""

def set_strict(value: Any, /) -> None:
    """Whether wrong arguments of a Probe raise TypeError where they are given."""

def nothing(value: Any, /) -> bool:
    """False. What a call of C costs at least, for benchmarks."""

def requests_wanted() -> bool:
    """Whether a tracer listens to what a Request is needed for."""

def requests_told() -> None:
    """Something here tells of requests or jobs from now on."""

def enter_request(request: Optional["Request"], /) -> Optional["Request"]:
    """Makes it the current one of this context; None for none. Returns the one that was."""

@final
class Request:
    """Fires request__start. A traceparent that is none is left out; str or bytes."""

    def __new__(cls, method: Any, path: Any, traceparent: Any, scheme: Any = None, /) -> "Request": ...
    @classmethod
    def start_job(cls, name: Any, traceparent: Any, system: Any, queue: Any, /) -> "Request":
        """The same for a job. queue: where it came from, or None."""
    def done(self, status: int, template: Any, /) -> None:
        """Fires request__done, once. template: the route's, or None."""

def trace_latency(code: CodeType, name: str, /) -> Optional[str]:
    """Gives a code object a latency probe. What is wrong with the name."""

def untrace_latency(code: CodeType, /) -> bool:
    """Takes it back. False when there was none."""

def latency_probes() -> List[Tuple[str, Optional[str], bool, Optional[str]]]:
    """(name, path, listened, why it is not told) of each."""

@final
class Probe:
    """A probe of a Provider.

    Called with a callable, which returns its arguments, it calls that only while a tracer listens.
    """

    @property
    def enabled(self) -> bool: ...
    @property
    def dropped(self) -> int: ...
    @property
    def name(self) -> str: ...
    def fire(self, *arguments: Any) -> bool: ...
    def __call__(self, arguments: Callable[[], Any], /) -> bool: ...

@final
class Provider:
    """What stands behind probescope.Provider. What is wrong is returned as a str."""

    def __new__(cls, name: str, /) -> "Provider": ...
    def add(self, name: str, types: Tuple[int, ...], /) -> Union[Probe, str]: ...
    def load(self) -> Optional[str]: ...
    def unload(self) -> bool: ...
    def path(self) -> Optional[str]: ...
