"""Several gates judged in one session: what each p-value is worth among the others.

Where the p-values come from is in ``confirm``.
"""

from __future__ import annotations

from pytest_llmperf.assumption.arrays import Numbers, numpy


def holm(p: Numbers, weights: Numbers = None) -> Numbers:
    """Adjust p-values for being judged together: Holm's step-down method, over the last axis.

    A gate is rejected at level alpha when its adjusted value is at most alpha; the chance of any
    false rejection is then at most alpha, whatever the dependence. Weights (Holm 1979, section 4)
    must not depend on the data behind ``p``; a gate of weight zero is not of the family and is 1.

    Formula: in ascending order of p/w, the running maximum of p times (the sum of the weights not
    yet passed) over w.
    """
    np = numpy()
    p = np.asarray(p, dtype=float)
    shares = np.ones_like(p) if weights is None else np.broadcast_to(weights, p.shape)
    member = shares > 0
    scaled = np.divide(p, shares, out=np.full(p.shape, np.inf), where=member)
    order = np.argsort(scaled, axis=-1, kind="stable")
    ordered = np.take_along_axis(scaled, order, axis=-1)
    left = np.take_along_axis(shares * member, order, axis=-1)
    remaining = np.flip(np.cumsum(np.flip(left, axis=-1), axis=-1), axis=-1)
    stepped = np.where(left > 0, ordered, 0.0) * remaining
    adjusted = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    back = np.empty_like(p)
    np.put_along_axis(back, order, adjusted, axis=-1)
    return np.where(member, back, 1.0)
