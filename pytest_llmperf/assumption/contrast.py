"""Two factors at two levels: each block's contrasts on logs, which an interval is then made of.

The interval and its test are in ``student``; what the factors are is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pytest_llmperf.assumption.comparison import Comparison
from pytest_llmperf.assumption.student import block_log_ratios

Arm = Sequence[tuple[int, float]]
"""(block, value) of one cell; more is worse."""

Together = Literal["reinforce", "overlap", "multiply", "open"]


class Contrasts(msgspec.Struct, frozen=True, kw_only=True):
    """What two factors change, block by block, as logs of how many times better."""

    first: list[float]
    """Main effect: the mean of the first factor's effects with the other one off and on."""
    second: list[float]
    interaction: list[float]
    """The first factor's effect with the other on less the same with it off; it is symmetric."""


def contrasts(*, both: Arm, first: Arm, second: Arm, neither: Arm) -> Contrasts:
    """Give the contrasts of each block that has all four cells, in the order of blocks.

    With ``m`` the mean log of a cell in a block, more being worse:
    ``first = ((m_neither - m_first) + (m_second - m_both)) / 2``, ``second`` likewise, and
    ``interaction = (m_second - m_both) - (m_neither - m_first)``. Zero of the last means that
    the two gains multiply.

    :raises InvalidMeasurement: a block lacks a cell, or a value is not positive and finite.
    """
    alone, added = block_log_ratios(neither, first), block_log_ratios(second, both)
    other, other_added = block_log_ratios(neither, second), block_log_ratios(first, both)
    return Contrasts(
        first=[(off + on) / 2 for off, on in zip(alone, added, strict=True)],
        second=[(off + on) / 2 for off, on in zip(other, other_added, strict=True)],
        interaction=[on - off for off, on in zip(alone, added, strict=True)],
    )


def together(interaction: Comparison, within: float) -> Together:
    """Say how two gains combine, by the interval of their interaction.

    Above 1 they reinforce each other, below 1 they overlap, inside ``1 / (1 + within)`` to
    ``1 + within`` they multiply, and any other interval leaves it open.
    """
    low, high = interaction.low, interaction.high
    if low is not None and low > 1:
        return "reinforce"
    if high is not None and high < 1:
        return "overlap"
    if low is None or high is None:
        return "open"
    return "multiply" if 1 / (1 + within) < low and high < 1 + within else "open"
