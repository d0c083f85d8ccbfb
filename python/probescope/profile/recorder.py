"""Collects the figures of a process while it is traced, in bounded memory."""

from __future__ import annotations

from typing import Any, Callable, Container, Dict, List, Optional, Sequence, Tuple

from probescope.command.own_code import Frame
from probescope.profile.recording import Key, Kind, Recording, Series

MOST_CELLS = 400_000
MOST_NODES = 400_000
MOST_TEXT = 64 << 20  # bytes of names
# As in a file that the gem reads; some are left for processes that begin later.
MOST_SERIES = (1 << 17) - 4096
MOST_BUCKETS = 1 << 17
MOST_DEPTH = 300  # frames of a path; a process cuts its stacks at 256
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
        most_series: int = MOST_SERIES,
    ) -> None:
        self._kinds = list(kinds)
        self._numbers = {kind.number: index for index, kind in enumerate(kinds)}
        self._most = most_cells, most_nodes, most_text
        self._most_series = most_series
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
        # The number of figures of processes for which there was no room.
        self.dropped = 0

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
        self._name(self._paths, number, path)

    def request(self, number: int, text: str) -> None:
        self._name(self._requests, number, text)

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
            series = self._series(pid, thread, request)
            if series is None:
                self.dropped += 1
                continue
            key = bucket, series, self._numbers[kind], self._node(id_)
            self._recording.add(key, times, weight, looked)
        while len(self._recording) > self._most[0] and self._shorten():
            pass

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
        """The number of paths, also of callers, whose description did not arrive."""
        used = {0: None}
        for cell in self._recording.cells():
            used.update(self._chain(cell.node, used))
        return sum(1 for node in used if node and not self._described[node])

    def recording(self, metadata: Dict[str, Any]) -> Recording:
        """Returns a Recording of everything that has arrived. metadata: docs/schema/recording.json."""
        found = Recording(self._kinds, metadata)
        nodes, depths = {0: 0}, {0: 0}
        for cell in self._recording.cells():
            of = self._recording.series[cell.series]
            request = self._requests.get(int(of.request), LOST) if of.request else None
            series = found.series_number(of.pid, of.thread_id, request)
            key = cell.bucket, series, cell.kind, self._placed(found, cell.node, nodes, depths)
            found.add(key, cell.times, cell.weight, cell.looked)
        return found

    def _kept(self, text: str) -> str:
        """Keeps a name once, and counts it towards the bound."""
        if text not in self._names:
            self._names[text] = text
            self._text += len(text.encode(errors="replace"))
        return self._names[text]

    def _name(self, names: Dict[int, str], number: int, text: str) -> None:
        if number not in names and len(names) < self._most[1] and self._text < self._most[2]:
            names[number] = self._kept(text)

    def _series(self, pid: int, thread: int, request: int) -> Optional[int]:
        """Returns the number of the series, None where there is no room. A process may start a thread for
        each request, and routes and processes may be without number.
        """
        if not self._merged_threads and self._is_full:
            self._merge_threads()
        thread = 0 if self._merged_threads else thread
        one = Series(pid, thread, str(request) if request and not self._is_full else None)
        if not self._is_full or self._recording.has_series(one):
            return self._recording.series_number(*one)
        self._steps["processes"] = "there is no room for the figures of more processes"
        return None

    @property
    def _is_full(self) -> bool:
        return len(self._recording.series) >= self._most_series

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

    def _chain(self, node: int, known: Container[int]) -> Dict[int, None]:
        """Returns a node and its callers, without those that are known. A chain of callers that ends in
        itself, which only a wrong description can make, ends there.
        """
        found: Dict[int, None] = {}
        while node not in known and node not in found:
            found[node] = None
            node = self._caller(node)
        return found

    def _placed(self, found: Recording, node: int, nodes: Dict[int, int], depths: Dict[int, int]) -> int:
        """Returns the number in the new recording of a node, to which its callers are added. nodes:
        {number: number in the new recording}. depths: of the nodes there.
        """
        for one in reversed(self._chain(node, nodes)):
            parent = nodes.get(self._caller(one), 0)
            deep = depths[parent] >= MOST_DEPTH
            nodes[one] = parent if deep else found.child(parent, found.frame(self._frame(one)))
            depths.setdefault(nodes[one], depths[parent] + 1)
        return nodes[node]

    def _frame(self, node: int) -> Frame:
        described = self._described[node]
        if not described:
            return Frame(LOST, "", 0, 0, False, True)
        _, function, line, defined, flags, file = described
        return Frame(
            function, self._paths.get(file, ""), line, defined, bool(flags & OWN), bool(flags & WHAT)
        )

    def _shorten(self) -> bool:
        """Returns whether a further step may help."""
        if self._last_bucket:
            self._widen()
        elif not self._merged_threads:
            self._merge_threads()
        else:
            return self._merge_small()
        return True

    def _widen(self) -> None:
        self._width *= 2
        self._last_bucket //= 2
        self._steps["time"] = f"seconds are not told apart, but spans of {self._width} s"
        self._recording.merge(lambda key, _: (key[0] // 2, *key[1:]))

    def _merge_threads(self) -> None:
        self._merged_threads = True
        self._steps["threads"] = "threads are not told apart"
        self._recording.merge_series(lambda of: of._replace(thread_id=0))

    def _merge_small(self) -> bool:
        """Charges the figures below a limit to the caller. The limit grows until there is room. When all
        figures are below it, they are charged to no function.
        """
        self._steps["small"] = "small figures are charged to their callers"
        limit = SMALL
        while len(self._recording) > self._most[0] * 3 // 4 and limit < 2:
            above = self._caller if limit < 1 else lambda _: 0
            least = [self._recording.total(kind)[1] * limit for kind in range(len(self._kinds))]

            def charged(
                key: Key, weight: int, least: Sequence[float] = least, above: Callable[[int], int] = above
            ) -> Key:
                return key[0], key[1], key[2], above(key[3]) if weight <= least[key[2]] else key[3]

            self._recording.merge(charged)
            limit *= 2
        return limit < 2
