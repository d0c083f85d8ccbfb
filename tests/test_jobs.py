"""Celery's tasks are requests. Each task is reported once, with its outcome."""

from __future__ import annotations

import importlib.util

import pytest

FIELDS = {"request__done": ["route", "method", "status", "system", "queue", "parent_id", "span_id"]}

EAGER = """
import celery, gate, probescope

app = celery.Celery("shop")
app.conf.task_always_eager = True
hooked = [probescope.celery(), probescope.celery()]

@app.task(name="shop.mail")
def mail():
    return inner.delay().get(disable_sync_subtasks=False) + 1

@app.task(name="shop.inner")
def inner():
    return 6

@app.task(name="shop.fails")
def fails():
    raise ValueError("of the task")

@app.task(name="shop.retries", bind=True, max_retries=1)
def retries(self):
    raise self.retry(countdown=0)

@app.task(name="shop.ignores")
def ignores():
    raise celery.exceptions.Ignore()

gate.on("request__done")
gate.flushed()  # the semaphore is raised a moment before the tracer receives events
seen = [mail.delay().get(), fails.delay().state, ignores.delay().state]
try:
    retries.delay().state
except Exception:
    pass
current = probescope._native.enter_request(None)
gate.done(hooked=hooked, seen=seen, current=repr(current), left=len(probescope.jobs._running))
"""

# Sends the signals as Celery does. This works without Celery.
SIGNALS = """
import gate, probescope
from probescope import jobs

class Context:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    delivery_info = {"routing_key": "mails"}

class Task:
    name = "shop.mail"
    request = Context()

jobs._native = probescope._native
gate.on("request__done")
gate.flushed()  # the semaphore is raised a moment before the tracer receives events
for number, state in enumerate(["SUCCESS", "FAILURE", "RETRY", "IGNORED", None, 7]):
    jobs._begin(sender=Task(), task_id=f"{number}", task=Task(), args=[], kwargs={})
    jobs._end(sender=Task(), task_id=f"{number}", task=Task(), args=[], kwargs={}, retval=1, state=state)
jobs._begin(task_id="odd", task=None)
jobs._end(task_id="odd", state="SUCCESS")
jobs._end(task_id="never", state="SUCCESS")
gate.done(left=len(jobs._running), current=repr(probescope._native.enter_request(None)))
"""


def test_tells_what_became_of_each_task(trace):
    run = trace(SIGNALS, FIELDS)
    assert run.report == {"left": 0, "current": "None"}
    done = [
        (event["route"], event["method"], event["status"], event["system"], event["queue"])
        for event in run.events("request__done")
    ]
    mail = ("shop.mail", "JOB")
    expected = [(*mail, status, "celery", "mails") for status in (200, 500, 500, 200, 500, 500)]
    assert done == [*expected, ("", "JOB", 200, "celery", "")]
    assert run.events("request__done")[0]["parent_id"] == 0xB7AD6B7169203331


@pytest.mark.skipif(not importlib.util.find_spec("celery"), reason="of .ci/full: no celery")
def test_hears_of_celerys_tasks(trace):
    run = trace(EAGER, FIELDS)
    assert run.report == {
        "hooked": [True, True],
        "seen": [7, "FAILURE", "IGNORED"],
        "current": "None",
        "left": 0,
    }
    done = [(event["route"], event["status"]) for event in run.events("request__done")]
    assert done[:4] == [
        ("shop.inner", 200),
        ("shop.mail", 200),
        ("shop.fails", 500),
        ("shop.ignores", 200),
    ]
    assert ("shop.retries", 500) in done
