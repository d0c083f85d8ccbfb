"""Request probes of WSGI and ASGI applications. Each request is reported once, and the application
does not notice.
"""

from __future__ import annotations

import pytest

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FIELDS = {
    "request__start": ["route", "method", "traceparent", "span_id", "parent_id", "thread_id"],
    "request__done": ["route", "method", "status", "elapsed", "traceparent", "span_id", "template", "path"],
    "function__slow1ms": ["function", "traceparent"],
    "exception__detail": ["message", "traceparent"],
}

COMMON = f"""
import asyncio, gate, inspect, probescope, sys, threading, time

PARENT = {PARENT!r}

def slow():
    until = time.perf_counter() + 0.0015
    while time.perf_counter() < until:
        pass

def named(name):
    code = slow.__code__.replace(co_name=name, co_qualname=name)
    type(slow)(code, globals())()

app = probescope.wsgi(lambda environ, start: environ["app"](environ, start))
starts = []

def ask(path, function=None, **environ):
    def answer(environ, start):
        start("200 OK", [])
        return [b"ok"]

    environ = {{"REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "app": function or answer,
               **environ}}
    return app(environ, lambda *given, **named: starts.append((given, named)))

gate.on("request__start", "request__done", "function__slow1ms", "exception__detail")
"""

WSGI = (
    COMMON
    + """
class Body:
    def __init__(self, start, fails=False):
        self.start, self.fails, self.closed, self.extra = start, fails, 0, "kept"
    def __iter__(self):
        named("iter")
        self.start("206 Partial", [("a", "b")])
        yield b"a"
        named("next")
        if self.fails:
            raise LookupError("in the body")
        yield b"b"
    def close(self):
        named("close")
        self.closed += 1

class File:
    def __init__(self, file):
        self.file = file
    def __iter__(self):
        return iter(self.file)

def raising(environ, start):
    raise ValueError("of the application")

def leaving(environ, start):
    sys.exit(3)

seen = {}
for path, function in (("/raises", raising), ("/exits", leaving)):
    try:
        ask(path, function)
    except BaseException as error:
        seen[path] = [type(error).__name__, str(error)]
kept = [b"body"]
seen["list"] = ask("/list", lambda environ, start: start("201 Created", []) or kept) is kept
body = ask("/streamed", lambda environ, start: Body(start))
seen["parts"] = [part.decode() for part in body] + [body.extra]
body.close()
seen["closed"] = body.closed
body = ask("/fails", lambda environ, start: Body(start, True))
try:
    list(body)
except LookupError as error:
    seen["fails"] = str(error)
body.close()
ask("/generator", lambda environ, start: (part for part in [start("204 No Content", [])] if part)).close()
file = ask("/file", lambda environ, start: start("200 OK", []) or File([]), **{"wsgi.file_wrapper": File})
seen["file"] = type(file).__name__
seen["nothing"] = ask("/nothing", lambda environ, start: None)
ask("/twice", probescope.wsgi(lambda environ, start: start("200 OK", [("x", "y")], None) or []))
ask("/\\xff\\x1b[31m\\r\\n")
ask("/\\xc3\\xa9", SCRIPT_NAME="/app")
ask("/" + "x" * 100000)
ask(None, REQUEST_METHOD=7, HTTP_TRACEPARENT=object())
ask("/status", lambda environ, start: start("abc", []) or [])

class Rule:
    rule = "/labels/<int:number>"

class OfFlask:
    url_rule = Rule

def of_flask(environ, start):
    environ["werkzeug.request"] = OfFlask
    start("404 Not Found", [])
    environ["werkzeug.request"] = None
    return []

ask("/labels/7", of_flask, REQUEST_METHOD="HEAD")
ask("/labels/8", of_flask, SCRIPT_NAME="/desk")
ask("/ids/4711")
ask("/own/7", lambda environ, start:
    environ.update({"probescope.route": "/own/{id}"}) or start("503 No", []) or [])

def work(name):
    def answer(environ, start):
        start("200 OK", [])
        named(name)
        try:
            raise KeyError(name)
        except KeyError:
            return []
    ask("/" + name, answer, HTTP_TRACEPARENT=PARENT)

threads = [threading.Thread(target=work, args=(f"thread{i}",)) for i in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
named("outside")
seen["starts"] = starts.count((("200 OK", [("x", "y")], None), {}))
seen["state"] = gate.state("request__done")
gate.flushed()
gate.done(**seen)
"""
)


