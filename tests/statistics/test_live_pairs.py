"""Live pairs: what the data holds, and what its page says of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.attribution.terms import Terms
from pytest_llmperf.calibrate import live
from pytest_llmperf.calibrate.live_page import text
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine

NOISE = (0.01, -0.012, 0.008, -0.006, 0.011, -0.009)


def pair(number: int, *, plant: str, slower: float, acceptance: float = 3.0) -> list[live.Boot]:
    """Decode at 100 tok/s on the reference, slower on the candidate, with a little noise."""
    return [
        live.Boot(
            session=f"session-{plant}",
            plant=plant,
            gate="test_x.py::test_decode_did_not_get_slower",
            denominator=DECODE_THROUGHPUT,
            measurement=f"{plant}-{number}",
            arm=arm,
            values=tuple(rate * (1 + NOISE[number]) * (1 + each) for each in NOISE),
            terms=Terms(turns=6, decode_rate=rate, acceptance_length=length),
        )
        for arm, rate, length in (
            ("candidate", 100.0 / ((1 + slower) * (1 + NOISE[number])), acceptance),
            ("reference", 100.0, 3.0),
        )
    ]


def pairs(*, plant: str = "none", slower: float = 0.0, acceptance: float = 3.0) -> list[live.Boot]:
    made = [pair(n, plant=plant, slower=slower, acceptance=acceptance) for n in range(len(NOISE))]
    return [boot for both in made for boot in both]


def row_of(page: str, plant: str) -> str:
    return next(line for line in page.splitlines() if f"| {plant} |" in line)


def test_pairs_of_one_build_are_no_regression() -> None:
    page = text(pairs())
    assert "Of 1 verdict on one unchanged build 0 were REGRESS." in page
    assert "PASS" in row_of(page, "none")


def test_a_planted_slow_down_is_red_and_attributed_to_the_step_time() -> None:
    row = row_of(text([*pairs(), *pairs(plant="slower-decode", slower=0.25)]), "slower-decode")
    assert "REGRESS" in row
    assert "step time, not acceptance length" in row


def test_a_weaker_drafter_is_red_and_attributed_to_the_acceptance() -> None:
    weaker = pairs(plant="weak-drafter", slower=0.25, acceptance=2.4)
    row = row_of(text(weaker), "weak-drafter")
    assert "REGRESS" in row
    assert "acceptance length, not step time" in row


def test_a_pair_that_measured_something_else_is_counted_and_not_used() -> None:
    spoilt = [
        msgspec.structs.replace(each, contradictions=("not_warm",))
        if each.measurement == "none-5"
        else each
        for each in pairs()
    ]
    assert "| 5 sound of 6 |" in text(spoilt)


def recorded() -> Evidence:
    start = a_measurement(measurement_id="m1", stage="confirm", turns=1)
    two = tuple(
        msgspec.structs.replace(start.arms[0], name=arm) for arm in ("candidate", "reference")
    )
    start = msgspec.structs.replace(start, arms=two)
    turns = [
        a_request(request_id=arm.name, measurement_id="m1", arm=arm.name, boot_id=arm.boot_id)
        for arm in two
    ]
    end = record.MeasurementEnd(measurement_id="m1", completed=True)
    engine = an_engine(boot_id=two[0].boot_id)
    return Evidence([a_session(mode="aa"), engine, start, *turns, end])


def test_a_pair_is_taken_from_evidence_once() -> None:
    first = list(live.boots(recorded()))
    assert [each.arm for each in first] == ["candidate", "reference"]
    assert [each.plant for each in first] == ["none", "none"]
    assert list(live.boots(recorded(), known=first)) == []


def test_the_data_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in pairs()))
    assert live.load(path) == pairs()


def test_no_data_yet_is_an_empty_start(tmp_path: Path) -> None:
    assert live.load(tmp_path / "none.jsonl") == []


def test_a_line_that_is_no_boot_is_named(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text('{"session": 3}\n', encoding="utf-8")
    with pytest.raises(EvidenceError) as caught:
        live.load(path)
    assert str(caught.value) == (
        f"{path}:1 is no boot of a live pair.\n"
        "Expected `str`, got `int` - at `$.session`\n"
        "Take the line out, and add its evidence folder again."
    )
