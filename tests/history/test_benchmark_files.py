"""Old result files of pytest-benchmark are sessions of one number, of this machine alone."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf import benchmark_files
from pytest_llmperf.benchmark_files import DENOMINATOR_ID, place_of_benchmarks
from pytest_llmperf.errors import EvidenceError

if TYPE_CHECKING:
    from tests.history.conftest import Runs

GATE = "perf/test_router.py::test_turn"
HERE = {
    "node": "spark",
    "processor": "",
    "machine": "aarch64",
    "system": "Linux",
    "release": "6.11",
    "python_version": "3.12.3",
    "python_build": ["main", "x"],
    "cpu": {"brand_raw": "Cortex-X925", "count": 20, "hz_actual": [1, 0]},
}
SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580.95"}


def a_file(folder: Path, median: Any = 0.25, **machine: Any) -> Path:  # noqa: ANN401
    content = {
        "machine_info": HERE | machine,
        "commit_info": {"id": "c0"},
        "benchmarks": [
            {"fullname": GATE, "name": "test_turn", "stats": {"median": median, "mean": 9.0}}
        ],
        "datetime": "2026-05-01T10:00:00.312836+00:00",
        "version": "5.1.0",
    }
    path = folder / "0001_old.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_each_test_s_median_is_its_number(tmp_path: Path) -> None:
    found = benchmark_files.read(a_file(tmp_path), here=HERE)
    assert found.medians_s == {GATE: 0.25}
    assert found.started_at == "2026-05-01T10:00:00.312836+00:00"
    assert found.source == "0001_old.json"


def test_a_machine_that_only_runs_at_another_clock_rate_is_the_same(tmp_path: Path) -> None:
    cpu = HERE["cpu"]
    assert isinstance(cpu, dict)
    path = a_file(tmp_path, cpu=cpu | {"hz_actual": [2, 0]})
    assert benchmark_files.read(path, here=HERE).medians_s


def test_another_machine_is_refused_and_each_difference_named(tmp_path: Path) -> None:
    path = a_file(tmp_path, node="laptop", cpu={"brand_raw": "M4", "count": 20})
    with pytest.raises(EvidenceError) as caught:
        benchmark_files.read(path, here=HERE)
    assert str(caught.value) == (
        f"{path} was made on another machine.\n"
        "node: 'laptop' there, 'spark' here; cpu brand_raw: 'M4' there, 'Cortex-X925' here.\n"
        "Numbers of two machines are not comparable; import it where it was made."
    )


@pytest.mark.parametrize("median", [None, 0, -1.0])
def test_what_is_no_duration_is_refused_by_name_and_is_never_zero(
    tmp_path: Path, median: float | None
) -> None:
    found = benchmark_files.read(a_file(tmp_path, median), here=HERE)
    assert found.medians_s == {}
    expected = median if median is None else float(median)
    assert found.refused == {GATE: f"its median is {expected}"}


def test_a_gate_of_ours_that_was_invalid_gives_no_number(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    file = json.loads(path.read_text(encoding="utf-8"))
    file["benchmarks"][0]["extra_info"] = {"verdict": "INVALID"}
    path.write_text(json.dumps(file), encoding="utf-8")
    found = benchmark_files.read(path, here=HERE)
    assert (found.medians_s, found.refused) == ({}, {GATE: "it was INVALID"})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"benchmarks": [], "datetime": "x"}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "0001_x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EvidenceError) as caught:
        benchmark_files.read(path, here=HERE)
    assert caught.value.what == f"{path} is no result file of pytest-benchmark."


def test_imported_it_is_a_session_without_boot_replication(runs: Runs, tmp_path: Path) -> None:
    with runs.open() as history:
        history.import_benchmarks(a_file(tmp_path), SPARK, here=HERE)
        (past,) = history.sessions(GATE, place_of_benchmarks(SPARK), DENOMINATOR_ID)
        assert past.logs("p50") == (math.log(0.25),)
        assert not past.replicated
        assert past.label == "one number from another tool, no boots behind it"
        assert history.gates() == (), "it puts no gate on the roll"
        with pytest.raises(EvidenceError):
            history.evidence(past.session_id)


def test_it_is_compared_with_none_of_our_own_denominators(runs: Runs, tmp_path: Path) -> None:
    runs.recorded("s1")
    with runs.open() as history:
        history.import_benchmarks(a_file(tmp_path), SPARK, here=HERE)
        found = history.sessions(GATE, runs.place, runs.denominator_id)
    assert [each.session_id for each in found] == ["s1"]


def test_a_copy_of_a_file_is_the_same_session(runs: Runs, tmp_path: Path) -> None:
    path = a_file(tmp_path)
    copy = tmp_path / "0002_new.json"
    shutil.copy(path, copy)
    with runs.open() as history:
        history.import_benchmarks(path, SPARK, here=HERE)
        with pytest.raises(EvidenceError) as caught:
            history.import_benchmarks(copy, SPARK, here=HERE)
    assert caught.value.what.endswith("is already in the history.")


def test_it_outlives_a_rebuild(runs: Runs, tmp_path: Path) -> None:
    with runs.open() as history:
        history.import_benchmarks(a_file(tmp_path), SPARK, here=HERE)
        before = history.everything(GATE)
        history.rebuild()
        assert history.everything(GATE) == before


def test_this_machine_is_described_in_the_fields_that_are_compared() -> None:
    assert set(benchmark_files.this_machine()) == {*HERE} - {"python_build"}
