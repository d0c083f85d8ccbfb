"""Concurrent requests, each in its own trace. Each makes slow calls, and a call's name has the
number of its request's worker.

    python requests.py threads|tasks COUNT REQUESTS FILE

COUNT workers make REQUESTS requests each. FILE gets the program's own record of the calls of each
request: support/parents.rb. Every tenth request is not sampled.
"""

import asyncio
import json
import sys
import threading
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

MODE, COUNT, REQUESTS, FILE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
TRACERS = [TracerProvider(**options).get_tracer("requests") for options in ({"sampler": ALWAYS_OFF}, {})]
KNOWN = []
# Parent of each child: a call, or a span of the application.
SHAPE = {"outer": "request", "inner": "outer", "lookup": "query", "row": "lookup", "again": "outer"}

# ASYNC and AWAIT become a coroutine's words, or nothing.
WORK = """
ASYNC def workerNUMBER():
    for n in range(REQUESTS):
        AWAIT requestNUMBER(n % 10 != 9)

ASYNC def requestNUMBER(sampled):
    tracer = TRACERS[sampled]
    with tracer.start_as_current_span("request") as span:
        known = {"number": NUMBER, "sampled": sampled,
                 "trace": f"{span.get_span_context().trace_id:032x}", "spans": {}}
        note(known, "request", span)
        AWAIT outerNUMBER(tracer, known)
        BESIDE
    KNOWN.append(known)

ASYNC def outerNUMBER(tracer, known):
    innerNUMBER()
    AWAIT pause(0)
    with tracer.start_as_current_span("query") as span:
        note(known, "query", span)
        AWAIT lookupNUMBER()
    againNUMBER()

ASYNC def lookupNUMBER():
    AWAIT pause(0.0015)
    rowNUMBER()

def innerNUMBER(): time.sleep(0.0011)
def rowNUMBER(): time.sleep(0.0011)
def againNUMBER(): time.sleep(0.0011)
"""
# Tasks and a thread of one request, which start with its span as the current one.
BESIDE = "await asyncio.gather(leftNUMBER(), rightNUMBER(), asyncio.to_thread(threadedNUMBER))"
TASKS = """
async def leftNUMBER():
    await pause(0.0015)
    asideNUMBER()

async def rightNUMBER(): await pause(0.0015)
def threadedNUMBER(): time.sleep(0.0011)
def asideNUMBER(): time.sleep(0.0011)
"""


def note(known, name, span):
    known["spans"][name] = f"{span.get_span_context().span_id:016x}"


def define():
    text = WORK
    if MODE == "tasks":
        text = (text + TASKS).replace("BESIDE", BESIDE).replace("ASYNC", "async").replace("AWAIT", "await")
    text = text.replace("ASYNC ", "").replace("AWAIT ", "").replace("BESIDE", "pass")
    for number in range(COUNT):
        exec(compile(text.replace("NUMBER", str(number)), __file__, "exec"), globals())


async def gather(workers):
    await asyncio.gather(*(worker() for worker in workers))


def run():
    """Returns a function that starts the requests, and one that waits for their end.

    Threads are started before, so that they are traced from their first call.
    """
    workers = [globals()[f"worker{i}"] for i in range(COUNT)]
    if MODE == "tasks":
        return lambda: None, lambda: asyncio.run(gather(workers))
    go = threading.Event()
    threads = [threading.Thread(target=lambda worker=worker: go.wait() and worker()) for worker in workers]
    for thread in threads:
        thread.start()
    return go.set, lambda: [thread.join() for thread in threads]


pause = {"threads": time.sleep, "tasks": asyncio.sleep}[MODE]
if MODE == "tasks":
    SHAPE.update(aside="left", left="request", right="request", threaded="request")
define()
begin, finish = run()
print("ready", flush=True)
sys.stdin.readline()
begin()
finish()
with open(FILE, "w") as file:
    json.dump({"shape": SHAPE, "requests": KNOWN}, file)
print("done", flush=True)
sys.stdin.readline()
