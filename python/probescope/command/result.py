"""The maps that a program prints at its end, and the interval that they cover."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from probescope.command.lost import MAPS
from probescope.command.text import half_up
from probescope.command.thread_states import Quiet

# Number of attempts to read two clocks at the same time.
READINGS = 5
# A flush fires its rows within this many seconds.
LATE = 30
# Ids of calls and requests have 64 bits. bpftrace prints some of them as negative numbers.
ID = (1 << 64) - 1


class Row:
    """names: the row's values in the program's map @row. keys: of all entries with these names."""

    def __init__(
        self, maps: Dict[str, Dict[str, Any]], *keys: str, names: Optional[Sequence[Any]] = None
    ) -> None:
        """names: instead of those in @row."""
        self._maps = maps
        self.keys = keys
        self.names: Sequence[Any] = names or maps["row"][keys[0]]

    def values(self, name: str) -> Any:
        """Returns None when the map has no value for the row."""
        return self._maps.get(name, {}).get(self.keys[0])

    def number(self, name: str) -> Optional[int]:
        found = self._numbers(name)
        return sum(found) if found else None

    def largest(self, name: str) -> Optional[int]:
        return max(self._numbers(name), default=None)

    def _numbers(self, name: str) -> List[int]:
        # bpftrace 0.24 and later print an integer as a string when a double cannot hold it.
        found = (self._maps.get(name, {}).get(key) for key in self.keys)
        return [int(one) for one in found if one is not None]

    def count(self, name: str) -> int:
        return self.number(name) or 0

    def place(self, name: str) -> Optional[str]:
        """Returns "file:line" from a map of files and lines."""
        found = self.values(name)
        return f"{found[0]}:{found[1]}" if found and found[0] else None

    def parts(self, name: str) -> Dict[int, int]:
        """Reads a map whose keys end with one more number. Returns {number: count}."""
        found = {}
        for key, count in self._maps.get(name, {}).items():
            row, _, number = key.rpartition(",")
            if row == self.keys[0]:
                found[int(number)] = int(count)
        return found


class Numbered:
    """Counts events that did not arrive, by their numbers.

    bpftrace's own count is not enough: the kernel reports a loss with the next event of the same
    CPU, and there may be none (decision 220).
    """

    def __init__(self) -> None:
        self._arrived = 0
        self._last = 0

    def arrived(self, number: int) -> None:
        self._arrived += 1
        self.fired(number)

    def fired(self, number: int) -> None:
        """number: that of an event of the process, which may not have arrived."""
        self._last = max(self._last, number)

    @property
    def missing(self) -> int:
        return max(0, self._last - self._arrived)


class Result:
    def __init__(self, pid: int, program: str) -> None:
        """program: the program's name."""
        self.pid = pid
        self.program = program
        # Events that bpftrace reports as lost.
        self.lost_events = 0
        # The numbers of the events of flow.
        self.numbered = Numbered()
        # Whether the process ended during the trace.
        self.ended = False
        # The working directory of the process, or None when it cannot be read.
        self.folder = folder_of(pid)
        # Globs of the package that the process was started with (entry_point.globs).
        self.entry: List[str] = []
        # The last state that was read from the process's probescope_info.
        self.known: Dict[str, Any] = {}
        self.waited_ns: Optional[int] = None
        # The share of the CPU time that no tick met; None: little, or not known.
        self.missed_by_ticks: Optional[float] = None
        # What /proc tells of threads that may have had no event.
        self.quiet: Optional[Quiet] = None
        self._maps: Dict[str, Dict[str, Any]] = {}
        self._requests: Optional[Dict[int, Tuple[Optional[str], str]]] = None

    @property
    def has_maps(self) -> bool:
        """False when bpftrace printed no map at its end."""
        return bool(self._maps)

    def add(self, maps: Dict[str, Dict[str, Any]]) -> None:
        """maps: as `bpftrace -f json` prints them. The keys are valid only within one run of
        bpftrace. A key that is no UTF-8 has surrogates: with U+FFFD for each wrong byte, two keys
        could be equal.
        """
        for name, rows in maps.items():
            self._maps.setdefault(name[1:], {}).update(rows)

    def rows(self) -> Iterator[Row]:
        return (Row(self._maps, key) for key in self._maps.get("row", {}))

    def rows_by_names(
        self,
        name: str = "row",
        names_of: Callable[[str, Any], Sequence[Any]] = lambda _key, names: list(names),
    ) -> Iterator[Row]:
        """Merges entries with the same names, whatever their keys: for programs whose keys have
        addresses.

        name: a map with every key that has figures. names_of returns the names for a key and what
        @row has for it, which is None where the program could not read the names.
        """
        named = self._maps.get("row", {})
        keys: Dict[Tuple[Any, ...], List[str]] = {}
        for key in {**named, **self._maps.get(name, {})}:
            keys.setdefault(tuple(names_of(key, named.get(key))), []).append(key)
        return (Row(self._maps, *same, names=names) for names, same in keys.items())

    def parts(self, name: str) -> Dict[str, Dict[int, int]]:
        """Reads a map whose keys are those of rows with one more number. Returns {key of a row:
        {number: count}}.
        """
        found: Dict[str, Dict[int, int]] = {}
        for key, count in self._maps.get(name, {}).items():
            row, _, number = key.rpartition(",")
            found.setdefault(row, {})[int(number)] = int(count)
        return found

    @property
    def goes_on(self) -> bool:
        """Whether the program still counted when bpftrace detached, or the process ended: the program
        itself had not ended the interval, as after Ctrl-C.
        """
        return self.sum("on") > 0

    def map(self, name: str) -> Dict[str, Any]:
        """Returns a map as bpftrace printed it."""
        return self._maps.get(name, {})

    def values(self, name: str) -> List[Any]:
        """Returns the values of a map without its keys."""
        return list(self._maps.get(name, {}).values())

    def sum(self, name: str) -> int:
        """The sum of a map over all its keys. Some maps have only one key: the process."""
        return sum(map(int, self._maps.get(name, {}).values()))

    @property
    def requests(self) -> Dict[int, Tuple[Optional[str], str]]:
        """The requests that the program tells apart: {number: (method, route)}.

        The program stores method and route as one text, or as two.
        """
        if self._requests is None:
            found = {}
            for number, *names in self._maps.get("request", {}).values():
                method, _, route = names[0].partition(" ") if len(names) == 1 else (names[0], "", names[1])
                found[int(number) & ID] = (method, route) if route else (None, method)
            self._requests = found
        return self._requests

    @property
    def wall_ns(self) -> int:
        return self.sum("wall_ns")

    @property
    def cpu_ns(self) -> int:
        return self.sum("cpu_ns")

    @property
    def seconds(self) -> float:
        return round(self.wall_ns / 1e9, 3)

    def per_second(self, count: int) -> Optional[float]:
        """Returns how many there were in each second of the interval, None without an interval."""
        return decimals(ratio(count, self.seconds), 3)

    @property
    def sample_rate(self) -> Optional[float]:
        """Samples for each second of CPU time."""
        return decimals(self.sum("samples_taken") * 1e9 / self.cpu_ns, 1) if self.cpu_ns else None

    def time(self, nsecs: int) -> datetime:
        """Converts bpftrace's `nsecs`. On Linux 5.8 and later, that clock includes the time for
        which the machine was suspended.
        """
        release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
        return moment_of(nsecs, time.CLOCK_BOOTTIME if release >= (5, 8) else time.CLOCK_MONOTONIC)

    @property
    def has_samples(self) -> bool:
        return "samples_taken" in self._maps

    @property
    def tells_of_looking(self) -> bool:
        return self.known.get("looking_ns") is not None

    @property
    def looking_share(self) -> Optional[float]:
        """Tracing's share of the CPU time. None when the library does not report it."""
        told = self.tells_of_looking and "looking_ns" in self._maps
        return ratio(self.sum("looking_ns"), self.cpu_ns) if told else None

    @property
    def taken_out(self) -> Dict[str, datetime]:
        """Probes whose hooks the process removed in this interval because of their overhead, and
        when.
        """
        probes = self.known.get("probes", {})
        found = {
            name: self.monotonic(probe["out_ns"]) for name, probe in probes.items() if probe.get("out_ns")
        }
        began = self.interval[0]
        return {name: at for name, at in found.items() if began and at > began}

    def counted_until(self, row: Row, probe: str) -> Optional[datetime]:
        """Returns when the hooks of a row were removed, or None. probe: the probe that fires the
        row.
        """
        if self.known.get("overhead_limit") is None:
            return None
        out = row.number("out_ns")
        found = [self.monotonic(out)] if out else []
        return min([*found, *filter(None, [self.taken_out.get(probe)])], default=None)

    def monotonic(self, nsecs: int) -> datetime:
        """Converts a time of CLOCK_MONOTONIC."""
        return moment_of(nsecs, time.CLOCK_MONOTONIC)

    @property
    def interval(self) -> Tuple[Optional[datetime], Optional[datetime]]:
        """Begin: when the hooks were installed. End: the last flush."""
        began, ended = self.sum("began"), self.sum("ended")
        return (
            self.moment(began, self.sum("first_cut")) if began else None,
            self.moment(ended, self.sum("last_cut")) if ended else None,
        )

    def moment(self, fired: int, cut: int) -> datetime:
        """Returns the end of the time that a flush covers. fired: bpftrace's `nsecs` of
        stats__done. cut: the field of that event, or 0.

        An older library has another field at that offset. If the machine was suspended in between,
        the two clocks differ. In both cases `fired` is used.
        """
        late = self.time(fired)
        found = self.monotonic(cut) if cut and self.tells_of_cut else late
        return found if (late - found).total_seconds() < LATE else late

    @property
    def tells_of_cut(self) -> bool:
        return self.known.get("cut") is not None

    def lost(self) -> Dict[str, int]:
        # If the process goes on, its events after the last flush are not in the interval, and
        # bpftrace drops some of them while it ends.
        if self.ended:
            self.numbered.fired(self.sum("number"))
        # Both may have counted the same events.
        events = max(self.lost_events, self.numbered.missing)
        sums = {what: self.sum(name) for what, name in MAPS.items()}
        # What a program could not read is in @unread, or in @unnamed until it can read the names.
        return {"events": events, **sums, "unread": sums["unread"] + self.sum("unnamed")}


