"""Our durations in pytest-benchmark's table, JSON, groups and histogram, by its public interface.

It times a replay: the clock it is given steps by what we measured. Its numbers are a view; verdicts
come from ``verdict``. Old files of its are read in ``benchmark_files``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from pytest_llmperf import place
from pytest_llmperf.errors import UsageError
from pytest_llmperf.run import Run
from pytest_llmperf.verdict import Word

CLOCK = pytest.StashKey["ReplayClock"]()


class ReplayClock:
    """A timer for pytest-benchmark that runs by recorded durations."""

    __name__ = "llmperf"

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        """Tell the time, in seconds."""
        return self._now_s

    def step(self, durations_s: Iterator[float]) -> None:
        """Let the next duration pass."""
        self._now_s += next(durations_s)


def prepare(item: pytest.Item, group: str) -> None:
    """Have pytest-benchmark time this item by a clock of ours; its rows group by gate."""
    clock = ReplayClock()
    item.stash[CLOCK] = clock
    item.add_marker(pytest.mark.benchmark(timer=clock, group=group))


def publish(
    benchmark: Any,  # noqa: ANN401 - its fixture has no public type
    item: pytest.Item,
    runs: Sequence[Run],
    word: Word | None,
) -> None:
    """Hand the first run's turns to the ``benchmark`` fixture, each turn one round of seconds.

    :param word: what the gate came to; it stands beside the numbers, which prove nothing without.
    """
    if not runs:
        return
    run = runs[0]
    seconds = msgspec.structs.replace(run.denominator, unit="request")
    durations = Run(run.boots[-1:], denominator=seconds).values[0]
    if not durations:
        return
    benchmark.extra_info["verdict"] = word
    benchmark.extra_info["denominator"] = run.denominator.words
    benchmark.extra_info["formula"] = seconds.formula
    benchmark.extra_info["evidence"] = run.evidence
    clock, left = item.stash[CLOCK], iter(durations)
    benchmark.pedantic(lambda: clock.step(left), rounds=len(durations), iterations=1)


def refuse_foreign(recorded: dict[str, Any]) -> None:
    """Refuse a comparison with numbers of another place.

    :raises UsageError: a fact of the place differs, or is known on one side only.
    """
    here = place.facts()
    apart = [
        f"{name}: {here.get(name)!r} here, {recorded.get(name)!r} there"
        for name in sorted({*here, *recorded})
        if here.get(name) != recorded.get(name)
    ]
    if apart:
        raise UsageError(
            "The benchmark file is of another place.",
            "; ".join(apart) + ".",
            "Compare numbers of one machine only.",
        )
