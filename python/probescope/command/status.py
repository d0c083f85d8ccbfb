"""Prints the state of a process's probes, and the probes that the application has defined."""

from __future__ import annotations

from typing import Any, Dict

from probescope.command.target import find
from probescope.command.text import SCHEMA, clean, to_json

# Fields of the process in JSON.
PROCESS = (
    "pid runtime version library abi path deleted flags memory_limit memory_used rows_dropped flushes "
    "switches watcher_ticks note"
).split()
LISTENED = {True: "yes", False: "no", None: "?"}  # "?": it cannot be read


def run(options: Any) -> int:
    known = find(options.pid).status()
    print(to_json(_shaped(known))) if options.json else show(known)
    return 0


def _shaped(known: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the object that docs/schema/status.json describes."""
    rows = [
        {"name": name, **{key: probe[key] for key in ("state", "listened", "reason")}}
        for name, probe in known["probes"].items()
    ]
    return {
        "schema": SCHEMA,
        "command": "status",
        "pids": [known["pid"]],
        "process": {name: known[name] for name in PROCESS},
        "rows": rows,
        "own": known["own"],
        "warnings": [],
    }


def show(known: Dict[str, Any]) -> None:
    watched = (
        "its watcher looks for tracers" if "watcher" in known["flags"] else "NOBODY looks for tracers in it"
    )
    kib = known["memory_used"] >> 10, known["memory_limit"] >> 10
    print(
        clean(
            f"process {known['pid']}: {known['runtime']} {known['version']}, "
            f"probescope {known['library']}: {watched}"
        )
    )
    print(
        f"{kib[0]} of {kib[1]} KiB for names and rows used, "
        f"{known['rows_dropped']} events without a row of their own"
    )
    if known["note"]:
        print(clean(known["note"]))
    if known["own"]:
        width = max(12, *(len(clean(probe["name"])) + 2 for probe in known["own"]))
        print(f"\n{'OF ITS OWN':<{width}}{'ARGUMENTS':>9}  {'LISTENED':<10}LIBRARY")
        for probe in known["own"]:
            path = clean(probe["path"] or "none")
            listened = LISTENED[probe["listened"]]
            print(f"{clean(probe['name']):<{width}}{probe['arguments']:>9}  {listened:<10}{path}")
    print(f"\n{'PROBE':<22}{'STATE':<13}{'LISTENED':<10}REASON")
    for name, probe in known["probes"].items():
        print(
            f"{clean(name):<22}{probe['state']:<13}{LISTENED[probe['listened']]:<10}{clean(probe['reason'])}".rstrip()
        )
