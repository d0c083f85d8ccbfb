"""The functions whose figures differ between two recordings.

The figures of both are made comparable first:

per time  by the wall time of all processes: weight in each second of a process
per cpu   by the kind's whole weight: shares

Functions are matched by name and path, because an edit moves lines. A row has changed only if the spans
of time of both recordings differ by more than chance (change.py), and by a share of the first
recording's whole.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Optional, Tuple

from probescope.command.errors import Usage
from probescope.profile import change
from probescope.profile.recording import Recording
from probescope.profile.summary import Function, Summary

PER = ("time", "cpu")
# Spans of time into which a recording is divided: long enough that one is like the next one.
SPANS = 20
# The part of the last bucket that the recording may lack: processes flush a moment before or after a
# second has passed.
TOLERANCE = 0.1

Name = Tuple[Optional[str], Optional[str]]


class Side:
    """A function in one recording. spans: its weight in each span."""

    def __init__(self, function: Optional[Function], spans: int) -> None:
        self.function = function
        self.weight = 0
        self.spans = [0] * spans


class Spans:
    """Spans of time of a recording have the same number of buckets, as many as possible. Buckets that are
    left over at the end are in no span.

    number: of spans; 0 in a file of another tool. buckets: of a span. parts: lengths of a span in the
    recording.
    """

    def __init__(self, recording: Recording) -> None:
        length = recording.duration_ns / recording.bucket_ns
        whole = 0 if recording.foreign else math.floor(length + TOLERANCE)
        self.buckets = max(1, math.ceil(whole / SPANS))
        self.number = whole // self.buckets
        self.parts = length / self.buckets


class Row(NamedTuple):
    """before, after: normalised weights. share: the difference as a part of the first one's whole."""

    name: Optional[str]
    path: Optional[str]
    defined: Optional[int]
    before: float
    after: float
    difference: float
    share: Optional[float]
    changed: bool


class Diff:
    def __init__(self, before: Recording, after: Recording, by: str, per: str, least: float) -> None:
        """least: the share of the whole by which a row has to differ. Raises Usage."""
        self._recordings = before, after
        self.by = by
        self.per = per
        self._least = least
        self._factors: Dict[Tuple[int, str], float] = {}
        # The weight of everything in each span.
        self._wholes: Dict[Tuple[int, str], List[int]] = {}
        self._rows: Dict[str, List[Row]] = {}
        self._spans = [Spans(one) for one in self._recordings]
        self._check()

    @property
    def too_short(self) -> List[str]:
        """Returns a text for each recording that has too few spans of time to tell a change from
        chance.
        """
        return [
            f"the {which} recording has {of.number} span{'' if of.number == 1 else 's'} of time, "
            f"and {change.LEAST} are needed to tell a change from chance"
            for which, of in zip(("first", "second"), self._spans)
            if of.number < change.LEAST
        ]

    @property
    def kinds(self) -> List[str]:
        """The names of the kinds that both recordings have."""
        others = {kind.name for kind in self._recordings[1].kinds}
        return [kind.name for kind in self._recordings[0].kinds if kind.name in others]

    def unit(self, kind: str) -> str:
        return self._recordings[0].kinds[self._index(0, kind)].unit

    def wholes(self, kind: str) -> Tuple[float, float]:
        """The normalised weight of the whole kind, before and after."""
        before, after = (
            self._recordings[side].total(self._index(side, kind))[1] * self._factor(side, kind)
            for side in (0, 1)
        )
        return before, after

    def factors(self, kind: str) -> Tuple[float, float]:
        """The factors by which weights are multiplied, which say what the figures are per."""
        return self._factor(0, kind), self._factor(1, kind)

    def rows(self, kind: str) -> List[Row]:
        """Returns the rows, the largest difference first."""
        if kind not in self._rows:
            sides = [self._side(side, kind) for side in (0, 1)]
            whole = self.wholes(kind)[0]
            names = dict.fromkeys([*sides[0], *sides[1]])
            rows = [self._row(kind, [one.get(name) for one in sides], whole) for name in names]
            rows.sort(key=lambda row: (not row.changed, -abs(row.difference), row.name or "", row.path or ""))
            self._rows[kind] = rows
        return self._rows[kind]

    def _check(self) -> None:
        if not self.kinds:
            raise Usage("the recordings have no kind in common", "two recordings of one kind")
        for recording, which in zip(self._recordings, ("first", "second")):
            if self.per == "time" and not _wall_ns(recording):
                raise Usage(f"the {which} recording tells no wall time", "--per cpu")

    def _index(self, side: int, kind: str) -> int:
        return [one.name for one in self._recordings[side].kinds].index(kind)

    def _factor(self, side: int, kind: str) -> float:
        if (side, kind) not in self._factors:
            recording = self._recordings[side]
            of_the_kind = recording.total(self._index(side, kind))[1]
            whole = _wall_ns(recording) / 1e9 if self.per == "time" else of_the_kind
            self._factors[side, kind] = 1 / whole if whole else 0.0
        return self._factors[side, kind]

    def _row(self, kind: str, sides: List[Optional[Side]], whole: float) -> Row:
        before, after = (
            (one.weight if one else 0) * self._factor(side, kind) for side, one in enumerate(sides)
        )
        function = next(one.function for one in reversed(sides) if one)
        share = (after - before) / whole if whole else None
        return Row(
            function.name if function else None,
            function.path if function else None,
            function.defined if function else None,
            before,
            after,
            after - before,
            share,
            self.enough(share) and self._changed(kind, sides),
        )

    def enough(self, share: Optional[float]) -> bool:
        """Says whether a difference is so large a part of the first recording's whole. share: as in Row."""
        return share is not None and abs(share) >= self._least

    def _changed(self, kind: str, sides: List[Optional[Side]]) -> bool:
        before, after = (self._values(kind, side, one) for side, one in enumerate(sides))
        return min(len(before), len(after)) >= change.LEAST and change.welch(before, after)

    def _values(self, kind: str, side: int, one: Optional[Side]) -> List[float]:
        """The normalised weight of each span, as if the whole recording were like it. Shares are those
        of the span, so that a load that goes up and down is no difference.
        """
        of = self._spans[side]
        weights = one.spans if one else [0] * of.number
        if self.per == "cpu":
            return [weight / whole for weight, whole in zip(weights, self._wholes[side, kind]) if whole > 0]
        return [weight * of.parts * self._factor(side, kind) for weight in weights]

    def _side(self, side: int, kind: str) -> Dict[Name, Side]:
        """Of several functions with one name and path, the figures are added up."""
        recording, index = self._recordings[side], self._index(side, kind)
        charged = Summary(recording, index, self.by)
        of = self._spans[side]
        found: Dict[Name, Side] = {}
        wholes = self._wholes[side, kind] = [0] * of.number
        for cell in recording.cells():
            if cell.kind != index:
                continue
            span = cell.bucket // of.buckets
            if span < of.number:
                wholes[span] += cell.weight
            for function in charged.functions(cell.node):
                name = (function.name, function.path) if function else (None, None)
                one = found.setdefault(name, Side(function, of.number))
                one.weight += cell.weight
                if span < of.number:
                    one.spans[span] += cell.weight
        return found


def _wall_ns(recording: Recording) -> int:
    return sum(process.get("wall_ns") or 0 for process in recording.metadata.get("processes", []))
