"""What a measured arm's turns are made of: times that add up, tokens a step, lengths.

How two of them differ is in ``split``. A term that the evidence lacks is ``None``, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

import msgspec

from pytest_llmperf import sample
from pytest_llmperf.counters import difference
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.evidence import Measured
from pytest_llmperf.record import Request


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one arm's turns on one boot, or on several, are made of. ``None``: not in evidence.

    The three times are means over the middle half of the turns by wall clock, so that they add up
    and no wild turn moves them.
    """

    turns: int = 0
    """Turns that completed with the stamps that the times need."""
    wall_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    """``wall_s`` less ``first_token_s``."""
    decode_rate: float | None = None
    """Median decode throughput in tokens per second."""
    acceptance_length: float | None = None
    """Tokens a step by the server's counters over the window; 1 where nothing drafts."""
    output_tokens: float | None = None
    """Mean a turn, by usage; likewise the two below."""
    prompt_tokens: float | None = None
    cached_tokens: float | None = None

    @property
    def step_s(self) -> float | None:
        """Seconds a decoding step takes. Formula: acceptance length / decode throughput."""
        if self.acceptance_length is None or self.decode_rate is None:
            return None
        return self.acceptance_length / self.decode_rate


def terms(measured: Measured) -> Terms:
    """What one arm's turns are made of."""
    timed = [each for each in measured.turns if _wall_s(each) is not None]
    first, wall = _middle(timed)
    drafts = measured.arm.declared.draft_tokens
    rates = [
        rate
        for each in measured.turns
        if (rate := sample.value(each, DECODE_THROUGHPUT, drafts)) is not None
    ]
    done = [each.usage for each in measured.turns if each.completed]
    return Terms(
        turns=len(timed),
        wall_s=wall,
        first_token_s=first,
        decode_s=None if wall is None or first is None else wall - first,
        decode_rate=median(rates) if rates else None,
        acceptance_length=acceptance_length(measured),
        output_tokens=_mean_known([each.completion_tokens for each in done]),
        prompt_tokens=_mean_known([each.prompt_tokens for each in done]),
        cached_tokens=_mean_known([each.cached_tokens for each in done]),
    )


def joint(several: Iterable[Terms]) -> Terms:
    """The terms of several boots as one: times and lengths by mean, rates by geometric mean.

    A term that one of them lacks is ``None``.
    """
    boots = list(several)
    if not boots:
        return Terms()
    geometric = ("decode_rate", "acceptance_length")
    arithmetic = (
        "wall_s",
        "first_token_s",
        "decode_s",
        "output_tokens",
        "prompt_tokens",
        "cached_tokens",
    )
    found = {name: _joined(boots, name, _geometric_mean) for name in geometric}
    found |= {name: _joined(boots, name, fmean) for name in arithmetic}
    return Terms(turns=sum(each.turns for each in boots), **found)


def mean_log(boots: Sequence[Measured]) -> float | None:
    """The mean over boots of the mean log over turns, under the arm's own denominator."""
    logs = [
        [math.log(value) for turn in each.turns if (value := _own_value(each, turn)) is not None]
        for each in boots
    ]
    return fmean(fmean(each) for each in logs) if all(logs) else None


def _own_value(measured: Measured, turn: Request) -> float | None:
    return sample.value(turn, measured.arm.denominator, measured.arm.declared.draft_tokens)


def acceptance_length(measured: Measured) -> float | None:
    """Tokens a decoding step yields, by the counters of the engine over the whole window."""
    delta = difference(measured.before, measured.after)
    if delta.acceptance_length is not None:
        return delta.acceptance_length
    readings = (measured.before, measured.after)
    is_read = all(each is not None and each.readable for each in readings)
    is_ours = measured.engine is not None and not measured.engine.attached
    is_plain = measured.arm.declared.speculation is None and not delta.drafts
    return 1.0 if is_read and is_ours and is_plain and delta.restarted is None else None


def _wall_s(turn: Request) -> float | None:
    stamps = turn.stamps
    if turn.failure is not None or stamps.first_token_ns is None:
        return None
    if stamps.sent_ns is None or stamps.last_token_ns is None:
        return None
    return (stamps.last_token_ns - stamps.sent_ns) / 1e9


def _first_s(turn: Request) -> float:
    return ((turn.stamps.first_token_ns or 0) - (turn.stamps.sent_ns or 0)) / 1e9


def _middle(timed: Sequence[Request]) -> tuple[float | None, float | None]:
    """Mean time to first token and wall clock over the middle half of turns by wall clock."""
    if not timed:
        return None, None
    ordered = sorted(timed, key=lambda each: _wall_s(each) or 0.0)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return fmean(map(_first_s, middle)), fmean(_wall_s(each) or 0.0 for each in middle)


def _mean_known(numbers: Sequence[int | None]) -> float | None:
    known = [each for each in numbers if each is not None]
    return fmean(known) if known and len(known) == len(numbers) else None


def _joined(
    boots: Sequence[Terms], name: str, mean: Callable[[Sequence[float]], float]
) -> float | None:
    values = [getattr(each, name) for each in boots]
    return None if any(each is None for each in values) else mean(values)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(each) for each in values))
