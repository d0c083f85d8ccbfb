"""Writes a Recording for speedscope: a profile for each kind and thread, in the order of time.
https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts
"""

from __future__ import annotations

import json
from typing import IO, Any, Dict, Iterator, List, Tuple

import probescope
from probescope.profile.recording import Recording, Series

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes"}
# Threads of a kind with profiles of their own. The others are in one profile.
MOST_THREADS = 200
# Frames of all stacks. Beyond that, stacks of a thread are merged over time.
MOST_FRAMES = 20_000_000

# (bucket, node, weight)
Weight = Tuple[int, int, int]


def write(recording: Recording, file: IO[bytes], kind: int = 0, most_frames: int = MOST_FRAMES) -> None:
    """kind: for formats with one kind."""
    head = {
        "$schema": SCHEMA,
        "exporter": f"probescope@{probescope.status().get('version', '')}",
        "name": _title(recording),
        "activeProfileIndex": 0,
        "shared": {"frames": _frames(recording)},
    }
    file.write(_json(head)[:-1] + b',"profiles":[')
    for index, (name, unit, cells) in enumerate(_profiles(recording, most_frames)):
        file.write(b"," if index else b"")
        _profile(recording, file, name, unit, cells)
    file.write(b"]}\n")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _title(recording: Recording) -> str:
    pids = [process["pid"] for process in recording.metadata.get("processes", [])]
    return f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, pids))}" if pids else "a profile"


def _frames(recording: Recording) -> List[Dict[str, Any]]:
    """A stack without a frame, which another tool may write, has the last frame."""
    told = [{"name": one.function, "file": one.path, "line": one.line} for one in recording.frames]
    known = [{key: value for key, value in one.items() if value not in ("", 0)} for one in told]
    return [*known, {"name": "(no stack)"}]


def _profiles(recording: Recording, most_frames: int) -> Iterator[Tuple[str, str, List[Weight]]]:
    depths = [0]
    for parent in recording.parents[1:]:
        depths.append(depths[parent] + 1)
    merged = sum(depths[cell.node] for cell in recording.cells()) > most_frames
    for index, kind in enumerate(recording.kinds):
        for thread, cells in _threads(recording, index).items():
            name = f"{kind.name}: {thread}{' (merged over time)' if merged else ''}"
            yield name, UNITS.get(kind.unit, "none"), _in_order(cells, merged)


def _threads(recording: Recording, kind: int) -> Dict[str, List[Weight]]:
    """Returns {name: cells}, the thread with the largest weight first."""
    found: Dict[Tuple[int, int], List[Weight]] = {}
    for cell in recording.cells():
        if cell.kind == kind and cell.weight > 0:
            of = recording.series[cell.series]
            found.setdefault((of.pid, of.thread_id), []).append((cell.bucket, cell.node, cell.weight))
    ordered = sorted(found.items(), key=lambda one: (-sum(cell[2] for cell in one[1]), one[0]))
    named = {_name(recording, *thread): cells for thread, cells in ordered[:MOST_THREADS]}
    others = [cell for _, cells in ordered[MOST_THREADS:] for cell in cells]
    return {**named, "other threads": others} if others else named


def _name(recording: Recording, pid: int, thread_id: int) -> str:
    if not pid:
        return "all threads"
    thread = recording.thread_name(Series(pid, thread_id, None))
    return f"process {pid}, thread {thread}" if thread_id else f"process {pid}"


def _in_order(cells: List[Weight], merged: bool) -> List[Weight]:
    sums: Dict[Tuple[int, int], int] = {}
    for bucket, node, weight in cells:
        key = 0 if merged else bucket, node
        sums[key] = sums.get(key, 0) + weight
    return [(*key, sums[key]) for key in sorted(sums)]


def _profile(recording: Recording, file: IO[bytes], name: str, unit: str, cells: List[Weight]) -> None:
    end = sum(weight for _, _, weight in cells)
    head = {"type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": end}
    file.write(_json(head)[:-1] + b',"samples":[')
    for index, (_, node, _) in enumerate(cells):
        file.write((b"," if index else b"") + _json(_stack(recording, node)))
    file.write(b'],"weights":' + _json([weight for _, _, weight in cells]) + b"}")


def _stack(recording: Recording, node: int) -> List[int]:
    """Returns the numbers of the frames, the outermost one first."""
    if not node:
        return [len(recording.frames)]
    found = []
    while node:
        found.append(recording.node_frames[node])
        node = recording.parents[node]
    return found[::-1]
