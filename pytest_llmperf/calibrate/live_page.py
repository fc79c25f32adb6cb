"""The page of the live pairs: what scatters by how much, and which verdicts were seen.

Which pairs there are is in ``live``; the tests are those of every gate, in ``assumption``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_llmperf.assumption.boots import log_quantile
from pytest_llmperf.assumption.comparison import scipy_stats
from pytest_llmperf.assumption.components import BootValue as Value
from pytest_llmperf.assumption.components import (
    Component,
    components,
    pair_component,
    quantile_error,
)
from pytest_llmperf.assumption.confirm import Confirmed, Suspect, confirm
from pytest_llmperf.assumption.looks import LOOKS, design_of
from pytest_llmperf.attribution import explain_terms
from pytest_llmperf.attribution.terms import joint
from pytest_llmperf.plan import CANDIDATE, REFERENCE
from pytest_llmperf.units import counted, measured, percent

if TYPE_CHECKING:
    from pytest_llmperf.calibrate.live import Boot

MEDIAN = 0.5
DETECT = 0.25
"""The miniature profile's."""
TOLERANCE = 0.02
FEWEST = 3
"""Pairs before the first look."""

_HEAD = """# Live pairs on the miniature

Real pairs of boots, side by side, turns alternating. Each run adds to `live.jsonl`, and every
figure here is computed from it:

```
pytest perf_suites/test_no_regression.py --llmperf-mode=aa --llmperf-evidence=FOLDER
python -m pytest_llmperf.calibrate.live add FOLDER
```

The machine is a shared one of two cores: other machines scatter otherwise, and `plan` reckons with
what your own history holds."""

_SCATTER = """## What scatters

From pairs of one build (A/A). A pair is the quotient of two boots' medians; its scatter is given
with the interval that so many pairs leave (chi-square, 95 %). Boots in a row are the same boots
taken one after the other, as if they had not been paired."""


class Pair(NamedTuple):
    """Both arms of one measurement."""

    candidate: Boot
    reference: Boot

    @property
    def is_sound(self) -> bool:
        """Whether both measured what they declare."""
        return not (self.candidate.contradictions or self.reference.contradictions)

    @property
    def logs(self) -> tuple[float, float]:
        """Each arm's log median, with the sign that makes more worse."""
        return _slow(self.candidate), _slow(self.reference)


def text(boots: Sequence[Boot]) -> str:
    """Word the page as Markdown."""
    pairs = _pairs(boots)
    same = [each for each in pairs if each.candidate.plant == "none"]
    parts = [_HEAD, _SCATTER, _scatter(same), "## Verdicts seen", _verdicts(pairs)]
    return "\n\n".join(parts) + "\n"


def _pairs(boots: Iterable[Boot]) -> list[Pair]:
    arms: dict[str, dict[str, Boot]] = {}
    for boot in boots:
        arms.setdefault(boot.measurement, {})[boot.arm] = boot
    whole = [each for each in arms.values() if {CANDIDATE, REFERENCE} <= each.keys()]
    return [Pair(each[CANDIDATE], each[REFERENCE]) for each in whole]


def _slow(boot: Boot) -> float:
    sign = -1.0 if boot.denominator.higher_is_better else 1.0
    return sign * log_quantile(boot.values, MEDIAN)


def _scatter(pairs: Sequence[Pair]) -> str:
    head = (
        "| gate | denominator | pairs | sd of a pair | boots in a row | one turn | "
        "six pairs see |\n|---|---|---|---|---|---|---|"
    )
    rows = [
        _scatter_row(gate, [each for each in found if each.is_sound], len(found))
        for gate, found in _by_gate(pairs).items()
    ]
    return "\n".join([head, *rows])


def _scatter_row(gate: str, pairs: Sequence[Pair], of: int) -> str:
    words = pairs[0].candidate.denominator.words if pairs else ""
    count = f"{len(pairs)}" if len(pairs) == of else f"{len(pairs)} sound of {of}"
    if len(pairs) < FEWEST:
        return f"| {_short(gate)} | {words} | {count} | too few | | | |"
    apart = pair_component([one - other for one, other in (each.logs for each in pairs)])
    boots = components(_sessions(pairs))
    seen = _confirmed({gate: pairs})[gate].detectable
    turn = boots.turn and percent(boots.turn.sd)
    boot = _in_a_row(pairs)
    return (
        f"| {_short(gate)} | {words} | {count} | {_spread(apart)} | {percent(boot)} | "
        f"{turn or 'not known'} | {percent(seen)} |"
    )


