"""One climb of a ladder as measured: a run for each number of streams, some of them measured twice.

What its rungs come to is in ``ladder``; measuring them is in ``bench`` and ``session``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_llmperf.evidence import Measured
from pytest_llmperf.load import ladder
from pytest_llmperf.load.ladder import Rung, Step
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.run import Run


class Climb:
    """The rungs of one test, in rising order of streams, on one boot or several.

    :param first: one run a rung.
    :param again: by streams, the second run of a rung whose first was slower than it can be.
    """

    def __init__(self, first: Sequence[Run], again: Mapping[int, Run] | None = None) -> None:
        self.first = tuple(sorted(first, key=streams_of))
        self.again = dict(again or {})

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run that counts at each rung: the second one where there are two."""
        return tuple(self.again.get(streams_of(run), run) for run in self.first)

    def steps(self, boot: int = -1) -> tuple[Step, ...]:
        """The rungs of one boot, the newest unless told otherwise; one that failed is missing."""
        found = (self._step(run, boot) for run in self.first)
        return tuple(each for each in found if each is not None)

    def _step(self, run: Run, boot: int) -> Step | None:
        streams, measured = streams_of(run), run.boots[boot]
        first = _rung(measured, streams)
        second = self._second(streams, measured.measurement.round)
        if second is None:
            return None if first is None else Step(rung=first)
        return Step(rung=second, first_try=first)

    def _second(self, streams: int, round_number: int) -> Rung | None:
        boots = self.again[streams].boots if streams in self.again else ()
        same = [each for each in boots if each.measurement.round == round_number]
        return _rung(same[-1], streams) if same else None

    @cached_property
    def knee(self) -> Rung | None:
        """Where the newest boot's power is greatest; ``None`` where that is beyond the ladder."""
        return ladder.knee([step.rung for step in self.steps()])

    @property
    def best(self) -> Rung | None:
        """The newest boot's rung of the greatest throughput of all streams together."""
        rungs = [step.rung for step in self.steps()]
        return max(rungs, key=lambda each: each.aggregate_tps, default=None)

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams of each rung, rising."""
        return tuple(streams_of(run) for run in self.first)

    def bests(self) -> list[float]:
        """For each boot, the greatest throughput of all streams together, in tokens per second."""
        return [max(each.aggregate_tps for each in self._rungs(boot)) for boot in self._numbers]

    def gains(self) -> list[float]:
        """For each boot, the best rung's throughput over that of the fewest streams."""
        firsts = [self._rungs(boot)[0].aggregate_tps for boot in self._numbers]
        return [best / first for best, first in zip(self.bests(), firsts, strict=True)]

    @property
    def _numbers(self) -> range:
        return range(min(len(run.boots) for run in self.first))

    def _rungs(self, boot: int) -> list[Rung]:
        return [step.rung for step in self.steps(boot)]

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Why a rung that counts is no measurement of what it declares."""
        return tuple(dict.fromkeys(each for run in self.runs for each in run.contradictions))

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know of the rungs, those that were measured twice first."""
        twice = [_twice(step) for step in self.steps() if step.first_try is not None]
        others = (text for run in self.runs for text in run.findings)
        return tuple(dict.fromkeys([*twice, *others]))


def streams_of(run: Run) -> int:
    """How many streams a rung declares."""
    return run.denominator.streams or 0


def newest_dips(first: Sequence[Run]) -> tuple[int, ...]:
    """Streams of the rungs that the newest boot must measure again."""
    found = (_rung(run.measured, streams_of(run)) for run in first)
    return ladder.dips([each for each in found if each is not None])


def _rung(measured: Measured, streams: int) -> Rung | None:
    return ladder.rung(measured.turns, streams=streams)


def _twice(step: Step) -> str:
    first = step.first_try
    before = "" if first is None else f"{first.aggregate_tps:.3g} tok/s at first, "
    after = (
        "the first use of a batch shape is likely the cause"
        if step.healed
        else "it stays slower than its neighbours say it can be"
    )
    return (
        f"{step.rung.streams} streams were measured again, being slower than a greater rung: "
        f"{before}{step.rung.aggregate_tps:.3g} tok/s then; {after}."
    )
