"""Comparisons of plain numbers with a boundary, each under an assumption that it states.

What the numbers measure is in ``sample`` and ``denominator``, the word for the outcome in
``verdict``. This is the only room that imports scipy, and only when a comparison is made.

Every comparison makes two one-sided tests. REGRESS rejects "the claim holds" at level ``alpha``;
PASS rejects "the claim does not hold" at level ``beta``. The two ends of the interval have the same
two levels, so that it lies wholly on one side of the boundary exactly when a test rejects.

What spans sessions stands in modules of its own, in the order in which a gate meets them:
``reach`` and ``sizing`` before anything boots; ``boots``, ``instrument``, ``screen`` and
``confirm``; ``creep`` and ``modes`` before anything is recorded.
"""

from pytest_llmperf.assumption.comparison import (
    ALPHA,
    BETA,
    POWER,
    Comparison,
    Relation,
    Replicate,
)
from pytest_llmperf.assumption.contrast import Contrasts, Together, contrasts, together
from pytest_llmperf.assumption.ranks import (
    quantile,
    quantile_against,
    rising_trend_p,
    throughput_against,
)
from pytest_llmperf.assumption.student import (
    BOOTS,
    block_log_ratios,
    quantile_against_over_boots,
    ratio_against,
    two_sample_ratio_against,
)

__all__ = [
    "ALPHA",
    "BETA",
    "BOOTS",
    "POWER",
    "Comparison",
    "Contrasts",
    "Relation",
    "Replicate",
    "Together",
    "block_log_ratios",
    "contrasts",
    "quantile",
    "quantile_against",
    "quantile_against_over_boots",
    "ratio_against",
    "rising_trend_p",
    "throughput_against",
    "together",
    "two_sample_ratio_against",
]
