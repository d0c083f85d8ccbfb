"""Turns a program's result into rows, with the order and the keys of the gem's command
(docs/schema/schemas.yml).
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Hashable, List, Optional, Sequence, Set

from probescope.command import (
    by_own,
    cells,
    histogram,
    off_cpu,
    own_code,
    slow_calls,
    syscalls,
    thread_states,
)
from probescope.command.definitions import ALL, OUTCOMES, Column, Definition
from probescope.command.errors import CommandError
from probescope.command.event import Event
from probescope.command.kernel_lines import CURRENT, KernelLines
from probescope.command.result import ID, Result, decimals, iso, numbers, ratio, rounded
from probescope.command.result import Row as Kept
from probescope.command.text import count, duration
from probescope.command.text import share as percent

Row = Dict[str, Any]
BY_REQUEST = "_by_request"
# Programs that find in the kernel what a runtime does not report.
KERNEL = "_kernel"
# Programs of call paths: what libraries cost counts for the application's code that called them.
BY_OWN = "_own"
# The programs of syscalls --files, one for each machine.
FILES = "syscalls_files_"
# The program of syscalls --by line.
BY_LINE = "syscalls_lines"
# What could not be read from the memory of the process.
UNKNOWN = "(unknown)"
# The programs read so many bytes of a name. The library has shortened files to fewer.
NAME_BYTES = 63
# The maps with names among their values.
NAMED = ("row", "request", "holder", "function")
BEYOND_THE_END = (
    "also counted: what came after the end of the interval, until bpftrace had detached or the process "
    "had ended"
)
# What makes an application report its requests.
TELLING = (
    "`use Probescope::Rack`, `probescope.wsgi(app)` or `probescope.asgi(app)` "
    "(docs/how-to/which-requests-are-slow-or-fail.md)"
)


class Report:
    """The rows of one command's answer. Only cells use keys of a row that are not fields of the
    definition.

    SHARE: the key that --min compares.
    """

    SHARE = ""
    # Whether the program counts events when they happen, and not the rows of a flush.
    LIVE = False
    # What a trace listens to beside the process's own probes, and who else pays for it.
    REACH: List[str] = []
    # What is printed before the interval begins, beside that.
    BEFORE = ""
    # Whether the figures are those of requests also without --by-request.
    OF_REQUESTS = False

    def __init__(
        self,
        result: Result,
        whole: bool = True,
        failed: bool = False,
        slower: int = 0,
        event: Optional[Event] = None,
        own: Sequence[str] = (),
    ) -> None:
        """whole: whether rows include what only JSON shows. failed, slower: for Syscalls. event: for
        On. own: for ByOwn: the globs of --own.
        """
        self.result = result
        self.whole = whole
        self.failed = failed
        self.slower = slower
        self.event = event
        self.asked = own
        self.definition = definition_of(result.program)
        self.by_request = result.program.endswith(BY_REQUEST)

    def rows(self) -> List[Row]:
        raise NotImplementedError

    def rest(self) -> List[Row]:
        """Returns further rows of JSON, which no option sorts or hides."""
        return []

    def columns(self) -> Sequence[Column]:
        """Returns the columns of the table."""
        return self.definition.columns

    def check(self) -> None:
        """Raises CommandError where the figures mean nothing."""

    def share(self, row: Row) -> Optional[float]:
        """Returns the share that --min compares, or None for a report without --min."""
        found: Optional[float] = row.get(self.SHARE)
        return found

    def nothing(self) -> str:
        """Returns the text for a table without rows."""
        return self.definition.nothing

    def above(self) -> str:
        """Returns the line above the table."""
        return ""

    def below(self, rows: List[Row]) -> str:
        """Returns the text below the table."""
        return ""

    def more(self) -> Row:
        """Returns the command's own fields in JSON, beside those of every table."""
        return {"reach": self.REACH} if self.REACH else {}

    def not_covered(self) -> List[str]:
        """Returns one line for each kind of event that the figures cannot include, or include beyond the
        interval, and one for names that may be cut.
        """
        found = [f"not covered: {self.definition.not_covered}"] if self.definition.not_covered else []
        if self.LIVE and self.result.goes_on:
            found.append(BEYOND_THE_END)
        cut = sum(is_cut(name, NAME_BYTES) for name in self._names_of_all())
        return [*found, f"names that may be cut after {NAME_BYTES} bytes: {count(cut)}"] if cut else found

    def _names_of_all(self) -> Set[str]:
        """Returns each name of the maps once."""
        values = [value for name in NAMED for value in self.result.values(name)]
        texts = [one for value in values for one in (value if isinstance(value, list) else [value])]
        return {one for one in texts if isinstance(one, str)}

    def silent(self) -> List[str]:
        """Returns a warning if the figures are those of requests, and the process reports none."""
        told = "requests" in self.result.known.get("flags", ["requests"])
        if told or not (self.OF_REQUESTS or self.by_request):
            return []
        return [f"nothing in process {self.result.pid} tells of requests or jobs: {TELLING}"]

    def warnings(self, room: int) -> List[str]:
        """Returns warnings about incomplete figures. room: rows in each of bpftrace's maps."""
        return []

    def request(self, row: Kept) -> Row:
        """Returns a row's method and route. The row's last name is the request's number."""
        if not self.by_request:
            return {}
        method, route = self.result.requests.get(int(row.names[-1]) & ID, (None, None))
        return {"method": method, "route": route}

    def requested(self, number: Any) -> Row:
        """The same for a number of a program that reads the request from the process: 0 for none."""
        if not self.by_request:
            return {}
        number = int(number) & ID
        method, route = self.result.requests.get(number, (None, UNKNOWN if number else None))
        return {"method": method, "route": route}


