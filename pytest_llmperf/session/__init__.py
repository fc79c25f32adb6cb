"""The corridor: carries things from room to room for one run, and holds no rules.

``LiveSession`` boots or attaches and measures. What finds a run that is over is ``recorded``.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec

from pytest_llmperf import fitness, place, profile, proof, record
from pytest_llmperf.bench import Asked, Side
from pytest_llmperf.claims.ceiling import memory_facts
from pytest_llmperf.client import Client
from pytest_llmperf.creeping import creep_row
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Evidence, EvidenceWriter, Measured, keep_picture
from pytest_llmperf.gate import Gate
from pytest_llmperf.lease import EngineLease
from pytest_llmperf.machine import HostLock, Watch, default_lock
from pytest_llmperf.markers import Failover
from pytest_llmperf.measure import Surroundings, Target, measure
from pytest_llmperf.plan import CANDIDATE, REFERENCE, whole_blocks
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.reference import Bands, healthy_bands, ratios_of
from pytest_llmperf.report import Row
from pytest_llmperf.run import Levels, Origin, Pair, Run
from pytest_llmperf.server.launch import Progress, RunningEngine
from pytest_llmperf.server.pool import EnginePool
from pytest_llmperf.session.pending import PendingGates
from pytest_llmperf.session.recorded import RecordedSession, boots_of
from pytest_llmperf.session.taking_over import check_room, hand_over
from pytest_llmperf.settings import Settings

MOST_ATTEMPTS = 3
"""How often one fresh pair is measured on a machine that is disturbed each time: one such pair
would make a whole confirmation INVALID."""

MOST_FIRST_ATTEMPTS = 2
"""How often anything else is."""


class LiveSession:
    """Engines, clients and evidence of one run on live servers."""

    def __init__(self, settings: Settings, *, tell: Callable[[str], None]) -> None:
        self.profile = profile.load(settings.profile)
        self._settings = settings
        self.tell = tell
        """Takes a line of progress for a person."""
        self._clients: dict[str, Client] = {}
        self._bands: Bands | None = None
        self._round = 0
        self.session_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self._past = PendingGates(self, settings)
        self.distrust: list[Contradiction] = []
        """Why nothing of this run can be trusted: a check of the instrument on itself failed."""
        first = _first_line(settings, self.session_id, self.profile)
        self._writer = EvidenceWriter(settings.evidence, first)
        self._evidence = Evidence([first])
        self._lock = HostLock(
            settings.lock or default_lock(),
            wait_s=settings.lock_wait_s,
            command=" ".join(sys.argv)[:200],
            clock=time.monotonic_ns,
            sleep=time.sleep,
            tell=tell,
        )
        self._watch = Watch(
            self._add,
            clock=time.monotonic_ns,
            # Of an attached server nobody can tell its CPU time from a stranger's.
            ours=None if settings.attach else os.getpid(),
        )
        self._pool = EnginePool(
            resident=self.profile.resident,
            folder=settings.evidence / "engines",
            clock=time.monotonic_ns,
            progress=self._boot_progress,
            attachments=settings.attach,
            metrics=settings.metrics,
            on_boot=self._add,
            on_end=self._add,
            before_open=self._lock.acquire,
        )

    @property
    def levels(self) -> Levels:
        """The error rates of this run's gates, by the profile."""
        return Levels.of(self.profile)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing: what is measured now speaks for itself."""
        return ()

    def lease(self, name: str, *, speculation: bool, **overrides: Any) -> EngineLease:  # noqa: ANN401
        """An engine of the profile by name; nothing boots yet.

        :raises NotAttached: servers are attached and this engine is not among them.
        """
        if self._settings.attach:
            self._pool.check_attached(name)
        spec = self.profile.engine(name, speculation=speculation, **overrides)
        if self._settings.attach and not self._settings.profile_was_chosen:
            spec = spec.as_found()
        for warning in spec.warnings:
            self.tell(f"{name}: {warning}")
        recipe = {"speculation": speculation, **overrides}
        return EngineLease(self._pool, spec, self._round, recipe)

    def lease_of(self, other: profile.Profile, name: str, **recipe: Any) -> EngineLease:  # noqa: ANN401
        """An engine as another profile makes it, in a process of its own; nothing boots yet."""
        spec = other.engine(name, copy=1, **recipe)
        spec = msgspec.structs.replace(spec, name=f"{name} (reference)")
        return EngineLease(self._pool, spec, self._round, recipe)

    def boot(self, leases: Sequence[EngineLease]) -> None:
        """Have these engines up, side by side where the profile lets them be resident.

        :raises EngineError: one of them could not be booted.
        """
        self._pool.lease_many([each.spec for each in leases], self._round)

    def begin_round(self, number: int) -> None:
        """From now on engines are leased for this round: each boots once more."""
        self._round = number

    def measured(self, asked: Asked) -> Sequence[Sequence[Measured]]:
        """Measure now and hand back what was recorded, in this round and in those before.

        Arms alternate where their engines can be up together; else one follows the other.
        """
        sides = asked.sides
        together = self._settings.attach or self.profile.resident >= _engines(sides)
        if isinstance(asked.declaration.plan, Failover):
            check_room(sides, resident=self.profile.resident, attached=self._settings.attach)
            self._boot_sides(sides)
        groups = _groups(asked, together=bool(together))
        self._undisturbed(groups, stage="judged", most=MOST_FIRST_ATTEMPTS)
        recorded = boots_of(self._evidence, asked.gate, asked.call)
        return [recorded[side.name] for side in sides]

    def _boot_sides(self, sides: Sequence[Side]) -> None:
        self.boot([side.lease for side in sides if isinstance(side.lease, EngineLease)])

    def fresh_pair(
        self, node_id: str, origin: Origin, sides: Sequence[Side]
    ) -> tuple[Measured, Measured]:
        """Measure a gate's turns on fresh engines; give candidate and reference."""
        own = sides[0].denominator
        declaration = msgspec.structs.replace(
            origin.declaration, denominator=own, speedup=own, factor="profile"
        )
        asked = Asked(
            gate=node_id,
            call=origin.call,
            declaration=declaration,
            sides=sides,
            workload=origin.workload,
        )
        together = self.profile.resident >= len(sides)
        if together:
            self._boot_sides(sides)
        groups = _groups(asked, together=together)
        made = self._undisturbed(groups, stage="confirm", most=MOST_ATTEMPTS)
        arms = {each.arm.name: each for each in made}
        return arms[CANDIDATE], arms[REFERENCE]

    def against_the_past(self, run: Run, gate: Gate, p: float) -> Row:
        """Hold a run against history, or against a reference on fresh boots later on."""
        return self._past.judge(run, gate, p)

    def keep(self, gate: str, name: str, drawn: str) -> None:
        """Leave a gate's picture beside its evidence."""
        where = keep_picture(self._settings.evidence, gate, name, drawn)
        self.tell(f"picture: {where}")

    def crept(self, run: Run, gate: Gate, p: float) -> Row | None:
        """How far a gate's latest sessions are from its anchor; ``None`` without one."""
        stated = self._settings.creep or self.profile.statistics.creep
        return creep_row(
            self._settings.history, run, gate, p, session_id=self.session_id, allowed=stated
        )

    def past_ratios(self, pair: Pair, gate: Gate) -> tuple[tuple[float, ...], ...]:
        """Past sessions' log ratios of this comparison, by boot; none but of this very place."""
        return ratios_of(self._settings.history, pair, gate.node_id, self.session_id)

    def confirm(self) -> None:
        """Judge every gate that waits for it, on fresh boots; does nothing the second time.

        :raises EngineError: an engine could not be booted.
        """
        self._past.confirm()

    def _undisturbed(
        self, groups: Sequence[Asked], *, stage: Literal["judged", "confirm"], most: int
    ) -> list[Measured]:
        """Measure one group after another; where the machine was disturbed meanwhile, all again.

        A drill is not made again: what it did to its servers is done.
        """
        if isinstance(groups[0].declaration.plan, Failover):
            most = 1
        for attempt in range(1, most + 1):
            made = [
                arm
                for group in groups
                for arm in self._evidence.measured(self._measure(group, stage, attempt))
            ]
            is_whole = all(each.end is not None and each.end.completed for each in made)
            if attempt == most or not is_whole:
                break
            disturbed = next(filter(None, map(proof.disturbance, made)), None)
            if disturbed is None:
                break
            self.tell(f"measuring again: {disturbed.reason}")
        return made

    def _measure(self, asked: Asked, stage: Literal["judged", "confirm"], attempt: int) -> str:
        declaration, workload = asked.declaration, asked.workload
        targets = [self._target(side) for side in asked.sides]
        start = record.Measurement(
            measurement_id=secrets.token_hex(6),
            gate=asked.gate,
            call=asked.call,
            round=self._round,
            stage=stage,
            attempt=attempt,
            arms=tuple(target.arm for target in targets),
            factor=declaration.factor,
            factors=declaration.factors,
            workload=workload.name,
            workload_digest=workload.digest,
            turns=whole_blocks(declaration),
            windows=declaration.windows,
            warmup=declaration.plan.warmup,
            min_cached_share=declaration.min_cached_share,
            min_acceptance=declaration.plan.min_acceptance,
        )
        if isinstance(declaration.plan, Failover):
            made = hand_over(start, declaration.plan, targets, workload, self._surroundings())
            if declaration.plan.fault == "killed":  # its death was meant: it may boot again
                self._pool.put_out(targets[0].running)
            return made
        return measure(start, targets, workload, self._surroundings())

    def with_memory(self, boot: Measured, *, probe: bool) -> Measured:
        """A boot with what is known of its checkpoint and memory, which is looked at now."""
        mine = self._evidence.same(boot)
        for line in memory_facts(mine, probe=probe, tell=self.tell):
            self._add(line)
        return self._evidence.same(boot)

    def close(self) -> None:
        """Stop every engine and close the evidence; may be called again."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        try:
            self._pool.close()
        finally:
            self._lock.release()
            self._writer.close()

    def _target(self, side: Side) -> Target:
        lease = side.lease
        if not isinstance(lease, EngineLease):
            raise UsageError(
                f"{lease!r} is no engine of this session.",
                f"It is a {type(lease).__name__}.",
                "Use the fixtures gemma, gemma_autoregressive, or engine(...).",
            )
        running = lease.running()
        arm = record.Arm(
            name=side.name,
            boot_id=running.engine.boot_id,
            engine=lease.name,
            denominator=side.denominator,
            declared=running.engine.declared,
        )
        return Target(arm=arm, running=running, client=self._client(running))

    def _client(self, running: RunningEngine) -> Client:
        boot = running.engine.boot_id
        if boot not in self._clients:
            client = Client(
                running.url,
                model=running.model,
                token_ids=bool(running.engine.facts.token_ids),
                metrics_url=running.engine.metrics_url,
                clock=time.monotonic_ns,
            )
            self._clients[boot] = client.__enter__()
        return self._clients[boot]

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            add=self._add,
            clock=time.monotonic_ns,
            sleep=time.sleep,
            tell=self.tell,
            seed=self._settings.seed,
            watching=self._watching,
        )

    def _watching(self, measurement_id: str) -> AbstractContextManager[Callable[[], None]]:
        """Watch the machine while one measurement is made."""
        bands, no_band = self._bands = self._bands or healthy_bands(self._settings.history)
        return self._watch.watching(
            fitness.Precondition(
                measurement_id=measurement_id,
                limits=self.profile.fitness,
                bands=bands,
                no_band=no_band,
            )
        )

    def _add(self, line: record.Record) -> None:
        """Keep a record on disk first, then in memory."""
        self._writer.write(line)
        self._evidence.add(line)

    def _boot_progress(self, progress: Progress) -> None:
        self.tell(str(progress))


Session = LiveSession | RecordedSession


def _groups(asked: Asked, *, together: bool) -> list[Asked]:
    """All sides at once, or one after another where their engines cannot be up together."""
    if together:
        return [asked]
    return [msgspec.structs.replace(asked, sides=[side]) for side in asked.sides]


def _engines(sides: Sequence[Side]) -> int:
    return len({side.lease.name for side in sides})


def _first_line(
    settings: Settings, session_id: str, configuration: profile.Profile
) -> record.Session:
    return record.Session(
        session_id=session_id,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        plugin_version=version("pytest-llmperf"),
        command=tuple(sys.argv),
        mode=settings.mode,
        profile=settings.profile,
        configuration=msgspec.to_builtins(configuration),
        place=place.facts(),
    )
