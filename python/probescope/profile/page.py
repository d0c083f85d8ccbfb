"""Writes a Recording as a page: page/page.gen.html, with the recording in it.
lib/probescope/profile/page.rb describes the data.
"""

from __future__ import annotations

import array
import base64
import gzip
import json
import sys
from pathlib import Path
from typing import IO, Any, Dict, List, Optional, Sequence, Tuple

from probescope.profile.recording import Recording

HERE = Path(__file__).resolve().parent
# In the package, or in the checkout that it runs from.
TEMPLATES = (HERE / "page.gen.html", HERE.parents[2] / "page" / "page.gen.html")
DATA = "<!--DATA-->"
MAGIC = b"PSPAGE1\0"
OWN, WHAT = 1, 2
# {type: (type code of array, size)}
TYPES = {"u8": ("B", 1), "u32": ("I", 4), "f64": ("d", 8)}
CELLS = (
    *(("bucket", "u32"), ("series", "u32"), ("kind", "u8"), ("node", "u32")),
    *(("count", "f64"), ("weight", "f64"), ("looked", "f64")),
)
Column = Tuple[str, str, Sequence[int]]


def write(recording: Recording, file: IO[bytes], kind: int = 0) -> None:
    """kind: for formats with one kind."""
    _insert(file, {"data": _block(recording)})


def compare(before: Recording, after: Recording, file: IO[bytes], diff: Dict[str, Any]) -> None:
    """Writes the page of a comparison."""
    _insert(file, {"before": _block(before), "data": _block(after, diff)})


def _insert(file: IO[bytes], blocks: Dict[str, bytes]) -> None:
    """blocks: {id of the element: text}."""
    template = next(path for path in TEMPLATES if path.exists())
    head, _, tail = template.read_text(encoding="utf-8").partition(DATA)
    file.write(head.encode())
    for name, text in blocks.items():
        file.write(b'<script type="application/octet-stream" id="%s">%s</script>\n' % (name.encode(), text))
    file.write(tail.encode())


def _block(recording: Recording, diff: Optional[Dict[str, Any]] = None) -> bytes:
    """Returns the text of a block of data."""
    columns = _columns(recording)
    told = json.dumps(_head(recording, columns, diff), ensure_ascii=False, separators=(",", ":")).encode()
    head = MAGIC + len(told).to_bytes(4, "little") + told
    data = head + _padding(len(head)) + b"".join(_bytes(type_, values) for _, type_, values in columns)
    return base64.b64encode(gzip.compress(data, 6, mtime=0))


def _head(recording: Recording, columns: List[Column], diff: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    strings: Dict[str, int] = {}

    def string(text: str) -> int:
        return strings.setdefault(text, len(strings))

    found = {
        "metadata": recording.metadata,
        "kinds": [kind.described() for kind in recording.kinds],
        "frames": [
            [
                *(string(one.function), string(one.path), one.line, one.defined),
                (OWN if one.own else 0) | (WHAT if one.what else 0),
            ]
            for one in recording.frames
        ],
        "series": [
            [one.pid, one.thread_id, string(one.request) if one.request else -1] for one in recording.series
        ],
        "begin_ms": recording.begin_ns / 1e6,
        "duration_ns": recording.duration_ns,
        "bucket_ns": recording.bucket_ns,
        "columns": _places(columns),
    }
    return {**found, **({"diff": diff} if diff else {}), "strings": list(strings)}


def _columns(recording: Recording) -> List[Column]:
    """In the order of the keys, equal values of a column are neighbours, which makes the page small."""
    cells = sorted((cell.bucket, cell.series, cell.kind, cell.node, *cell[4:]) for cell in recording.cells())
    columns = list(zip(*cells)) or [()] * len(CELLS)
    nodes: List[Column] = [
        ("nodes.parent", "u32", recording.parents),
        ("nodes.frame", "u32", [max(0, frame) for frame in recording.node_frames]),
    ]
    return nodes + [(f"cells.{name}", type_, values) for (name, type_), values in zip(CELLS, columns)]


def _places(columns: List[Column]) -> Dict[str, Any]:
    offset, found = 0, {}
    for name, type_, values in columns:
        found[name] = {"offset": offset, "type": type_, "length": len(values)}
        size = len(values) * TYPES[type_][1]
        offset += size + len(_padding(size))
    return found


def _bytes(type_: str, values: Sequence[int]) -> bytes:
    packed = array.array(TYPES[type_][0], values)
    if sys.byteorder == "big":
        packed.byteswap()
    data = packed.tobytes()
    return data + _padding(len(data))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % 8)