class ByOwn(Report):
    """The rows of a trace of call paths. What libraries cost counts for the code of the application that
    called them. Where nothing is known to be the application's, everything counts for itself.
    """

    # How many functions are named of what is outside of the application.
    NAMED_OUTSIDE = 3
    NOT_KNOWN = (
        "by self: nothing is known to be the application's; --own GLOB names its files, such as "
        "--own '*/site-packages/shop/*'"
    )

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._paths = by_own.CallPaths(self.result)
        self._weight = self._paths.weight
        self.own = own_code.choose(self.asked, self._paths.paths, self.result.entry)
        self._by = by_own.charge(self._paths, self.own if self.own.known else None, self.key)

    def key(self, frame: own_code.Frame) -> Hashable:
        """Returns what tells rows apart."""
        raise NotImplementedError

    def fields(self, found: by_own.Sum) -> Row:
        raise NotImplementedError

    def rows(self) -> List[Row]:
        found = [self._row(one) for one in self._by.sums if one.total or one.looks]
        return ordered(found, "self", "total")

    def rest(self) -> List[Row]:
        """The row of what is outside of the application. The shares of all rows and of this one are the
        whole.
        """
        if not self._has_outside():
            return []
        outside = self._by.outside
        share = ratio(outside.weight, self._weight)
        row: Row = {"function": None, "file": None, "line": None, "outside": True}
        row.update({"self_share": share, "total_share": share, "samples": outside.count, "builtins": []})
        return [{**row, "called": self._called(outside.called)}]

    def columns(self) -> Sequence[Column]:
        found = super().columns()
        return [one for one in found if one.key != "builtins"] if self.own.known else found

    def above(self) -> str:
        return self.own.text if self.own.known else self.NOT_KNOWN

    def more(self) -> Row:
        return {**super().more(), "by": "own" if self.own.known else "self", "own": self.own.to_json()}

    def below(self, rows: List[Row]) -> str:
        if not self._has_outside():
            return ""
        named = [
            f"{one['function'] or UNKNOWN} {percent(one['share'])}"
            for one in self._called(self._by.outside.called)[: self.NAMED_OUTSIDE]
        ]
        part = percent(ratio(self._by.outside.weight, self._weight))
        return f"outside of the application: {part} ({', '.join(named)})"

    def warnings(self, room: int) -> List[str]:
        paths = (node.frame.path for node in self._paths.nodes if not node.frame.what)
        return [*super().warnings(room), *self.own.warnings(paths)]

    def _has_outside(self) -> bool:
        return self.own.known and self._by.outside.count > 0

    def _row(self, found: by_own.Sum) -> Row:
        assert found.node
        return {
            "function": known(found.node.frame.function),
            "file": known(found.node.file),
            **self.fields(found),
            "self": found.weight,
            "total": found.total,
            "outside": False,
            **self._shares(found),
            "called": self._called(found.called) if self.own.known else [],
        }

    def _shares(self, found: by_own.Sum) -> Row:
        return {
            "self_share": ratio(found.weight, self._weight),
            "total_share": ratio(found.total, self._weight),
        }

    def _called(self, weights: Dict[by_own.Name, int]) -> List[Row]:
        found = sorted(weights.items(), key=lambda one: (-one[1], [str(part) for part in one[0]]))
        return [
            {
                "function": known(name),
                "file": known(file),
                "line": known(line),
                "share": ratio(weight, self._weight),
            }
            for (name, file, line), weight in found
        ]


class HotByOwn(ByOwn):
    SHARE = "total_share"

    def key(self, frame: own_code.Frame) -> Hashable:
        return frame.function, frame.path

    def fields(self, found: by_own.Sum) -> Row:
        assert found.node
        builtins = [
            {name: one[name] for name in ("function", "share")} for one in self._called(found.builtins)
        ]
        return {
            "line": known(found.node.frame.defined),
            "samples": found.looks,
            "largest_line": self._largest_line(found.lines) if self.own.known else None,
            "builtins": builtins,
        }

    @staticmethod
    def _largest_line(lines: Dict[int, int]) -> Any:
        return known(max(lines, key=lambda line: (lines[line], -line))) if lines else None


class LinesByOwn(ByOwn):
    SHARE = "self_share"

    def key(self, frame: own_code.Frame) -> Hashable:
        return frame.function, frame.path, frame.line

    def rows(self) -> List[Row]:
        return [row for row in super().rows() if row["samples"]]

    def fields(self, found: by_own.Sum) -> Row:
        assert found.node
        return {"line": known(found.node.frame.line), "samples": found.count}


class Hot(Report):
    SHARE = "total_share"

    def more(self) -> Row:
        return {"by": "self"}

    def rows(self) -> List[Row]:
        found = [
            {
                **self.request(row),
                **place(row, "function"),
                "self": row.number("self_ns"),
                "total": row.number("total_ns"),
                "samples": row.number("samples"),
                "builtins": row.parts("in_builtin_ns"),
            }
            for row in self.result.rows()
        ]
        on_cpu = total(found, "self")
        names = {int(number): name for number, name in self.result.values("builtin")}
        for row in ordered(found, "self", "total"):
            row["self_share"] = ratio(row.pop("self"), on_cpu)
            row["total_share"] = ratio(row.pop("total"), on_cpu)
            parts = sorted((-ns, names.get(number) or "") for number, ns in row["builtins"].items())
            row["builtins"] = [{"function": name or None, "share": ratio(-ns, on_cpu)} for ns, name in parts]
        return found


class Lines(Report):
    SHARE = "self_share"

    def more(self) -> Row:
        return {"by": "self"}

    def rows(self) -> List[Row]:
        found = [
            {**place(row, "function"), "self": row.number("self_ns"), "samples": row.number("samples")}
            for row in self.result.rows()
        ]
        on_cpu = total(found, "self")
        for row in ordered(found, "self", "samples"):
            row["self_share"] = ratio(row.pop("self"), on_cpu)
        return found


