"""Where one more session will lie if it is like those before: a prediction interval.

Which facts are held to it is decided by ``proof``; it judges no claim of a gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from pytest_llmperf.assumption.comparison import positive, scipy_stats

FEWEST = 5
"""Values below which a spread is too badly known to refuse anything by it."""


def prediction_interval(values: Sequence[float], level: float) -> tuple[float, float] | None:
    """Give the two-sided interval for one more value; ``None`` of fewer than five.

    Formula, on logs: mean +- t(1 - (1 - level) / 2, n - 1) sd sqrt(1 + 1 / n).

    :raises InvalidMeasurement: a value that is not positive.
    """
    if len(values) < FEWEST:
        return None
    logs = [math.log(each) for each in positive(values)]
    n = len(logs)
    t = float(scipy_stats().t.isf((1 - level) / 2, n - 1))
    reach = t * stdev(logs) * math.sqrt(1 + 1 / n)
    return math.exp(fmean(logs) - reach), math.exp(fmean(logs) + reach)
