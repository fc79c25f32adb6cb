"""The corridor: carries things from room to room for one run, and holds no rules.

``LiveSession`` boots or attaches and measures; ``RecordedSession`` finds what was recorded.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_llmperf import place, profile, record, suspects
from pytest_llmperf.bench import Side
from pytest_llmperf.client import Client
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.evidence import Evidence, EvidenceWriter, Measured, read
from pytest_llmperf.gate import Gate
from pytest_llmperf.measure import Surroundings, Target, measure
from pytest_llmperf.plan import BLOCK, CANDIDATE, REFERENCE
from pytest_llmperf.reference import Configuration, FreshPairs, past_of, stored_configuration
from pytest_llmperf.report import Row
from pytest_llmperf.run import Levels, Origin, Run
from pytest_llmperf.server.launch import Progress, RunningEngine
from pytest_llmperf.server.pool import EnginePool
from pytest_llmperf.settings import Settings
from pytest_llmperf.workload import Workload


class EngineLease:
    """An engine as a fixture hands it out: booted when needed, stopped when others need room."""

    def __init__(
        self,
        pool: EnginePool,
        spec: profile.EngineSpec,
        round_number: int,
        recipe: Mapping[str, Any],
    ) -> None:
        self._pool = pool
        self._round = round_number
        self.spec = spec
        self.recipe = recipe
        """How it was asked of its profile, to ask the same of another."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.spec.name

    @property
    def declared(self) -> record.Declared:
        """What its profile promises of it."""
        return self.spec.declared

    @property
    def url(self) -> str:
        """Where it answers; boots it if it is not up."""
        return self.running().url

    def running(self) -> RunningEngine:
        """The running engine.

        :raises EngineError: it could not be booted, or another one is in its place.
        """
        return self._pool.lease(self.spec, self._round)


