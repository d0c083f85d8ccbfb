"""A probe of its own for a function. The probe's arguments are the duration of a call in ns, and
the outcome of the call (0: it returned, 1: an exception left it).

    class Cart:
        @probescope.latency
        def checkout(self): ...

    bpftrace -p PID -e \
      'usdt:*:latency:"Cart.checkout" { @ns = hist(arg0); @outcome[arg1] = count(); }'

The function is not wrapped. The interpreter reports its calls only while a tracer listens to its
probe. A call of a generator or coroutine function lasts from the first step of the generator or
coroutine to its end, waiting time included. Its outcome is 1 when it was cancelled, and 0 when it
was closed.
"""

from __future__ import annotations

import re
import sys
from inspect import CO_NESTED
from types import CodeType, FunctionType, MethodType
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar, Union, overload

import probescope

F = TypeVar("F", bound=Callable[..., Any])

# Replacements in a probe's name. Any other character that is not a letter, a digit, "_" or "."
# becomes "_x" and two hexadecimal digits for each byte.
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
    """Unwraps a method, a static method or a class method."""
    inner = given.__func__ if isinstance(given, (staticmethod, classmethod, MethodType)) else given
    if isinstance(inner, FunctionType):
        return inner
    if isinstance(inner, property):
        raise probescope.Error("a property: write @probescope.latency below @property")
    if isinstance(inner, type):
        raise probescope.Error(f"{inner.__name__} is a class: write @probescope.latency above its methods")
    hint = ": write @probescope.latency below what wraps it" if hasattr(inner, "__wrapped__") else ""
    raise probescope.Error(f"{inner!r} is no function written in Python, and only those can be traced{hint}")


def _copy_of(function: FunctionType, code: CodeType) -> FunctionType:
    """Copies the function with this code object.

    Setting __code__ or __kwdefaults__ on a function makes each call slower, from 3.13 on.
    """
    given: Any = [code, function.__globals__, function.__name__, function.__defaults__, function.__closure__]
    if sys.version_info >= (3, 13):
        given.append(function.__kwdefaults__)
    copy = FunctionType(*given)
    if copy.__kwdefaults__ != function.__kwdefaults__:
        copy.__kwdefaults__ = function.__kwdefaults__
    for name in ("__module__", "__qualname__", "__doc__", "__type_params__"):
        if hasattr(function, name):
            setattr(copy, name, getattr(function, name))
    annotations = "__annotate__" if hasattr(function, "__annotate__") else "__annotations__"
    setattr(copy, annotations, getattr(function, annotations))
    copy.__dict__.update(function.__dict__)
    return copy


class Latency:
    """The type of probescope.latency."""

    def __init__(self) -> None:
        # _names: code objects with a probe, by id, and the names of their probes. _copies: one
        # copied code object for each def and name, however often the def runs.
        self._names: Dict[int, Tuple[CodeType, str]] = {}
        self._copies: Dict[Tuple[int, str], Tuple[CodeType, CodeType]] = {}

    @overload
    def __call__(self, function: F) -> F: ...

    @overload
    def __call__(self, *, name: str) -> Callable[[F], F]: ...

    def __call__(
        self, function: Optional[F] = None, *, name: Optional[str] = None
    ) -> Union[F, Callable[[F], F]]:
        """Gives a function a probe and returns the function. The name is its __qualname__, or
        `name`.

        A function that was created inside another one (a closure, a decorator's result) shares its
        code object with others. For such a function a copy is returned. Raises probescope.Error for
        what cannot be traced. Calls probescope.install().
        """

        def trace(given: Any) -> Any:
            inner = _function_of(given)
            traced = self._trace(inner, name)
            if traced is inner:
                return given
            if isinstance(given, MethodType):
                return MethodType(traced, given.__self__)
            return type(given)(traced) if isinstance(given, (staticmethod, classmethod)) else traced

        return trace if function is None else trace(function)

    def untrace(self, function: Callable[..., Any]) -> bool:
        """Removes the probe from all functions of the same def.

        Returns False when there was none.
        """
        code, name = self._names.pop(id(_function_of(function).__code__), (None, ""))
        if code is None:
            return False
        self._copies = {key: pair for key, pair in self._copies.items() if pair[1] is not code}
        return bool(probescope._native.untrace_latency(code))

    def probes(self) -> Dict[str, Dict[str, Any]]:
        """Returns {name: {"path", "listened", "error"}}.

        path: the file through which a tracer reaches every process with this probe, or None. error:
        why calls are not reported, or None.
        """
        known = probescope._native.latency_probes() if probescope._native else []
        return {
            name: {"path": path, "listened": listened, "error": error}
            for name, path, listened, error in known
        }

    def _trace(self, function: FunctionType, name: Optional[str]) -> FunctionType:
        code = function.__code__
        probe = _name_of(function) if name is None else name
        if id(code) in self._names:
            if self._names[id(code)][1] != probe:
                raise probescope.Error(
                    f"{function.__qualname__} has the probe {self._names[id(code)][1]} already"
                )
            return function
        if not probescope.install():
            return function
        if not code.co_flags & CO_NESTED:
            self._give(code, probe)
            return function
        _, copy = self._copies.get((id(code), probe), (code, None))
        if copy is None:
            copy = code.replace()
            self._give(copy, probe)
            self._copies[id(code), probe] = (code, copy)
        return _copy_of(function, copy)

    def _give(self, code: CodeType, probe: str) -> None:
        try:
            wrong = probescope._native.trace_latency(code, probe)
        except ValueError as error:  # the name is not a valid C string
            wrong = str(error)
        if wrong:
            raise probescope.Error(f"{probe}: {wrong}")
        self._names[id(code)] = (code, probe)


latency = Latency()
