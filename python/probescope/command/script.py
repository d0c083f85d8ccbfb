"""Prints the bpftrace programs, for reading, changing and running without this command."""

from __future__ import annotations

from typing import Any

from probescope.command.programs import all_programs, program, question


def run(options: Any) -> int:
    if options.name:
        print(program(options.name).read_text(encoding="utf-8"), end="")
        return 0
    programs = all_programs()
    width = max(map(len, programs)) + 2
    for name, path in sorted(programs.items()):
        print(f"{name:<{width}}{question(path)}")
    return 0
