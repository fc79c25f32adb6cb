"""How much each gate against the past has to measure, by what its own history scatters.

The arithmetic is in ``assumption.sizing``; where past sessions come from is in ``history``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pytest_llmperf.assumption.components import BootValue, components
from pytest_llmperf.assumption.sizing import Costs, Gate, Plan, plan
from pytest_llmperf.history import History, PastSession
from pytest_llmperf.run import Levels
from pytest_llmperf.units import counted, percent

STATISTIC = "p50"

_NO_MATTER_S = 60.0
"""What a boot costs where only what a plan sees is asked for."""


def lines(
    root: Path, gates: Sequence[str], *, levels: Levels, detects: dict[str, float], boot_s: float
) -> list[str]:
    """Say for each gate how many boots and turns it takes, for how long, and what it sees.

    The gates without a stored session come last, together.
    """
    found, unknown = [], []
    with History(root) as history:
        for gate in gates:
            past = _counting(history, gate)
            if not past:
                unknown.append(gate)
                continue
            promise = _promise(gate, levels, detects, len(gates))
            found.append(f"{gate}: {_words(_plan(past, promise, boot_s))}")
    if unknown:
        found.append(
            f"nothing is stored of {counted(len(unknown), 'gate')} in {root}; "
            "record a few sessions with --llmperf-record:"
        )
    return found + [f"  {gate}" for gate in unknown]


def turn_s(root: Path, gate: str) -> float | None:
    """The typical request of a gate by its newest stored session, in seconds.

    ``None`` where nothing is stored, or what is stored is no wall clock.
    """
    if not root.is_dir():
        return None
    with History(root) as history:
        past = [each for each in history.everything(gate) if each.series == "candidate"]
    if not past or past[-1].place.facts.get("clock") != "wall" or past[-1].higher_is_better:
        return None
    mean = past[-1].mean(STATISTIC)
    return None if mean is None else math.exp(mean)


def underpowered(
    root: Path, gates: Sequence[str], *, levels: Levels, detects: dict[str, float]
) -> list[str]:
    """Say which gates could not see what they are for, by what their own history scatters."""
    found = []
    with History(root) as history:
        for gate in gates:
            past = _counting(history, gate)
            if past:
                made = _plan(past, _promise(gate, levels, detects, len(gates)), _NO_MATTER_S)
                if made.is_underpowered:
                    found.append(f"underpowered: {gate}: {made.reason}")
    return found


def _promise(gate: str, levels: Levels, detects: dict[str, float], gates: int) -> Gate:
    return Gate(
        detect=detects.get(gate, levels.detect),
        tolerance=levels.tolerance,
        alpha=levels.alpha,
        beta=levels.beta,
        gates=gates,
    )


def _counting(history: History, gate: str) -> list[PastSession]:
    return [
        each
        for each in history.everything(gate)
        if each.replicated and each.series == "candidate" and each.standing.state != "excluded"
    ]


def _plan(past: Sequence[PastSession], promise: Gate, boot_s: float) -> Plan:
    found = components([_boots(each) for each in past])
    return plan(found, Costs(boot_s=boot_s, turn_s=_turn_s(past)), promise)


def _boots(session: PastSession) -> list[BootValue]:
    return [
        BootValue(log=boot.logs[STATISTIC], turns=boot.turns)
        for boot in session.boots
        if STATISTIC in boot.logs
    ]


def _turn_s(past: Sequence[PastSession]) -> float:
    """The typical turn, in seconds; a rate says nothing of it, so that a second is reckoned."""
    newest = past[-1]
    if newest.higher_is_better or newest.mean(STATISTIC) is None:
        return 1.0
    return math.exp(newest.mean(STATISTIC) or 0.0)


def _words(found: Plan) -> str:
    sees = "cannot be said" if found.detectable is None else percent(found.detectable)
    words = (
        f"{counted(found.boots, 'boot')} of {counted(found.turns, 'turn')}, "
        f"{found.minutes:.0f} minutes, and {found.minutes_confirm:.0f} more to confirm; "
        f"a slow-down of {sees} becomes red"
    )
    if not found.is_underpowered:
        return words
    needs = "" if found.pairs_needed is None else f" (about {counted(found.pairs_needed, 'pair')})"
    return f"{words}; UNDERPOWERED for {percent(found.detect)}{needs}: {found.reason}"