def done_of(run):
    return {event["path"]: event for event in run.events("request__done")}


def slow_of(run):
    slow = {}
    for event in run.events("function__slow1ms"):
        slow.setdefault(event["function"], []).append(event["traceparent"])
    return slow


def own(event):
    return f"{PARENT[:36]}{event['span_id'] % 2**64:016x}-01"


@pytest.mark.smoke
def test_wsgi(trace):
    run = trace(WSGI, FIELDS)
    assert run.report == {
        "/raises": ["ValueError", "of the application"],
        "/exits": ["SystemExit", "3"],
        "list": True,
        "parts": ["a", "b", "kept"],
        "closed": 1,
        "fails": "in the body",
        "file": "File",
        "nothing": None,
        "starts": 1,
        "state": "on",
    }
    done = done_of(run)
    # Some versions of bpftrace mark a text that they cut.
    long = next(path for path in done if path.startswith("/" + "x" * 60))
    statuses = {
        "/raises": 500, "/exits": 0, "/list": 201, "/streamed": 206, "/fails": 500, "/generator": 204,
        "/file": 200, "/nothing": 0, "/twice": 200, "/??[31m??": 200, "/app/é": 200, long: 200, "": 200,
        "/status": 0, "/labels/7": 404, "/own/7": 503, "/desk/labels/8": 404, "/ids/4711": 200,
        "/thread0": 200, "/thread1": 200, "/thread2": 200,
    }  # fmt: skip
    assert {path: event["status"] for path, event in done.items()} == statuses
    assert len(run.events("request__done")) == len(run.events("request__start")) == len(statuses)
    paths = ("/labels/7", "/desk/labels/8", "/own/7", "/list", "/ids/4711")
    assert [done[path]["route"] for path in paths] == [
        "/labels/<int:number>",
        "/desk/labels/<int:number>",
        "/own/{id}",
        "/list",
        "/ids/*",
    ]
    assert done["/labels/7"]["method"] == "HEAD"
    assert done[long]["route"] == "..." + "x" * 59
    assert done["/streamed"]["elapsed"] >= 4_000_000
    slow = slow_of(run)
    assert slow["iter"] == [done["/streamed"]["traceparent"], done["/fails"]["traceparent"]]
    assert slow["next"] == slow["close"] == slow["iter"]
    details = {event["message"]: event["traceparent"] for event in run.events("exception__detail")}
    for name in ("thread0", "thread1", "thread2"):
        assert slow[name] == [own(done[f"/{name}"])]
        # Before 3.12, the request has ended when its exception is reported.
        assert details.get(name, own(done[f"/{name}"])) in (own(done[f"/{name}"]), "")
    assert slow["outside"] == [""]
    assert run.program.err == ""


ASGI = (
    COMMON
    + """
seen = {"sent": []}

async def receive():
    return {}

async def send(message):
    seen["sent"].append(message["type"])

async def application(scope, receive, send):
    return await scope["app"](scope, receive, send)

asked = probescope.asgi(application)
application.title = "the application"

async def get(path, function, headers=(), **scope):
    scope = {"type": "http", "method": "GET", "path": path, "headers": list(headers), "app": function,
             **scope}
    return await asked(scope, receive, send)

async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    named("body")
    await send({"type": "http.response.body", "body": b"b"})
    named("background")
    return "returned"

async def raising(scope, receive, send):
    raise ValueError("of the application")

async def waiting(scope, receive, send):
    await asyncio.sleep(100)

async def task(name):
    async def answer(scope, receive, send):
        for _ in range(3):
            await asyncio.sleep(0)
            named(name)
        await asyncio.ensure_future(child(name + "_child"))
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})
    await get("/" + name, answer, [(b"traceparent", PARENT.encode())])

async def child(name):
    named(name)

class Route:
    path = "/items/{id}"

async def of_fastapi(scope, receive, send):
    scope["route"] = Route
    await send({"type": "http.response.start", "status": 418})
    await send({"type": "http.response.body"})

class Inner:
    path, endpoint = "/{name}", answer

class Mount:
    path, routes = "/mounted", [Inner]

class Router:
    routes = [Mount]

async def of_starlette(scope, receive, send):
    scope.update(router=Router, endpoint=answer)
    await answer(scope, receive, send)

async def fails(scope, receive, send):
    scope["route"] = Route
    raise KeyError("of the application")

async def main():
    seen["returned"] = await get("/answer", answer)
    try:
        await get("/raises", raising)
    except ValueError as error:
        seen["raised"] = str(error)
    cancelled = asyncio.ensure_future(get("/cancelled", waiting))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    try:
        await cancelled
    except asyncio.CancelledError:
        seen["cancelled"] = True
    await asyncio.gather(*(task(f"task{i}") for i in range(3)))
    await get("/items/7", of_fastapi)
    await get("/api/items/7", of_fastapi, root_path="/api")
    try:
        await get("/fails/7", fails)
    except KeyError:
        pass
    await get("/twice", of_fastapi, [(b"traceparent", PARENT.encode())] * 2)
    await get("/mounted/7", of_starlette)
    for kind in ("websocket", "lifespan"):
        seen[kind] = await asked({"type": kind, "app": echo}, receive, send)
    await get(None, nothing, headers=[(1, 2, 3), b"no", 4])

async def nothing(scope, receive, send):
    pass

async def echo(scope, receive, send):
    return scope["type"]

asyncio.run(main())
seen["title"] = asked.title
seen["function"] = inspect.iscoroutinefunction(asked.__call__)
gate.flushed()
gate.done(**seen)
"""
)


