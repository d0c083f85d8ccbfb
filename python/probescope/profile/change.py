"""Whether two series of values differ by more than chance."""

from __future__ import annotations

import math
from typing import Sequence, Tuple

# Fewest values of each series for Welch's test.
LEAST = 5
# The quantile 1 - 1e-5 of Student's t by degrees of freedom. Between two, the larger one counts.
LIMITS = {
    **{4: 23.34, 5: 15.55, 6: 12.04, 7: 10.11, 8: 8.91, 9: 8.11, 10: 7.53, 12: 6.77},
    **{14: 6.29, 16: 5.96, 20: 5.55, 25: 5.25, 30: 5.06, 40: 4.84, 60: 4.64, 120: 4.45},
}


def welch(before: Sequence[float], after: Sequence[float]) -> bool:
    """Welch's t-test (doi:10.1093/biomet/34.1-2.28). The values of one series are spans of time, so a
    function that runs for some seconds at a time does not change by chance, as it would where single
    samples are counted.
    """
    (mean, error), (other, other_error) = _mean_and_error(before), _mean_and_error(after)
    both = error + other_error
    if both == 0:
        return mean != other
    freedom = both**2 / (error**2 / (len(before) - 1) + other_error**2 / (len(after) - 1))
    return abs(other - mean) > _limit(freedom) * math.sqrt(both)


def _limit(freedom: float) -> float:
    return min((limit for least, limit in LIMITS.items() if least <= freedom), default=math.inf)


def _mean_and_error(values: Sequence[float]) -> Tuple[float, float]:
    """The mean, and its variance."""
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