class Exceptions(Report):
    SHARE = "cpu_share"

    def rows(self) -> List[Row]:
        return ordered([self._site(row) for row in self.result.rows()], "backtrace_cost_ns", "count")

    def _site(self, row: Kept) -> Row:
        raised, capture, strings = row.count("raised"), row.count("backtrace_ns"), row.count("strings_ns")
        found = place(row, "type")
        app = row.place("app_at")
        depth = ratio(row.number("depth_sum"), raised)
        told = (
            self.result.known.get("probes", {}).get("exception__rescue", {}).get("state", "unsupported")
            != "unsupported"
        )
        return {
            **self.request(row),
            **found,
            "function": known(row.names[3]),
            "count": raised,
            "per_second": self.result.per_second(raised),
            "backtrace_cost_ns": capture + strings,
            "capture_ns": capture,
            "strings_ns": strings,
            "cpu_share": ratio(capture + strings, self.result.cpu_ns),
            "mean_depth": decimals(depth, 1),
            "app_at": None if app == f"{row.names[1]}:{row.names[2]}" else app,
            "rescued_at": row.place("rescued_at"),
            "formatted_at": row.place("formatted_at"),
            "rescued_at_once_share": ratio(row.number("rescued_at_once"), raised) if told else None,
        }

    def _minor(self) -> int:
        """Returns N for CPython 3.N, or 0 for another runtime."""
        version = self.result.known.get("version", "").split(".")
        return int(version[1]) if self.result.known.get("runtime") == "python" and len(version) > 1 else 0

    def nothing(self) -> str:
        return f"no exception was raised{' that Python code handled' if self._minor() >= 12 else ''}"

    def not_covered(self) -> List[str]:
        found = super().not_covered()
        if not self._minor():
            return found
        if self._minor() >= 12:
            return [*found, "not in it: what was raised in Python 3.12 and later and no Python code handled"]
        return [*found, "not in it: what was raised in Python 3.11 and C code swallowed"]


class Backtraces(Report):
    SHARE = "cpu_share"

    def rows(self) -> List[Row]:
        return ordered([self._asker(row) for row in self.result.rows()], "total_ns", "count")

    def _asker(self, row: Kept) -> Row:
        calls, took = row.count("calls"), row.count("total_ns")
        depth = ratio(row.number("depth_sum"), calls)
        kind, file, line = row.values("last") or (None, None, None)
        return {
            **place(row, "call"),
            "function": known(row.names[3]),
            "count": calls,
            "total_ns": took,
            "mean_ns": rounded(ratio(took, calls)),
            "max_ns": row.number("max_ns"),
            "mean_depth": decimals(depth, 1),
            "cpu_share": ratio(took, self.result.cpu_ns),
            "type": known(kind),
            "raised_at": f"{file}:{line}" if file else None,
        }


class Calls(Report):
    SHARE = "share"
    ENDED = (
        "(until TIME): not counted since then, for PROBESCOPE_MAX_OVERHEAD in the process; "
        "what it takes since is its callers' SELF"
    )

    def rows(self) -> List[Row]:
        found = []
        for row in self.result.rows():
            ended = self.result.counted_until(row, "function__stats")
            calls, elapsed = row.count("calls"), row.number("elapsed_ns")
            times: Row = {
                "elapsed_ns": elapsed,
                "self_ns": row.number("self_ns"),
                "mean_ns": rounded(ratio(elapsed, calls)),
            }
            more: Row = {"max_ns": row.number("max_ns"), "raised": row.number("raised")}
            figures: Row = {"calls": calls, **times, **more}
            if ended and not calls:  # the hooks were removed before the first call
                figures = {name: None for name in figures}
            found.append({**place(row, "function"), **figures, "counted_until": iso(ended)})
        every = total(found, "self_ns")
        return [{**row, "share": ratio(row["self_ns"], every)} for row in ordered(found, "self_ns", "calls")]

    def below(self, rows: List[Row]) -> str:
        return self.ENDED if any(row["counted_until"] for row in rows) else ""


class Alloc(Report):
    SHARE = "count_share"

    def rows(self) -> List[Row]:
        found = [
            {
                **self.request(row),
                **place(row, "class"),
                "count": row.number("allocated"),
                "bytes": row.number("bytes"),
            }
            for row in self.result.rows()
        ]
        every = total(found, "count")
        return [
            {**row, "count_share": ratio(row["count"], every)} for row in ordered(found, "count", "bytes")
        ]

    def below(self, rows: List[Row]) -> str:
        """Describes the counts of CPython's reference tracer. When the allocator counts instead,
        the probe's state is not "on", and the probe's reason describes the counts.
        """
        state = self.result.known.get("probes", {}).get("object__stats", {}).get("state")
        if self.result.known.get("runtime") != "python" or state != "on":
            return ""
        return (
            "Told by CPython's reference tracer: every object. "
            "Not in BYTES: what it keeps elsewhere, as a bytearray does its bytes."
        )


class Requests(Report):
    SHARE = "time_share"
    LIVE = True
    OF_REQUESTS = True
    # The class of a status by its first digit.
    STATUSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
    FAILED = 5

    def rows(self) -> List[Row]:
        found = [self._route(row) for row in self.result.rows()]
        every = total(found, "total_ns")
        return [
            {**row, "time_share": ratio(row["total_ns"], every)}
            for row in ordered(found, "total_ns", "count")
        ]

    def _route(self, row: Kept) -> Row:
        method, route, digit = row.names
        ended, took, most = row.count("requests"), row.number("elapsed_ns"), row.number("max_ns")
        times = row.parts("steps")
        # Percentiles of incomplete times would be wrong.
        taken = histogram.Steps(times if sum(times.values()) >= ended else {})
        return {
            "method": known(method),
            "route": known(route),
            "status": self.STATUSES.get(int(digit)),
            "count": ended,
            "per_second": self.result.per_second(ended),
            "total_ns": took,
            "mean_ns": rounded(ratio(took, ended)),
            "p50_ns": taken.quantile(0.5, most),
            "p99_ns": taken.quantile(0.99, most),
            "max_ns": most,
            "errors": ended if int(digit) == self.FAILED else 0,
            "statuses": {str(status): number for status, number in sorted(row.parts("statuses").items())},
            "histogram": taken.histogram(),
        }

    def warnings(self, room: int) -> List[str]:
        found = []
        missing = self.result.sum("requests") - self.result.sum("steps")
        if missing:
            found.append(
                f"{missing} times had no room, and their routes have no percentiles: "
                f"give bpftrace's maps more: PROBESCOPE_MAP_KEYS={room * 4}"
            )
        return found

    def below(self, rows: List[Row]) -> str:
        return histogram.render("TIME", histogram.merge([row["histogram"] for row in rows]), duration)