@pytest.mark.smoke
def test_asgi(trace):
    run = trace(ASGI, FIELDS)
    sent = run.report.pop("sent")
    assert run.report == {
        "returned": "returned",
        "raised": "of the application",
        "cancelled": True,
        "websocket": "websocket",
        "lifespan": "lifespan",
        "title": "the application",
        "function": True,
    }
    assert sent[:3] == ["http.response.start", "http.response.body", "http.response.body"]
    done = done_of(run)
    statuses = {"/api/items/7": 418, "/fails/7": 500, "/twice": 418}
    statuses.update(
        {"/answer": 200, "/raises": 500, "/cancelled": 0, "/items/7": 418, "/mounted/7": 200, "": 0}
    )
    statuses.update({f"/task{i}": 200 for i in range(3)})
    assert {path: event["status"] for path, event in done.items()} == statuses
    assert len(run.events("request__done")) == len(run.events("request__start")) == len(statuses)
    assert [done[path]["route"] for path in ("/items/7", "/api/items/7", "/fails/7", "/mounted/7")] == [
        "/items/{id}",
        "/api/items/{id}",
        "/items/{id}",
        "/mounted/{name}",
    ]
    assert done["/twice"]["traceparent"][:36] != PARENT[:36]
    # The request lasts until its last part is sent. Later work of the application still belongs to
    # it.
    assert done["/answer"]["elapsed"] >= 1_000_000
    ends = [
        event.get("path", event.get("function")) for event in run.events("request__done", "function__slow1ms")
    ]
    assert ends.index("body") < ends.index("/answer") < ends.index("background")
    slow = slow_of(run)
    assert slow["body"][0] == slow["background"][0] == done["/answer"]["traceparent"]
    for i in range(3):
        assert set(slow[f"task{i}"] + slow[f"task{i}_child"]) == {own(done[f"/task{i}"])}
    assert run.program.err == ""


OTEL = (
    COMMON
    + """
from opentelemetry import trace

def answer(environ, start):
    start("200 OK", [])
    named("without")
    with trace.get_tracer_provider().get_tracer("test").start_as_current_span("request") as span:
        context = span.get_span_context()
        said.append(f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
                    if context.is_valid else "")
        named("within")
    return []

said = []
ask("/api", answer, HTTP_TRACEPARENT=PARENT)
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
ask("/sdk", answer, HTTP_TRACEPARENT=PARENT)
gate.flushed()
gate.done(said=said)
"""
)


def test_traces_are_left_to_an_application_that_has_opentelemetry(trace):
    pytest.importorskip("opentelemetry.sdk.trace")
    run = trace(OTEL, FIELDS)
    done = done_of(run)
    assert done["/api"]["traceparent"] == own(done["/api"])
    assert done["/sdk"]["traceparent"] == PARENT
    assert run.report["said"][0] == ""
    slow = slow_of(run)
    assert slow["without"] == [own(done["/api"]), PARENT]
    assert slow["within"] == [own(done["/api"]), run.report["said"][1]]
