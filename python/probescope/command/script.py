"""The bpftrace programs, to read, to change and to run without this command."""

from __future__ import annotations

from typing import Any

from probescope.command.programs import all_programs, program, question


def run(options: Any) -> int:
    if options.name:
        print(program(options.name).read_text(encoding="utf-8"), end="")
        return 0
    for name, path in sorted(all_programs().items()):
        print(f"{name:<12}{question(path)}")
    return 0