class LiveSession:
    """Engines, clients and evidence of one run on live servers."""

    def __init__(self, settings: Settings, *, tell: Callable[[str], None]) -> None:
        self.profile = profile.load(settings.profile)
        self._settings = settings
        self._tell = tell
        self._clients: dict[str, Client] = {}
        self._round = 0
        self.session_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self.pending: list[suspects.Pending] = []
        first = _first_line(settings, self.session_id, self.profile)
        self._writer = EvidenceWriter(settings.evidence, first)
        self._evidence = Evidence([first])
        self._pool = EnginePool(
            resident=self.profile.resident,
            folder=settings.evidence / "engines",
            clock=time.monotonic_ns,
            progress=self._boot_progress,
            attachments=settings.attach,
            on_boot=self._add,
            on_end=self._add,
        )

    @property
    def levels(self) -> Levels:
        """The error rates of this run's gates, by the profile."""
        return _levels(self.profile)

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
            self._tell(f"{name}: {warning}")
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

    def measured(
        self,
        node_id: str,
        call: int,
        declaration: Declaration,
        sides: Sequence[Side],
        workload: Workload,
    ) -> Sequence[Sequence[Measured]]:
        """Measure now and hand back what was recorded, in this round and in those before.

        Arms alternate where their engines can be up together; else one follows the other.
        """
        together = self._settings.attach or self.profile.resident >= _engines(sides)
        groups = [list(sides)] if together else [[side] for side in sides]
        for group in groups:
            self._measure(node_id, call, declaration, group, workload, stage="judged")
        recorded = _recorded(self._evidence, node_id, call)
        return [recorded[side.name] for side in sides]

    def fresh_pair(
        self, node_id: str, origin: Origin, sides: Sequence[Side]
    ) -> tuple[Measured, Measured]:
        """Measure a gate's turns on fresh engines; give candidate and reference."""
        own = sides[0].denominator
        declaration = msgspec.structs.replace(
            origin.declaration, denominator=own, speedup=own, factor="profile"
        )
        together = self.profile.resident >= len(sides)
        if together:
            self.boot([side.lease for side in sides if isinstance(side.lease, EngineLease)])
        groups = [list(sides)] if together else [[side] for side in sides]
        arms: dict[str, Measured] = {}
        for group in groups:
            made = self._measure(
                node_id, origin.call, declaration, group, origin.workload, stage="confirm"
            )
            arms |= {each.arm.name: each for each in self._evidence.measured(made)}
        return arms[CANDIDATE], arms[REFERENCE]

    def against_the_past(self, run: Run, gate: Gate, p: float) -> Row:
        """Hold a run against history, or against a reference on fresh boots later on."""
        other = self._reference(gate.node_id)
        if self._settings.mode == "quick":
            past = past_of(self._settings.history, run, gate.node_id, p, self.session_id)
            return suspects.quick_row(run, gate, p, past)
        if self._settings.against is not None or self._settings.mode == "aa":
            weight: float | None = 1.0
            row = suspects.forced_row(run, gate, p, other)
        else:
            past = past_of(self._settings.history, run, gate.node_id, p, self.session_id)
            row, weight = suspects.screened_row(run, gate, p, past)
        if weight is None or run.contradictions:
            return row
        why = self._unconfirmed(gate, other)
        if why is not None or other is None:
            return suspects.unconfirmed(row, why or "")
        gate.is_pending = True
        self.pending.append(
            suspects.Pending(
                gate=gate,
                row=len(gate.rows),
                run=run,
                p=p,
                levels=run.levels,
                retake=FreshPairs(self, gate.node_id, run, other),
                weight=weight,
            )
        )
        return row

    def _unconfirmed(self, gate: Gate, other: Configuration | None) -> str | None:
        """Why a suspect cannot be judged on fresh boots, if it cannot."""
        if self._settings.attach:
            return "attached servers are not booted again"
        if other is None:
            return "no past session kept a configuration that could be booted as the reference"
        if not gate.has_confirmation:
            return "the test does not call assert_no_regression in its own body"
        return None

    def confirm(self) -> None:
        """Judge every gate that waits for it, on fresh boots; does nothing the second time.

        :raises EngineError: an engine could not be booted.
        """
        waiting, self.pending = self.pending, []
        if waiting:
            levels = self.levels
            most = self._settings.pairs if self._settings.mode == "aa" else None
            suspects.confirm_all(
                waiting, alpha=levels.alpha, beta=levels.beta, all_of=most, tell=self._tell
            )

    def _reference(self, gate: str) -> Configuration | None:
        if self._settings.mode == "aa":
            return Configuration(profile=self.profile, source="the same profile")
        if self._settings.against is not None:
            name = self._settings.against
            return Configuration(profile=profile.load(name), source=f"profile {name}")
        return stored_configuration(self._settings.history, gate)

    def _measure(
        self,
        node_id: str,
        call: int,
        declaration: Declaration,
        sides: Sequence[Side],
        workload: Workload,
        *,
        stage: Literal["judged", "confirm"],
    ) -> str:
        targets = [self._target(side) for side in sides]
        start = record.Measurement(
            measurement_id=secrets.token_hex(6),
            gate=node_id,
            call=call,
            round=self._round,
            stage=stage,
            arms=tuple(target.arm for target in targets),
            factor=declaration.factor,
            workload=workload.name,
            workload_digest=workload.digest,
            turns=_whole_blocks(declaration),
            warmup=declaration.plan.warmup,
            min_cached_share=declaration.min_cached_share,
            min_acceptance=declaration.plan.min_acceptance,
        )
        return measure(start, declaration, targets, workload, self._surroundings())

    def close(self) -> None:
        """Stop every engine and close the evidence; may be called again."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._pool.close()
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
                clock=time.monotonic_ns,
            )
            self._clients[boot] = client.__enter__()
        return self._clients[boot]

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            add=self._add,
            clock=time.monotonic_ns,
            sleep=time.sleep,
            tell=self._tell,
            seed=self._settings.seed,
        )

    def _add(self, line: record.Record) -> None:
        """Keep a record on disk first, then in memory."""
        self._writer.write(line)
        self._evidence.add(line)

    def _boot_progress(self, progress: Progress) -> None:
        self._tell(str(progress))


class RecordedLease:
    """An engine of a run that is over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared = record.Declared()

    @property
    def url(self) -> str:
        """There is none any more.

        :raises UsageError: always.
        """
        raise UsageError(
            f"The engine {self.name} has no address: recorded evidence is being judged.",
            "--llmperf-replay boots nothing.",
            "Run without --llmperf-replay to send requests of your own.",
        )


