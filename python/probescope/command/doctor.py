"""Checks what tracing depends on. Each check is one line, with the next step when it fails."""

from __future__ import annotations

import platform
from typing import Any, Callable, Dict, List, Optional

import probescope
from probescope import abi
from probescope.command import machine
from probescope.command.definitions import SCHEMA
from probescope.command.errors import CommandError
from probescope.command.probed_process import find
from probescope.command.text import clean, to_json

FORCED = ("line", "exception__raise", "exception__rescue")
TRACE_HOOK = (
    "before Python 3.12 only with PROBESCOPE_FORCE=1 in its environment: they need the trace hook, "
    "with which a call takes 6.4 times as long while somebody listens"
)
TOOL_IDS_TAKEN = "tool ids are taken"  # part of a reason in ext/python/monitoring.c
MARKS = {"good": "ok", "note": "--", "bad": "NO"}


def run(options: Any) -> int:
    checks = Checks(options.pid)
    if options.json:
        pids = [options.pid] if options.pid else []
        answer = {"schema": SCHEMA, "command": "doctor", "pids": pids, "rows": checks.rows, "warnings": []}
        print(to_json(answer))
    else:
        for row in checks.rows:
            step = f" -> {row['next_step']}" if row["next_step"] else ""
            print(clean(f"{MARKS[row['state']]}  {row['text']}{step}"))
    return 1 if any(row["state"] == "bad" for row in checks.rows) else 0


class Checks:
    """rows: {state: "good", "note" or "bad", text, next_step}"""

    def __init__(self, pid: Optional[int]) -> None:
        self.rows: List[Dict[str, Any]] = []
        self._pid = pid
        for what in (machine.kernel, machine.uprobes, machine.tracefs, self._bpftrace):
            self._check(what)
        self._check(self._setpriv, "note")
        self._check(self._privilege)
        self._check(self._library, "note" if pid else "bad")
        if not probescope.unavailable_reason():
            self._check(self._providers, "note")
        if pid:
            self._check(self._process)

    def _check(self, what: Callable[[], str], severity: str = "bad") -> None:
        try:
            self.rows.append({"state": "good", "text": what(), "next_step": None})
        except CommandError as error:
            self.rows.append({"state": severity, "text": str(error), "next_step": error.next_step})

    def _bpftrace(self) -> str:
        found = machine.bpftrace()
        return f"bpftrace {found.version} ({found.path})"

    def _setpriv(self) -> str:
        machine.setpriv()
        return "setpriv: bpftrace ends with the command, also when that is killed"

    def _privilege(self) -> str:
        return machine.tried_privilege()

    def _providers(self) -> str:
        library = probescope._native.PROVIDERS
        by = "its own library" if library == "own" else library
        text = f"run-time probes (probescope.Provider) by {by}"
        if probescope._native.MOST_ARGUMENTS > 6:
            return text
        step = "build probescope without PROBESCOPE_STAPSDT_DIR: it has its own"
        raise CommandError(f"{text}: no semaphores, six arguments at most", step)

    def _library(self) -> str:
        """Checks this Python's extension. The traced process has an extension of its own."""
        name = f"{platform.python_implementation()} {platform.python_version()}"
        reason = probescope.unavailable_reason()
        if reason:
            step = (
                "once that is mended, install it again: pip install --force-reinstall --no-cache-dir, "
                "from the same place"
            )
            raise CommandError(f"this Python ({name}) cannot be traced: {reason}", step)
        path, probes = machine.library()
        if probes != len(abi.PROBES):
            step = "the library was stripped of its section .note.stapsdt: install the released wheel"
            raise CommandError(f"{probes} of {len(abi.PROBES)} probes are in {path}", step)
        return f"the native library for this Python ({name}), with {probes} probes"

    def _process(self) -> str:
        known = find(self._pid or 0).to_dict()
        found: List[Callable[[], str]] = [
            lambda: _watched(known),
            lambda: _on_disk(known),
            lambda: _memory(known),
        ]
        text = (
            f"process {self._pid}: {known['runtime']} {known['version']}, "
            f"probescope {known['library']}, ABI {known['abi']}"
        )
        self.rows.append({"state": "good", "text": text, "next_step": None})
        self._check(found[0])
        for what in found[1:]:
            self._check(what, "note")
        states = [(name, probe["state"], probe["reason"]) for name, probe in known["probes"].items()]
        refused = [row for row in states if row[1] not in ("off", "on") or row[2]]
        for name, state, reason in refused:
            now = "off, and was refused or degraded when it was last listened to" if state == "off" else state
            text = f"{name} is {now}{': ' + reason if reason else ''}"
            step = "end one of these tools there, and attach anew" if TOOL_IDS_TAKEN in reason else None
            self.rows.append({"state": "note", "text": text, "next_step": step})
        traced = [name for name in FORCED if name in known["probes"]] if _takes_trace_hook(known) else []
        if traced:
            text = f"{', '.join(traced)}: {TRACE_HOOK}"
            self.rows.append({"state": "note", "text": text, "next_step": None})
        if known["note"]:
            self.rows.append({"state": "note", "text": known["note"], "next_step": None})
        served = len(known["probes"]) - len({*traced, *(row[0] for row in refused)})
        return f"{served} of {len(known['probes'])} probes can be traced in full"


def _takes_trace_hook(known: Dict[str, Any]) -> bool:
    """Whether the probes in FORCED need the trace hook, as they do before CPython 3.12."""
    return known["runtime"] == "python" and int(known["version"].split(".")[1]) < 12


def _watched(known: Dict[str, Any]) -> str:
    if "watcher" in known["flags"]:
        return "its watcher looks for tracers"
    step = "call probescope.install() there, or restart it with PROBESCOPE=1"
    raise CommandError(f"nobody looks for tracers in process {known['pid']}: its watcher does not run", step)


def _on_disk(known: Dict[str, Any]) -> str:
    if not known["deleted"]:
        return f"its library is on disk ({known['path']})"
    raise CommandError(
        f"its library was replaced or deleted on disk ({known['path']}): bpftrace cannot attach to it",
        "restart the process",
    )


def _memory(known: Dict[str, Any]) -> str:
    text = f"{known['memory_used'] >> 10} of {known['memory_limit'] >> 10} KiB for names and rows used"
    if not known["rows_dropped"]:
        return text
    text += f"; {known['rows_dropped']} events had no row of their own"
    raise CommandError(text, "give it more: PROBESCOPE_MEMORY=64M")
