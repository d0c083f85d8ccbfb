"""Collects the figures of a process while it is traced, in bounded memory."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from probescope.command.own_code import Frame
from probescope.profile.recording import Key, Kind, Recording

MOST_CELLS = 400_000
MOST_NODES = 400_000
MOST_TEXT = 64 << 20  # bytes of names
# As in a file that the gem reads; some are left for processes that begin later.
MOST_SERIES = (1 << 17) - 4096
MOST_BUCKETS = 1 << 17
BUCKET = 10**9  # ns
# The part of their kind below which figures are charged to a caller.
SMALL = 0.0001
# Flags of a frame.
OWN, WHAT = 1, 2
# Frames that stand for paths that are not known.
LOST = "(name was lost)"
MORE = "(more paths)"


class Recorder:
    """Makes a Recording.

    Call paths arrive with the ids that the process gives them. A path's description may arrive after
    its figures, or not at all. When there are too many cells, buckets of time become twice as long, as
    often as needed. When one bucket is left, the threads are merged, and then small figures are charged
    to their callers. No sum changes.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        most_cells: int = MOST_CELLS,
        most_nodes: int = MOST_NODES,
        most_text: int = MOST_TEXT,
    ) -> None:
        self._kinds = list(kinds)
        self._numbers = {kind.number: index for index, kind in enumerate(kinds)}
        self._most = most_cells, most_nodes, most_text
        self._recording = Recording(self._kinds)
        self._steps: Dict[str, str] = {}
        self._ids: Dict[int, int] = {0: 0}
        self._described: List[Optional[Tuple[int, str, int, int, int, int]]] = [None]
        self._paths: Dict[int, str] = {}
        self._requests: Dict[int, str] = {}
        self._names: Dict[str, str] = {}
        self._text = 0
        # Of the first bucket, on the process's clock; None before anything has arrived.
        self.begin: Optional[int] = None
        self._width = 1  # seconds of a bucket
        self._more: Optional[int] = None
        self._last_bucket = 0
        self._merged_threads = False

    def path(
        self, id_: int, parent: int, function: str, line: int, defined: int, flags: int, file: int
    ) -> None:
        """Takes the description of a path."""
        node = self._node(id_)
        if node == 0 or node == self._more or self._described[node]:
            return
        self._described[node] = parent, self._kept(function), line, defined, flags, file
        self._node(parent)

    def file(self, number: int, path: str) -> None:
        if number not in self._paths:
            self._paths[number] = self._kept(path)

    def request(self, number: int, text: str) -> None:
        if number not in self._requests:
            self._requests[number] = self._kept(text)

    def second(self, pid: int, begin: int, end: int, figures: Sequence[Sequence[int]]) -> None:
        """Takes the figures of the second that began and ended at these times, in ns of the clock that
        all processes have: (kind's number, path's id, thread, request, count, weight, looked). Figures
        of kinds that were not asked for are dropped.
        """
        if self.begin is None:
            self.begin = begin
        passed = max(0, (begin + end) // 2 - self.begin)
        while passed // self.bucket_ns >= MOST_BUCKETS:
            self._widen()
        bucket = passed // self.bucket_ns
        self._last_bucket = max(self._last_bucket, bucket)
        for kind, id_, thread, request, times, weight, looked in figures:
            if kind not in self._numbers:
                continue
            key = bucket, self._series(pid, thread, request), self._numbers[kind], self._node(id_)
            self._recording.add(key, times, weight, looked)
        while len(self._recording) > self._most[0]:
            self._shorten()

    @property
    def truncated(self) -> List[str]:
        """How the recording was shortened, one text for each kind of step."""
        return list(self._steps.values())

    def __len__(self) -> int:
        """The number of cells."""
        return len(self._recording)

    @property
    def bucket_ns(self) -> int:
        return BUCKET * self._width

    @property
    def lost_paths(self) -> int:
        """The number of paths whose description did not arrive."""
        used: Set[int] = {cell.node for cell in self._recording.cells()}
        return sum(1 for node in used if node and node != self._more and not self._described[node])

    def recording(self, metadata: Dict[str, Any]) -> Recording:
        """Returns a Recording of everything that has arrived. metadata: docs/schema/recording.json."""
        found = Recording(self._kinds, metadata)
        nodes = {0: 0}
        for cell in self._recording.cells():
            of = self._recording.series[cell.series]
            request = self._requests.get(int(of.request), LOST) if of.request else None
            series = found.series_number(of.pid, of.thread_id, request)
            key = cell.bucket, series, cell.kind, self._placed(found, cell.node, nodes)
            found.add(key, cell.times, cell.weight, cell.looked)
        return found

    def _kept(self, text: str) -> str:
        """Keeps a name once, and counts it towards the bound."""
        self._text += len(text)
        return self._names.setdefault(text, text)

    def _series(self, pid: int, thread: int, request: int) -> int:
        """A process may start a thread for each request, and routes may be without number."""
        full = len(self._recording.series) >= MOST_SERIES
        if full and not self._merged_threads:
            self._merge_threads()
        return self._recording.series_number(
            pid, 0 if self._merged_threads else thread, str(request) if request and not full else None
        )

    def _node(self, id_: int) -> int:
        """Returns the number of the node for an id. When there are too many, all new ones are one."""
        found = self._ids.get(id_)
        if found is None:
            if len(self._described) >= self._most[1] or self._text >= self._most[2]:
                return self._more_paths()
            self._described.append(None)
            found = self._ids[id_] = len(self._described) - 1
        return found

    def _more_paths(self) -> int:
        if self._more is None:
            self._steps["paths"] = f"paths that were new after the first {len(self._described)} are in {MORE}"
            self._described.append((0, MORE, 0, 0, WHAT, 0))
            self._more = len(self._described) - 1
        return self._more

    def _caller(self, node: int) -> int:
        described = self._described[node]
        return self._ids.get(described[0], 0) if described else 0

    def _placed(self, found: Recording, node: int, nodes: Dict[int, int]) -> int:
        """Returns the number in the new recording of a node, and adds it and its callers. nodes: those
        that have one. A chain of callers that ends in itself, which only a wrong description can make,
        ends at the root.
        """
        chain: Dict[int, None] = {}
        while node not in nodes and node not in chain:
            chain[node] = None
            node = self._caller(node)
        parent = nodes.get(node, 0)
        for one in reversed(chain):
            parent = nodes[one] = found.child(parent, found.frame(self._frame(one)))
        return parent

    def _frame(self, node: int) -> Frame:
        described = self._described[node]
        if not described:
            return Frame(LOST, "", 0, 0, False, True)
        _, function, line, defined, flags, file = described
        return Frame(
            function, self._paths.get(file, ""), line, defined, bool(flags & OWN), bool(flags & WHAT)
        )

    def _shorten(self) -> None:
        if self._last_bucket:
            self._widen()
        elif not self._merged_threads:
            self._merge_threads()
        else:
            self._merge_small()

    def _widen(self) -> None:
        self._width *= 2
        self._last_bucket //= 2
        self._steps["time"] = f"seconds are not told apart, but spans of {self._width} s"
        self._recording.merge(lambda key, _: (key[0] // 2, *key[1:]))

    def _merge_threads(self) -> None:
        self._merged_threads = True
        self._steps["threads"] = "threads are not told apart"

        def merged(key: Key, _: int) -> Key:
            of = self._recording.series[key[1]]
            return key[0], self._recording.series_number(of.pid, 0, of.request), key[2], key[3]

        self._recording.merge(merged)

    def _merge_small(self) -> None:
        """Charges the figures below a limit to the caller. The limit grows until there is room."""
        self._steps["small"] = "small figures are charged to their callers"
        limit = SMALL
        while len(self._recording) > self._most[0] * 3 // 4:
            least = [self._recording.total(kind)[1] * limit for kind in range(len(self._kinds))]

            def charged(key: Key, weight: int, least: Sequence[float] = least) -> Key:
                node = self._caller(key[3]) if weight <= least[key[2]] else key[3]
                return key[0], key[1], key[2], node

            self._recording.merge(charged)
            limit *= 2
