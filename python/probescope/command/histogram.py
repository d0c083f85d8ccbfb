"""Histograms: counts by powers of two, and times in the steps of providers/requests.bt, which are
sixteen for each power of two ns.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional

from probescope.command.display import BAR

Buckets = List[Dict[str, Any]]
STEPS = 16


def buckets(values: Any) -> Buckets:
    """Converts the values of bpftrace's hist(). A bucket covers values from min up to, but not
    including, max. Empty buckets at both ends are dropped.
    """
    found = [
        {"min": one.get("min", 0), "max": one["max"] + 1 if "max" in one else None, "count": one["count"]}
        for one in values or []
    ]
    full = [i for i, one in enumerate(found) if one["count"]]
    return found[full[0] : full[-1] + 1] if full else []


def merge(several: List[Buckets]) -> Buckets:
    counts: Dict[Any, int] = {}
    for one in (bucket for found in several for bucket in found):
        counts[one["min"], one["max"]] = counts.get((one["min"], one["max"]), 0) + one["count"]
    return [{"min": low, "max": high, "count": count} for (low, high), count in sorted(counts.items())]


def render(heading: str, found: Buckets, text: Callable[[int], str]) -> str:
    """Returns the histogram as text, with a bar for each bucket."""
    if not found:
        return ""
    most = max(one["count"] for one in found)
    lows = [text(one["min"]) for one in found]
    highs = [text(one["max"]) if one["max"] else "" for one in found]
    low, high = max(map(len, lows)), max(map(len, highs))
    width = max(len("COUNT"), *(len(str(one["count"])) for one in found))
    lines = [f"{heading:<{low + high + 3}}  {'COUNT':>{width}}"]
    for i, one in enumerate(found):
        bar = "#" * math.ceil(one["count"] * BAR / most)
        lines.append(f"{lows[i]:>{low}} - {highs[i]:>{high}}  {one['count']:>{width}}  {bar}".rstrip())
    return "\n".join(lines)


class Steps:
    def __init__(self, counts: Dict[int, int]) -> None:
        """counts: {step: count}"""
        self._counts = sorted(counts.items())
        self._total = sum(counts.values())

    def quantile(self, share: float, most: Optional[int]) -> Optional[int]:
        """Returns the time within which this share of the requests ended: the middle of its step,
        at most `most`. Returns None without requests.
        """
        wanted = math.ceil(self._total * share)
        seen = 0
        for step, count in self._counts:
            seen += count
            if seen >= wanted:
                middle = self._middle(step)
                return middle if most is None else min(middle, most)
        return None

    def histogram(self) -> Buckets:
        counts: Dict[int, int] = {}
        for step, count in self._counts:
            counts[step // STEPS] = counts.get(step // STEPS, 0) + count
        return [{"min": 1 << power, "max": 2 << power, "count": count} for power, count in counts.items()]

    @staticmethod
    def _middle(step: int) -> int:
        power, part = divmod(step, STEPS)
        return 1 << power if power < 4 else ((STEPS + part) << (power - 4)) + (1 << (power - 4)) // 2
