"""Request probes: probescope.wsgi(app) and probescope.asgi(app). They should be the outermost
middleware.

While no tracer listens, a request costs one call into C. The middleware itself never raises: it
checks the type of every value before it uses it.
"""

from __future__ import annotations

import sys
from typing import Any, Awaitable, Callable, Dict, Iterable, Iterator, MutableMapping, Optional, Tuple, cast

import probescope
from probescope._django_routes import template

__all__ = ["wsgi", "asgi"]

# KEY: in the environment or scope of a request that is already reported. ROUTE: where an
# application may put its own name for the route.
KEY = "probescope.request"
ROUTE = "probescope.route"
# Templates of Starlette's routes. A search through hundreds of routes takes longer than the rest of
# the request's probes. The bound is for an application that creates routes while it runs.
MOST_TEMPLATES = 4096
_templates: Dict[Tuple[int, int, int], Tuple[Any, ...]] = {}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def wsgi(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Returns the application with request probes.

    Returns the application itself where no probes are available (unavailable_reason()).
    """
    if not probescope.install():
        return app
    _native().requests_told()
    wanted = _native().requests_wanted
    _follow_django(app)

    def probed(environ: Dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not wanted() or KEY in environ:
            return app(environ, start_response)
        return _call_wsgi(app, environ, start_response)

    return probed


class asgi:  # noqa: N801 - called like a function; servers look for an object with `async def __call__`
    """The application (ASGI 3) with request probes. Websockets and lifespan events pass through."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[Any]]) -> None:
        self.app = app
        self._wanted: Callable[[], bool] = _nobody
        if probescope.install():
            _native().requests_told()
            self._wanted = _native().requests_wanted
        _follow_django(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        if not self._wanted() or scope.get("type") != "http" or KEY in scope:
            return await self.app(scope, receive, send)
        return await _call_asgi(self.app, scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        """Forwards the application's other attributes, such as FastAPI's openapi()."""
        if name in ("app", "_wanted"):  # not set yet: the object is being copied
            raise AttributeError(name)
        return getattr(self.app, name)


class _Request:
    """A request that is being reported. root: the prefix below which the application is mounted,
    when the framework's template lacks it.
    """

    def __init__(self, method: Any, path: Any, traceparent: Any, scheme: Any, root: Any = "") -> None:
        self.native = _native().Request(method, path, traceparent, scheme)
        self.root = root if isinstance(root, str) else ""
        self.status = 0
        self.template: Any = None
        self.of_django: Any = None

    def look(self, place: Any, framework: Any = None) -> None:
        """Reads the route's template. place: the environment or scope.

        Frameworks discard the route when they have answered, so this is called earlier.
        """
        own, found = place.get(ROUTE), framework or self._of_django()
        if isinstance(own, str) and own:
            self.template = own
        elif isinstance(found, str) and found:
            self.template = self.root + found

    def _of_django(self) -> Any:
        request, self.of_django = self.of_django, None  # breaks the cycle of request, environment and self
        route = getattr(getattr(request, "resolver_match", None), "route", None)
        return template(route) if isinstance(route, str) else None

    def done(self) -> None:
        self.native.done(self.status, self.template)


def _call_wsgi(app: Any, environ: Dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    enter = _native().enter_request
    request = environ[KEY] = _Request(
        environ.get("REQUEST_METHOD"),
        _bytes(environ.get("SCRIPT_NAME")) + _bytes(environ.get("PATH_INFO")),
        environ.get("HTTP_TRACEPARENT"),
        environ.get("wsgi.url_scheme"),
    )

    def start(status: Any, *rest: Any, **named: Any) -> Any:
        request.status = _status(status)
        root = environ.get("SCRIPT_NAME")  # the innermost application's: DispatcherMiddleware leaves it set
        request.root = _bytes(root).decode(errors="replace")
        request.look(environ, _of_flask(environ))
        return start_response(status, *rest, **named)

    outer = enter(request.native)
    body: Any = None
    try:
        body = app(environ, start)
    except Exception:
        request.status = 500
        raise
    finally:
        enter(outer)
        if _is_plain(body, environ):
            request.look(environ)
            request.done()
    return cast("Iterable[bytes]", body) if _is_plain(body, environ) else _Body(body, request)


class _Body:
    """The body of a response.

    The request lasts until the body is closed. It is the current request while the server reads the
    body.
    """

    def __init__(self, body: Iterable[bytes], request: _Request) -> None:
        self._body = body
        self._request = request
        self._parts: Optional[Iterator[bytes]] = None

    def __iter__(self) -> "_Body":
        return self

    def __next__(self) -> bytes:
        return self._within(self._next)  # type: ignore[no-any-return]

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close:
                self._within(close)
        finally:
            self._request.done()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def _next(self) -> bytes:
        if self._parts is None:
            self._parts = iter(self._body)
        try:
            return next(self._parts)
        except StopIteration:
            raise
        except Exception:
            self._request.status = 500
            raise

    def _within(self, function: Callable[[], Any]) -> Any:
        enter = _native().enter_request
        outer = enter(self._request.native)
        try:
            return function()
        finally:
            enter(outer)


async def _call_asgi(app: Any, scope: Scope, receive: Receive, send: Send) -> Any:
    enter = _native().enter_request
    request = scope[KEY] = _Request(
        scope.get("method"),
        scope.get("path"),
        _header(scope.get("headers")),
        scope.get("scheme"),
        scope.get("root_path"),
    )

    async def told(message: Any) -> None:
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "http.response.start":
            status = message.get("status")
            request.status = status if isinstance(status, int) and status >= 0 else 0
            request.look(scope, _of_starlette(scope))
        await send(message)
        if kind == "http.response.body" and not message.get("more_body"):
            request.done()

    outer = enter(request.native)
    try:
        return await app(scope, receive, told)
    except Exception:
        request.status = 500
        raise
    finally:
        enter(outer)
        if not request.template:
            request.look(scope, _of_starlette(scope))
        request.done()


def _native() -> Any:
    return sys.modules["probescope._native"]


def _nobody() -> bool:
    return False


def _bytes(text: Any) -> bytes:
    """Returns the bytes of a WSGI string, which holds each byte as one Latin-1 character."""
    return text.encode("latin-1", "replace") if isinstance(text, str) else b""


def _status(line: Any) -> int:
    digits = line[:3] if isinstance(line, str) else ""
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _header(headers: Any) -> Any:
    """Returns the only traceparent header. Several count as none, as in WSGI, where the server
    joins them with commas.
    """
    pairs = headers if isinstance(headers, (list, tuple)) else ()
    found = [
        pair[1]
        for pair in pairs
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and pair[0] == b"traceparent"
    ]
    return found[0] if len(found) == 1 else None


def _is_plain(body: Any, environ: Dict[str, Any]) -> bool:
    """Whether the body has no close(), or is of a type that servers handle specially."""
    wrapper = environ.get("wsgi.file_wrapper")
    return (
        body is None
        or isinstance(body, (list, tuple))
        or (isinstance(wrapper, type) and isinstance(body, wrapper))
    )


def _of_flask(environ: Dict[str, Any]) -> Any:
    rule = getattr(environ.get("werkzeug.request"), "url_rule", None)
    return getattr(rule, "rule", None)


def _of_starlette(scope: Scope) -> Any:
    """FastAPI and Starlette put the route into the scope. The route does not contain the prefix of
    its mounts. Older versions of Starlette put only the endpoint there, and several routes can
    share an endpoint.
    """
    route, endpoint = scope.get("route"), scope.get("endpoint")
    if route is None and endpoint is None:
        return None
    routes = getattr(scope.get("router"), "routes", ())
    key = (id(route), id(endpoint), id(routes))
    if key not in _templates and len(_templates) < MOST_TEMPLATES:
        found = list(_paths_to(route, endpoint, routes, ""))
        # The ids in the key stay unique only while these objects are kept alive.
        _templates[key] = (
            found[0] if len(found) == 1 else getattr(route, "path", None),
            route,
            endpoint,
            routes,
        )
    return _templates.get(key, (None,))[0]


def _paths_to(wanted: Any, endpoint: Any, routes: Any, prefix: str) -> Iterator[str]:
    for route in routes if isinstance(routes, list) else ():
        path = f"{prefix}{getattr(route, 'path', '')}"
        if route is wanted or (wanted is None and getattr(route, "endpoint", None) is endpoint):
            yield path
        elif isinstance(getattr(route, "routes", None), list):
            yield from _paths_to(wanted, endpoint, route.routes, path)


def _follow_django(app: Any) -> None:
    """Replaces the class from which a Django handler creates its requests. The handler gives no
    other access to them.
    """
    names = (("django.core.handlers.wsgi", "WSGIHandler"), ("django.core.handlers.asgi", "ASGIHandler"))
    handlers = [getattr(sys.modules.get(module), name, None) for module, name in names]
    if not any(isinstance(handler, type) and isinstance(app, handler) for handler in handlers):
        return
    base = app.request_class

    def __init__(self: Any, place: Any, *rest: Any, **named: Any) -> None:
        base.__init__(self, place, *rest, **named)
        request = place.get(KEY)
        if isinstance(request, _Request):
            request.of_django = self

    app.request_class = type(base.__name__, (base,), {"__init__": __init__, "__module__": base.__module__})
