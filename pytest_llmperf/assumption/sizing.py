"""How much to measure, what it costs, and whether it could see what the gate is for.

The variances come from ``components``, the detectable effects from ``sensitivity``.
"""

from __future__ import annotations

import math

import msgspec

from pytest_llmperf.assumption.comparison import ALPHA, BETA, POWER, first_that_decides
from pytest_llmperf.assumption.components import Component, Components, added, careful, scaled
from pytest_llmperf.assumption.confirm import TOLERANCE
from pytest_llmperf.assumption.looks import FEWEST, LOOKS, Arms, design_of
from pytest_llmperf.assumption.screen import FEWEST_SESSIONS
from pytest_llmperf.assumption.sensitivity import GATES, Screening, gate_detectable, screen_passes
from pytest_llmperf.units import counted, percent

_BOOTS = range(1, 11)
_TURNS = range(10, 501)
_SAME_TURNS = 100
_USUAL_BOOTS = 3
_SLACK = 1e-9


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What measuring takes, in seconds."""

    boot_s: float
    turn_s: float
    """One turn of this gate, both arms where it has two."""


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a gate promises, and how it is confirmed."""

    detect: float
    tolerance: float = TOLERANCE
    alpha: float = ALPHA
    beta: float = BETA
    arms: Arms = "pooled"
    pairs: int = 6
    """The most that a confirmation may take."""
    sessions: int = 10
    """Stored sessions that a screen looks back on."""
    gates: int = GATES
    """No-regression gates of the session, which share alpha."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sampling plan of one gate. ``None``: it cannot be said from what is stored."""

    boots: int
    """Of a session that need not confirm."""
    turns: int
    """A boot."""
    pairs: int
    minutes: float
    """Of a session that need not confirm, this gate alone."""
    minutes_confirm: float
    """What a confirmation with all its pairs adds."""
    passes: float | None
    """The chance that the screen passes an unchanged gate."""
    detectable: float | None
    """Relative slow-down that becomes REGRESS with power 90 %, confirmed."""
    detect: float
    is_underpowered: bool
    pairs_needed: int | None
    """Pairs a confirmation would take to see ``detect``."""
    reason: str


def plan(found: Components, costs: Costs, gate: Gate, pair: Component | None = None) -> Plan:
    """Choose turns and boots for a gate, and say what its confirmation will see.

    Turns: sqrt(boot cost / turn cost x turn variance / boot variance), where most uncertainty
    arises (Kalibera and Jones, ISMM 2013). Boots: the fewest whose screen passes an unchanged gate
    with power 90 %, at most ten. ``pair`` is a resident pair's component; paired arms need it.
    """
    turns = _turns(found, costs)
    one = _one_boot(found, turns)
    chances = {k: _passes(found, gate, turns, k) for k in _BOOTS}
    boots = next((k for k in _BOOTS if (chances[k] or 0) >= POWER), None)
    boots = boots or (_USUAL_BOOTS if chances[1] is None else _BOOTS[-1])
    gap = pair if gate.arms == "paired" else one and scaled(one, 2)
    screening = _screening(found, gate, turns, boots)
    seen = None if gap is None else _detectable(gap, gate, boots, gate.pairs, screening)
    is_underpowered = seen is None or seen > gate.detect + _SLACK
    minute = (costs.boot_s + turns * costs.turn_s) / 60
    return Plan(
        boots=boots,
        turns=turns,
        pairs=gate.pairs,
        minutes=boots * minute,
        minutes_confirm=2 * gate.pairs * minute,
        passes=chances[boots],
        detectable=seen,
        detect=gate.detect,
        is_underpowered=is_underpowered,
        pairs_needed=_pairs_needed(gap, gate, boots, screening) if is_underpowered else None,
        reason=_reason(seen, gap, gate),
    )


def _detectable(
    gap: Component, gate: Gate, boots: int, pairs: int, screening: Screening | None
) -> float | None:
    if pairs < FEWEST:
        return None
    found = float(
        gate_detectable(
            careful(gap.variance, gap.df),
            screening,
            design=design_of(gate.arms, screened=boots, pairs=min(pairs, LOOKS[-1])),
            tolerance=gate.tolerance,
            detect=gate.detect,
            alpha=gate.alpha,
            beta=gate.beta,
        )
    )
    return found if math.isfinite(found) else None


def _one_boot(found: Components, turns: int) -> Component | None:
    """The variance of a boot's statistic over so many turns."""
    if found.boot is None:
        return None
    if found.turn is None:
        return found.boot
    return added(found.boot, scaled(found.turn, 1 / turns))


def _turns(found: Components, costs: Costs) -> int:
    if found.turn is None or found.boot is None:
        return _SAME_TURNS
    if found.boot.variance <= 0:
        return _TURNS[-1]
    ratio = costs.boot_s / costs.turn_s * found.turn.variance / found.boot.variance
    return min(max(math.ceil(math.sqrt(ratio)), _TURNS[0]), _TURNS[-1])


def _screening(found: Components, gate: Gate, turns: int, boots: int) -> Screening | None:
    one = _one_boot(found, turns)
    if found.session is None or one is None or gate.sessions < FEWEST_SESSIONS:
        return None
    mean = added(found.session, scaled(one, 1 / boots))
    error = math.sqrt(mean.variance * (1 + 1 / gate.sessions))
    return Screening(error, gate.sessions, gate.gates) if error > 0 else None


def _passes(found: Components, gate: Gate, turns: int, boots: int) -> float | None:
    """The chance that the screen passes an unchanged gate."""
    screening = _screening(found, gate, turns, boots)
    return screening and screen_passes(screening, gate.detect, gate.beta)


def _pairs_needed(
    gap: Component | None, gate: Gate, boots: int, screening: Screening | None
) -> int | None:
    """Pairs whose mean is as exact as six pairs' would have to be to see ``detect``."""
    if gap is None:
        return None

    def sees(n: int) -> bool:
        shrunk = scaled(gap, LOOKS[-1] / max(n, LOOKS[-1]))
        seen = _detectable(shrunk, gate, boots, n, screening)
        return seen is not None and seen <= gate.detect + _SLACK

    return first_that_decides(sees)


def _reason(seen: float | None, gap: Component | None, gate: Gate) -> str:
    if gap is None:
        kept = "resident pairs" if gate.arms == "paired" else "two boots in a session"
        return f"its noise is not known, for history holds no {kept}"
    pairs = counted(gate.pairs, "pair")
    if seen is None:
        return f"{pairs} of boots can never say REGRESS"
    if seen > gate.detect + _SLACK:
        return (
            f"{pairs} of boots see a slow-down of {100 * seen:.1f} %, not of {percent(gate.detect)}"
        )
    return f"{pairs} of boots see a slow-down of {percent(gate.detect)}"
