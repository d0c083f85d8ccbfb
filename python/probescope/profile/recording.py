"""Call paths with weights."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from probescope.command.own_code import Frame, Own, choose

# Type and unit of a value in a pprof file.
Type = Tuple[str, str]


class Kind(NamedTuple):
    """What a recording counts.

    number: in the lines of stacks.bt; None for a kind of another tool's file. looked is None where the
    count says how many stacks were read, and counts is None where the file has no count.
    """

    name: str
    weighs: Type
    counts: Optional[Type] = None
    looked: Optional[Type] = None
    number: Optional[int] = None

    @property
    def unit(self) -> str:
        return self.weighs[1]

    @property
    def types(self) -> List[Type]:
        """The types of a sample's values, in their order."""
        return [one for one in (self.counts, self.weighs, self.looked) if one]

    def described(self) -> Dict[str, Any]:
        """The kind in metadata. A later version that knows other kinds can be read by this."""
        counts, looked = (list(one) if one else None for one in (self.counts, self.looked))
        return {
            "name": self.name,
            "unit": self.unit,
            "counts": counts,
            "weighs": list(self.weighs),
            "looked": looked,
        }


# Every kind that stacks.bt counts.
KINDS = (Kind("cpu", ("cpu", "nanoseconds"), ("samples", "count"), number=1),)


class Series(NamedTuple):
    """Where stacks were read. thread_id is 0 and request is None where the recording does not split by
    them. request: "METHOD PATH".
    """

    pid: int
    thread_id: int
    request: Optional[str]


class Cell(NamedTuple):
    """The figures of a call path in one bucket of time. times: the number of events. looked: the number
    of stacks that were read for them.
    """

    bucket: int
    series: int
    kind: int
    node: int
    times: int
    weight: int
    looked: int


# Bucket, series, kind and node of a cell.
Key = Tuple[int, int, int, int]


