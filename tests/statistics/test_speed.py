"""How long verdicts and an index take: figures for a report, never a reason to fail.

Run by `LLMPERF_FIGURES=1 pytest tests/statistics/test_speed.py -s`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_llmperf.evidence import EvidenceWriter, read
from pytest_llmperf.gate import Gate
from pytest_llmperf.history import History
from pytest_llmperf.reference import past_of
from pytest_llmperf.run import Run
from pytest_llmperf.session.recorded import boots_of
from pytest_llmperf.suspects import screened_row
from pytest_llmperf.testing import a_boot, a_session

pytestmark = pytest.mark.skipif(
    not os.environ.get("LLMPERF_FIGURES"), reason="figures are made on request"
)

SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580.95"}
KNOWN = {"subject": {"engine_version": "0.32.0", "engine_files": "f0", "flags": {}}}
TODAY = datetime(2026, 6, 1, tzinfo=UTC)


@contextmanager
def told(what: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    print(f"\n{what}: {time.perf_counter() - begun:.3f} s")  # noqa: T201 - the figure itself


def session(folder: Path, number: int, gates: int, turns: int) -> Path:
    rng = random.Random(number)
    first = a_session(
        session_id=f"s{number}",
        started_at=(TODAY + timedelta(hours=number)).isoformat(),
        place=SPARK,
    )
    with EvidenceWriter(folder / first.session_id, first) as writer:
        for gate in range(gates):
            for boot in range(3):
                durations = {"candidate": [rng.lognormvariate(0, 0.08) for _ in range(turns // 3)]}
                made = a_boot(durations, gate=name(gate), number=boot, engine=KNOWN)
                for each in made:
                    writer.write(each)
    return folder / first.session_id


def name(gate: int) -> str:
    return f"test_gates.py::test_{gate}"


def filled(root: Path, sessions: int, gates: int, turns: int) -> None:
    with History(root / "history") as history:
        for number in range(sessions):
            folder = session(root / "runs", number, gates, turns)
            history.record_session(folder, {name(gate): "PASS" for gate in range(gates)})


def test_verdicts_over_twenty_gates_ten_sessions_and_three_hundred_turns(tmp_path: Path) -> None:
    filled(tmp_path, 10, 20, 300)
    evidence = read(session(tmp_path / "now", 99, 20, 300))
    rows = []
    with told("20 verdicts by 10 sessions of 300 turns"):
        for number in range(20):
            run = Run(boots_of(evidence, name(number), 0)["candidate"])
            gate = Gate(name(number), run.denominator)
            past = past_of(tmp_path / "history", run, gate.node_id, 0.5, "s99")
            rows.append(screened_row(run, gate, 0.5, past)[0])
    assert {row.verdict.word for row in rows} <= {"PASS", "INCONCLUSIVE"}


def test_an_index_of_a_thousand_sessions(tmp_path: Path) -> None:
    sessions = tmp_path / "history" / "sessions"
    sessions.mkdir(parents=True)
    for number in range(1000):
        session(sessions, number, 2, 30)
    with told("first index of 1,000 sessions"), History(tmp_path / "history") as history:
        assert len(history.measured_gates()) == 2
    with told("opening an index of 1,000 sessions"), History(tmp_path / "history") as history:
        assert len(history.measured_gates()) == 2
