"""Gates followed from look to look: each look's tests, and who is decided when.

How much a look may take is in ``looks``, how suspects share a level in ``family``, and the words
for one session's gates in ``confirm``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_llmperf.assumption.arrays import Numbers, numpy, t_tail
from pytest_llmperf.assumption.family import holm
from pytest_llmperf.assumption.looks import Design, gap_and_error, look_table


class Path(NamedTuple):
    """Decisions at each look, gates by gates; arrays whose last axis is the gates."""

    regress_at: Numbers
    """Index of the look that said REGRESS; -1 for none."""
    pass_at: Numbers
    worth_regress: Numbers
    adjusted_regress: Numbers
    worth_pass: Numbers


def look_tests(
    candidate: Numbers,
    reference: Numbers,
    *,
    design: Design,
    tolerance: float,
    detect: float,
    own: Numbers = 0.0,
) -> tuple[Numbers, Numbers]:
    """Give a look's p-values against "slower by tolerance at most" and "by detect or more".

    Boots are on the last axis. Pooled: Student's two-sample t with equal variances, with
    ``design.own_df`` more degrees of freedom from ``own``; paired: t over pairs.
    """
    gap, se = gap_and_error(candidate, reference, design, own)
    df = design.df(candidate.shape[-1])
    return t_tail(gap - math.log1p(tolerance), se, df), t_tail(math.log1p(detect) - gap, se, df)


def follow(
    p_regress: Sequence[Numbers],
    p_pass: Sequence[Numbers],
    weights: Numbers,
    *,
    design: Design,
    alpha: float,
    beta: float,
) -> Path:
    """Follow gates from look to look. Each look is an array whose last axis is the gates.

    At each look: p-values become worths (``looks``), worths are adjusted by Holm with the weights,
    REGRESS is said first, then PASS. A gate that has a word is measured no further: its worths
    stand still, and it stays in the family.
    """
    np = numpy()
    rising, flat = look_table(design, "rising"), look_table(design, "flat")
    shape = np.broadcast(p_regress[0], weights).shape
    regress_at, pass_at = np.full(shape, -1), np.full(shape, -1)
    least_r, least_p = np.full(shape, np.inf), np.full(shape, np.inf)
    adjusted = np.ones(shape)
    for k, (each_r, each_p) in enumerate(zip(p_regress, p_pass, strict=True)):
        is_open = (regress_at < 0) & (pass_at < 0) & (weights > 0)
        least_r = np.where(is_open, np.minimum(least_r, each_r / rising.shares[k]), least_r)
        least_p = np.where(is_open, np.minimum(least_p, each_p / flat.shares[k]), least_p)
        adjusted = holm(rising.worth(least_r), weights)
        says_regress = is_open & (adjusted <= alpha)
        says_pass = is_open & ~says_regress & (flat.worth(least_p) <= beta)
        regress_at = np.where(says_regress, k, regress_at)
        pass_at = np.where(says_pass, k, pass_at)
    return Path(regress_at, pass_at, rising.worth(least_r), adjusted, flat.worth(least_p))
