"""A probe of its own for a function: how long each call took, in ns, and its outcome: 0 returned, 1 an exception left it.

    class Cart:
        @probescope.latency
        def checkout(self): ...

    bpftrace -p PID -e 'usdt:*:latency:"Cart.checkout" { @ns = hist(arg0); @outcome[arg1] = count(); }'

The function stays the one that it was, with a copy of its code as its code. While a tracer listens to its probe, and only then, the
interpreter tells of it. A generator or coroutine function's call is from the first step of what it returns to its end, with all the time
that it waits; cancelled is outcome 1, closed is 0.
"""

from __future__ import annotations

import re
from types import CodeType, FunctionType, MethodType
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar, Union, overload

import probescope

F = TypeVar("F", bound=Callable[..., Any])

# In a probe's name; all else that is no letter, digit, _ or . becomes _x and two hexadecimal digits a byte.
REPLACED = {"?": "_q", "!": "_b", "=": "_eq"}


def _plain(text: str) -> str:
    text = re.sub("[?!=]", lambda found: REPLACED[found[0]], text)
    return re.sub("[^A-Za-z0-9_.]", lambda found: "".join(f"_x{byte:02x}" for byte in _bytes(found[0])), text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _name_of(function: FunctionType) -> str:
    name = str(function.__qualname__).replace("<locals>.", "").replace("<lambda>", "lambda")
    return _plain(name)


def _function_of(given: Any) -> FunctionType:
    """What stands behind a method, a static or a class method."""
    inner = given.__func__ if isinstance(given, (staticmethod, classmethod, MethodType)) else given
    if isinstance(inner, FunctionType):
        return inner
    if isinstance(inner, property):
        raise probescope.Error("a property: write @probescope.latency below @property")
    if isinstance(inner, type):
        raise probescope.Error(f"{inner.__name__} is a class: write @probescope.latency above its methods")
    raise probescope.Error(f"{inner!r} is no function written in Python, and only those can be traced")


class Latency:
    """What probescope.latency is."""

    def __init__(self) -> None:
        # Copies by what they were made from, and what they were made from: one for each def and name, however often it runs.
        self._copies: Dict[Tuple[int, str], CodeType] = {}
        self._originals: Dict[int, Tuple[CodeType, str]] = {}

    @overload
    def __call__(self, function: F) -> F: ...

    @overload
    def __call__(self, *, name: str) -> Callable[[F], F]: ...

    def __call__(self, function: Optional[F] = None, *, name: Optional[str] = None) -> Union[F, Callable[[F], F]]:
        """Gives a function a probe, named by its __qualname__ or by name, and returns what it was given.

        Raises probescope.Error for what cannot be traced. Starts to look for tracers: probescope.install().
        """

        def trace(given: F) -> F:
            self._trace(_function_of(given), name)
            return given

        return trace if function is None else trace(function)

    def untrace(self, function: Callable[..., Any]) -> bool:
        """Takes the probe back from tracers, for all functions of the same def. False when it had none."""
        inner = _function_of(function)
        copy = inner.__code__
        original, name = self._originals.pop(id(copy), (None, ""))
        if original is None:
            return False
        self._copies.pop((id(original), name), None)
        inner.__code__ = original
        return bool(probescope._native.untrace_latency(copy))

    def probes(self) -> Dict[str, Dict[str, Any]]:
        """{name: {"path", "listened", "error"}}.

        path: the file by which a tracer reaches every process with this probe, or None. error: why it is not told, or None.
        """
        known = probescope._native.latency_probes() if probescope._native else []
        return {name: {"path": path, "listened": listened, "error": error} for name, path, listened, error in known}

    def _trace(self, function: FunctionType, name: Optional[str]) -> None:
        code = function.__code__
        probe = _name_of(function) if name is None else name
        if id(code) in self._originals:
            if self._originals[id(code)][1] != probe:
                raise probescope.Error(f"{function.__qualname__} has the probe {self._originals[id(code)][1]} already")
            return
        if not probescope.install():
            return
        copy = self._copies.get((id(code), probe))
        if copy is None:
            copy = code.replace()
            wrong = probescope._native.trace_latency(copy, probe)
            if wrong:
                raise probescope.Error(f"{probe}: {wrong}")
            self._originals[id(copy)] = (code, probe)
            self._copies[id(code), probe] = copy
        function.__code__ = copy


latency = Latency()