class RecordedSession:
    """Measurements out of recorded evidence; no engine, no client."""

    def __init__(self, settings: Settings) -> None:
        assert settings.replay is not None  # noqa: S101 - the caller chose this class by it
        self.profile = profile.load(settings.profile)
        self._settings = settings
        self._folder: Path = settings.replay
        self._evidence = read(settings.replay)

    @property
    def levels(self) -> Levels:
        """The error rates of this run's gates, by the profile."""
        return _levels(self.profile)

    def lease(self, name: str, *, speculation: bool, **overrides: Any) -> RecordedLease:  # noqa: ANN401, ARG002
        """A name, to tell the arms apart."""
        return RecordedLease(name)

    def boot(self, leases: Sequence[RecordedLease]) -> None:
        """Boot nothing."""

    def measured(
        self,
        node_id: str,
        call: int,
        declaration: Declaration,
        sides: Sequence[Side],
        workload: Workload,  # noqa: ARG002 - likewise
    ) -> Sequence[Sequence[Measured]]:
        """Find what was recorded for this gate, in all rounds of the newest session that has it.

        :raises EvidenceError: nothing was, or under another denominator than is declared now.
        """
        recorded = _recorded(self._evidence, node_id, call)
        if not recorded:
            raise EvidenceError(
                f"There is no recorded measurement number {call} of {node_id}.",
                f"{self._folder} holds {self._evidence.contents()}.",
                "Record this gate first, or point --llmperf-replay at the folder that has it.",
            )
        found = [recorded[side.name] for side in sides if side.name in recorded]
        for boots, side in zip(found, sides, strict=False):
            for boot in boots:
                _check_denominator(node_id, boot, side)
                _check_turns(node_id, boot, declaration)
        return [[_as_declared(boot, declaration) for boot in boots] for boots in found]

    def against_the_past(self, run: Run, gate: Gate, p: float) -> Row:
        """Hold a recorded run against history, or against its recorded confirmation."""
        fresh = _confirmed(self._evidence, gate.node_id, run)
        if fresh:
            return suspects.recorded_row(run, gate, p, fresh, levels=run.levels)
        session = run.measured.session
        own = "" if session is None else session.session_id
        past = past_of(self._settings.history, run, gate.node_id, p, own)
        if len(run.boots) == 1:
            return suspects.quick_row(run, gate, p, past)
        row, weight = suspects.screened_row(run, gate, p, past)
        if weight is None:
            return row
        return suspects.unconfirmed(row, "recorded evidence cannot be measured again")

    def confirm(self) -> None:
        """Nothing: what was confirmed is recorded."""

    def begin_round(self, number: int) -> None:
        """Nothing: recorded rounds are judged together."""

    def close(self) -> None:
        """Close nothing."""


Session = LiveSession | RecordedSession


def _recorded(evidence: Evidence, node_id: str, call: int) -> dict[str, list[Measured]]:
    """By arm, the boots of one measurement of a gate in the newest session that has it."""
    measured = [
        arm
        for start in evidence.measurements(node_id)
        if start.call == call and start.stage == "judged"
        for arm in evidence.measured(start.measurement_id)
    ]
    by_arm: dict[str, list[Measured]] = {}
    for arm in measured:
        if arm.session == measured[-1].session:
            by_arm.setdefault(arm.arm.name, []).append(arm)
    return by_arm


def _confirmed(evidence: Evidence, node_id: str, run: Run) -> list[tuple[Measured, Measured]]:
    """The recorded fresh pairs of one gate and call, in the order of their rounds."""
    call = 0 if run.origin is None else run.origin.call
    arms: dict[int, dict[str, Measured]] = {}
    for start in evidence.measurements(node_id):
        if start.stage == "confirm" and start.call == call:
            for each in evidence.measured(start.measurement_id):
                if each.session == run.measured.session:
                    arms.setdefault(start.round, {})[each.arm.name] = each
    whole = (arms[number] for number in sorted(arms))
    return [(each[CANDIDATE], each[REFERENCE]) for each in whole if len(each) > 1]


def _levels(of: profile.Profile) -> Levels:
    stated = of.statistics
    return Levels(
        alpha=stated.alpha, beta=stated.beta, tolerance=stated.tolerance, detect=stated.detect
    )


def _engines(sides: Sequence[Side]) -> int:
    return len({side.lease.name for side in sides})


def _whole_blocks(declaration: Declaration) -> int:
    """Turns for each arm: whole blocks where two arms are compared."""
    turns = declaration.plan.turns
    return turns if declaration.factor is None else turns + turns % BLOCK


def _check_denominator(node_id: str, measured: Measured, side: Side) -> None:
    differences = side.denominator.differences(measured.arm.denominator)
    if differences:
        raise EvidenceError(
            f"{node_id} declares another denominator than its evidence was recorded under.",
            "; ".join(differences) + " (declared now against recorded).",
            "Compare numbers of one denominator only: restore the marker, or record again.",
        )


def _check_turns(node_id: str, measured: Measured, declaration: Declaration) -> None:
    recorded, declared = measured.measurement.turns, _whole_blocks(declaration)
    if recorded < declared:
        raise EvidenceError(
            f"{node_id} declares {declared} turns; {recorded} were planned when it was recorded.",
            "A verdict on fewer turns is not the one that is declared now.",
            "Restore the marker, or record again.",
        )


def _as_declared(measured: Measured, declaration: Declaration) -> Measured:
    """What was recorded, to be proven by what is declared now."""
    start = msgspec.structs.replace(
        measured.measurement,
        min_acceptance=declaration.plan.min_acceptance,
        min_cached_share=declaration.min_cached_share,
    )
    return msgspec.structs.replace(measured, measurement=start)


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
