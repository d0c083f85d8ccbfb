"""Celery tasks that count each try, its outcome and its exceptions in Redis:

    celery -A shop worker    runs them
    python shop.py           starts them, waits for their end, and prints these counts and
                             Celery's

REDIS_URL is the address of Redis.
"""

import json
import os
import sys
import time

import celery
import probescope
import redis

URL = os.environ["REDIS_URL"]
app = celery.Celery("shop", broker=URL, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    task_default_queue="orders",
)
probescope.celery()
counted = redis.Redis.from_url(URL)


class Try:
    """Counts a try, and raises and handles this many exceptions in it."""

    def __init__(self, task, raises=0):
        self.name = task.name
        self.raises = raises

    def __enter__(self):
        for _ in range(self.raises):
            refuse()

    def __exit__(self, kind, *_):
        good = kind is None or kind is celery.exceptions.Ignore
        counted.hincrby("tries", f"{self.name} {200 if good else 500}", 1)
        counted.hincrby("raised", self.name, self.raises)


def refuse():
    try:
        raise ValueError("known")
    except ValueError:
        pass


@app.task(name="shop.report", bind=True)
def report(self, count):
    with Try(self, count):
        if count % 2:
            receipt.delay()
        label.apply()  # at once, within this one


@app.task(name="shop.receipt", bind=True)
def receipt(self):
    with Try(self, 3):
        pass


@app.task(name="shop.label", bind=True)
def label(self):
    with Try(self, 5):
        pass


@app.task(name="shop.fails", bind=True)
def fails(self):
    with Try(self, 1):
        raise KeyError


@app.task(name="shop.retries", bind=True, max_retries=2)
def retries(self):
    with Try(self, 2):
        if self.request.retries < 2:
            raise self.retry(countdown=0)


@app.task(name="shop.ignores", bind=True)
def ignores(self):
    with Try(self):
        raise celery.exceptions.Ignore


TIMES = 12


def main(expected):
    for number in range(TIMES):
        report.delay(number)
        for task in fails, retries, ignores:
            task.delay()
    while sum(int(number) for number in counted.hvals("tries")) < expected:
        time.sleep(0.05)
    told = {
        name: {key.decode(): int(n) for key, n in counted.hgetall(name).items()}
        for name in ("tries", "raised")
    }
    totals = {}
    for worker in app.control.inspect(timeout=5).stats().values():
        for name, number in worker["total"].items():
            totals[name] = totals.get(name, 0) + number
    print(json.dumps({**told, "totals": totals}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
