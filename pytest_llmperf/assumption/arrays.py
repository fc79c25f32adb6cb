"""Numbers one at a time or many at once, and the two libraries that work on them, imported late.

No test is made here: one sample's are in ``student`` and ``ranks``, a gate's in ``screen`` and
``confirm``. A function that takes ``Numbers`` works element by element, so that a simulation calls
the same function that judges a gate.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Numbers: TypeAlias = Any
"""A float, or a numpy array of them; element by element unless the docstring names an axis."""

EQUAL = 1e-12
"""Logs that differ by less are equal: what is left is rounding."""


def numpy() -> Any:  # noqa: ANN401 - a module
    """Import ``numpy`` at the first comparison; a plain pytest run does not pay for it."""
    import numpy as np  # noqa: PLC0415 - as the docstring says

    return np


def special() -> Any:  # noqa: ANN401 - a module
    """Import ``scipy.special`` at the first comparison."""
    from scipy import special as functions  # noqa: PLC0415 - as the docstring says

    return functions


def t_tail(gap: Numbers, se: Numbers, df: Numbers) -> Numbers:
    """Give the chance of a gap this large or larger when there is none, by Student's t.

    It is 1 where there is no spread at all: equal replicates are a copy or a constant, and prove
    nothing on either side.
    """
    np = numpy()
    known = np.asarray(se) > EQUAL
    score = np.divide(gap, se, out=np.zeros(np.broadcast(gap, se).shape), where=known)
    return np.where(known, special().stdtr(df, -score), 1.0)


def squares(values: Numbers) -> Numbers:
    """Give the sum of squares about the mean, over the last axis."""
    np = numpy()
    logs = np.asarray(values, dtype=float)
    return ((logs - logs.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
