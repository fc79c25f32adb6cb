"""Whether the engine was warm: values that still fall over the turns measure the warming up.

What a value is stands in ``sample``; comparing values with limits is in ``assumption``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import median
from typing import Literal

from pytest_llmperf.load.in_flight import windows_of
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window
from pytest_llmperf.record import Request
from pytest_llmperf.sample import value, window_value
from pytest_llmperf.units import counted, probability, ratio

HEAD_RATIO = 1.5
"""First turns slower than the slowest later one by this are the engine's warming up."""

HEAD_NEEDS = 3
"""Turns without which a slow first one cannot be told from chance."""

TREND_NEEDS = 10
"""Turns without which a trend is not looked for."""

TREND_P = 0.001
"""One-sided p-value below which a trend is no chance."""

TREND_SIZE = 1.1
"""First third over last third below which a trend is only reported."""

WARM_BY_USE = 100
"""Requests that an engine had answered before, from which a trend is not its warming up."""

TREND = "still_warming"
"""The kind of contradiction that a trend of one arm is."""

Drift = Literal["none", "shared", "own"]

Trend = Callable[[Sequence[float]], float]
"""Values in order to the one-sided p-value that they do not fall."""


def falling_p(values: Sequence[float]) -> float:
    """One-sided p-value of Kendall's tau against falling values, by its normal approximation.

    Formula: S = sum over pairs of sign(later - earlier); z = (-S - 1) / sd with
    sd^2 = n (n - 1) (2n + 5) / 18. Ties make the true p-value smaller.
    """
    n = len(values)
    concordance = sum((later > first) - (later < first) for first, later in combinations(values, 2))
    sd = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return 0.5 * math.erfc((-concordance - 1) / sd / math.sqrt(2)) if sd else 1.0


def slow_head(window: Window) -> Contradiction | None:
    """The first turns are no slower than all later ones by half."""
    found = _slowness(window)
    values = [each for each, _ in found]
    works = [work for _, work in found]
    head = _head(values)
    # Longer answers or prompts explain a slow head only if it is not slow for its work.
    if not head or (all(works) and not _head([v / w for v, w in found if w])):
        return None
    least, rest = min(values[:head]), max(values[head:])
    return Contradiction(
        kind="not_warm",
        reason=f"Not warm: the first {counted(head, _noun(window))} of {len(values)} took at least "
        f"{ratio(least / rest)} as long as every later one.",
        evidence=f"First {_listed(values[:head])}, later at most {_listed([rest])} "
        f"{_unit(window)}.",
        remedy="Warm up longer, with the prompt lengths and sampling that are measured.",
    )


