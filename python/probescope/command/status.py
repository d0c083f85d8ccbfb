"""What a process says about its probes."""

from __future__ import annotations

from typing import Any, Dict

from probescope.command.target import find
from probescope.command.text import clean, to_json


def run(options: Any) -> int:
    target = find(options.pid)
    known = target.to_dict()
    for probe in known["probes"].values():
        probe["tracers"] = target.info.tracers(probe.pop("semaphore"))
    target.close()
    print(to_json({"command": "status", **known})) if options.json else show(known)
    return 0


def show(known: Dict[str, Any]) -> None:
    watched = "its watcher looks for tracers" if "watcher" in known["flags"] else "NOBODY looks for tracers in it"
    kib = known["memory_used"] >> 10, known["memory_limit"] >> 10
    print(
        clean(
            f"process {known['pid']}: {known['runtime']} {known['version']}, probescope {known['library']}: {watched}"
        )
    )
    print(
        f"{kib[0]} of {kib[1]} KiB for names and rows used, {known['rows_dropped']} events without a row of their own"
    )
    if known["note"]:
        print(clean(known["note"]))
    print(f"\n{'PROBE':<22}{'STATE':<13}{'TRACERS':>7}  REASON")
    for name, probe in known["probes"].items():
        print(f"{clean(name):<22}{probe['state']:<13}{probe['tracers']:>7}  {clean(probe['reason'])}".rstrip())
