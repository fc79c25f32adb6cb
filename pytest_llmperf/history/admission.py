"""What a gate's session must show before it may enter history, beside its verdict.

What its verdict does to it is in ``past``; the tests that may be asked for two modes are in
``assumption`` and are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import stdev

import msgspec

from pytest_llmperf.history.derive import Derived, Series, all_logs, central
from pytest_llmperf.history.layout import Judged, Verdicts
from pytest_llmperf.history.roll import check_measured
from pytest_llmperf.units import counted, percent
from pytest_llmperf.verdict import Word

TwoModes = Callable[[Sequence[float]], str | None]
"""Given the logs of boots, past ones of the same subject first: why they are of two modes."""

PastBoots = Callable[[Series], Sequence[float]]
"""The logs of past boots that are alike in everything known to the boots of a series."""

_SPREAD_FROM = 2


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is asked of a session."""

    boots: int = 3
    """The fewest boots of a gate; a single boot tells nothing of the next one."""
    most_variation: float = 0.25
    """The greatest coefficient of variation between boots; a gate beyond it is noise."""
    two_modes: TwoModes | None = None


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a session that was to be recorded."""

    session_id: str
    path: str | None
    """The folder it went to; ``None`` where none of its gates can ever count."""
    entered: tuple[str, ...]
    """Gates whose numbers count from now on."""
    excluded: dict[str, str]
    """Gates whose numbers do not, each with why."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What to tell, a line each."""
        first = (
            f"history: {counted(len(self.entered), 'gate')} of session {self.session_id} entered"
        )
        return (first, *(f"not entered: {gate}: {why}" for gate, why in self.excluded.items()))


def judge(
    derived: Derived,
    words: Mapping[str, Word | None],
    *,
    rules: Rules,
    past: PastBoots,
    when: datetime,
) -> Verdicts:
    """What will stand beside the evidence: each gate's word, and why it is refused if it is.

    :raises EvidenceError: a gate whose verdict is not INVALID has no number in the evidence.
    """
    check_measured([gate for gate, word in words.items() if word != "INVALID"], derived)
    gates = {
        gate: Judged(word=words[gate], refused=refusal(derived, gate, rules, past))
        for gate in sorted(words)
    }
    return Verdicts(session_id=derived.session_id, recorded_at=when.isoformat(), gates=gates)


def refusal(derived: Derived, gate: str, rules: Rules, past: PastBoots) -> str | None:
    """Why a gate's numbers may not enter whatever its verdict; ``None`` if they may."""
    series = [each for each in derived.series if each.gate == gate]
    reasons = (
        reason
        for each in series
        for reason in (
            _too_few(each, rules),
            _too_wide(each, rules),
            _in_two_modes(each, rules, past),
        )
    )
    return next((reason for reason in reasons if reason is not None), None)


def _too_few(series: Series, rules: Rules) -> str | None:
    found = len(series.boots)
    if found >= rules.boots:
        return None
    return f"{counted(found, 'healthy boot')}, and at least {rules.boots} are asked for"


def _too_wide(series: Series, rules: Rules) -> str | None:
    """The coefficient of variation between boots, from the sd of logs: sqrt(exp(sd^2) - 1)."""
    logs = all_logs(series.boots, central(series.name))
    if len(logs) < _SPREAD_FROM:
        return None
    variation = math.sqrt(math.expm1(min(stdev(logs) ** 2, 700.0)))
    if variation <= rules.most_variation:
        return None
    return (
        f"the {series.name}'s boots vary by {percent(variation)}, "
        f"more than {percent(rules.most_variation)}"
    )


def _in_two_modes(series: Series, rules: Rules, past: PastBoots) -> str | None:
    if rules.two_modes is None:
        return None
    logs = all_logs(series.boots, central(series.name))
    found = rules.two_modes((*past(series), *logs))
    return None if found is None else f"the {series.name} has two modes: {found}"
