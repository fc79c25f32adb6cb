"""The band of a healthy machine is learned from past sessions of the same place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_llmperf import place, reference
from pytest_llmperf.assumption.prediction import prediction_interval
from pytest_llmperf.evidence import EvidenceWriter
from pytest_llmperf.fitness import Canary
from pytest_llmperf.history.layout import Judged, Verdicts, encoded
from pytest_llmperf.testing import a_measurement, a_session

HERE: dict[str, Any] = {"machine": "m1", "cpu": "c1"}
GATE = "test_gate.py::test_gate"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a function
    """Put sessions with known canaries into a history of this place."""
    monkeypatch.setattr(place, "facts", lambda: HERE)

    def add(name: str, loop_ns: int, *, word: str = "PASS", where: dict[str, Any] = HERE) -> Path:
        folder = tmp_path / "sessions" / name
        with EvidenceWriter(folder, a_session(session_id=name, place=where)) as writer:
            writer.write(a_measurement())
            for when in ("before", "after"):
                writer.write(
                    Canary(measurement_id="m0", when=when, at_ns=0, loop_ns=loop_ns, copy_ns=100)
                )
        judged = {GATE: Judged(word=word)}  # type: ignore[arg-type]
        verdicts = Verdicts(session_id=name, recorded_at="2026-01-01T00:00:00Z", gates=judged)
        (folder / "verdicts.json").write_bytes(encoded(verdicts))
        return tmp_path

    return add


def test_a_few_sessions_make_no_band_and_say_so(history: Any, tmp_path: Path) -> None:  # noqa: ANN401
    for number in range(4):
        history(f"s{number}", 1000)
    assert reference.healthy_bands(tmp_path) == (
        {},
        "4 healthy sessions of this place, 5 make a band",
    )


def test_five_sessions_of_this_place_make_a_band(history: Any, tmp_path: Path) -> None:  # noqa: ANN401
    for number, loop_ns in enumerate((980, 990, 1000, 1010, 1020)):
        history(f"s{number}", loop_ns)
    history("s5", 9000, where={**HERE, "machine": "m2"})
    history("s6", 9000, word="INVALID")
    bands, no_band = reference.healthy_bands(tmp_path)
    assert no_band is None
    band = bands["canary_loop_ns"]
    assert (band.sessions, band.typical) == (5, 1000)
    assert band.low < 980
    assert 1020 < band.high < 1200


def test_only_the_newest_sessions_count(history: Any, tmp_path: Path) -> None:  # noqa: ANN401
    for number in range(12):
        history(f"s{number:02}", 9000 if number < 2 else 1000)
    assert reference.healthy_bands(tmp_path)[0]["canary_loop_ns"].typical == 1000


def test_an_unknown_place_has_no_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "facts", lambda: {"machine": None, "cpu": "c1"})
    assert reference.healthy_bands(tmp_path) == ({}, "machine of this place is unknown")


def test_a_file_that_is_no_evidence_counts_for_nothing(history: Any, tmp_path: Path) -> None:  # noqa: ANN401
    history("s0", 1000)
    (tmp_path / "sessions" / "s0" / "verdicts.json").write_text("{")
    assert reference.healthy_bands(tmp_path)[1] == "0 healthy sessions of this place, 5 make a band"


def test_the_interval_is_that_of_the_formula() -> None:
    # n = 5, logs -2 to 2: mean 0, sd sqrt(2.5), t(0.9995, 4) = 8.6103.
    values = [math.exp(each) for each in (-2, -1, 0, 1, 2)]
    interval = prediction_interval(values, 0.999)
    assert interval is not None
    reach = 8.6103 * math.sqrt(2.5) * math.sqrt(1 + 1 / 5)
    assert [math.log(end) for end in interval] == pytest.approx([-reach, reach], rel=1e-4)


def test_four_values_predict_nothing() -> None:
    assert prediction_interval([1.0, 2.0, 3.0, 4.0], 0.999) is None
