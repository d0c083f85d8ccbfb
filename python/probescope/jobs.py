"""Tasks of Celery as requests: probescope.celery() makes them fire request__start and
request__done.
"""

from __future__ import annotations

import sys
import threading

import probescope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

DONE, FAILED = 200, 500
# Celery's states of a task that did not fail. A task that raises Ignore gets IGNORED.
SUCCESSFUL = ("SUCCESS", "IGNORED")

_native: Any = None
# The running tasks by id and thread: the request of each, and the request around it when the task
# was called directly. The thread is in the key because a queue may deliver a task again while it
# runs.
_running: Dict[Tuple[str, int], Tuple[Any, Optional[Any]]] = {}


def celery() -> bool:
    """Makes each Celery task in this process fire the request probes. The method is JOB and the
    route is the task's name. The status is 200, or 500 when an exception left the task, which
    includes a retry.

    Call this once, where the Celery app is created; further calls do nothing. Returns False when
    there are no probes: see unavailable_reason().
    """
    global _native
    from celery.signals import task_postrun, task_prerun

    if not probescope.install():
        return False
    _native = sys.modules["probescope._native"]
    _native.requests_told()
    task_prerun.connect(_begin, weak=False, dispatch_uid="probescope")
    task_postrun.connect(_end, weak=False, dispatch_uid="probescope")
    return True


def _begin(task_id: str = "", task: Any = None, **_: Any) -> None:
    if not _native.requests_wanted():
        return
    context = getattr(task, "request", None)
    delivery = _of(context, "delivery_info")
    queue = delivery.get("routing_key") if isinstance(delivery, dict) else None
    request = _native.Request.start_job(
        getattr(task, "name", ""), _of(context, "traceparent"), "celery", queue
    )
    _running[task_id, threading.get_ident()] = (request, _native.enter_request(request))


def _end(task_id: str = "", state: Optional[str] = None, **_: Any) -> None:
    request, outer = _running.pop((task_id, threading.get_ident()), (None, None))
    if request is None:
        return
    _native.enter_request(outer)
    request.done(DONE if state in SUCCESSFUL else FAILED, None)


def _of(context: Any, name: str) -> Any:
    """Returns a field of the message, or None. Celery's Context keeps fields as attributes."""
    return getattr(context, name, None)
