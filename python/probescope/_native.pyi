"""The extension (ext/python/module.c). Applications call the package's functions instead."""

from types import CodeType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union, final

VERSION: str
PROVIDERS: str
MOST_ARGUMENTS: int

def start(memory_limit: int, force: bool = False) -> None:
    """Starts the watcher, which looks for tracers. memory_limit: bytes; 0 keeps the default.
    force: permits costly probes from now on. Raises OSError.
    """

def stop() -> bool:
    """Flushes, ends the watcher and removes all hooks. Returns False when nothing was installed."""

def cover(
    roots: Iterable[str], outside: Iterable[str], ours: Iterable[str], patterns: Optional[Iterable[str]]
) -> None:
    """Sets which functions are covered: see probescope._coverage."""

def status() -> Dict[str, Any]:
    """Returns the states of the probes and the counters of probescope_info."""

def publish_thread_context() -> None:
    """Publishes the current span of this thread (OTEP 4947)."""

def follow_contexts() -> bool:
    """Publishes the span at each switch of contexts as well. Returns False when the interpreter
    does not report switches.
    """

def publish_process_context(payload: bytes, /) -> bool:
    """Publishes an encoded ProcessContext (OTEP 4719). Returns False on failure."""

def set_strict(value: Any, /) -> None:
    """Sets whether wrong arguments of a Probe raise TypeError in its caller."""

def nothing(value: Any, /) -> bool:
    """Returns False. For benchmarks: the minimum cost of a call into C."""

def requests_wanted() -> bool:
    """Returns whether a tracer listens to a probe that needs a Request."""

def requests_told() -> None:
    """Records that this process reports requests or jobs from now on."""

def enter_request(request: Optional["Request"], /) -> Optional["Request"]:
    """Makes a request, or None, the current one of this context. Returns the previous one."""

@final
class Request:
    """Fires request__start. traceparent: str or bytes; a malformed one is ignored."""

    def __new__(cls, method: Any, path: Any, traceparent: Any, scheme: Any = None, /) -> "Request": ...
    @classmethod
    def start_job(cls, name: Any, traceparent: Any, system: Any, queue: Any, /) -> "Request":
        """The same for a job. queue: the job's queue, or None."""
    def done(self, status: int, template: Any, /) -> None:
        """Fires request__done, once. template: the route's template, or None."""

def trace_latency(code: CodeType, name: str, /) -> Optional[str]:
    """Gives a code object a latency probe. Returns None, or a str that says why the name is not
    possible.
    """

def untrace_latency(code: CodeType, /) -> bool:
    """Removes the latency probe of a code object. Returns False when it had none."""

def latency_probes() -> List[Tuple[str, Optional[str], bool, Optional[str]]]:
    """Returns a list of (name, path or None, whether a tracer listens, the reason why calls are not
    reported or None).
    """

@final
class Probe:
    """A probe of a Provider.

    A call takes a callable that returns the arguments. The callable runs only while a tracer
    listens.
    """

    @property
    def enabled(self) -> bool:
        """Whether a tracer listens."""
    @property
    def dropped(self) -> int:
        """The number of calls with wrong arguments."""
    @property
    def name(self) -> str:
        """The name of the probe."""
    def fire(self, *arguments: Any) -> bool:
        """Fires the probe. Returns whether a tracer listens.

        Wrong arguments are counted, and raise TypeError in development.
        """
    def __call__(self, arguments: Callable[[], Any], /) -> bool: ...

@final
class Provider:
    """The implementation of probescope.Provider."""

    def __new__(cls, name: str, /) -> "Provider": ...
    def add(self, name: str, types: Tuple[int, ...], /) -> Union[Probe, str]:
        """Adds a probe, by its name and a tuple of type numbers. Returns the probe, or an error as
        a str.
        """
    def load(self) -> Optional[str]:
        """Shows the probes to tracers. Returns None, or an error as a str."""
    def unload(self) -> bool:
        """Hides the probes from tracers. Returns False on failure."""
    def path(self) -> Optional[str]:
        """Returns the path of the probe file, which tracers accept, or None."""
