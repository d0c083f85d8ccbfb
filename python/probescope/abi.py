"""The probes as a tracer reads them.

Generated from providers/probescope.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

from typing import Dict, NamedTuple


class Probe(NamedTuple):
    """args: in the order of arg0, arg1, ... more: the fields behind arg5, in the order of their
    offsets. Each is str or int.
    """

    args: Dict[str, type]
    more: Dict[str, type]

    def place(self, field: str) -> str:
        """Returns the field as a bpftrace expression. Raises KeyError."""
        if field in self.args:
            place = f"arg{list(self.args).index(field)}"
        else:
            place = f"*(uint64*)(arg5+{8 * list(self.more).index(field)})" if field in self.more else ""
        if not place:
            raise KeyError(field)
        return f"str({place}, 64)" if {**self.args, **self.more}[field] is str else place


VERSION = 1
PROVIDER = "probescope"
PROBES: Dict[str, Probe] = {
    "function__entry": Probe(
        args={"function": str, "file": str, "line": int, "depth": int, "kind": int},
        more={"path": str, "context_id": int},
    ),
    "function__return": Probe(
        args={"function": str, "file": str, "line": int, "elapsed": int, "self": int},
        more={"path": str, "context_id": int, "depth": int, "kind": int, "outcome": int},
    ),
    "function__slow1ms": Probe(
        args={"function": str, "file": str, "line": int, "elapsed": int, "self": int},
        more={"path": str, "thread_id": int, "outcome": int, "traceparent": str, "span_id": int, "parent_id": int, "request_id": int},
    ),
    "function__slow10ms": Probe(
        args={"function": str, "file": str, "line": int, "elapsed": int, "self": int},
        more={"path": str, "thread_id": int, "outcome": int, "traceparent": str, "span_id": int, "parent_id": int, "request_id": int},
    ),
    "function__slow100ms": Probe(
        args={"function": str, "file": str, "line": int, "elapsed": int, "self": int},
        more={"path": str, "thread_id": int, "outcome": int, "traceparent": str, "span_id": int, "parent_id": int, "request_id": int},
    ),
    "function__stats": Probe(
        args={"function": str, "file": str, "line": int, "calls": int, "self": int},
        more={"path": str, "elapsed": int, "max": int, "raised": int, "resumed": int, "out": int},
    ),
    "functions__all": Probe(
        args={},
        more={},
    ),
    "exception__raise": Probe(
        args={"type": str, "file": str, "line": int, "depth": int, "backtrace_cost": int},
        more={"path": str, "function": str, "thread_id": int},
    ),
    "exception__detail": Probe(
        args={"type": str, "file": str, "line": int, "depth": int, "backtrace_cost": int},
        more={"path": str, "function": str, "thread_id": int, "message": str, "traceparent": str, "app_file": str, "app_line": int},
    ),
    "exception__rescue": Probe(
        args={"type": str, "file": str, "line": int, "elapsed": int, "unwound": int},
        more={"path": str, "function": str, "raise_file": str, "raise_line": int},
    ),
    "exception__stats": Probe(
        args={"type": str, "file": str, "line": int, "raised": int, "backtrace_cost": int},
        more={"path": str, "function": str, "depth_sum": int, "depth_max": int, "string_cost": int, "rescued": int, "rescue_file": str, "rescue_line": int, "asked_file": str, "asked_line": int, "app_file": str, "app_line": int, "rescued_at_once": int, "request": str, "request_number": int},
    ),
    "backtrace__done": Probe(
        args={"kind": str, "file": str, "line": int, "depth": int, "elapsed": int},
        more={"path": str, "function": str, "type": str, "raise_file": str, "raise_line": int},
    ),
    "object__alloc": Probe(
        args={"class": str, "file": str, "line": int, "size": int},
        more={"path": str},
    ),
    "object__stats": Probe(
        args={"class": str, "file": str, "line": int, "allocated": int, "bytes": int},
        more={"path": str, "request": str, "request_number": int},
    ),
    "gc__start": Probe(
        args={"kind": str, "generation": int},
        more={},
    ),
    "gc__done": Probe(
        args={"kind": str, "generation": int, "elapsed": int, "objects": int},
        more={},
    ),
    "sample": Probe(
        args={"function": str, "file": str, "line": int, "weight": int, "stack_id": int},
        more={"path": str, "thread_id": int},
    ),
    "sample__stats": Probe(
        args={"function": str, "file": str, "line": int, "self": int, "total": int},
        more={"path": str, "self_samples": int, "total_samples": int, "request": str, "request_number": int, "builtin": str, "builtin_number": int},
    ),
    "sample__frame": Probe(
        args={"function": str, "file": str, "line": int, "stack_id": int, "index": int},
        more={"path": str},
    ),
    "line": Probe(
        args={"function": str, "file": str, "line": int},
        more={"path": str},
    ),
    "gvl__wait": Probe(
        args={"thread_id": int, "elapsed": int},
        more={},
    ),
    "request__start": Probe(
        args={"route": str, "method": str},
        more={"thread_id": int, "traceparent": str, "span_id": int, "parent_id": int, "template": str, "path": str, "own": int, "system": str, "queue": str, "url_scheme": str},
    ),
    "request__done": Probe(
        args={"route": str, "method": str, "status": int, "elapsed": int},
        more={"thread_id": int, "traceparent": str, "span_id": int, "parent_id": int, "template": str, "path": str, "own": int, "system": str, "queue": str, "url_scheme": str},
    ),
    "stats__by_request": Probe(
        args={},
        more={},
    ),
    "stats__done": Probe(
        args={"sequence": int, "elapsed": int, "cpu": int, "rows": int, "dropped": int},
        more={"samples_missed": int, "details_suppressed": int, "samples_taken": int, "looking": int, "cut": int},
    ),
    "status": Probe(
        args={"probe": str, "state": int, "reason": str},
        more={},
    ),
    "function__here": Probe(
        args={},
        more={"record": int, "layout": int, "epoch": int, "thread_id": int, "gil": int, "gil_bytes": int, "vm_frame": int, "vm_code": int, "vm_text": int, "vm_lines": int, "vm_object": int},
    ),
    "wait__stats": Probe(
        args={"what": str, "file": str, "line": int, "waits": int, "blocked": int},
        more={"path": str, "function": str, "vm_lock": int, "longest": int, "holder": str, "holder_file": str, "holder_line": int, "holder_id": int, "request": str, "request_number": int},
    ),
    "stack__frame": Probe(
        args={"function": str, "file": str, "line": int, "id": int, "parent": int},
        more={"path": str, "file_number": int, "defined": int, "flags": int},
    ),
    "stack__cpu": Probe(
        args={"stack_id": int, "thread_id": int, "count": int, "weight": int, "looked": int},
        more={"request": str, "request_number": int},
    ),
}
