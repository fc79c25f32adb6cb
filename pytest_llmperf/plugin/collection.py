"""Everything that is checked of a whole run before its first engine boots, and what it shares out.

Single markers are checked in ``declaration``; what can be foreseen of one gate is in ``foresight``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_llmperf import foresight, planning, profile
from pytest_llmperf.asserted import shares
from pytest_llmperf.assumption import BOOTS
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import UsageError
from pytest_llmperf.gate import Gate
from pytest_llmperf.markers import Failover
from pytest_llmperf.run import Levels
from pytest_llmperf.settings import Settings


def check(
    gates: Sequence[Gate], declared: Mapping[str, Declaration], settings: Settings
) -> tuple[str, ...]:
    """Give every selected gate its share of alpha, and say what this run cannot decide.

    :raises UsageError: the profile is wrong, or a gate could never be red.
    """
    chosen = profile.load(settings.profile)
    levels = Levels.of(chosen)
    _share(gates)
    boots = max((gate.planned_rounds for gate in gates), default=1)
    if settings.replay is not None:
        return ()  # how many boots there are is in the evidence; each row says what it can decide
    blind = [
        f"{gate.node_id}: {why}"
        for gate in gates
        if (why := foresight.blindness(declared[gate.node_id], levels))
    ]
    if blind:
        raise UsageError(
            f"{len(blind)} of {len(gates)} selected gates are to see a change that they tolerate.",
            "\n".join(blind),
            "Give a detect above tolerance, in the marker or in [statistics]. Nothing was booted.",
        )
    mistakes = [
        f"{gate.node_id}: {why}"
        for gate in gates
        if (why := foresight.mistake(declared[gate.node_id], gate.claims, levels, boots))
    ]
    if mistakes:
        raise UsageError(
            f"{len(mistakes)} of {len(gates)} selected gates could never fail.",
            "\n".join(mistakes),
            "Nothing was booted.",
        )
    return tuple(_lines(gates, declared, settings, chosen, boots))


def _share(gates: Sequence[Gate]) -> None:
    found = shares([gate.claims for gate in gates])
    for gate in gates:
        gate.shares, gate.checks = found, len(gates)


def _lines(
    gates: Sequence[Gate],
    declared: Mapping[str, Declaration],
    settings: Settings,
    chosen: profile.Profile,
    boots: int,
) -> Iterator[str]:
    levels = Levels.of(chosen)
    if settings.attach and settings.mode == "gate" and boots > 1:
        yield (
            f"an attached server is not booted again: {boots} rounds on it are one boot, which "
            "decides nothing of a build; use --llmperf-mode=quick, or let a profile boot engines"
        )
    for gate in gates:
        if settings.attach and isinstance(declared[gate.node_id].plan, Failover):
            yield (
                f"{gate.node_id}: attached servers cannot be made to fail, and nothing is booted "
                "beside them; a failover is measured without --llmperf-attach"
            )
        share, claims = gate.shares.claim, gate.claims.judged_with(chosen.budgets)
        for line in foresight.doubts(declared[gate.node_id], claims, levels, share, boots):
            yield f"underpowered: {gate.node_id}: {line}"
    if settings.mode == "gate" and settings.history.is_dir() and boots >= BOOTS:
        past = [gate.node_id for gate in gates if gate.claims.of_the_past]
        detects = {each: found for each in past if (found := declared[each].plan.detect)}
        yield from planning.underpowered(settings.history, past, levels=levels, detects=detects)