class Gc(Report):
    SHARE = "share"
    LIVE = True

    def rows(self) -> List[Row]:
        found = [self._kind(row) for row in self.result.rows()]
        every = total(found, "total_ns")
        return [
            {**row, "share": ratio(row["total_ns"], every)} for row in ordered(found, "total_ns", "count")
        ]

    def _kind(self, row: Kept) -> Row:
        kind, took, times = known(row.names[0]), row.number("total_ns"), row.number("collections")
        # The probe reports freed objects for Python, and live objects for Ruby.
        freed = str(kind).startswith("generation ")
        return {
            "kind": kind,
            "count": times,
            "total_ns": took,
            "mean_ns": rounded(ratio(took, times or 0)),
            "max_ns": row.number("max_ns"),
            "live_objects": None if freed else row.number("objects"),
            "freed_objects": row.number("objects") if freed else None,
            "histogram": histogram.buckets(row.values("pause_ns")),
            "wall_share": ratio(took, self.result.wall_ns),
        }

    def below(self, rows: List[Row]) -> str:
        return histogram.render("PAUSE", histogram.merge([row["histogram"] for row in rows]), duration)


class Gvl(Report):
    SHARE = "wall_share"
    LIVE = True

    def rows(self) -> List[Row]:
        return ordered([self._thread(row) for row in self.result.rows()], "total_ns", "waits")

    def _thread(self, row: Kept) -> Row:
        thread, pid = row.names
        took, waits = row.number("total_ns"), row.number("waits")
        return {
            "thread_id": thread,
            "name": _thread_name(pid, thread),
            "waits": waits,
            "total_ns": took,
            "mean_ns": rounded(ratio(took, waits or 0)),
            "max_ns": row.number("max_ns"),
            "wall_share": ratio(took, self.result.wall_ns),
        }


class GvlByKernel(Gvl):
    BEFORE = (
        "the kernel reports waits for the GIL: of threads that make calls of traced functions; the "
        "trace listens to every system call, switch and wake-up of the machine"
    )

    def check(self) -> None:
        if not any(int(address) for address in self.result.map("gil").values()):
            raise CommandError(
                "this CPython does not tell where its GIL is: it is built without one, or is later than 3.14",
                "probescope waits shows all waits",
            )


class Waits(Report):
    SHARE = "blocked_share"
    BEFORE = "the process reports waits: those in which a thread gives up the VM lock"

    def more(self) -> Row:
        return {"known_by": "process", "reach": self.REACH}

    def not_covered(self) -> List[str]:
        route = "not covered: waits of requests whose route was not known when the interval ended"
        return [*super().not_covered(), *([route] if self.by_request else [])]

    def rows(self) -> List[Row]:
        lines: Dict[Any, List[Kept]] = {}
        for row in self.result.rows():
            lines.setdefault((*row.names[:4], *row.names[6:]), []).append(row)
        found = [{**self.request(rows[0]), **self._line(names[:4], rows)} for names, rows in lines.items()]
        blocked = total(found, "blocked_ns")
        return [
            {**row, "blocked_share": ratio(row["blocked_ns"], blocked)}
            for row in ordered(found, "blocked_ns", "waits")
        ]

    def _line(self, names: Any, rows: List[Kept]) -> Row:
        what, file, line, function = map(known, names)
        waits, blocked, vm_lock = (
            sum(row.count(name) for row in rows) for name in ("waits", "blocked_ns", "vm_lock_ns")
        )
        return {
            "what": what,
            "call": None,
            "file": file,
            "line": line,
            "line_is": CURRENT if line else None,
            "function": function,
            "waits": waits,
            "blocked_ns": blocked,
            "vm_lock_ns": vm_lock,
            "mean_ns": rounded(ratio(blocked + vm_lock, waits)),
            "longest_ns": max((row.count("longest_ns") for row in rows), default=None),
            "holders": self._holders(rows),
        }

    def _holders(self, rows: List[Kept]) -> List[Row]:
        places = {int(number) & ID: place for _, number, *place in self.result.values("holder")}
        found: Dict[Any, Row] = {}
        for row in rows:
            where = places.get(int(row.names[5]) & ID)
            if not where:
                continue
            function, file, line = map(known, where)
            one = found.setdefault(
                (function, file, line),
                {
                    "function": function,
                    "file": file,
                    "line": line,
                    "line_is": CURRENT if line else None,
                    "waits": 0,
                    "blocked_ns": 0,
                },
            )
            one["waits"] += row.count("waits")
            one["blocked_ns"] += row.count("blocked_ns")
        return ordered(list(found.values()), "blocked_ns", "waits")


