"""Flask, below a path and at the root."""

import time

import probescope
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

shop, desk = Flask("shop"), Flask("desk")


@shop.get("/orders/<int:number>")
def order(number):
    if number % 11 == 0:
        raise RuntimeError("no such order")
    return ("", 404) if number % 7 == 0 else str(number)


@shop.get("/orders")
def orders():
    def rows():
        for i in range(3):
            time.sleep(0.002)
            yield f"row {i}\n"

    return rows()


@shop.post("/orders")
def create():
    return "", 503


@shop.get("/naps/<int:ms>")
def nap(ms):
    time.sleep(ms / 1000)
    return "ok"


@desk.get("/things/<name>")
def thing(name):
    return name


application = probescope.wsgi(DispatcherMiddleware(shop, {"/desk": desk}))
