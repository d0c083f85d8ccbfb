"""Reads the lines of stacks.bt, whose head describes them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from probescope.command.result import Numbered
from probescope.command.text import without_mark

# The most figures of one second that are kept. A process has at most 16,384 cells.
MOST = 1 << 17
# {mark: how many figures such a line has behind the process and its number}
FIGURES = {"f": 6, "p": 1, "r": 1, "s": 7, "=": 8}
# How many lines may be missing before a line that has not arrived is given up.
PATIENCE = 4096

Line = Tuple[str, List[int], str]


class StackLines:
    """Hands the figures of each second to a Recorder, in the order in which the process has fired them.
    Lines arrive out of order, because bpftrace reads one buffer per CPU.
    """

    def __init__(self, recorder: Any, pid: int, second: Callable[[Sequence[int]], None]) -> None:
        """recorder: has the methods path, file, request and second of Recorder. pid: the process, for
        which bpftrace may print another number. second: called with the threads of each second.
        """
        self._recorder = recorder
        self._pid = pid
        self._second = second
        self._next = 1
        self._held: Dict[int, Line] = {}
        self._figures: List[List[int]] = []
        self.numbered = Numbered()
        # When the first second began and the last one ended; None before.
        self.began: Optional[int] = None
        self.end = 0
        # {kind's number: sum of the seconds}
        self.weights: Dict[int, int] = defaultdict(int)
        # The number of figures beyond MOST.
        self.beyond = 0
        # The sums of the interval that a line "=" tells.
        self.wall_ns = self.cpu_ns = self.looking_ns = self.dropped = self.missed = self.taken = 0

    def receive(self, text: str) -> None:
        head, _, name = text.partition("\t")
        mark, *words = head.split() or [""]
        try:
            _, number, *figures = map(int, words)
        except ValueError:
            return
        if FIGURES.get(mark) != len(figures):
            return
        if number < self._next:  # was given up
            return
        self.numbered.arrived(number)
        self._held[number] = mark, figures, without_mark(name)
        self._hand_out()
        if len(self._held) > PATIENCE:
            self._next = min(self._held)
            self._hand_out()

    def rest(self) -> None:
        """For the end of the trace: takes the lines that wait for one that has not arrived."""
        for number in sorted(self._held):
            self._take(self._held.pop(number))
            self._next = number + 1

    def _hand_out(self) -> None:
        while self._next in self._held:
            self._take(self._held.pop(self._next))
            self._next += 1

    def _take(self, line: Line) -> None:
        mark, figures, name = line
        if mark == "f":
            id_, parent, at, defined, flags, file = figures
            self._recorder.path(id_, parent, name, at, defined, flags, file)
        elif mark == "p":
            self._recorder.file(figures[0], name)
        elif mark == "r":
            self._recorder.request(figures[0], name)
        elif mark == "=":
            self._ended(figures)
        elif len(self._figures) < MOST:
            self._figures.append(figures)
        else:
            self.beyond += 1

    def _ended(self, figures: List[int]) -> None:
        """A flush. The first one begins the first second. Where the line of a flush was lost, the next
        one ends a longer second: the sums are those since the first flush.
        """
        _, cut, self.wall_ns, self.cpu_ns, self.looking_ns, self.dropped, self.missed, self.taken = figures
        if self.began is None:
            self.began = self.end = cut - self.wall_ns
        if cut > self.end:
            self._end_second(cut)
        self.end = cut
        self._figures = []

    def _end_second(self, cut: int) -> None:
        for kind, *_, weight, _looked in self._figures:
            self.weights[kind] += weight
        self._recorder.second(self._pid, self.end, cut, self._figures)
        self._second(list({figures[2]: None for figures in self._figures}))
