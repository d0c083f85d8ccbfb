"""An application without OpenTelemetry: two forked processes with concurrent requests and jobs,
on threads and in tasks. A slow call's name has the number of its request's worker.

    python own_requests.py COUNT REQUESTS FILE

Like own_requests.rb, but a request's tasks and threads (asyncio.to_thread) belong to it, too.
"""

import asyncio
import json
import os
import sys
import threading
import time
import types

import probescope
from probescope import jobs

COUNT, REQUESTS, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
KNOWN = []
SHAPE = {"request": "caller", "outer": "request", "inner": "outer", "lookup": "outer", "row": "lookup"}
SHAPE.update({"job": "request", "task": "job", "aside": "request", "threaded": "request"})

# Only these calls are spans. ASYNC and AWAIT become a coroutine's words, or nothing.
WORK = """
ASYNC def outerNUMBER():
    innerNUMBER()
    AWAIT pauseNUMBER(0)
    AWAIT lookupNUMBER()

ASYNC def lookupNUMBER():
    AWAIT pauseNUMBER(0.0015)
    rowNUMBER()

def innerNUMBER(): time.sleep(0.0011)
def rowNUMBER(): time.sleep(0.0011)
def taskNUMBER(): time.sleep(0.0011)
def asideNUMBER(): time.sleep(0.0011)
def threadedNUMBER(): time.sleep(0.0011)
"""


def define():
    for number in range(2 * COUNT):
        threaded = number < COUNT
        text = WORK.replace("NUMBER", str(number))
        text = text.replace("ASYNC ", "" if threaded else "async ")
        text = text.replace("AWAIT ", "" if threaded else "await ")
        globals()[f"pause{number}"] = time.sleep if threaded else asyncio.sleep
        exec(compile(text, os.path.join(os.path.dirname(__file__), "own_work.py"), "exec"), globals())


def call(name, number):
    return globals()[f"{name}{number}"]()


def came(number, request):
    """Returns a request's header, and records it."""
    sampled = request % 10 != 9
    trace, span = os.urandom(16).hex(), os.urandom(8).hex()
    KNOWN.append({"number": number, "sampled": sampled, "trace": trace, "spans": {"caller": span}})
    return f"00-{trace}-{span}-{sampled:02d}"


class Job:
    """Runs a task in the same way as Celery."""

    def __init__(self, name, traceparent=None):
        self.name = name
        self.request = types.SimpleNamespace(traceparent=traceparent, delivery_info={"routing_key": "spec"})

    def __enter__(self):
        jobs._begin(task_id=self.name, task=self)

    def __exit__(self, *_):
        jobs._end(task_id=self.name, state="SUCCESS")


def at_once(number):
    with Job(f"job{number}"):
        call("task", number)


def rest(number):
    """The work of a request's other tasks."""
    call("aside", number)
    call("threaded", number)


def threaded(number):
    def answer(environ, start):
        start("200 OK", [])
        work()
        return []

    def work():
        call("outer", number)
        at_once(number)
        rest(number)

    app = probescope.wsgi(answer)
    path = f"/request{number}"
    for request in range(REQUESTS):
        if number % 2:
            with Job(f"request{number}", came(number, request)):
                work()
        else:
            environ = {
                "REQUEST_METHOD": "GET",
                "PATH_INFO": path,
                "probescope.route": path,
                "wsgi.url_scheme": "http",
            }
            app({**environ, "HTTP_TRACEPARENT": came(number, request)}, lambda *_: None)


async def tasked(number):
    async def answer(scope, receive, send):
        await call("outer", number)
        at_once(number)
        aside = asyncio.ensure_future(later("aside", number))
        await asyncio.gather(aside, asyncio.to_thread(call, "threaded", number))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def nothing(*_):
        return {"type": "http.request"}

    app = probescope.asgi(answer)
    path = f"/request{number}"
    for request in range(REQUESTS):
        headers = [(b"traceparent", came(number, request).encode())]
        scope = {"type": "http", "method": "GET", "path": path, "scheme": "http", "probescope.route": path}
        await app({**scope, "headers": headers}, nothing, nothing)


async def later(name, number):
    await asyncio.sleep(0)
    call(name, number)


async def gather():
    await asyncio.gather(*(tasked(COUNT + number) for number in range(COUNT)))


def run():
    """Runs both kinds at once."""
    threads = [threading.Thread(target=threaded, args=(number,)) for number in range(COUNT)]
    for thread in threads:
        thread.start()
    asyncio.run(gather())
    for thread in threads:
        thread.join()


def fork(go, going):
    answer, answering = os.pipe()
    pid = os.fork()
    if pid:
        os.close(answering)
        return pid, answer
    os.close(going)
    os.read(go, 1)
    run()
    with os.fdopen(answering, "w") as file:
        json.dump(KNOWN, file)
    os._exit(0)


define()
probescope.install()
jobs._native = sys.modules["probescope._native"]
go, going = os.pipe()
children = [fork(go, going) for _ in range(2)]
print("children", *(pid for pid, _ in children))
print("ready", flush=True)
sys.stdin.readline()
os.close(going)
known = [request for _, answer in children for request in json.load(os.fdopen(answer))]
with open(FILE, "w") as file:
    json.dump({"shape": SHAPE, "requests": known}, file)
print("done", flush=True)
sys.stdin.readline()
