"""An event of the kernel or of a C function, which `probescope trace on` counts.

Of the user's text only names come into the bpftrace program. They match the patterns below, and
they exist: a tracepoint and its field are in the kernel's lists, a software event is in SOFTWARE,
and a symbol is in a file that the process maps (c_function.py). lib/probescope/tracing/event.rb has
the same.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from probescope.command.errors import CommandError, Usage
from probescope.command.machine import EVENTS, is_hidden, no_list
from probescope.command.text import clean

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_@.]*", re.ASCII)
# The longest name of a tracepoint, a field or a symbol.
NAME_BYTES = 255
# The longest path on Linux.
FILE_BYTES = 4095
# What --sum takes of a uprobe. Further arguments may be on the stack.
ARGUMENTS = ("arg0", "arg1", "arg2", "arg3")
# Events that the kernel counts by itself. The clocks among them (cpu-clock, task-clock) are no
# events of a function.
SOFTWARE = (
    "page-faults",
    "minor-faults",
    "major-faults",
    "context-switches",
    "cpu-migrations",
    "alignment-faults",
    "emulation-faults",
)
ALIASES = {"faults": "page-faults", "cs": "context-switches"}
FORMS = "tracepoint:CATEGORY:NAME, software:NAME or uprobe:FILE:SYMBOL"
# The lines of providers/on.bt that are replaced.
ATTACH_POINT = "software:page-faults:1\n"
VALUE = "  $value = (int64)0;\n"
# The most frames of --stack: so many has providers/on_stack.bt.
MOST_FRAMES = 8
# What an event costs (docs/performance.md).
COSTS = "0.5 to 1.1 us for each event of the traced processes, and 0.1 to 0.3 us for each of all others"
UPROBE_COSTS = "about 0.7 us for each call, and 1.1 us where it is counted"
# valgrind reads a breakpoint as an instruction of the program.
VALGRIND = "it ends programs under valgrind that make the call"
# A field in /sys/kernel/tracing/events/CATEGORY/NAME/format. Arrays, pointers and structs do not
# match.
FIELD = re.compile(
    r"^\s+field:((?:unsigned |signed |const |volatile )*\w+(?: \w+)*) (\w+);"
    r"\s*offset:\d+;\s*size:[1248];",
    re.MULTILINE | re.ASCII,
)
NO_INTEGER = re.compile(r"(?:const |volatile )*(?:struct|union|enum|__data_loc|__rel_loc|float|double)\b")


class Event(NamedTuple):
    """names: category and name of a tracepoint, the name of a software event, file and symbol of a
    uprobe. sum: the field or argument whose values are added up.
    """

    kind: str
    names: Tuple[str, ...]
    sum: Optional[str] = None
    # How many processes run code of the file of a uprobe, and whether all processes could be read.
    mapping: Tuple[int, bool] = (0, False)

    def __str__(self) -> str:
        return ":".join((self.kind, *self.names))

    def check_exists(self, events: Sequence[str] = EVENTS) -> None:
        """Raises CommandError where the kernel does not have the event, or the event not the field."""
        if self.kind != "tracepoint":
            return
        found = integer_fields(self.names[0], self.names[1], events)
        if self.sum and self.sum not in found:
            raise CommandError(
                f"{self} has no integer field {self.sum}; it has {', '.join(found) or 'none'}",
                f"trace on {self} without --sum",
            )

    def program(self, text: str, link: Optional[str]) -> str:
        """Returns the text of the program for this event. text: of on.bt or on_stack.bt. link: our own
        path to the file of a uprobe.
        """
        check(self)  # once more, whatever came before
        if self.kind == "uprobe":
            point = f'uprobe:"{link}":"{self.names[1]}"'
        elif self.kind == "software":
            point = f"software:{self.names[0]}:1"  # 1: each of them, and not one of 100
        else:
            point = f"tracepoint:{self.names[0]}:{self.names[1]}"
        value = "0" if not self.sum else self.sum if self.kind == "uprobe" else f"args->{self.sum}"
        return _replaced(_replaced(text, ATTACH_POINT, f"{point}\n"), VALUE, f"  $value = (int64){value};\n")

    def reach(self) -> str:
        """Returns what the trace listens to, and who pays. bpftrace 0.17 sets the breakpoint of a uprobe
        in all processes, also with -p.
        """
        if self.kind != "uprobe":
            return f"listens to {self} of every process of the machine: {COSTS}"
        number, whole = self.mapping
        processes = f"{'' if whole else 'at least '}{number} processes that run"
        if whole and number == 1:
            processes = "1 process that runs"
        calls = f"stops each call of {self.names[1]} in {processes} code of {self.names[0]}"
        return f"{calls}: {UPROBE_COSTS}; {VALGRIND}"


def parse(text: str, sum_of: Optional[str] = None) -> Event:
    """text, sum_of: as on the command line. Raises Usage."""
    kind, _, rest = text.partition(":")
    names: List[str] = []
    if kind == "tracepoint":
        names = rest.split(":")
    elif kind == "software":
        name = rest[: -len(":1")] if rest.endswith(":1") else rest
        names = ["software", ALIASES.get(name, name)]
    elif kind == "uprobe":
        names = list(rest.rpartition(":")[::2])
    if len(names) != 2:
        raise Usage(f"{clean(text)!r} is no event", FORMS)
    event = Event(kind, tuple(names[1:] if kind == "software" else names), sum_of)
    check(event)
    return event


def check(event: Event) -> None:
    """Raises Usage with the reason why there can be no such event."""
    {"tracepoint": _check_tracepoint, "software": _check_software, "uprobe": _check_uprobe}[event.kind](event)
    value = event.sum
    if value is None:
        return
    if event.kind == "software":
        raise Usage(f"{event} has no values that --sum could add up", "--sum with a tracepoint or uprobe")
    if not (value in ARGUMENTS if event.kind == "uprobe" else _is_name(value)):
        step = f"--sum {', '.join(ARGUMENTS)}" if event.kind == "uprobe" else "--sum FIELD"
        raise Usage(f"--sum takes no {_shown(value)}", step)


def _check_tracepoint(event: Event) -> None:
    for name in event.names:
        if not _is_name(name):
            raise Usage(f"{_shown(name)} is no name of a tracepoint", "ls /sys/kernel/tracing/events")


def _check_software(event: Event) -> None:
    if event.names[0] not in SOFTWARE:
        step = f"software:{', software:'.join(SOFTWARE)}"
        raise Usage(f"there is no software event {_shown(event.names[0])}", step)


def _check_uprobe(event: Event) -> None:
    file, symbol = event.names
    size = len(os.fsencode(file)) if "\0" not in file else 0
    if not 1 <= size <= FILE_BYTES or not (file.startswith("/") or "/" not in file):
        raise Usage(
            f"{_shown(file)} is neither the whole path of a file nor its name", "uprobe:libc.so.6:malloc"
        )
    if len(symbol) > NAME_BYTES or not SYMBOL.fullmatch(symbol):
        raise Usage(f"{_shown(symbol)} is no name of a C function", "uprobe:libc.so.6:malloc")


def integer_fields(category: str, name: str, events: Sequence[str] = EVENTS) -> List[str]:
    """Returns the integer fields of a tracepoint. Raises CommandError where the kernel does not have
    it, or does not show it to this user.
    """
    hidden = "the kernel does not show this user its tracepoints"
    for folder in events:
        path = os.path.join(folder, category, name)
        if os.path.isfile(f"{path}/id"):
            try:
                with open(f"{path}/format", encoding="utf-8") as file:
                    told = FIELD.findall(file.read())
            except PermissionError:
                raise CommandError(hidden, "run the command as root") from None
            return [
                field for of, field in told if not NO_INTEGER.match(of) and not field.startswith("common_")
            ]
    if any(map(is_hidden, events)):
        raise CommandError(hidden, "run the command as root")
    if not any(map(os.path.isdir, events)):
        raise no_list(events)
    raise CommandError(
        f"this kernel has no tracepoint {category}:{name}", f"ls /sys/kernel/tracing/events/{category}"
    )


def _is_name(text: str) -> bool:
    return len(text) <= NAME_BYTES and NAME.fullmatch(text) is not None


def _shown(text: str) -> str:
    """The start of a text, to fit into a message."""
    return f'"{clean(text[:80])}"'


def _replaced(text: str, line: str, by: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines.count(line) != 1:
        raise AssertionError(f"the program has not one line {line!r}")
    return "".join(by if one == line else one for one in lines)
