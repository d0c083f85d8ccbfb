"""Shows a recording, or writes it in another format."""

from __future__ import annotations

import sys
from typing import Any, List

from probescope.command.definitions import SCHEMA
from probescope.command.errors import Usage
from probescope.command.text import clean, size, to_json
from probescope.profile import pprof_reader, summary
from probescope.profile.destination import Destination
from probescope.profile.recording import Recording
from probescope.profile.tables import Tables

# Rows of each table.
TOP = 10


def run(options: Any) -> int:
    _check(options)
    destination = Destination(options.output, options.force) if options.output else None
    recording = pprof_reader.read(options.file)
    kind = _kind(recording, options)
    choose_own(recording, options.own)
    if destination:
        print(f"{destination.path}, {size(destination.write(recording, kind))}")
        return 0
    top = TOP if options.top is None else options.top
    tables = Tables(recording, by_of([recording], options.by), top)
    if options.json:
        warnings = recording.metadata.get("warnings", [])
        told = {"schema": SCHEMA, "command": "convert", **tables.fields(), "warnings": warnings}
        print(to_json(told))
    else:
        print("\n".join(tables.lines()))
    return 0


def _check(options: Any) -> None:
    given = (("--json", options.json or None), ("--by", options.by), ("--top", options.top))
    tables = [name for name, value in given if value is not None]
    if options.output and tables:
        raise Usage(f"{tables[0]} is for the tables, and -o writes a file", "probescope convert without -o")
    if options.kind is not None and not (options.output or "").endswith(".collapsed"):
        raise Usage("--kind is for .collapsed, which has one kind", "-o FILE.collapsed")


def by_of(recordings: List[Recording], asked: Any) -> str:
    """By own, where the application is told from its libraries."""
    return asked or ("own" if all(map(summary.has_own, recordings)) else "self")


def choose_own(recording: Recording, globs: List[str]) -> None:
    """Chooses the application's files in a recording, if globs are given."""
    for text in recording.choose_own(globs) if globs else []:
        print(f"probescope: {clean(text)}", file=sys.stderr)


def _kind(recording: Recording, options: Any) -> int:
    """Returns the index of the kind."""
    names = [kind.name for kind in recording.kinds]
    if options.kind and options.kind not in names:
        raise Usage(f"{options.file} has no kind {options.kind}", f"one of {', '.join(names)}")
    return names.index(options.kind) if options.kind else 0
