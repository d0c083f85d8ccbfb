"""For bench/requests.rb: prints the ns of a call of a WSGI or ASGI application, bare and within
probescope, idle and then attached. For ASGI there is a third figure: within an object that only
awaits the application.

    python bench/requests.py WSGI|ASGI
"""

import statistics
import sys
import time

import probescope
from probescope.web import KEY

COUNT = 200
BODY = [b"ok"]
SCOPE = {"type": "http", "method": "GET", "path": "/labels/7", "headers": []}


def wsgi(environ, start_response):
    start_response("200 OK", [])
    return BODY


async def asgi(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body"})


def started(status, headers):
    pass


async def sent(message):
    pass


def turn_wsgi(app):
    environ = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/labels/7"}
    start = time.perf_counter_ns()
    for _ in range(COUNT):
        app(environ, started)
        environ.pop(KEY, None)
    return (time.perf_counter_ns() - start) / COUNT


def turn_asgi(app):
    scope = dict(SCOPE)
    start = time.perf_counter_ns()
    for _ in range(COUNT):
        try:
            app(scope, None, sent).send(None)
        except StopIteration:
            scope.pop(KEY, None)
    return (time.perf_counter_ns() - start) / COUNT


class Awaiting:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        return await self.app(scope, receive, send)


def medians(turn, *apps):
    turns = zip(*([turn(app) for app in apps] for _ in range(501)))
    return " ".join(f"{statistics.median(way):.1f}" for way in turns)


KINDS = {
    "WSGI": (turn_wsgi, wsgi, probescope.wsgi(wsgi)),
    "ASGI": (turn_asgi, asgi, probescope.asgi(asgi), Awaiting(asgi)),
}
chosen = KINDS[sys.argv[1]]
print("idle", medians(*chosen), flush=True)
while probescope.status()["probes"]["request__done"][0] != "on":
    time.sleep(0.01)
print("attached", medians(*chosen), flush=True)
time.sleep(600)