class Recording:
    """Call paths with weights.

    A call path is a node of a tree: the frame that runs, and the node of its caller. Node 0 is the root
    and has no frame; a parent's number is below its children's. metadata: docs/schema/recording.json;
    empty for a file of another tool. begin_ns: the time of day at which bucket 0 begins.
    """

    def __init__(self, kinds: List[Kind], metadata: Optional[Dict[str, Any]] = None) -> None:
        self.kinds = kinds
        self.metadata = metadata or {}
        self.begin_ns = self.duration_ns = 0
        self.bucket_ns: int = self.metadata.get("bucket_ns", 10**9)
        self.frames: List[Frame] = []
        self.parents = [0]
        self.node_frames = [-1]
        self.series: List[Series] = []
        self._cells: Dict[Key, List[int]] = {}
        self._frame_numbers: Dict[Frame, int] = {}
        self._node_numbers: Dict[Tuple[int, int], int] = {}
        self._series_numbers: Dict[Series, int] = {}

    @property
    def foreign(self) -> bool:
        """Whether another tool has made it."""
        return not self.metadata

    def frame(self, frame: Frame) -> int:
        """Returns the number of the frame."""
        found = self._frame_numbers.setdefault(frame, len(self.frames))
        if found == len(self.frames):
            self.frames.append(frame)
        return found

    def child(self, parent: int, frame: int) -> int:
        """Returns the number of the node for a frame that a node called."""
        found = self._node_numbers.setdefault((parent, frame), len(self.parents))
        if found == len(self.parents):
            self.parents.append(parent)
            self.node_frames.append(frame)
        return found

    def series_number(self, pid: int, thread_id: int, request: Optional[str]) -> int:
        one = Series(pid, thread_id, request)
        found = self._series_numbers.setdefault(one, len(self.series))
        if found == len(self.series):
            self.series.append(one)
        return found

    def has_series(self, one: Series) -> bool:
        return one in self._series_numbers

    def add(self, key: Key, times: int, weight: int, looked: int) -> None:
        """Adds figures to a cell. The kind in a key is an index in self.kinds."""
        found = self._cells.get(key)
        if found:
            found[0] += times
            found[1] += weight
            found[2] += looked
        else:
            self._cells[key] = [times, weight, looked]

    def __len__(self) -> int:
        return len(self._cells)

    def cells(self) -> Iterator[Cell]:
        for key, figures in self._cells.items():
            yield Cell(*key, *figures)

    def keys_by_node(self) -> Dict[int, List[Key]]:
        """Returns {number of the node: its cells' keys, in the order of time}."""
        found: Dict[int, List[Key]] = {}
        for key in sorted(self._cells):
            found.setdefault(key[3], []).append(key)
        return found

    def figures(self, key: Key) -> List[int]:
        """Returns count, weight and looked."""
        return self._cells[key]

    def total(self, kind: int) -> Tuple[int, int, int]:
        """Returns count, weight and looked of all cells of a kind."""
        sums = [0, 0, 0]
        for key, figures in self._cells.items():
            if key[2] == kind:
                for i, figure in enumerate(figures):
                    sums[i] += figure
        return sums[0], sums[1], sums[2]

    def stack(self, node: int) -> List[Frame]:
        """Returns the frames of a node, the innermost one first."""
        found = []
        while node:
            found.append(self.frames[self.node_frames[node]])
            node = self.parents[node]
        return found

    def choose_own(self, asked: List[str], entry: Sequence[str] = ()) -> List[str]:
        """Chooses which frames are the application's, of those that the process or the last choice
        counts as such. asked: globs of --own. entry: globs of the package that was started. Returns a
        text for each glob that no file matches. Where no file matches any of them, the choice stays.
        """
        weights = [0] * len(self.parents)
        for key, figures in self._cells.items():
            if key[2] == 0:
                weights[key[3]] += figures[1]
        paths = [
            (
                self.frames[self.node_frames[node]],
                self.parents[node] - 1 if self.parents[node] else None,
                weights[node],
            )
            for node in range(1, len(self.parents))
        ]
        own = choose(asked, paths, entry)
        texts = own.warnings(frame.path for frame in self.frames if not frame.what)
        if own.matches_nothing:
            return [*texts, "no file matches --own, so the application's files are the same as before"]
        self.frames = [frame._replace(own=own.is_own(frame)) for frame in self.frames]
        if not self.foreign:
            self.metadata["own"] = self._chosen(own, asked)
        return texts

    def _chosen(self, own: Own, asked: List[str]) -> Dict[str, Any]:
        """Returns what the metadata say of a choice. Files are taken away from the last choice, too."""
        last = self.metadata.get("own", own.to_json()) if own.by == "process" else own.to_json()
        without = [glob for glob in asked if glob.startswith("!")]
        return {**last, "globs": list(dict.fromkeys([*last["globs"], *without]))}

    def thread_name(self, series: Series) -> str:
        """The number and the name of a series' thread: "4712 worker"."""
        for process in self.metadata.get("processes", []):
            if process["pid"] == series.pid:
                name = process["threads"].get(str(series.thread_id))
                return f"{series.thread_id} {name}" if name is not None else str(series.thread_id)
        return str(series.thread_id)

    def merge_series(self, replaced: Callable[[Series], Series]) -> None:
        """Replaces every series."""
        old, self.series, self._series_numbers = self.series, [], {}
        numbers = [self.series_number(*replaced(one)) for one in old]
        self.merge(lambda key, _: (key[0], numbers[key[1]], key[2], key[3]))

    def merge(self, key_of: Callable[[Key, int], Key]) -> None:
        """Replaces every cell by the one with the key that key_of returns. It receives the key and the
        weight. Cells that become equal are added up, so no sum changes.
        """
        old, self._cells = self._cells, {}
        for key, (times, weight, looked) in old.items():
            self.add(key_of(key, weight), times, weight, looked)
