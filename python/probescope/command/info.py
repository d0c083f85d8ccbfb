"""Reads `probescope_info` (providers/info.yml) from a process.

The library may be older or newer than this command. So sizes and offsets come from the struct's
head. Fields that the library lacks read as 0, and those of APPENDED as None.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Any, Dict

from probescope.command import bounds
from probescope.command import info_layout as layout
from probescope.command.errors import Refused


def _struct(fields: layout.Fields) -> struct.Struct:
    return struct.Struct("<" + "".join(kind for _, kind in fields.values()))


# Fields that every version of the library has.
FIRST = {**layout.HEAD, **layout.PROCESS}
HEAD, PROBE = _struct(FIRST), _struct(layout.PROBE)


class Info:
    def __init__(self, memory: int, address: int) -> None:
        """memory: a descriptor of /proc/PID/mem. address: the struct's address in the process."""
        self._memory = memory
        self._address = address

    def snapshot(self) -> Dict[str, Any]:
        """Returns a consistent copy: the head's fields, `flags` as names, and `probes`: {name:
        {state, enabled, semaphore, reason, out_ns}}.

        Raises Refused when the data is not a probescope_info, or while the process writes it
        ("busy"). Raises OSError when the process has ended.
        """
        head = dict(zip(FIRST, HEAD.unpack(self._read(self._address, HEAD.size))))
        if head["magic"].split(b"\0")[0] != layout.MAGIC:
            raise Refused("malformed", "its probescope_info is not one")
        # A size of 0: the library is mapped, but has not filled in the struct yet.
        if not head["probe_size"]:
            raise _busy("begin")
        if head["sequence"] % 2:
            raise _busy("finish")
        if (
            not bounds.INFO_LEAST_ROW_BYTES <= head["probe_size"] <= bounds.INFO_ROW_BYTES
            or head["probe_count"] > bounds.INFO_PROBES
        ):
            told = f"{head['probe_count']} probes of {head['probe_size']} bytes"
            raise Refused("malformed", f"its probescope_info tells of {told}")
        rows = self._read(self._address + head["probes_offset"], head["probe_count"] * head["probe_size"])
        appended = self._appended(head["probes_offset"])
        if self._one("sequence") != head["sequence"]:
            raise _busy("finish")
        return {**self._shaped(head, rows), **appended}

    def flushes(self) -> int:
        """The number of flushes so far."""
        return self._one("flushes")

    def listened(self, semaphore: int) -> bool:
        """Whether at least one tracer is attached to a probe now.

        semaphore: from a snapshot.
        """
        return self._read(semaphore, 2) != b"\0\0"

    def _appended(self, probes_offset: int) -> Dict[str, Any]:
        """Reads the fields of APPENDED. The table of probes begins where the head ends."""
        there = {
            name: (offset, kind)
            for name, (offset, kind) in layout.APPENDED.items()
            if offset + struct.calcsize(f"<{kind}") <= probes_offset
        }
        values = _struct(there)
        known = values.unpack(self._read(self._address + HEAD.size, values.size))
        return {**dict.fromkeys(layout.APPENDED), **dict(zip(there, known))}

    def _one(self, name: str) -> int:
        """Reads an integer field of FIRST."""
        offset, kind = FIRST[name]
        one = struct.Struct(f"<{kind}")
        return int(one.unpack(self._read(self._address + offset, one.size))[0])

    def _shaped(self, head: Dict[str, Any], rows: bytes) -> Dict[str, Any]:
        size = head["probe_size"]
        probes = {}
        for i in range(head["probe_count"]):
            row = rows[i * size : (i + 1) * size][: PROBE.size].ljust(PROBE.size, b"\0")
            probe = dict(zip(layout.PROBE, map(_text, PROBE.unpack(row))))
            probe["state"] = (
                layout.STATES[probe["state"]] if probe["state"] < len(layout.STATES) else "unknown"
            )
            probes[probe.pop("name")] = probe
        known = {name: _text(head[name]) for name in layout.PROCESS}
        known["flags"] = [name for name, bit in layout.FLAGS.items() if head["flags"] & bit]
        return {**known, "abi": head["abi"], "probes": probes}

    def _read(self, address: int, size: int) -> bytes:
        """Addresses and sizes come from the process, so they are checked before use."""
        if size > bounds.READ_BYTES or not 0 <= address <= (1 << 63) - size:
            raise Refused("malformed", f"it tells of {size} bytes at {address:#x}")
        try:
            data = os.pread(self._memory, size, address) if size else b""
        except OSError as error:
            if error.errno in (errno.EIO, errno.EFAULT):
                raise Refused("malformed", f"it has no memory at {address:#x}") from None
            raise
        if len(data) != size:
            raise ProcessLookupError("the process has ended")
        return data


def _busy(what: str) -> Refused:
    step = "it may be stopped: look at its state with ps"
    return Refused("busy", f"the process does not {what} writing its probescope_info", step)


def _text(value: Any) -> Any:
    """Makes strings valid text, because the process may hold any bytes."""
    return value.split(b"\0")[0].decode(errors="replace") if isinstance(value, bytes) else value
