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
# Celery's states of a task that no exception left; IGNORED is what it raised itself to say so.
SUCCESSFUL = ("SUCCESS", "IGNORED")

_native: Any = None
# Tasks under way by their ids and threads (a queue may deliver one again while it runs): the
# request of each, and the one around it, in which it was called at once.
_running: Dict[Tuple[str, int], Tuple[Any, Optional[Any]]] = {}


def celery() -> bool:
    """Has each task of Celery that this process runs fire the probes, with the method JOB, its name
    for a route, and status 200, or 500 when an exception left it (also one that has it tried
    again).

    To be called once, by what makes the Celery app; again does nothing. False where there are no
    probes: see unavailable_reason().
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
    """What the message said under that name, which Celery's Context keeps as an attribute; None for
    nothing.
    """
    return getattr(context, name, None)
