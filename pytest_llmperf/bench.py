"""What a test holds in its hands: engines as leases, and the bench that measures them.

Where measurements come from, a live engine or recorded evidence, is the session's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytest_llmperf import record
from pytest_llmperf.analysis.climb import Climb, newest_dips
from pytest_llmperf.analysis.factorial import BOTH, NEITHER, Factorial
from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.analysis.predictability import ByClass, class_of, refuse_alike
from pytest_llmperf.declaration import Declaration, rung_of
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.foresight import stated
from pytest_llmperf.gate import Gate
from pytest_llmperf.markers import Factor, Failover, Ladder
from pytest_llmperf.plan import CANDIDATE, REFERENCE
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.run import Levels, Origin, Pair, Run
from pytest_llmperf.selfcheck import failure
from pytest_llmperf.workload import Conversations, Prompts, Workload

_ARMS = 8
"""Arms that a gate may measure at most, for the level of the instrument's check on itself."""


class Lease(Protocol):
    """An engine as a fixture hands it out; the session may stop and boot it in between."""

    @property
    def name(self) -> str:
        """The engine's name: ``gemma``, ``gemma_autoregressive``, or your own."""

    @property
    def declared(self) -> record.Declared:
        """What its profile promises of it."""

    @property
    def url(self) -> str:
        """Where it answers, for requests of your own; boots it if need be."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One arm before it is measured: a lease under a denominator."""

    name: str
    lease: Lease
    denominator: Denominator


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a test wants measured."""

    gate: str
    """The test's node id, the same for every boot."""
    call: int
    """Which of the test's measurements it is, from 0."""
    declaration: Declaration
    sides: Sequence[Side]
    workload: Workload


class Source(Protocol):
    """Where measurements come from."""

    @property
    def levels(self) -> Levels:
        """The error rates of this run's gates."""

    distrust: list[Contradiction]
    """Why nothing that is measured here can be trusted; grows when a check on itself fails."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know of where measurements come from."""

    def measured(self, asked: Asked) -> Sequence[Sequence[Measured]]:
        """Measure, or find what was measured: for each side in order, its boots so far."""

    def keep(self, gate: str, name: str, drawn: str) -> None:
        """Leave a gate's picture with the evidence that is being recorded, if any is."""