def _sessions(pairs: Sequence[Pair]) -> list[list[Value]]:
    found: dict[str, list[Value]] = {}
    for boot in (arm for pair in pairs for arm in pair):
        value = Value(
            log=_slow(boot), turns=len(boot.values), error=quantile_error(boot.values, MEDIAN)
        )
        found.setdefault(boot.session, []).append(value)
    return list(found.values())


def _in_a_row(pairs: Sequence[Pair]) -> float:
    """Standard deviation of boots' log medians within sessions."""
    apart = [
        each.log - sum(one.log for one in session) / len(session)
        for session in _sessions(pairs)
        for each in session
    ]
    freedom = len(apart) - len(_sessions(pairs))
    return math.sqrt(sum(each**2 for each in apart) / freedom)


def _spread(found: Component | None) -> str:
    if found is None:
        return "not known"
    chi2 = scipy_stats().chi2
    low, high = (
        math.sqrt(found.variance * found.df / chi2.ppf(level, found.df)) for level in (0.975, 0.025)
    )
    return f"{percent(found.sd)} [{percent(low)}, {percent(high)}]"


def _verdicts(pairs: Sequence[Pair]) -> str:
    head = (
        "| session | planted | gate | pairs | slower by | verdict | attributed to |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = [row for found in _by_session(pairs).values() for row in _session_rows(found)]
    same = [each for each in rows if "| none |" in each]
    red = sum("REGRESS" in each for each in same)
    told = f"Of {counted(len(same), 'verdict')} on one unchanged build {red} were REGRESS."
    return "\n".join([told, "", head, *rows])


def _session_rows(pairs: Sequence[Pair]) -> list[str]:
    sound = {
        gate: found
        for gate, all_of in _by_gate(pairs).items()
        if len(found := [each for each in all_of if each.is_sound]) >= FEWEST
    }
    fewest = min(map(len, sound.values()), default=0)
    if fewest < FEWEST:
        return []
    even = {gate: found[:fewest] for gate, found in sound.items()}
    return [_verdict_row(even[gate], found) for gate, found in _confirmed(even).items()]


def _verdict_row(pairs: Sequence[Pair], found: Confirmed) -> str:
    first = pairs[0].candidate
    sides = (
        joint(each.candidate.terms for each in pairs),
        joint(each.reference.terms for each in pairs),
    )
    why = explain_terms(*sides, wall=first.denominator.clock == "wall").headline
    is_planted = first.plant != "none" and first.denominator.clock != "first_token"
    return (
        f"| {first.session} | {first.plant} | {_short(first.gate)} | {len(pairs)} | "
        f"{measured(found.ratio, found.low, found.high, 'x')} | {found.word or 'INCONCLUSIVE'} "
        f"(sees {percent(found.detectable)}) | {'; '.join(why) if is_planted else ''} |"
    )


def _confirmed(gates: Mapping[str, Sequence[Pair]]) -> dict[str, Confirmed]:
    """All gates of a session in one family, each with equally many pairs."""
    suspects = {
        gate: Suspect(
            candidate=tuple(each.logs[0] for each in pairs),
            reference=tuple(each.logs[1] for each in pairs),
            detect=DETECT,
            tolerance=TOLERANCE,
        )
        for gate, pairs in gates.items()
    }
    most = max(LOOKS[-1], *(len(pairs) for pairs in gates.values()))
    return confirm(suspects, design=design_of("paired", pairs=most))


def _by_gate(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for each in pairs:
        found.setdefault(each.candidate.gate, []).append(each)
    return found


def _by_session(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for each in pairs:
        found.setdefault(each.candidate.session, []).append(each)
    return found


def _short(gate: str) -> str:
    return gate.rpartition("::test_")[2].replace("_", " ")
