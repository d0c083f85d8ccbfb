"""Prints the state of a process's probes, and the probes that the application has defined."""

from __future__ import annotations

from typing import Any, Dict, List

from probescope.command import tables
from probescope.command.definitions import LISTS, PROCESS, SCHEMA
from probescope.command.probed_process import find
from probescope.command.text import clean, to_json


def run(options: Any) -> int:
    known = find(options.pid).status()
    print(to_json(_shaped(known))) if options.json else show(known)
    return 0


def _shaped(known: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the object that docs/schema/status.json describes."""
    return {
        "schema": SCHEMA,
        "command": "status",
        "pids": [known["pid"]],
        "process": {name: known[name] for name in PROCESS},
        "rows": _rows(known),
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
        print("", *tables.listed(LISTS["status"]["own"], known["own"]), sep="\n")
    print("", *tables.listed(LISTS["status"]["rows"], _rows(known)), sep="\n")


def _rows(known: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [
        {"name": name, **{key: probe[key] for key in ("state", "listened", "reason")}}
        for name, probe in known["probes"].items()
    ]