def _head(values: Sequence[float]) -> int:
    """How many first turns are all beyond every later one by half; 0 if none."""
    if len(values) < HEAD_NEEDS:
        return 0
    sizes = range(1, len(values) // 2 + 1)
    return next((n for n in sizes if min(values[:n]) > HEAD_RATIO * max(values[n:])), 0)


def warming(window: Window, trend: Trend = falling_p) -> Contradiction | None:
    """The turns of a fresh engine do not get steadily faster by a size that matters."""
    fall = _fall(window, trend)
    if fall is None or fall[1] < TREND_SIZE or _whose(window, fall[1]):
        return None
    p, size = fall
    return Contradiction(
        kind=TREND,
        reason=f"Not warm: the {_noun(window)}s got steadily faster while they were measured.",
        evidence=f"The first third took {ratio(size)} as long as the last "
        f"(Kendall's tau, one-sided {probability(p)}).",
        remedy="Warm up longer, until the turns stand still.",
    )


def drift(windows: Sequence[Window]) -> Drift:
    """Whether arms whose turns alternated got faster together: then it was the machine.

    Shared is a trend where each arm's duration over the first arm's, turn by turn, has none of a
    size that matters. It cancels in their ratio, as A B B A blocks are balanced.
    """
    if all(warming(each) is None for each in windows):
        return "none"
    first, *others = ([seconds for seconds, _ in _slowness(each)] for each in windows)
    measured = {each.measured.measurement.measurement_id for each in windows}
    if len(measured) > 1 or any(len(each) != len(first) for each in others):
        return "own"
    sizes = [_thirds([a / b for a, b in zip(each, first, strict=True)]) for each in others]
    return "shared" if all(1 / TREND_SIZE < size < TREND_SIZE for size in sizes) else "own"


def warmup_differs(window: Window) -> Finding | None:
    """Warm-up that was not sampled as the turns are: speculation may fail only at theirs."""
    warmups = {each.temperature for each in window.measured.requests if each.role == "warmup"}
    turns = {each.temperature for each in window.turns}
    if not warmups or turns <= warmups:
        return None
    return Finding(
        kind="warmup_differs",
        text=f"Warm-up ran at temperature {_all(warmups)}, the turns at {_all(turns)}.",
    )


def drifting(window: Window, trend: Trend = falling_p) -> Finding | None:
    """A steady trend that is too small, of an engine long in use, or in the other direction."""
    values = [each for each, _ in _slowness(window)]
    fall = _fall(window, trend)
    if fall is not None and warming(window, trend) is None:
        p, size, word = *fall, "faster"
    elif len(values) >= TREND_NEEDS and trend([-each for each in values]) < TREND_P:
        p, size, word = trend([-each for each in values]), 1 / _thirds(values), "slower"
    else:
        return None
    return Finding(
        kind="drifting",
        text=f"The {_noun(window)}s got steadily {word}: the slower end took {ratio(size)} as long "
        f"(Kendall's tau, one-sided {probability(p)}){_whose(window, size)}.",
    )


def _whose(window: Window, size: float) -> str:
    """Why a trend that matters is the machine's and not the engine's warming up; else empty."""
    if size < TREND_SIZE:
        return ""
    answered, gain = _answered(window), _canary_gain(window)
    if answered >= WARM_BY_USE:
        return f"; the engine had answered {answered:,.0f} requests before, so it is the machine's"
    if gain is not None and gain >= TREND_SIZE and size / gain < TREND_SIZE:
        return f"; the canary, which needs no engine, got {ratio(gain)} faster: it is the machine's"
    return ""


def _canary_gain(window: Window) -> float | None:
    """How many times faster the machine's canary was after the window than before it."""
    loops = {each.when: each.loop_ns for each in window.measured.canaries}
    return loops["before"] / loops["after"] if len(loops) == 2 else None  # noqa: PLR2004 - both ends


def _answered(window: Window) -> float:
    """Requests that the engine had answered before this window; 0 where it does not say."""
    before = window.measured.before
    return 0.0 if before is None else before.requests_finished or 0.0


def _fall(window: Window, trend: Trend) -> tuple[float, float] | None:
    """The p-value and size of falling durations; ``None`` if they do not fall."""
    values = [each for each, _ in _slowness(window)]
    if len(values) < TREND_NEEDS:
        return None
    p = trend(values)
    return (p, _thirds(values)) if p < TREND_P else None


def _thirds(values: Sequence[float]) -> float:
    third = len(values) // 3
    return float(median(values[:third]) / median(values[-third:]))


def _slowness(window: Window) -> list[tuple[float, float | None]]:
    """Each turn's duration, or duration a token, and the work that it may grow with.

    Of a load each window's median: within a window, turns differ by the queue they meet.
    """
    if window.denominator.is_load:
        return [(number, None) for number in _of_windows(window)]
    drafts = window.measured.arm.declared.draft_tokens
    found = ((each, value(each, window.denominator, drafts)) for each in window.completed)
    seconds = window.denominator.unit == "request"
    return [
        (number if seconds else 1 / number, _work(each, window) if seconds else None)
        for each, number in found
        if number is not None
    ]


def _of_windows(window: Window) -> list[float]:
    of, drafts = window.denominator, window.measured.arm.declared.draft_tokens
    numbers: list[float | None] = []
    for turns in windows_of(window.completed).values():
        if of.clock == "span":
            numbers.append(window_value(turns, of))
            continue
        found = [number for each in turns if (number := value(each, of, drafts)) is not None]
        numbers.append(median(found) if found else None)
    known = [each for each in numbers if each is not None]
    return known if of.unit == "request" else [1 / each for each in known]


def _noun(window: Window) -> str:
    return "window" if window.denominator.is_load else "turn"


def _work(turn: Request, window: Window) -> float | None:
    """Tokens that the measured interval is spent on: computed prompt, or output."""
    usage = turn.usage
    if window.denominator.clock != "first_token":
        return usage.completion_tokens
    return None if usage.prompt_tokens is None else usage.prompt_tokens - (usage.cached_tokens or 0)


def _all(numbers: set[float | None]) -> str:
    return ", ".join(sorted("unknown" if each is None else f"{each:g}" for each in numbers))


def _listed(values: Sequence[float]) -> str:
    shown = ", ".join(f"{each:.3g}" for each in values[:3])
    return f"{shown}, ..." if len(values) > 3 else shown  # noqa: PLR2004 - as many as are shown


def _unit(window: Window) -> str:
    return "s" if window.denominator.unit == "request" else "s a token"