class WaitsByKernel(Report):
    """What the kernel reports (waits_kernel.bt). A key of the program's maps has the process, the
    function's site, its instruction, what it waited for, site and instruction of the thread that ended
    the wait, and with --by-request the number of the request.
    """

    SHARE = "blocked_share"
    LIVE = True
    BEFORE = (
        "the kernel reports waits: the kind of system call, and not which lock, file or socket; who "
        "ended it for locks, flock and the GIL only; of threads that make calls of traced functions"
    )
    REACH = ["listens to every system call, switch and wake-up of the machine: all processes pay for it"]
    # The program's number for a wait for CPython's GIL. Others are one more than a system call's.
    GIL = 60_002
    # What a kind of system call waits for (syscalls.KINDS).
    KINDS = {
        "lock": "lock",
        "timer": "sleep",
        "child": "child",
        "socket": "socket",
        "ready": "event loop or socket",
        "file": "file",
        "file_lock": "file lock",
    }
    # Ruby 3.1 waits for most things in the same two calls, on whichever thread has its timer.
    RUBY = {
        **KINDS,
        "lock": "lock, queue, sleep or VM lock",
        "ready": "lock, queue, sleep, socket or child",
    }
    # Calls of the kind "file" whose file may be a pipe or a socket.
    ANY_FILE = ("read", "write", "readv", "writev")
    # The fields of a wait that tell its row from others; the first two with --by-request.
    NAMES = ("method", "route", "what", "call", "function", "file", "line", "line_is")

    def rows(self) -> List[Row]:
        self._names = {numbers(key): names[:3] for key, names in self.result.map("row").items()}
        self._lines = KernelLines(self.result)
        same: Dict[Any, List[Row]] = {}
        for wait in self._waits():
            same.setdefault(tuple(map(wait.get, self.NAMES)), []).append(wait)
        found = ordered([self._merged(waits) for waits in same.values()], "blocked_ns", "waits")
        blocked = total(found, "blocked_ns")
        return [{**row, "blocked_share": ratio(row["blocked_ns"], blocked)} for row in found]

    def more(self) -> Row:
        return {"known_by": "kernel", "reach": self.REACH}

    def not_covered(self) -> List[str]:
        return [
            *super().not_covered(),
            "not covered: waits that began before the trace, and of threads that made no traced call",
            "not in the share for looking: the kernel's part, for each system call and each switch",
        ]

    def _waits(self) -> List[Row]:
        """Returns a row for each entry of the program's maps."""
        found = []
        for key, times in self.result.map("waits").items():
            pid, site, instruction, what, waker, at, *request = numbers(key)
            figures = {name: int(self.result.map(name).get(key, 0)) for name in ("blocked_ns", "longest_ns")}
            by = self._place(pid, waker, at) if waker else {"function": None}
            where = {**self._place(pid, site, instruction), **self._waited_for(what)}
            where.update(self.requested(*request) if request else {})
            found.append({**where, "by": by, "waits": int(times), **figures})
        return found

    def _merged(self, waits: List[Row]) -> Row:
        times, blocked = total(waits, "waits"), total(waits, "blocked_ns")
        return {
            **{name: waits[0][name] for name in self.NAMES if name in waits[0]},
            "waits": times,
            "blocked_ns": blocked,
            "vm_lock_ns": None,
            "mean_ns": rounded(ratio(blocked, times)),
            "longest_ns": max(wait["longest_ns"] for wait in waits),
            "holders": self._ended_by(waits),
        }

    def _ended_by(self, waits: List[Row]) -> List[Row]:
        found: Dict[Any, Row] = {}
        for wait in waits:
            if not wait["by"]["function"]:
                continue
            one = found.setdefault(tuple(wait["by"].values()), {**wait["by"], "waits": 0, "blocked_ns": 0})
            one["waits"] += wait["waits"]
            one["blocked_ns"] += wait["blocked_ns"]
        return ordered(list(found.values()), "blocked_ns", "waits")

    def _waited_for(self, number: int) -> Row:
        if number == self.GIL:
            return {"what": "GIL", "call": "futex"}
        call = call_name(number - 1)
        kinds = self.RUBY if self.result.known.get("runtime") == "ruby" else self.KINDS
        if call in self.ANY_FILE:
            return {"what": "file, pipe or socket", "call": call}
        return {"what": kinds.get(syscalls.KINDS.get(call, ""), call), "call": call}

    def _place(self, pid: int, site: int, instruction: int) -> Row:
        """Returns function, file and line of a function that was at this instruction."""
        function, file, defined = map(known, self._names.get((pid, site), (None, None, None)))
        function = function or (UNKNOWN if site else None)
        return {"function": function, "file": file, **self._lines.place(pid, instruction, defined)}


class Slow(Report):
    """Calls, the longest first, each followed by the calls that it made."""

    LIVE = True
    _left_out = 0

    def rows(self) -> List[Row]:
        calls = slow_calls.SlowCalls(map(self._call, self.result.rows()))
        if not self.whole:
            self._left_out = calls.leave_out_relays()
        return calls.rows()

    def nothing(self) -> str:
        least = re.sub(r"\D", "", self.result.program)
        return f"no call of the application took {duration(int(least) * 10**6)}"

    def below(self, rows: List[Row]) -> str:
        left_out = f"left out: {count(self._left_out)} calls that only made the next one; --json has them"
        return left_out if self._left_out else ""

    def _call(self, row: Kept) -> slow_calls.Call:
        own, parent = (int(one) & ID for one in row.values("ids"))
        request: Row = {}
        if self.by_request:
            number = row.count("request_id") & ID
            method, route = self.result.requests.get(number, (None, "(running)" if number else None))
            request = {"method": method, "route": route}
        ended = self.result.time(row.count("at"))
        told = {
            **request,
            **place(row, "function"),
            "elapsed_ns": row.number("elapsed_ns"),
            "self_ns": row.number("self_ns"),
            "at": ended.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "outcome": OUTCOMES.get(row.count("outcome")),
            "thread_id": row.number("thread"),
            "traceparent": known(row.names[3]),
        }
        return slow_calls.Call(own, parent, told)


