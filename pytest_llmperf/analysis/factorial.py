"""Two mechanisms, each on and off: four cells of one measurement, and what they say of each other.

One arm or two are in ``run``; the contrasts' arithmetic is in ``assumption``. An ``Effect`` is
judged as any ratio is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean, median

import msgspec

from pytest_llmperf import assumption, sample
from pytest_llmperf.denominator import BUILT_IN, DECODE_THROUGHPUT, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.run import Pair, Run, in_turn, shared_drift
from pytest_llmperf.units import measured, quantity

BOTH, NEITHER = "both", "neither"
INTERACTION = "interaction"

_LEVEL = 0.025
"""Of each end of the intervals that are shown beside: 95 % between them."""

_CLOCKS: dict[str, Denominator] = {
    "whole turn, wall clock": BUILT_IN["single_stream"],
    "time to first token": BUILT_IN["time_to_first_token"],
    "decode only": DECODE_THROUGHPUT,
}
_LEVELS = {
    "speculation": ("drafter", "no drafter"),
    "prefix": ("cached prefix", "cold prefix"),
    "profile": ("one profile", "the other profile"),
}
_TOGETHER: dict[assumption.Together, str] = {
    "reinforce": "they reinforce each other",
    "overlap": "they overlap",
    "multiply": "they multiply",
    "open": "whether they multiply is open",
}


class Factorial:
    """Four cells of one measurement. A cell is named for the mechanisms that are on in it.

    :param cells: ``both``, the first factor's name, the second one's, and ``neither``.
    :param of: the denominator whose clock the effects are of unless another is asked for.
    """

    def __init__(
        self, cells: Mapping[str, Run], *, of: Denominator, factors: Sequence[str]
    ) -> None:
        self.first, self.second = factors
        self.cells = {name: cells[name] for name in cell_names(self.first, self.second)}
        self.of = msgspec.structs.replace(of, prefix="any")

    def effect(self, factor: str, *, by: str | None = None) -> Effect:
        """What one mechanism gains over both states of the other, for ``assert_speedup``.

        :param by: a denominator's name; the factorial's own if not given.
        :raises UsageError: no such factor or denominator, or a prefix by another clock than the
            first token's: what it saves is prefill, and nothing else.
        """
        if factor not in (self.first, self.second):
            raise UsageError(
                f"{factor!r} is no factor of this factorial.",
                f"Its factors are {self.first} and {self.second}.",
                "Name one of them, or ask for interaction().",
            )
        of = self._counted(by)
        if factor == "prefix" and of.clock != "first_token":
            raise UsageError(
                f"The effect of a cached prefix is asked for by {of.name}.",
                "A cached prefix saves prefill and nothing else; a whole turn also decodes.",
                "Write effect('prefix', by='time_to_first_token'); the others are shown beside it.",
            )
        return Effect(self, factor, of)

    def interaction(self, *, by: str | None = None) -> Effect:
        """How many times more both gain together than the product of what each gains alone."""
        return Effect(self, INTERACTION, self._counted(by))

    def logs(self, effect: str, of: Denominator) -> list[list[float]]:
        """Per boot, per block, the log of an effect; more is better.

        :raises InvalidMeasurement: a block lacks a cell.
        """
        found = (self._contrasts(number, of) for number in range(len(self.cells[BOTH].boots)))
        name = {self.first: "first", self.second: "second"}.get(effect, "interaction")
        return [list(getattr(each, name)) for each in found]

    def is_complete(self, of: Denominator) -> bool:
        """Whether every turn of every cell has a value under a denominator."""
        boots = [boot for run in self.cells.values() for boot in run.boots]
        return all(len(by_block(boot, of)) == len(boot.turns) for boot in boots)

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Each cell against its own declaration, then neighbours against what they differ in."""
        own = in_turn(list(self.cells.values()))
        between = [
            each
            for candidate, reference, factor in self._neighbours()
            for each in Pair(candidate, reference, of=self.of, factor=factor).between
        ]
        return tuple({each.kind: each for each in reversed([*own, *between])}.values())[::-1]

    @property
    def evidence(self) -> str:
        """What proves each cell, in words."""
        return "; ".join(f"{name}: {run.evidence}" for name, run in self.cells.items())

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know of any cell, each once."""
        texts = [text for run in self.cells.values() for text in run.findings]
        return tuple(dict.fromkeys([*texts, *shared_drift(list(self.cells.values()))]))

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """Every effect by every clock with its interval, then the cells, as (words, value)."""
        effects = [line for label, of in _CLOCKS.items() for line in self._effects_by(label, of)]
        return (*effects, *(self._cell_line(name) for name in self.cells))

    def _effects_by(self, label: str, of: Denominator) -> list[tuple[str, str]]:
        names = (self.first, self.second, INTERACTION)
        if not self.is_complete(of):
            return [(f"{name}: {label}", quantity(None, "x")) for name in names]
        found = {name: self._interval(name, of) for name in names}
        within = self.cells[BOTH].levels.detect
        words = _TOGETHER[assumption.together(found[INTERACTION], within)]
        return [
            (
                f"{name}: {label}" + (f"; {words}" if name == INTERACTION else ""),
                measured(each.estimate, each.low, each.high, "x"),
            )
            for name, each in found.items()
        ]

    def _interval(self, effect: str, of: Denominator) -> assumption.Comparison:
        per_boot = self.logs(effect, of)
        logs = per_boot[0] if len(per_boot) == 1 else [fmean(each) for each in per_boot]
        return assumption.ratio_against(logs, floor=1.0, alpha=_LEVEL, beta=_LEVEL)

    def _cell_line(self, name: str) -> tuple[str, str]:
        run = self.cells[name]
        numbers = (_median(run, of) for of in _CLOCKS.values())
        units = (of.unit_text for of in _CLOCKS.values())
        told = " / ".join(map(quantity, numbers, units))
        return f"{self._words(name)}: {' / '.join(_CLOCKS)}", told

    def _words(self, name: str) -> str:
        levels = (
            (self.first, name in (BOTH, self.first)),
            (self.second, name in (BOTH, self.second)),
        )
        return ", ".join(_LEVELS[factor][not is_on] for factor, is_on in levels)

    def _neighbours(self) -> list[tuple[Run, Run, str]]:
        """Cells that differ in one factor only: with it on, with it off, and its name."""
        first, second, cells = self.first, self.second, self.cells
        return [
            (cells[BOTH], cells[second], first),
            (cells[first], cells[NEITHER], first),
            (cells[BOTH], cells[first], second),
            (cells[second], cells[NEITHER], second),
        ]

    def _contrasts(self, boot: int, of: Denominator) -> assumption.Contrasts:
        arms = {name: by_block(run.boots[boot], of) for name, run in self.cells.items()}
        if of.higher_is_better:
            arms = {
                name: [(block, 1 / value) for block, value in arm] for name, arm in arms.items()
            }
        return assumption.contrasts(
            both=arms[BOTH],
            first=arms[self.first],
            second=arms[self.second],
            neither=arms[NEITHER],
        )

    def _counted(self, by: str | None) -> Denominator:
        if by is None:
            return self.of
        if by not in BUILT_IN:
            raise UsageError(
                f"There is no denominator {by!r}.",
                f"The named ones are {', '.join(BUILT_IN)}.",
                "Use one of them.",
            )
        return msgspec.structs.replace(BUILT_IN[by], prefix="any")


class Effect(Pair):
    """One mechanism's gain, or the interaction of two: a ratio over all four cells."""

    def __init__(self, grid: Factorial, effect: str, of: Denominator) -> None:
        is_interaction = effect == INTERACTION
        factor = f"{grid.first} x {grid.second}" if is_interaction else effect
        super().__init__(grid.cells[BOTH], grid.cells[NEITHER], of=of, factor=factor)
        self.grid = grid
        self.effect = effect

    def log_ratios(self, clock: Denominator | None = None) -> list[list[float]]:
        """Per boot, per block, the log of the effect."""
        return self.grid.logs(self.effect, clock or self.of)

    def ratio(self, clock: Denominator | None = None) -> float | None:
        """The effect; ``None`` where a turn of any cell has no value."""
        of = clock or self.of
        if not self.grid.is_complete(of):
            return None
        return math.exp(fmean(fmean(logs) for logs in self.log_ratios(of)))

    @property
    def is_interleaved(self) -> bool:
        """Whether the turns of all four cells took turns, so that drift cancels."""
        runs = self.grid.cells.values()
        return len({run.measured.measurement.measurement_id for run in runs}) == 1

    @property
    def arms(self) -> str:
        """What is compared, in words."""
        levels = [" and ".join(_LEVELS[each]) for each in (self.grid.first, self.grid.second)]
        return f"four cells: {' by '.join(levels)}"

    @property
    def claimed(self) -> str:
        """What an assertion of it claims something of."""
        if self.effect == INTERACTION:
            first, second = self.grid.first, self.grid.second
            return f"interaction of {first} and {second} on {self.of.name}"
        return f"main effect of {self.factor} on {self.of.name}"

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What makes any cell, or the comparison of two, INVALID."""
        return self.grid.contradictions

    @property
    def evidence(self) -> str:
        """What proves all cells, in words."""
        return self.grid.evidence

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know of any cell."""
        return self.grid.findings

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """All effects by all clocks, and all cells."""
        return self.grid.table

    @property
    def runs(self) -> tuple[Run, ...]:
        """All cells."""
        return tuple(self.grid.cells.values())


def cell_names(first: str, second: str) -> tuple[str, str, str, str]:
    """The cells in the order in which those of one engine stand together."""
    return BOTH, first, second, NEITHER


def by_block(boot: Measured, of: Denominator) -> list[tuple[int, float]]:
    """(block, value) of each turn that has both."""
    drafts = boot.arm.declared.draft_tokens
    values = ((turn.block, sample.value(turn, of, drafts)) for turn in boot.turns)
    return [(block, value) for block, value in values if block is not None and value is not None]


def _median(run: Run, of: Denominator) -> float | None:
    values = [value for boot in run.boots for _, value in by_block(boot, of)]
    turns = sum(len(boot.turns) for boot in run.boots)
    return median(values) if values and len(values) == turns else None
