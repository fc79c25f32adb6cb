"""One comparison for each class of output: what speculation gains beside how predictable it is.

A class is a kind of content at a temperature. Acceptance and repetition stand beside the gain and
are never judged alone: what is accepted may still be no faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from pytest_llmperf.attribution.terms import acceptance_length
from pytest_llmperf.denominator import BUILT_IN, DECODE_THROUGHPUT, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.run import Pair
from pytest_llmperf.units import percent, quantity
from pytest_llmperf.workload import Prompts, Workload

_CLOCKS: dict[str, Denominator] = {
    "whole turn": BUILT_IN["single_stream"],
    "first token": BUILT_IN["time_to_first_token"],
    "decode only": DECODE_THROUGHPUT,
}
"""What drafting costs in prefill stands beside what it gains in decode."""


class ByClass:
    """The pairs of one test by class, in the order in which they were measured."""

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self.pairs = dict(pairs)

    def floors(self, at_least: float | Mapping[str, float]) -> dict[str, float]:
        """Each class's floor.

        :raises UsageError: a class without a floor, or a floor for a class that is not there.
        """
        if not isinstance(at_least, Mapping):
            return dict.fromkeys(self.pairs, at_least)
        apart = sorted(at_least.keys() ^ self.pairs.keys())
        if apart:
            raise UsageError(
                f"Floors and classes differ in {', '.join(map(repr, apart))}.",
                f"Measured were {', '.join(self.pairs)}; floors are given for "
                f"{', '.join(at_least)}.",
                "Give one floor for each class, or one number for all.",
            )
        return {name: at_least[name] for name in self.pairs}

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """For each class its gain by three clocks, with what makes it so, as (words, value)."""
        clocks = " / ".join(_CLOCKS)
        return tuple(
            (f"{predicted(name, pair)}; {clocks}", _gains(pair))
            for name, pair in self.pairs.items()
        )


def predicted(name: str, pair: Pair) -> str:
    """A class with its acceptance length over its own window, and how much it repeats itself."""
    length = acceptance_length(pair.candidate.measured)
    return (
        f"{name}: acceptance length {quantity(length, 'tokens a step')}, "
        f"{percent(repetition_rate(pair))} of 4-grams repeated"
    )


def repetition_rate(pair: Pair) -> float | None:
    """The median candidate turn's share of repeated 4-grams; ``None`` where one has none."""
    rates = [turn.repetition for turn in pair.candidate.turns if turn.completed]
    known = [rate for rate in rates if rate is not None]
    return median(known) if known and len(known) == len(rates) else None


def class_of(workload: Workload) -> str:
    """A workload's class: its kind of content, and its temperature where that is not 0.

    :raises UsageError: it has no content class, or mixes temperatures.
    """
    planned = workload.items if isinstance(workload, Prompts) else workload.histories
    temperatures = {each.temperature for each in planned}
    if workload.content_class is None or len(temperatures) > 1:
        raise UsageError(
            f"The workload {workload.name!r} is not of one class.",
            f"Content class {workload.content_class!r}; temperatures "
            f"{', '.join(map(str, sorted(temperatures)))}.",
            "Give all of its requests one content_class and one temperature.",
        )
    (temperature,) = temperatures
    return workload.content_class + (f" at temperature {temperature:g}" if temperature else "")


def refuse_alike(classes: Sequence[str]) -> None:
    """Refuse what cannot be told apart by class.

    :raises UsageError: there is no class, or one twice.
    """
    twice = sorted({each for each in classes if classes.count(each) > 1})
    if classes and not twice:
        return
    raise UsageError(
        f"There are two workloads of one class: {', '.join(twice)}."
        if twice
        else "There is no workload to compare on.",
        f"Their classes are {', '.join(classes) or 'none'}.",
        "Give one workload for each class.",
    )


def _gains(pair: Pair) -> str:
    return " / ".join(quantity(pair.ratio(of), "x") for of in _CLOCKS.values())