class Syscalls(Report):
    SHARE = "share"
    LIVE = True
    REACH = [
        "listens to every system call of the machine: 1 to 2 us for each call of the traced "
        "processes, and 0.1 to 0.3 us for each call of all others"
    ]

    def rows(self) -> List[Row]:
        every = self._counted()
        whole = total(every, "total_ns")
        shown = [row for row in every if row["failed"]] if self.failed else every
        shown.sort(
            key=lambda row: (
                -row["total_ns"],
                -row["calls"],
                [str(row.get(name) or "") for name in ("file", "line", "call", "path", "method", "route")],
            )
        )
        return [{**row, "share": ratio(row["total_ns"], whole)} for row in shown]

    def _counted(self) -> List[Row]:
        """Returns the rows without their shares."""
        parts = self.result.parts("errno")
        return [self._call(row, parts) for row in self.result.rows_by_names("calls", self._names)]

    def _names(self, key: str, names: Optional[Sequence[Any]]) -> Sequence[Any]:
        """key: the pid, the number of the function (0: none), the number of the call, and more; by
        request, the last one is the number of the request.
        """
        _, function, call, *more = numbers(key)
        if names and (names[0] or not function):
            return names
        return (UNKNOWN, "", 0, call, *(more[-1:] if self.by_request else ()))

    def more(self) -> Row:
        return {**super().more(), "half_told": self._half_told()}

    def _half_told(self) -> int:
        """The map counts by the time of the stats__done before. What comes after the last one is not
        in the interval: then bpftrace detaches, and misses begins or ends.
        """
        ended = self.result.sum("ended")
        found = self.result.map("half_told").items()
        return sum(int(number) for key, number in found if int(key.split(",")[1]) != ended)

    def _call(self, row: Kept, parts: Dict[str, Dict[int, int]]) -> Row:
        call = call_name(int(row.names[3]) - 1)
        calls, took = row.count("calls"), row.count("total_ns")
        return {
            **self.requested(row.names[4] if self.by_request else 0),
            **place(row, "function"),
            "call": call,
            "calls": calls,
            "total_ns": took,
            "mean_ns": rounded(ratio(took, calls)),
            "longest_ns": row.largest("longest_ns"),
            "failed": row.count("failed"),
            "errors": _errors([parts.get(key, {}) for key in row.keys]),
            "bytes": row.count("moved") if call in syscalls.BYTES else None,
        }

    def nothing(self) -> str:
        if self.failed:
            return "no system call failed"
        return f"no system call took {duration(self.slower)}" if self.slower else super().nothing()

    def not_covered(self) -> List[str]:
        found = super().not_covered()
        if self.slower:
            found.append(f"not covered: calls shorter than {duration(self.slower)}")
        untold = self.result.lost()["untold"]
        if untold:
            found.append(f"not covered: {count(untold)} calls of threads that made no traced call")
        if half := self._half_told():
            found.append(
                f"not covered: {count(half)} calls of which the kernel told only the begin or only the end "
                "(refused by seccomp, or begun before the trace)"
            )
        return [
            *found,
            "not in the share for looking: the kernel's part, 1 to 2 us for each system call",
        ]

    def warnings(self, room: int) -> List[str]:
        missing = self.result.sum("failed") - self.result.sum("errno")
        if missing <= 0:
            return []
        return [
            f"{missing} errors had no room in bpftrace's maps, and are in FAILED without their names: "
            f"PROBESCOPE_MAP_KEYS={room * 4}"
        ]


class SyscallsLines(Syscalls):
    """With --by line: behind the number of the call, a key of the program's maps has the function's
    instruction.
    """

    def _counted(self) -> List[Row]:
        self._lines = KernelLines(self.result)
        return super()._counted()

    def _names(self, key: str, names: Optional[Sequence[Any]]) -> Sequence[Any]:
        pid, _, _, instruction, *_ = numbers(key)
        found = super()._names(key, names)
        where = self._lines.place(pid, instruction, found[2])
        return [*found, where["line"], where["line_is"]]

    def _call(self, row: Kept, parts: Dict[str, Dict[int, int]]) -> Row:
        line, line_is = row.names[-2:]
        return {**super()._call(row, parts), "line": line, "line_is": line_is}


class SyscallsFiles(Syscalls):
    """With --files: the calls with a path. A key of the program's maps has an error and a path, too."""

    # The key of the function, and the numbers of call and error.
    KEY = re.compile(r"(\d+,\s*\d+),\s*(\d+),\s*(\d+),")
    # A path of this length may be cut.
    CUT = 127

    def more(self) -> Row:
        return {
            **super().more(),
            "cut_paths": self._number_of(lambda path: is_cut(path, self.CUT)),
            "unread_paths": self._number_of(lambda path: not path),
        }

    def not_covered(self) -> List[str]:
        told = self.more()
        found = super().not_covered()
        if told["cut_paths"]:
            found.append(
                f"{count(told['cut_paths'])} calls have a path that may be cut after {self.CUT} bytes"
            )
        if told["unread_paths"]:
            empty = f"{count(told['unread_paths'])} calls have an empty path (fstat)"
            found.append(f"{empty}, or one that could not be read")
        return found

    def warnings(self, room: int) -> List[str]:
        return []

    def _counted(self) -> List[Row]:
        same: Dict[Any, List[Row]] = {}
        for key, path in self.result.map("file").items():
            entry = self._entry(key, path)
            names = tuple(entry[name] for name in ("function", "file", "line", "call", "bytes_of_path"))
            same.setdefault(names, []).append(entry)
        return [self._merged(entries) for entries in same.values()]

    def _entry(self, key: str, path: str) -> Row:
        """Two paths that differ only in bytes that are no UTF-8 have the same text, but not the same
        key.
        """
        match = self.KEY.match(key)
        assert match
        figures = {name: self._figure(name, key) for name in ("calls", "total_ns", "longest_ns")}
        call = call_name(int(match[2]) - 1)
        return {
            **self._function(match[1]),
            "call": call,
            "path": known(path),
            "bytes_of_path": key[match.end() :],
            "error": int(match[3]),
            **figures,
        }

    def _figure(self, name: str, key: str) -> int:
        return int(self.result.map(name).get(key, 0))

    def _function(self, key: str) -> Row:
        """key: the pid, and the number of the function. The names are whole where @named is 1."""
        maps = [self.result.map(name) for name in ("function", "place", "line")]
        named = int(self.result.map("named").get(key, 0)) == 1
        name, file, line = [one.get(key) if named else None for one in maps]
        if not name and int(key.split(",")[1]):
            name = UNKNOWN
        return {"function": known(name), "file": known(file), "line": known(int(line or 0))}

    def _merged(self, entries: List[Row]) -> Row:
        first = {name: entries[0][name] for name in ("function", "file", "line", "call", "path")}
        calls, took = total(entries, "calls"), total(entries, "total_ns")
        failed = [entry for entry in entries if entry["error"]]
        return {
            **first,
            "calls": calls,
            "total_ns": took,
            "mean_ns": rounded(ratio(took, calls)),
            "longest_ns": max(entry["longest_ns"] for entry in entries),
            "failed": total(failed, "calls"),
            "errors": _errors([{entry["error"]: entry["calls"]} for entry in failed]),
            "bytes": None,
        }

    def _number_of(self, asked: Callable[[str], bool]) -> int:
        """Returns how many calls have a path for which the function returns true."""
        return sum(self._figure("calls", key) for key, path in self.result.map("file").items() if asked(path))


