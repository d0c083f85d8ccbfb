"""Runs requests that take turns on one thread, a job on another thread, and work outside of both.
by_request.rb is the Ruby version and has the details.
"""

import asyncio
import os
import signal
import sys
import threading
import time

import probescope
from probescope import _native

SHARES = {"/a": 30, "/b": 10}
BURNING = sys.argv[1:] == ["burn"]


class Thing:
    pass


class Shop:
    async def __call__(self, scope, receive, send):
        share = SHARES[scope["path"]]
        for _ in range(10):
            if BURNING:
                self.burn(share)
            else:
                self.work(share)
            await asyncio.sleep(0)
        if not BURNING:
            self.nap()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def work(self, times):
        for _ in range(times):
            self.fail_once()
        for _ in range(10 * times):
            self.make()
        self.look(times)

    def look(self, times):
        for _ in range(times):
            os.stat(__file__)
            os.getppid()

    def make(self):
        return Thing()

    def fail_once(self):
        try:
            raise ValueError("known")
        except ValueError:
            pass

    def burn(self, times):
        for number in range(times * 5000):
            number += 1

    def nap(self):
        time.sleep(0.02)


SHOP = Shop()


async def nothing(*_):
    return {"type": "http.request", "body": b"", "more_body": False}


async def take_turns():
    app = probescope.asgi(SHOP)
    scopes = [{"type": "http", "method": "GET", "path": path, "headers": []} for path in SHARES]
    await asyncio.gather(*[app(scope, nothing, nothing) for scope in scopes])


def job():
    request = _native.Request.start_job("Mail", None, "spec", None)
    outer = _native.enter_request(request)
    SHOP.work(30)
    SHOP.nap()
    _native.enter_request(outer)
    request.done(200, None)


def main():
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    print("ready", flush=True)
    while BURNING:
        asyncio.run(take_turns())
    while True:
        time.sleep(0.01)
        if not asked:
            continue
        asked.clear()
        asyncio.run(take_turns())
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
        SHOP.work(15)
        print("worked", flush=True)


main()
