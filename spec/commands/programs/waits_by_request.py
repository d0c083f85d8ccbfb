"""Serves requests of two routes at the same time, on a thread each, beside a thread without a request
and one that a request started. waits_by_request.rb is the Ruby version and has the details. The tasks
of a last request wait in an event loop, which is in no request.
"""

import asyncio
import collections
import json
import signal
import subprocess
import threading
import time

import probescope

TAKEN = []
MILLISECONDS = {"/orders/17": 30, "/orders/18": 30, "/slow": 60}
ANSWERS = ["sh", "-c", "while read -r line; do sleep 0.04; echo; done"]


class Shop:
    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        self.work("GET /slow" if path == "/slow" else "GET /orders/*", MILLISECONDS[path])
        if path == "/slow":
            child = threading.Thread(target=self.work, args=("", 20))
            child.start()
            child.join()
        start_response("200 OK", [])
        return []

    def work(self, request, milliseconds):
        with subprocess.Popen(ANSWERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as answering:
            for _ in range(10):
                self.naps(request, milliseconds / 1000)
                answering.stdin.write(b"\n")
                self.asks(request, answering.stdout)
            answering.stdin.close()

    def naps(self, request, seconds):
        began = self.begins()
        time.sleep(seconds)
        self.took(request, "naps", *began)

    def asks(self, request, answering):
        began = self.begins()
        answering.read(1)
        self.took(request, "asks", *began)

    def begins(self):
        return self.delayed(), time.monotonic_ns()

    def took(self, request, function, delay, began):
        ended = time.monotonic_ns()
        TAKEN.append((request, function, ended - began, self.delayed() - delay))

    def delayed(self):
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1])


async def rests(seconds):
    await asyncio.sleep(seconds)


async def app(scope, receive, send):
    await asyncio.gather(rests(0.05), rests(0.1))
    SHOP.naps("GET /async", 0.05)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def nothing(*_):
    return {"type": "http.request", "body": b"", "more_body": False}


SHOP = Shop()


def serve(path):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path}
    body = probescope.wsgi(SHOP)(environ, lambda *_: None)
    list(body)
    if hasattr(body, "close"):
        body.close()


def work():
    threads = [threading.Thread(target=serve, args=(path,)) for path in MILLISECONDS]
    threads.append(threading.Thread(target=SHOP.work, args=("", 20)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scope = {"type": "http", "method": "GET", "path": "/async", "headers": []}
    asyncio.run(probescope.asgi(app)(scope, nothing, nothing))


def clocks():
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0, 0]))
    for request, function, ns, delayed in TAKEN:
        for place, figure in enumerate((1, ns, delayed)):
            found[request][function][place] += figure
    return found


def main():
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
        if asked:
            asked.clear()
            work()
            print("waited 1", json.dumps(clocks()), flush=True)


main()