class On(Report):
    """An event of the kernel or of a C function, by the function in which it happened."""

    SHARE = "share"
    LIVE = True

    def rows(self) -> List[Row]:
        same: Dict[Any, List[str]] = {}
        self._names = {self._numbers(key): names for key, names in self.result.map("row").items()}
        for key in self.result.map("events"):
            pid, *sites = self._numbers(key)
            request = sites.pop() if self.by_request else 0
            names = (tuple(self.requested(request).items()), self._functions(pid, sites))
            same.setdefault(names, []).append(key)
        found = [
            {**dict(request), **self._row(functions, keys)} for (request, functions), keys in same.items()
        ]
        every = total(found, "events")
        by_value = bool(self.event and self.event.sum)
        found.sort(
            key=lambda row: (
                -(row["sum"] if by_value else row["events"]),
                -row["events"],
                [
                    ":".join(str(one[name] or "") for name in ("file", "line", "function"))
                    for one in (row, *row.get("callers", []))
                ],
                [str(row.get(name) or "") for name in ("method", "route")],
            )
        )
        return [{**row, "share": ratio(row["events"], every)} for row in found]

    def more(self) -> Row:
        assert self.event
        value = {"sum_of": self.event.sum} if self.event.sum else {}
        return {"event": str(self.event), **value, "reach": [self.event.reach()]}

    def not_covered(self) -> List[str]:
        found, untold = super().not_covered(), self.result.lost()["untold"]
        if untold:
            found.append(f"not covered: {count(untold)} events of threads that made no traced call")
        return [*found, "not in the share for looking: the kernel's part of each event"]

    def _functions(self, pid: int, sites: List[int]) -> Any:
        """Returns the innermost function and its callers, each as (function, file, line). A function
        whose names could not be read is unknown.
        """
        while len(sites) > 1 and not sites[-1]:
            sites.pop()
        return tuple(self._function(pid, site) for site in sites)

    def _function(self, pid: int, site: int) -> Any:
        name, *place = map(known, self._names.get((pid, site), (None, None, None)))
        return (name or (UNKNOWN if site else None), *place)

    def _numbers(self, key: str) -> Any:
        return tuple(map(int, re.findall(r"\d+", key)))

    def _row(self, functions: Any, keys: List[str]) -> Row:
        inner, *callers = [dict(zip(("function", "file", "line"), told)) for told in functions]
        events = sum(int(self.result.map("events")[key]) for key in keys)
        found = {**inner, "events": events, "per_second": self.result.per_second(events)}
        if self.event and self.event.sum:
            # The program has no sum where all values were 0.
            found["sum"] = sum(int(self.result.map("sum").get(key, 0)) for key in keys)
        return {**found, "callers": callers} if self.result.program.startswith("on_stack") else found


def _errors(parts: List[Dict[int, int]]) -> Dict[str, int]:
    """Returns {name: count}, the most frequent error first. parts: [{number: count}, ...]"""
    every: Dict[int, int] = {}
    for part in parts:
        for number, times in part.items():
            every[number] = every.get(number, 0) + times
    found = sorted((-times, number) for number, times in every.items())
    return {syscalls.ERRORS.get(number, f"error {number}"): -times for times, number in found}


def file_lock() -> str:
    """The argument with which offcpu.bt and waits_kernel.bt recognise waits for file locks: one more
    than the number of flock().
    """
    names = syscalls.NUMBERS.get(os.uname().machine, {})
    return str(next((number + 1 for number, name in names.items() if name == "flock"), 0))


def call_name(number: int) -> str:
    """number: of the call, -1 for rt_sigreturn, whose number the kernel has replaced."""
    if number == -1:
        return "rt_sigreturn"
    return syscalls.NUMBERS.get(os.uname().machine, {}).get(number, f"syscall {number}")