class Bench:
    """Measures as the test's markers declare. The ``llmperf`` fixture is one of these."""

    def __init__(self, source: Source, declaration: Declaration, gate: Gate) -> None:
        self._source = source
        self._declaration = declaration
        self._gate = gate
        self._calls = 0
        self.runs: list[Run] = []
        """Everything measured so far."""

    @property
    def gate(self) -> Gate:
        """The test's gate, for assertions that measure for themselves."""
        return self._gate

    def __call__(self, engine: Lease, workload: Workload) -> Run:
        """Measure one engine under the test's denominator.

        :raises UsageError: the test declares a speed-up, or an argument is of the wrong kind.
        """
        if self._declaration.factors:
            raise UsageError(
                "This test declares a factorial and measures one arm.",
                f"Its markers cross {' and '.join(self._declaration.factors)}.",
                "Call llmperf.factorial(candidate, reference, workload).",
            )
        if self._declaration.factor is not None:
            raise UsageError(
                "This test declares a speed-up and measures one arm.",
                f"Its markers compare {self._declaration.factor}.",
                "Call llmperf.compare(...), or drop the speedup marker.",
            )
        if isinstance(self._declaration.plan, Ladder):
            raise UsageError(
                "This test declares a ladder and measures one number of streams.",
                f"Its rungs have {', '.join(map(str, self._declaration.plan.streams))} streams.",
                "Call llmperf.ladder(engine, workload).",
            )
        if isinstance(self._declaration.plan, Failover):
            raise UsageError(
                "This test declares a failover and measures one server.",
                f"Its first server is to be {self._declaration.plan.fault}.",
                "Call llmperf.failover(first, next, workload).",
            )
        side = Side(name=CANDIDATE, lease=engine, denominator=self._declaration.denominator)
        return self._measure([side], workload)[0]

    def failover(self, *servers_and_workload: Lease | Workload) -> Handover:
        """Make the first of several servers fail under load and see the next one take over.

        ``failover(first, next, workload)``: the servers are tried in the order given.

        :raises UsageError: the test's markers declare no failover, or there is no second server.
        """
        plan = self._declaration.plan
        if not isinstance(plan, Failover):
            raise UsageError(
                "This test lets a server fail and declares no failover.",
                f"Its denominator is {self._declaration.denominator.name}.",
                "Mark it with failover(streams=4, fault='killed').",
            )
        *servers, workload = servers_and_workload
        if len(servers) < _FEWEST_SERVERS:
            raise UsageError(
                f"A failover needs two servers or more; it was given {len(servers)}.",
                "There is nobody to take over.",
                "Write llmperf.failover(first, next, workload).",
            )
        denominator = self._declaration.denominator
        sides = [
            Side(name=f"server {number}", lease=each, denominator=denominator)  # type: ignore[arg-type]  # the session checks what it is
            for number, each in enumerate(servers, start=1)
        ]
        runs = self._measure(sides, workload)  # type: ignore[arg-type]  # _measure checks what it is
        rounds = list(zip(*(run.boots for run in runs), strict=True))
        return Handover(
            rounds,
            fault=plan.fault,
            denominator=denominator,
            gate=self._gate,
            notes=runs[0].notes,
        )

    def ladder(self, engine: Lease, workload: Workload) -> Climb:
        """Measure one engine at each number of streams, fewest first.

        Where a rung is slower than it can be, by the rungs around it on this boot, it is measured
        once more when all are done; both results are kept.

        :raises UsageError: no ladder is declared, or an argument is of the wrong kind.
        """
        plan = self._declaration.plan
        if not isinstance(plan, Ladder):
            raise UsageError(
                "This test climbs a ladder and declares none.",
                f"Its denominator is {self._declaration.denominator.name}.",
                "Mark it with ladder(streams=(1, 2, 4), turns=2).",
            )
        rungs = [rung_of(self._declaration, plan, streams) for streams in plan.streams]
        first = [self._rung(engine, workload, each) for each in rungs]
        slow, seconds = newest_dips(first), self._calls
        again: dict[int, Run] = {}
        for place, (streams, each) in enumerate(zip(plan.streams, rungs, strict=True)):
            if streams in slow:
                # A rung's second measurement has a number of its own, whichever others there are.
                self._calls = seconds + place
                again[streams] = self._rung(engine, workload, each)
        self._calls = seconds + len(rungs)
        return Climb(first, again)

    def _rung(self, engine: Lease, workload: Workload, declared: Declaration) -> Run:
        side = Side(name=CANDIDATE, lease=engine, denominator=declared.denominator)
        return self._measure([side], workload, declared)[0]

    def compare(self, candidate: Lease, *rest: Lease | Workload) -> Pair:
        """Measure two arms in ABBA blocks.

        ``compare(engine, workload)`` where the factor is the prefix, and
        ``compare(candidate, reference, workload)`` where it is the engine.

        :raises UsageError: no speed-up is declared, or the arguments don't fit its factor.
        """
        factor, of = self._declaration.factor, self._declaration.speedup
        if factor is None or of is None:
            raise UsageError(
                "This test compares two arms and declares no speed-up.",
                f"Its denominator is {self._declaration.denominator.name}.",
                "Mark it with speedup(of=..., factor=...).",
            )
        reference, workload = _arms(factor, candidate, rest)
        runs = self._measure(self._sides(factor, candidate, reference), workload)
        return Pair(runs[0], runs[1], of=of, factor=factor)

    def factorial(self, candidate: Lease, reference: Lease, workload: Workload) -> Factorial:
        """Measure two mechanisms, each on and off, in interleaved blocks of all four cells.

        The candidate has the first factor on, the reference off; each answers with the prefix
        cached and with it cold.

        :raises UsageError: the test's markers declare no factorial.
        """
        factors = self._declaration.factors
        if not factors:
            raise UsageError(
                "This test crosses two mechanisms and declares no factorial.",
                f"Its denominator is {self._declaration.denominator.name}.",
                "Mark it with factorial(of=..., factors=('speculation', 'prefix')).",
            )
        warm = self._declaration.denominator
        cold = msgspec.structs.replace(warm, prefix="cold")
        states = ((candidate, warm), (candidate, cold), (reference, warm), (reference, cold))
        order = (BOTH, factors[0], factors[1], NEITHER)
        sides = [
            Side(name=name, lease=lease, denominator=denominator)
            for name, (lease, denominator) in zip(order, states, strict=True)
        ]
        runs = self._measure(sides, workload)
        return Factorial(dict(zip(order, runs, strict=True)), of=warm, factors=factors)

    def by_class(
        self, candidate: Lease, reference: Lease, workloads: Sequence[Workload]
    ) -> ByClass:
        """Compare two arms on each workload in turn; each is a class with a window of its own.

        :raises UsageError: no speed-up is declared, there is no workload, or two of one class.
        """
        classes = [class_of(each) for each in workloads]
        refuse_alike(classes)
        pairs = [self.compare(candidate, reference, each) for each in workloads]
        return ByClass(dict(zip(classes, pairs, strict=True)))

    def _sides(self, factor: Factor, candidate: Lease, reference: Lease) -> list[Side]:
        own = self._declaration.denominator
        other = msgspec.structs.replace(own, prefix="cold") if factor == "prefix" else own
        return [
            Side(name=CANDIDATE, lease=candidate, denominator=own),
            Side(name=REFERENCE, lease=reference, denominator=other),
        ]

    def _measure(
        self, sides: Sequence[Side], workload: Workload, declared: Declaration | None = None
    ) -> list[Run]:
        declaration = declared or self._declaration
        if not isinstance(workload, Prompts | Conversations):
            raise UsageError(
                f"{workload!r} is no workload.",
                f"It is a {type(workload).__name__}.",
                "Give Prompts(...) or Conversations(...) from pytest_llmperf.",
            )
        call, self._calls = self._calls, self._calls + 1
        asked = Asked(
            gate=self._gate.node_id,
            call=call,
            declaration=declaration,
            sides=sides,
            workload=workload,
        )
        measured = self._source.measured(asked)
        if len(measured) != len(sides):
            raise EvidenceError(
                f"A measurement of {len(sides)} arms came back with {len(measured)}.",
                f"Gate {self._gate.node_id}, call {call}.",
                "Record this gate again.",
            )
        levels = self._stated(self._source.levels)
        self._check_instrument(measured)
        notes = (*_other_workload(measured, workload), *self._source.notes)
        origins = (
            Origin(
                source=self._source,
                declaration=declaration,
                side=side,
                workload=workload,
                call=call,
            )
            for side in sides
        )
        made = [
            Run(
                boots,
                levels=levels,
                gate=self._gate,
                origin=origin,
                notes=notes,
                distrust=self._source.distrust,
            )
            for boots, origin in zip(measured, origins, strict=True)
        ]
        self.runs += made
        return made

    def _check_instrument(self, measured: Sequence[Sequence[Measured]]) -> None:
        """Let the instrument be checked on what it has just measured; one failure is enough."""
        if self._source.distrust:
            return
        checks = _ARMS * self._gate.checks
        found = (failure(boots, boots[-1].arm.denominator, checks=checks) for boots in measured)
        self._source.distrust.extend([each for each in found if each is not None][:1])

    def _stated(self, levels: Levels) -> Levels:
        """The profile's levels, with what the marker states laid over them, and a claim's share."""
        return msgspec.structs.replace(
            levels,
            alpha=levels.alpha * self._gate.shares.claim,
            **stated(self._declaration, levels),
        )


def _other_workload(measured: Sequence[Sequence[Measured]], workload: Workload) -> tuple[str, ...]:
    """Say where recorded evidence is of other prompts than the test would send now."""
    recorded = {boot.measurement.workload_digest for boots in measured for boot in boots}
    if recorded <= {workload.digest}:
        return ()
    return ("The evidence was recorded with another workload than this test has now.",)


def _arms(
    factor: Factor, candidate: Lease, rest: Sequence[Lease | Workload]
) -> tuple[Lease, Workload]:
    wanted = 1 if factor == "prefix" else 2
    if len(rest) != wanted:
        call = "engine, workload" if factor == "prefix" else "candidate, reference, workload"
        raise UsageError(
            f"compare() got {len(rest) + 1} arguments for a speed-up by {factor}.",
            f"The factor {factor!r} compares on {'one engine' if wanted == 1 else 'two engines'}.",
            f"Write llmperf.compare({call}).",
        )
    workload = rest[-1]
    reference = candidate if wanted == 1 else rest[0]
    return reference, workload  # type: ignore[return-value]  # _measure checks what they are


_FEWEST_SERVERS = 2
"""One that fails, and one that takes over."""
