"""Reads `probescope_info` (ext/core/info.h) out of a process.

The library may be older or newer than this command: sizes and offsets are those that its head announces, fields that it does not have
read as 0, those of APPENDED as None.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Any, Dict

from probescope.command.errors import Refused

MAGIC = b"PSCOPE1"
HEAD = struct.Struct("<8s6I16s32s16siI6Q128s")
HEAD_NAMES = (
    "magic size abi sequence probe_count probe_size probes_offset runtime version library pid flags memory_limit memory_used "
    "rows_dropped flushes switches watcher_ticks note"
).split()
# What later versions appended to the head: ns of CLOCK_MONOTONIC when semaphores last changed, and when every hook for that was in (0: not
# yet); CPU ns that looking took in the intervals that were flushed, and CPU ns of the process in them.
# PROBESCOPE_MAX_OVERHEAD in millionths, 0 where there is no limit. CLOCK_MONOTONIC where the last interval that was flushed ended, which
# stats__done tells too.
APPENDED = ("asked_ns", "hooks_in_ns", "looking_ns", "looked_cpu_ns", "overhead_limit", "cut")
# out_ns: CLOCK_MONOTONIC when its hooks were taken out for that limit, or 0.
PROBE = struct.Struct("<24sIIQ120sQ")
PROBE_NAMES = ("name", "state", "enabled", "semaphore", "reason", "out_ns")
STATES = ("off", "on", "degraded", "refused", "unsupported")
FLAGS = {"installed": 1, "watcher": 2, "jit": 4, "cycle_clock": 8, "requests": 16}
SEQUENCE_AT, FLUSHES_AT = 16, 128
# There are 26 probes of 168 bytes.
MAX_PROBES, MAX_PROBE_BYTES = 128, 1024
# Of one read.
MAX_BYTES = 1 << 20


class Info:
    def __init__(self, memory: int, address: int) -> None:
        """memory: a descriptor of /proc/PID/mem. address: of the struct in the process."""
        self._memory = memory
        self._address = address

    def snapshot(self) -> Dict[str, Any]:
        """A consistent copy: the head's fields, `flags` as names, and `probes`: {name: {state, enabled, semaphore, reason, out_ns}}.

        Raises Refused when what is there is none, or is being written ("busy"), and OSError when the process is gone.
        """
        head = dict(zip(HEAD_NAMES, HEAD.unpack(self._read(self._address, HEAD.size))))
        if head["magic"].split(b"\0")[0] != MAGIC:
            raise Refused("malformed", "its probescope_info is not one")
        # A size of 0: the library is mapped, and its first function is still to run.
        if not head["probe_size"]:
            raise _busy("begin")
        if head["sequence"] % 2:
            raise _busy("finish")
        if not 40 <= head["probe_size"] <= MAX_PROBE_BYTES or head["probe_count"] > MAX_PROBES:
            told = f"{head['probe_count']} probes of {head['probe_size']} bytes"
            raise Refused("malformed", f"its probescope_info tells of {told}")
        rows = self._read(self._address + head["probes_offset"], head["probe_count"] * head["probe_size"])
        appended = self._appended(head["probes_offset"])
        if struct.unpack("<I", self._read(self._address + SEQUENCE_AT, 4))[0] != head["sequence"]:
            raise _busy("finish")
        return {**self._shaped(head, rows), **appended}

    def flushes(self) -> int:
        """Number of flushes so far."""
        return int.from_bytes(self._read(self._address + FLUSHES_AT, 8), "little")

    def listened(self, semaphore: int) -> bool:
        """Whether a tracer listens to a probe now. semaphore: from a snapshot. Several tracers need not count as several."""
        return self._read(semaphore, 2) != b"\0\0"

    def _appended(self, probes_offset: int) -> Dict[str, Any]:
        """The fields of APPENDED. The table of probes begins where the head ends."""
        count = min(max(probes_offset - HEAD.size, 0) // 8, len(APPENDED))
        values = struct.unpack(f"<{count}Q", self._read(self._address + HEAD.size, 8 * count))
        return {**dict.fromkeys(APPENDED), **dict(zip(APPENDED, values))}

    def _shaped(self, head: Dict[str, Any], rows: bytes) -> Dict[str, Any]:
        size = head["probe_size"]
        probes = {}
        for i in range(head["probe_count"]):
            row = rows[i * size : (i + 1) * size][: PROBE.size].ljust(PROBE.size, b"\0")
            probe = dict(zip(PROBE_NAMES, map(_text, PROBE.unpack(row))))
            probe["state"] = STATES[probe["state"]] if probe["state"] < len(STATES) else "unknown"
            probes[probe.pop("name")] = probe
        known = {name: _text(head[name]) for name in HEAD_NAMES[7:]}
        known["flags"] = [name for name, bit in FLAGS.items() if head["flags"] & bit]
        return {**known, "abi": head["abi"], "probes": probes}

    def _read(self, address: int, size: int) -> bytes:
        """Addresses and sizes are those that the process tells, so nothing about them is believed."""
        if size > MAX_BYTES or not 0 <= address <= (1 << 63) - size:
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
    """Strings become valid text: the process is not believed."""
    return value.split(b"\0")[0].decode(errors="replace") if isinstance(value, bytes) else value
