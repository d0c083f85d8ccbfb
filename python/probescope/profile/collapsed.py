"""Writes one kind as collapsed stacks, a line for each path of each thread:
"process 4711;thread 4712 worker;main;Shop.pay 1200", in the kind's unit.
https://github.com/brendangregg/FlameGraph#2-fold-stacks
"""

from __future__ import annotations

import re
from typing import IO, Dict, List, Tuple

from probescope.profile.recording import Recording, Series

# Characters that end a frame or a line.
UNSAFE = re.compile("[;\x00-\x1f\x7f-\x9f]")


def write(recording: Recording, file: IO[bytes], kind: int = 0) -> None:
    """kind: index in recording.kinds."""
    sums: Dict[Tuple[int, int], int] = {}
    for cell in recording.cells():
        if cell.kind == kind:
            key = cell.node, cell.series
            sums[key] = sums.get(key, 0) + cell.weight
    heads = [_head(recording, series) for series in recording.series]
    for (node, series), weight in sorted(sums.items()):
        names = [UNSAFE.sub("_", frame.function) for frame in reversed(recording.stack(node))]
        file.write(f"{';'.join([*heads[series], *names])} {weight}\n".encode())


def _head(recording: Recording, series: Series) -> List[str]:
    """The process, the thread and the request as outermost frames."""
    if not series.pid:
        return []
    thread = f"thread {recording.thread_name(series)}" if series.thread_id else None
    return [UNSAFE.sub("_", name) for name in (f"process {series.pid}", thread, series.request) if name]
