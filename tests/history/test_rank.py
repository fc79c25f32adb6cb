"""Machines lined up by their evidence: the better one first, unlike numbers refused by field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import DECODE_THROUGHPUT, SINGLE_STREAM, Denominator
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import EvidenceWriter
from pytest_llmperf.history.__main__ import main
from pytest_llmperf.history.rank import lines
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine

SUBJECT = {
    "model": {"source": "m"},
    "model_digest": "d",
    "drafter": None,
    "flags": {"--dtype": "auto"},
    "engine_version": "1",
    "engine_files": "f",
}
Make = Callable[..., Path]


@pytest.fixture
def measured(tmp_path: Path) -> Make:
    def make(
        machine: str,
        *,
        first_s: float = 0.1,
        of: Denominator = SINGLE_STREAM,
        subject: dict[str, Any] | None = None,
        temperature: float = 0.0,
        gate: str = "test_gate.py::test_gate",
        cached: int = 0,
    ) -> Path:
        folder = tmp_path / machine
        session = a_session(
            session_id=machine,
            place={
                "machine": machine,
                "cpu": f"cpu of {machine}",
                "gpu": "none",
                "memory_bytes": 1,
            },
        )
        side = record.Arm(name="candidate", boot_id="b0", engine="gemma", denominator=of)
        engine = an_engine(
            declared=record.Declared(), subject=SUBJECT | (subject or {}), environment={"A": "1"}
        )
        writer = EvidenceWriter(folder, session)
        writer.write(engine)
        writer.write(a_measurement(arms=(side,), turns=8, gate=gate))
        for number in range(8):
            writer.write(
                a_request(
                    first_s=first_s,
                    start_ns=(number + 1) * 5_000_000_000,
                    request_id=f"r{number}",
                    measurement_id="m0",
                    arm="candidate",
                    boot_id="b0",
                    temperature=temperature,
                    cached=cached,
                    position=number,
                )
            )
        writer.write(record.MeasurementEnd(measurement_id="m0", completed=True))
        writer.close()
        return folder

    return make


def test_the_faster_machine_comes_first(measured: Make) -> None:
    slow, fast = measured("slow", first_s=0.4), measured("fast", first_s=0.1)
    told = lines([slow, fast])
    assert told == [
        (
            "test_gate.py::test_gate: median, wall clock as the caller sees it, per request, cold "
            "prefix, proven, 1 stream"
        ),
        f"  1. 0.400 s  cpu of fast [fast]  8 turns of 1 boot  ({fast})",
        f"  2. 0.700 s  cpu of slow [slow]  8 turns of 1 boot  ({slow})",
        "  No gate: nothing is judged, and the order says nothing about chance.",
    ]


def test_more_tokens_a_second_are_better(measured: Make) -> None:
    folders = [measured(name, of=DECODE_THROUGHPUT) for name in ("a", "b")]
    assert lines(folders)[1].startswith("  1. 50.0 tok/s")


def test_a_build_may_differ_and_is_named(measured: Make) -> None:
    mine, theirs = measured("a"), measured("b", subject={"engine_version": "2"})
    assert f"  note: build.version: 1 against 2 ({theirs})" in lines([mine, theirs])


def test_unlike_numbers_are_refused_and_every_field_is_named(measured: Make) -> None:
    """Five authors' numbers of one model on one machine differ in at least so many fields."""
    mine = measured("a")
    subject = {
        "model": {"source": "m-nvfp4"},
        "model_digest": "e",
        "drafter": {"source": "x"},
        "drafter_digest": "y",
        "flags": {"--dtype": "auto", "--quantization": "fp8"},
    }
    theirs = measured("b", of=DECODE_THROUGHPUT, subject=subject, temperature=1.0)
    with pytest.raises(EvidenceError) as caught:
        lines([mine, theirs])
    named = {
        line.removeprefix("- ").partition(":")[0] for line in caught.value.evidence.split("\n")
    }
    assert named >= {
        "clock",
        "unit",
        "prefix",
        "model.source",
        "model.digest",
        "drafter",
        "flags.--quantization",
        "workload.temperature",
    }


def test_what_is_unknown_equals_nothing(measured: Make) -> None:
    mine, theirs = measured("a"), measured("b", subject={"flags": None})
    with pytest.raises(EvidenceError, match="flags"):
        lines([mine, theirs])


def test_an_invalid_measurement_is_not_ranked(measured: Make) -> None:
    with pytest.raises(EvidenceError, match="it is INVALID"):
        lines([measured("a"), measured("b", cached=64)])


def test_folders_without_a_common_gate_are_refused(measured: Make) -> None:
    with pytest.raises(EvidenceError, match="no gate in common"):
        lines([measured("a"), measured("b", gate="test_other.py::test_other")])


def test_one_folder_is_no_rank(measured: Make) -> None:
    with pytest.raises(EvidenceError, match="1 folder cannot be ranked"):
        lines([measured("a")])


def test_the_command_prints_it(measured: Make, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    folders = [str(measured(name)) for name in ("a", "b")]
    assert main(["--history", str(measured("h") / "none"), "rank", *folders], told.append) == 0
    assert told[0].startswith("test_gate.py::test_gate: median")
    assert main(["rank", folders[0]], told.append) == 1
    assert "cannot be ranked" in capsys.readouterr().err
