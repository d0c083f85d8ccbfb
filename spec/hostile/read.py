"""Prints what the wheel's readers make of an input: a line of JSON for each line "READER PATH" on
stdin. read.rb does the same for the gem.
"""

import json
import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../python"))

from probescope.command.elf import Elf, Malformed  # noqa: E402
from probescope.command.errors import CommandError  # noqa: E402
from probescope.command.info import Info  # noqa: E402
from probescope.command.mappings import in_text  # noqa: E402
from probescope.profile import pprof_reader  # noqa: E402
from probescope.profile.diff import Diff  # noqa: E402
from probescope.profile.tables import Tables  # noqa: E402

SYMBOL = "probescope_info"
REFUSED = (Malformed, CommandError, ProcessLookupError)


def elf(path):
    file = os.open(path, os.O_RDONLY)
    try:
        found = Elf(file)
        return {
            "symbol": part(lambda: found.symbol(SYMBOL)),
            "probes": part(lambda: [list(probe) for probe in found.probes()]),
            "bias": part(lambda: None if found.symbol(SYMBOL) is None else found.bias(0)),
        }
    finally:
        os.close(file)


def maps(path):
    with open(path, "rb") as text:
        return [
            [
                file.path.decode(errors="replace"),
                file.range,
                file.start,
                file.device.decode(errors="replace"),
                file.inode.decode(),
            ]
            for file in in_text(text, 1)
        ]


def info(path):
    file = os.open(path, os.O_RDONLY)
    try:
        found = Info(file, 64)
        return {**found.snapshot(), "flushed": found.flushes()}
    finally:
        os.close(file)


def recording(path):
    """What `convert` and `diff` show of a recording."""
    found = pprof_reader.read(path)
    shown = [Tables(found, by, 5) for by in ("own", "self", "total")]
    diff = Diff(found, found, "self", "cpu", 0.01)
    return {
        "fields": [one.fields() for one in shown],
        "text": [one.lines() for one in shown],
        "wholes": [[diff.wholes(kind), len(diff.rows(kind))] for kind in diff.kinds],
        "short": diff.too_short,
    }


def part(question):
    try:
        return question()
    except REFUSED:
        return "refused"


def main():
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize() + (96 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    readers = {"elf": elf, "maps": maps, "info": info, "recording": recording}
    for line in sys.stdin:
        reader, path = line.rstrip("\n").split(" ", 1)
        print(json.dumps(part(lambda: readers[reader](path))), flush=True)  # noqa: B023


main()
