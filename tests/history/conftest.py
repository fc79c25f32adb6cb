"""Runs of known size on disk: sessions of several boots whose every turn is known to the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import BUILT_IN
from pytest_llmperf.evidence import Evidence, EvidenceWriter, Measured
from pytest_llmperf.history import History, Rules
from pytest_llmperf.identity import Half, denominator_id, place_of
from pytest_llmperf.testing import (
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)

SECOND_NS = 1_000_000_000
TODAY = datetime(2026, 6, 1, tzinfo=UTC)
GATE = "perf/test_router.py::test_turn"
SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580.95"}
MTP = record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)
PLAIN = record.Declared(prefix_caching=True)
SUBJECT: dict[str, Any] = {
    "engine_version": "0.32.0",
    "engine_files": "f0",
    "packages": {"transformers": "5.10"},
    "model": {"source": "google/gemma-4"},
    "model_digest": "d0",
    "drafter": None,
    "flags": {"--max-num-seqs": 4},
}


class Runs:
    """Makes sessions in folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = folder / "history"

    def records(
        self,
        boots: Sequence[float] = (1.0, 1.01, 0.99),
        *,
        gate: str = GATE,
        of: str = "single_stream",
        reference: float | None = None,
        declared: record.Declared = PLAIN,
        accepted: float = 2.0,
        engine: dict[str, Any] | None = None,
        tag: str = "",
        **turn: Any,  # noqa: ANN401 - any argument of a_request
    ) -> list[record.Record]:
        """One gate's records: boots by how long they take, each of eight turns of 48 tokens.

        :param reference: how long the other arm's turns take, where there is one.
        :param accepted: tokens accepted a draft.
        """
        return [
            line
            for number, slow in enumerate(boots)
            for line in self._boot(
                number,
                {"candidate": slow} | ({} if reference is None else {"reference": reference}),
                gate=gate,
                of=of,
                declared=declared,
                accepted=accepted,
                engine=engine or {},
                identity=f"{tag}{number}",
                turn=turn,
            )
        ]

    def _boot(
        self,
        number: int,
        arms: dict[str, float],
        *,
        gate: str,
        of: str,
        declared: record.Declared,
        accepted: float,
        engine: dict[str, Any],
        identity: str,
        turn: dict[str, Any],
    ) -> list[record.Record]:
        boots = {name: f"b{identity}.{name}" for name in arms}
        start = a_measurement(
            measurement_id=f"m{identity}",
            gate=gate,
            round=number,
            turns=8,
            factor="profile" if len(arms) > 1 else None,
            workload_digest="w0",
            arms=tuple(
                record.Arm(
                    name=name,
                    boot_id=boots[name],
                    engine="gemma",
                    denominator=BUILT_IN[of],
                    declared=declared,
                )
                for name in arms
            ),
        )
        lines: list[record.Record] = [start]
        for name, slow in arms.items():
            booted = {"boot_id": boots[name], "declared": declared, "round": number}
            lines.append(an_engine(**{**booted, "subject": SUBJECT, **engine}))
            sent = [
                self._turn(place, name, boots[name], slow, start.measurement_id, **turn)
                for place in range(8)
            ]
            before = some_counters(
                measurement_id=start.measurement_id, boot_id=boots[name], at_ns=SECOND_NS // 2
            )
            lines += [before, *sent, self._after(before, sent, declared, accepted)]
            if declared.speculation:
                lines[lines.index(before)] = msgspec.structs.replace(
                    before, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0
                )
        end = record.MeasurementEnd(measurement_id=start.measurement_id, completed=True)
        return [*lines, end]

    def _turn(
        self,
        place: int,
        arm: str,
        boot: str,
        slow: float,
        measurement: str,
        **turn: Any,  # noqa: ANN401 - any argument of a_request
    ) -> record.Request:
        position = 2 * place + (arm == "reference")
        return a_request(
            **{
                "request_id": f"{measurement}.{position}",
                "measurement_id": measurement,
                "arm": arm,
                "boot_id": boot,
                "position": position,
                "block": place // 2,
                "start_ns": (position + 1) * SECOND_NS,
                "prompt": f"p{place}",
                "prompt_digest": f"d{place}",
                "first_s": 0.06 * slow,
                "gap_s": 0.02 * slow,
                "tokens": 48,
                "tokens_per_chunk": 3,
                "loop_lag_ns": 1_000,
                **turn,
            }
        )

    @staticmethod
    def _after(
        before: record.Counters,
        sent: list[record.Request],
        declared: record.Declared,
        accepted: float,
    ) -> record.Counters:
        output = sum(each.usage.completion_tokens or 0 for each in sent)
        prompts = sum(each.usage.prompt_tokens or 0 for each in sent)
        drafts = (output - len(sent)) / (1 + accepted)
        drafting = (
            {"drafts": drafts, "draft_tokens": 3 * drafts, "accepted_tokens": accepted * drafts}
            if declared.speculation
            else {}
        )
        return msgspec.structs.replace(
            before,
            when="after",
            at_ns=30 * SECOND_NS,
            prefix_queries=float(prompts),
            prompt_tokens=float(prompts),
            generation_tokens=float(output),
            requests_finished=float(len(sent)),
            **drafting,
        )

    def write(
        self,
        name: str,
        *lines: record.Record,
        day: int = 0,
        place: dict[str, Any] | None = None,
        below: Path | None = None,
    ) -> Path:
        """A run's folder with these records; one default gate where none are given."""
        session = a_session(
            session_id=name,
            started_at=(TODAY + timedelta(days=day)).isoformat(),
            place=SPARK if place is None else place,
        )
        folder = (below or self.folder / "runs") / name
        with EvidenceWriter(folder, session) as writer:
            for each in lines or self.records():
                writer.write(each)
        return folder

    def recorded(
        self,
        name: str,
        *lines: record.Record,
        word: Any = "PASS",  # noqa: ANN401 - a word or None
        day: int = 0,
        gate: str = GATE,
        rules: Rules | None = None,
        place: dict[str, Any] | None = None,
    ) -> Path:
        """A run that was recorded in the history; give its folder there."""
        folder = self.write(name, *lines, day=day, place=place)
        with self.open() as history:
            admission = history.record_session(folder, {gate: word}, rules=rules)
        return Path(admission.path or "")

    def open(self, *, day: int = 100) -> History:
        """The history, asked on some day."""
        return History(self.history, now=lambda: TODAY + timedelta(days=day))

    def measured(self, *lines: record.Record, **session: Any) -> tuple[Measured, ...]:  # noqa: ANN401
        """The arms of records, boot by boot."""
        given = list(lines) or self.records()
        evidence = Evidence([a_session(**{"place": SPARK, **session}), *given])
        return tuple(
            arm
            for start in evidence.measurements(evidence.gates[0])
            for arm in evidence.measured(start.measurement_id)
        )

    @property
    def place(self) -> Half:
        """Where the default gate is measured."""
        return place_of(self.measured()[0])

    @property
    def denominator_id(self) -> str:
        """What the default gate's number is counted over."""
        return denominator_id(BUILT_IN["single_stream"])

    def found(self, **how: Any) -> list[str]:  # noqa: ANN401 - any argument of sessions
        """Session ids of the default gate that count, oldest first."""
        with self.open() as history:
            past = history.sessions(GATE, self.place, self.denominator_id, **how)
        return [each.session_id for each in past]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="session")
def making_runs() -> Callable[[Path], Runs]:
    return Runs