class Offcpu(Report):
    SHARE = "share"
    REACH = [
        "listens to every system call, switch and wake-up of the machine: about 0.4 us for each "
        "system call of the traced processes, 1.4 us for each of their switches and wake-ups, and "
        "0.2 us for each of all others"
    ]
    # A larger share of the wall time that is in none of the figures is a warning.
    LEFT_OVER = 0.02

    def __init__(self, result: Result, *options: Any, **named: Any) -> None:
        super().__init__(result, *options, **named)
        self._times = off_cpu.OffCpu(result, self.by_request)
        self._woken = self._times.woken()

    def rows(self) -> List[Row]:
        places: Dict[Any, List[off_cpu.Wait]] = {}
        for wait in self._times.waits:
            request = tuple(self.requested(wait.request).items())
            places.setdefault((request, self._place(wait)), []).append(wait)
        found = [
            {**dict(request), **self._function(where, waits)} for (request, where), waits in places.items()
        ]
        whole = sum(map(_off, found))
        names = ("file", "line", "method", "route")
        found.sort(key=lambda row: (-_off(row), [str(row.get(name) or "") for name in names]))
        return [{**row, "share": ratio(_off(row), whole)} for row in found]

    def more(self) -> Row:
        times = self._times
        return {
            **super().more(),
            "threads": times.threads,
            "thread_ns": times.thread_ns,
            "on_cpu_ns": times.on_cpu_ns,
            "queued_ns": times.queued_ns,
            "blocked_ns": times.blocked_ns,
            "left_over_ns": times.left_over_ns,
        }

    def above(self) -> str:
        """The time of all threads."""
        times, blocked = self._times, self._times.blocked_ns
        told = ", ".join(f"{cells.REASONS.get(one, one)} {duration(ns)}" for one, ns in blocked.items())
        return (
            f"{times.threads} thread{'' if times.threads == 1 else 's'}: {duration(times.on_cpu_ns)} on the "
            f"CPU + {duration(times.queued_ns)} queued + {duration(sum(blocked.values()))} blocked"
            f"{f' ({told})' if told else ''} = {duration(times.thread_ns)} of wall time; {self._left_over()}"
        )

    def _left_over(self) -> str:
        ns = self._times.left_over_ns
        part = percent(ratio(abs(ns), self._times.thread_ns))
        return f"{duration(abs(ns))} ({part}) {'counted twice' if ns < 0 else 'left over'}"

    def not_covered(self) -> List[str]:
        times, found = self._times, super().not_covered()
        if any(times.reason(wait.what)[0] == off_cpu.RUBY for wait in times.waits):
            found.append(
                f"timer, lock or child: Ruby {self.result.known.get('version', '')} waits for all of them, "
                "and for its VM lock, in one call"
            )
        if times.runtime == "python" and not times.lock_known:
            found.append("lock: also the GIL, if there is one; where it is in this CPython is not known")
        if times.more_threads:
            found.append(
                f"not covered: up to {count(times.more_threads)} threads that slept for the whole interval; "
                f"{count(thread_states.MOST)} were looked at"
            )
        return found

    def warnings(self, room: int) -> List[str]:
        found, missed = [], self.result.sum("missed")
        if missed:
            times = "their times are left over, or on the CPU"
            found.append(f"switches of threads that were not seen: {missed}; {times}")
        if abs(self._times.left_over_ns) > self.LEFT_OVER * self._times.thread_ns:
            found.append(
                f"the times of the threads do not add up: {self._left_over()} of "
                f"{duration(self._times.thread_ns)}"
            )
        elif self._times.beyond_cpu_ns > self.LEFT_OVER * self._times.thread_ns:
            off = duration(self._times.beyond_cpu_ns)
            found.append(f"of the time on the CPU, {off} were off it: the process's CPU time is less")
        return found

    def _place(self, wait: off_cpu.Wait) -> Any:
        """Returns name, file, line, and whether no traced function was open."""
        if not wait.site:
            return None, None, None, True
        return (*map(known, self._times.site(wait.site) or [None] * 3), False)

    def _function(self, where: Any, waits: List[off_cpu.Wait]) -> Row:
        name, file, line, outside = where
        return {
            "function": name,
            "file": file,
            "line": line,
            "outside": outside,
            **_waited(waits),
            "longest_ns": max(wait.longest for wait in waits),
            "reasons": self._reasons(waits),
            "woken_by": self._wakers(waits),
        }

    def _reasons(self, waits: List[off_cpu.Wait]) -> List[Row]:
        found: Dict[Any, List[off_cpu.Wait]] = {}
        for wait in waits:
            found.setdefault(self._times.reason(wait.what), []).append(wait)
        rows = [{"reason": reason, "call": call, **_waited(same)} for (reason, call), same in found.items()]
        return sorted(rows, key=lambda one: (-_off(one), one["reason"], one["call"] or ""))

    def _wakers(self, waits: List[off_cpu.Wait]) -> List[Row]:
        found: Dict[Any, int] = {}
        for key in dict.fromkeys(map(self._times.key, waits)):
            for site, ns in self._woken.get(key, {}).items():
                where = tuple(map(known, self._times.site(site) or [None] * 3))
                found[where] = found.get(where, 0) + ns
        rows: List[Row] = []
        for where, ns in found.items():
            name, file, line = where
            rows.append({"function": name, "file": file, "line": line, "blocked_ns": ns})
        return ordered(rows, "blocked_ns")


def _off(row: Row) -> int:
    """The time off the CPU."""
    return int(row["blocked_ns"] + row["queued_ns"])


def _waited(waits: List[off_cpu.Wait]) -> Row:
    return {
        "blocked_ns": sum(wait.blocked for wait in waits),
        "queued_ns": sum(wait.queued for wait in waits),
        "times": sum(wait.times for wait in waits),
    }


REPORTS = {
    "alloc": Alloc,
    "backtraces": Backtraces,
    "calls": Calls,
    "exceptions": Exceptions,
    "gc": Gc,
    "gvl": Gvl,
    "hot": Hot,
    "hot_own": HotByOwn,
    "lines": Lines,
    "lines_own": LinesByOwn,
    "offcpu": Offcpu,
    "on": On,
    "on_stack": On,
    "requests": Requests,
    "syscalls": Syscalls,
    BY_LINE: SyscallsLines,
    **{f"{FILES}{machine}": SyscallsFiles for machine in syscalls.NUMBERS},
    "waits": Waits,
    "gvl_kernel": GvlByKernel,
    "waits_kernel": WaitsByKernel,
    **{f"slow{least}ms": Slow for least in (1, 10, 100)},
}


def is_cut(text: str, size: int) -> bool:
    """Whether a text of a program that reads so many bytes may be cut. The end of a cut character takes
    up to three bytes. The output replaces what is no UTF-8 by a character of three bytes.
    """
    length = len(text.encode(errors="replace")) - 2 * text.count("\ufffd")
    return length >= size - (2 if text.endswith("\ufffd") else 0)


def command_of(program: str) -> str:
    """Returns the gem's command for a program."""
    name = program[: -len(BY_REQUEST)] if program.endswith(BY_REQUEST) else program
    if name.startswith(FILES) or name == BY_LINE:
        return "syscalls"
    for suffix in (KERNEL, BY_OWN):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return {"light": "stat", "on_stack": "on"}.get(name, "slow" if name.startswith("slow") else name)


def report_of(program: str) -> Any:
    """Returns a subclass of Report, or None for a program without rows."""
    return REPORTS.get(program[: -len(BY_REQUEST)] if program.endswith(BY_REQUEST) else program)


def definition_of(program: str) -> Definition:
    """Returns the answer's definition for a program with a report."""
    return ALL[command_of(program)]


def known(value: Any) -> Any:
    """Replaces "" and 0, which mean "not known" in the process, by None."""
    return None if value in ("", 0) else value


def place(row: Kept, what: str) -> Row:
    name, file, line = row.names[:3]
    return {what: known(name), "file": known(file), "line": known(line)}


def total(rows: List[Row], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def ordered(rows: List[Row], *names: str) -> List[Row]:
    """Sorts in place: the largest first, ties by place, waits of one place by what they wait for, and
    requests by name.
    """
    rows.sort(
        key=lambda row: (
            [-(row[name] or 0) for name in names],
            f"{row.get('file') or ''}:{row.get('line') or ''}",
            *(row.get(name) or "" for name in ("what", "call", "method", "route")),
        )
    )
    return rows


def _thread_name(pid: int, thread: int) -> Optional[str]:
    """Returns None when the thread has ended, or when its id is of another PID namespace."""
    try:
        with open(f"/proc/{pid}/task/{thread}/comm", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return None
