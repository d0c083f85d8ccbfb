"""How much of a process's CPU time the ticks missed at which samples are taken.

The CPU time is known exactly, and by the ticks: the length of a tick for each tick that found a
thread of the process on a CPU. CPython's samples are taken at ticks of the library, which counts
both (`ticked_*` in providers/info.yml). Ruby's are taken at ticks of the kernel, which has a clock
for each.
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, NamedTuple, Optional

# What the kernel calls CPUCLOCK_PROF and CPUCLOCK_SCHED, the lowest bits of a clock's id.
BY_TICKS, EXACT = 0, 2
# By chance alone, more than this number of standard deviations is too rare to count.
DEVIATIONS = 3
# Less is within the accuracy of the other figures.
LEAST = 0.05
# The kernel's coarse clocks advance by its ticks.
TICK = time.clock_getres(time.CLOCK_MONOTONIC_COARSE) if hasattr(time, "CLOCK_MONOTONIC_COARSE") else 0.01


class Ticked(NamedTuple):
    """The CPU time so far, exact and by ticks in ns, and how many ticks met the process."""

    exact: int
    by_ticks: int
    met: float


def ticked(pid: int, known: Dict[str, Any]) -> Optional[Ticked]:
    """known: a snapshot of the process's probescope_info. None when the process has ended, or when
    its library does not count.
    """
    if known.get("runtime") != "ruby":
        counted = [known.get(name) for name in ("ticked_ran_ns", "ticked_met_ns", "ticked_met")]
        return None if None in counted else Ticked(*map(int, counted))  # type: ignore[arg-type]
    try:
        exact, by_ticks = (time.clock_gettime_ns((~pid << 3) | kind) for kind in (EXACT, BY_TICKS))
    except OSError:
        return None
    return Ticked(exact, by_ticks, exact / 1e9 / TICK)


def missed(before: Optional[Ticked], after: Optional[Ticked]) -> Optional[float]:
    """The share of the CPU time between two moments that no tick met. None when it is below LEAST,
    or when chance alone may explain it.
    """
    if not before or not after or after.exact <= before.exact:
        return None
    part = 1 - (after.by_ticks - before.by_ticks) / (after.exact - before.exact)
    return part if part > max(LEAST, DEVIATIONS / math.sqrt(max(1, after.met - before.met))) else None
