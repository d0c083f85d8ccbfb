"""The rows of a recording's tables.

by own    what libraries cost is charged to the nearest function of the application that called them.
          What has no such caller is in one row, outside.
by self   to the function that ran
by total  the function and everything that it calls; recursion counts once
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from probescope.command.own_code import Frame
from probescope.command.result import ratio
from probescope.profile.recording import Recording

BY = ("own", "self", "total")
# Called functions that a row lists.
CALLED = 10


class Function(NamedTuple):
    """A function: what recordings of two versions have in common."""

    name: str
    path: str
    defined: int


class Row:
    """The figures of a function; of what is outside where it is None. called: the weight of the
    function's own code is under None.
    """

    def __init__(self, function: Optional[Function]) -> None:
        self.function = function
        self.times = self.weight = self.total = 0
        self.lines: Dict[int, int] = {}
        self.called: Dict[Optional[Function], int] = {}


def has_own(recording: Recording) -> bool:
    """Whether anything is the application's."""
    return any(frame.own for frame in recording.frames)


def _known(value: Any) -> Any:
    return None if value in ("", 0) else value


def _order(function: Optional[Function]) -> List[str]:
    return [str(part) for part in function] if function else []


class Summary:
    def __init__(self, recording: Recording, kind: int, by: str) -> None:
        """kind: index in recording.kinds. by: one of BY."""
        self._recording = recording
        self._kind = kind
        self._by = by
        self._charged: Dict[int, List[Optional[Function]]] = {}
        self.times, self.weight, self.looked = recording.total(kind)
        self._rows: Optional[List[Row]] = None

    def functions(self, node: int) -> List[Optional[Function]]:
        """Returns the functions to which the figures of a node are charged: by total, each function of
        its stack. None is what is outside.
        """
        if node not in self._charged:
            frames = self._recording.stack(node)
            found: List[Optional[Frame]]
            if self._by == "own":
                found = [next((frame for frame in frames if frame.own), None)]
            elif self._by == "self":
                found = [frames[0] if frames else None]
            else:
                found = [*frames] if frames else [None]
            self._charged[node] = list(dict.fromkeys(function_of(frame) for frame in found))
        return self._charged[node]

    def rows(self) -> List[Row]:
        """Returns the rows, the largest one first."""
        if self._rows is None:
            sums: Dict[int, Tuple[int, int]] = {}
            for cell in self._recording.cells():
                if cell.kind == self._kind:
                    times, weight = sums.get(cell.node, (0, 0))
                    sums[cell.node] = times + cell.times, weight + cell.weight
            found: Dict[Optional[Function], Row] = {}
            for node, (times, weight) in sums.items():
                self._charge(found, node, times, weight)
            self._rows = sorted(found.values(), key=self._place)
        return self._rows

    def shown(self) -> List[Dict[str, Any]]:
        """Returns the rows for JSON and for tables."""
        return [
            {
                "function": row.function.name if row.function else None,
                "file": _known(row.function.path) if row.function else None,
                "line": _known(row.function.defined) if row.function else None,
                "outside": row.function is None,
                "self_share": self._share(row.weight),
                "total_share": self._share(row.total),
                "count": row.times,
                "weight": row.weight,
                "unit": self._recording.kinds[self._kind].unit,
                "line_at": _line_at(row),
                "called": self._called(row),
            }
            for row in self.rows()
        ]

    def _place(self, row: Row) -> Any:
        return -(row.total if self._by == "total" else row.weight), -row.times, _order(row.function)

    def _share(self, weight: int) -> Optional[float]:
        return ratio(weight, self.weight)

    def _charge(self, found: Dict[Optional[Function], Row], node: int, times: int, weight: int) -> None:
        frames = self._recording.stack(node)
        if self._by == "own":
            at = next((i for i, frame in enumerate(frames) if frame.own), None)
        else:
            at = 0 if frames else None
        row = _row(found, None if at is None else frames[at])
        row.times += times
        row.weight += weight
        if at is not None:
            line = frames[at].line
            row.lines[line] = row.lines.get(line, 0) + weight
            called = function_of(frames[at - 1]) if at else None
            if self._by == "own":
                row.called[called] = row.called.get(called, 0) + weight
        elif frames:
            called = function_of(frames[0])
            row.called[called] = row.called.get(called, 0) + weight
        self._total(found, [*frames] if at is not None else [None], weight)

    def _total(
        self, found: Dict[Optional[Function], Row], frames: List[Optional[Frame]], weight: int
    ) -> None:
        """Adds the weight to every function of the stack, once: by own, to those of the application."""
        seen = set()
        for frame in frames:
            if frame and not frame.own and self._by == "own":
                continue
            row = _row(found, frame)
            if row.function not in seen:
                row.total += weight
            seen.add(row.function)

    def _called(self, row: Row) -> List[Dict[str, Any]]:
        """What the function called, or what is outside; the function's own code is not in it."""
        known = [(function, weight) for function, weight in row.called.items() if function]
        largest = sorted(known, key=lambda one: (-one[1], _order(one[0])))[:CALLED]
        return [
            {
                "function": function.name,
                "file": _known(function.path),
                "line": _known(function.defined),
                "share": self._share(weight),
            }
            for function, weight in largest
        ]


def function_of(frame: Optional[Frame]) -> Optional[Function]:
    return Function(frame.function, frame.path, frame.defined) if frame else None


def _row(found: Dict[Optional[Function], Row], frame: Optional[Frame]) -> Row:
    function = function_of(frame)
    return found.setdefault(function, Row(function))


def _line_at(row: Row) -> Optional[Dict[str, Any]]:
    """The line with most of the weight."""
    line = max(row.lines, key=lambda number: (row.lines[number], -number), default=0)
    return {"file": _known(row.function.path), "line": line} if row.function and line > 0 else None