def folder_of(pid: int) -> Optional[str]:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def moment_of(nsecs: int, clock: int) -> datetime:
    """Converts a time in ns of a clock.

    On a busy machine the thread may lose the CPU for tens of ms between two clock readings. So the
    pair with the shortest distance is used.
    """
    readings = []
    for _ in range(READINGS):
        before, day, after = time.clock_gettime_ns(clock), time.time_ns(), time.clock_gettime_ns(clock)
        readings.append((after - before, day - (before + after) // 2))
    return datetime.fromtimestamp((min(readings)[1] + nsecs) // 1000 / 1e6, timezone.utc)


def ratio(part: Optional[int], whole: float) -> Optional[float]:
    return decimals(part / whole, 6) if whole > 0 and part is not None else None


def rounded(number: Optional[float]) -> Optional[int]:
    return None if number is None else half_up(number)


def decimals(number: Optional[float], digits: int) -> Optional[float]:
    """Rounds a half up, to a number of decimal places. number: not negative."""
    if number is None:
        return None
    scale: float = 10**digits
    found = half_up(number * scale)
    # 0.285 * 100 is less than 28.5, but 28.5 / 100 is 0.285: Ruby rounds it to 0.29.
    return (found + 1 if (found + 0.5) / scale <= number else found) / scale


def iso(moment: Optional[datetime]) -> Optional[str]:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None


def clock(moment: Optional[datetime]) -> str:
    """The local time for people: "13:05:59.123"."""
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3] if moment else "-"


def numbers(key: str) -> Tuple[int, ...]:
    """Returns the numbers of a key. Versions of bpftrace separate them differently."""
    return tuple(map(int, re.findall(r"-?\d+", key)))
