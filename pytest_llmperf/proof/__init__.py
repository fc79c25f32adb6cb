"""From records to contradictions: whether a measurement measured what it declares.

Forming numbers is in ``sample``; what a contradiction does to a verdict is in ``verdict``.
Every rule is one function in one of the tables below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import (
    agreement,
    cold,
    complete,
    fitness,
    load,
    pair,
    possible,
    speculation,
    steady,
    traffic,
    values,
    warm,
)
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.line import line
from pytest_llmperf.proof.pair import Sides
from pytest_llmperf.proof.steady import TREND
from pytest_llmperf.proof.warm import expected_hits
from pytest_llmperf.proof.window import Window

Rule = Callable[[Window], Contradiction | None]
Notice = Callable[[Window], Finding | None]

OF_THE_MACHINE: tuple[Rule, ...] = (
    fitness.foreign_load,
    fitness.stolen,
    fitness.short_of_memory,
    fitness.throttled,
    fitness.gpu_errors,
    fitness.shared_gpu,
    fitness.sluggish,
    fitness.clocked_down,
    fitness.underpowered,
)
"""What makes a machine unfit to be measured on, whatever is measured."""

TOLD_OF_THE_MACHINE: tuple[Notice, ...] = (fitness.disturbed, fitness.gpu_unseen)
"""What a reader should know of it."""

RULES: tuple[Rule, ...] = (
    complete.not_completed,
    complete.fewer_turns,
    complete.failed_turns,
    complete.engine_died,
    complete.restarted,
    complete.wrong_answerer,
    complete.several_servers,
    complete.engine_unproven,
    complete.streams_differ,
    possible.out_of_order,
    possible.miscounted,
    *OF_THE_MACHINE,
    load.streams_not_held,
    load.schedule_not_kept,
    load.server_saw_more,
    load.server_saw_fewer,
    load.burst_held_back,
    traffic.foreign_traffic,
    traffic.not_idle,
    traffic.preempted,
    traffic.counters_partial,
    warm.cached_unknown,
    warm.requirement_unknown,
    warm.nothing_cacheable,
    warm.prefix_differs,
    warm.not_cached,
    cold.not_cold,
    cold.cold_unproven,
    agreement.swapped,
    speculation.counters_unreadable,
    speculation.no_drafts,
    speculation.low_acceptance,
    speculation.undeclared,
    values.uncounted,
    values.undefined,
    values.peak_below_mean,
    values.client_bottleneck,
    values.prompt_length,
    values.after_cache,
    load.total_below_stream,
    load.counted_short,
    load.saturated,
    steady.slow_head,
    steady.warming,
)
"""What makes one arm INVALID, in the order it is told: causes before their effects."""

PASSING: tuple[Rule, ...] = (
    fitness.foreign_load,
    fitness.stolen,
    fitness.short_of_memory,
    fitness.throttled,
    fitness.sluggish,
    fitness.clocked_down,
    values.client_bottleneck,
)
"""Those of them that the machine brings and that may pass; none looks at what is judged."""

NOTICES: tuple[Notice, ...] = (
    complete.failed_others,
    complete.engine_unrecorded,
    complete.doubted,
    complete.again,
    *TOLD_OF_THE_MACHINE,
    traffic.unchecked,
    traffic.counters_partly,
    traffic.odd_counters,
    traffic.idle_gaps,
    load.capacity,
    load.preempted,
    load.burst_unseen,
    agreement.counters_disagree,
    warm.below_expected,
    agreement.cache_suspected,
    speculation.unknown,
    speculation.nothing_to_draft,
    speculation.output_disagrees,
    values.client_late,
    values.unequal_turns,
    values.retokenised,
    steady.warmup_differs,
    steady.drifting,
)
"""What a reader should know of one arm."""

PAIR_RULES: tuple[Callable[[Sides], Contradiction | None], ...] = (
    pair.no_factor,
    pair.denominators_differ,
    pair.engines_differ,
    pair.prompts_differ,
    pair.sampling_differs,
    pair.prompt_lengths_differ,
    pair.output_lengths_differ,
    pair.hit_shares_differ,
)
"""What makes a comparison INVALID although each arm may be sound."""

PAIR_NOTICES: tuple[Callable[[Sides], Finding | None], ...] = (
    pair.whole_turn_ratio,
    pair.confounded,
)
"""What a reader should know of a comparison."""


def contradictions(
    measured: Measured, denominator: Denominator | None = None
) -> tuple[Contradiction, ...]:
    """Why this arm is no measurement of what it declares; empty where it is one.

    :param denominator: the one its number is counted by, if not the declared one.
    """
    window = Window(measured, denominator)
    return tuple(found for rule in RULES if (found := rule(window)) is not None)


def unfit(measured: Measured) -> tuple[Contradiction, ...]:
    """Why the machine was unfit while this was measured; empty where it was fit or not watched."""
    window = Window(measured)
    return tuple(found for rule in OF_THE_MACHINE if (found := rule(window)) is not None)


def told_of_machine(measured: Measured) -> tuple[Finding, ...]:
    """What a reader should know of a machine that was fit."""
    window = Window(measured)
    return tuple(found for each in TOLD_OF_THE_MACHINE if (found := each(window)) is not None)


def machine_line(measured: Measured) -> str:
    """The machine on one line; empty where it was not watched."""
    return fitness.fitness_words(Window(measured))


def disturbance(measured: Measured) -> Contradiction | None:
    """What the machine disturbed this arm by, so that measuring it again may help; else ``None``.

    Foreign traffic is none of these: whoever uses the server may do so again, and has to be told.
    """
    window = Window(measured, None)
    return next(filter(None, (rule(window) for rule in PASSING)), None)


def drift(arms: Iterable[tuple[Measured, Denominator]]) -> steady.Drift:
    """Whether arms got faster while they were measured in turn: not, together, or one by itself.

    A trend that they share is the machine's and cancels in their ratio; ``contradictions`` of each
    arm, which sees that arm alone, has it as ``TREND``.
    """
    return steady.drift([Window(measured, of) for measured, of in arms])


def findings(measured: Measured, denominator: Denominator | None = None) -> tuple[Finding, ...]:
    """What a reader should know of this arm that does not make it invalid."""
    window = Window(measured, denominator)
    return tuple(found for notice in NOTICES if (found := notice(window)) is not None)


def pair_contradictions(
    candidate: Measured,
    reference: Measured,
    factor: str | None,
    of: Denominator | None = None,
) -> tuple[Contradiction, ...]:
    """Why the ratio of two arms is not a measurement of the factor; empty where it is.

    Each arm's own ``contradictions`` are not repeated here.

    :param of: the denominator the ratio is counted by; the candidate's own if not given.
    """
    sides = _sides(candidate, reference, factor, of)
    return tuple(found for rule in PAIR_RULES if (found := rule(sides)) is not None)


def pair_findings(
    candidate: Measured,
    reference: Measured,
    factor: str | None,
    of: Denominator | None = None,
) -> tuple[Finding, ...]:
    """What a reader should know of a comparison that does not make it invalid."""
    sides = _sides(candidate, reference, factor, of)
    return tuple(found for notice in PAIR_NOTICES if (found := notice(sides)) is not None)


def evidence_line(measured: Measured) -> str:
    """What shows that the number is of what it declares, in words, on one line."""
    return line(Window(measured))


def _sides(
    candidate: Measured, reference: Measured, factor: str | None, of: Denominator | None
) -> Sides:
    counted_by = candidate.arm.denominator if of is None else of
    return Sides(candidate=candidate, reference=reference, factor=factor, of=counted_by)


__all__ = [
    "TREND",
    "Contradiction",
    "Finding",
    "contradictions",
    "drift",
    "evidence_line",
    "expected_hits",
    "findings",
    "machine_line",
    "pair_contradictions",
    "pair_findings",
    "told_of_machine",
    "unfit",
]
