"""How much an output repeats itself, by its token ids; what repeats is easy to guess.

The token ids are not kept: the rate is computed while the answer is read, and recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

NGRAM = 4
"""Tokens in the sequences that are looked for again."""


def repetition(token_ids: Sequence[int]) -> float | None:
    """Share of an output's 4-grams that stood in it before.

    Formula: ``1 - distinct 4-grams / 4-grams``. ``None`` with fewer than two of them.
    """
    grams = [tuple(token_ids[start : start + NGRAM]) for start in range(len(token_ids) - NGRAM + 1)]
    return None if len(grams) < 2 else 1 - len(set(grams)) / len(grams)  # noqa: PLR2004 - nothing could be repeated
