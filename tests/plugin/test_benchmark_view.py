"""Our turns in pytest-benchmark's table, and what its neighbours are told."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_latency

@pytest.mark.cached_turn(turns=8, warmup=1)
def test_turn(llmperf, gemma, talks, benchmark):
    assert_latency(llmperf(gemma, talks), p50_s=30)
"""


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest-benchmark time, also where these tests themselves run in a worker."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def test_turns_stand_in_its_table_as_rounds_of_seconds(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(GATE)
    result = attached("--benchmark-json=out.json", "--benchmark-save-data")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*benchmark *: 1 tests*"])
    found = json.loads((suite.path / "out.json").read_text())
    (row,) = found["benchmarks"]
    assert row["stats"]["rounds"] == 8
    assert 0.001 < row["stats"]["median"] < 5
    assert row["extra_info"]["denominator"].startswith("wall clock as the caller sees it")
    assert found["llmperf"]["cores"] >= 1


def test_a_file_of_another_place_is_refused(suite: pytest.Pytester, attached: Run) -> None:
    suite.makepyfile(GATE)
    attached("--benchmark-save=here")
    (saved,) = suite.path.glob(".benchmarks/*/0001_here.json")
    stored = json.loads(saved.read_text())
    stored["llmperf"]["cores"] = 4096
    saved.write_text(json.dumps(stored))
    result = attached("--benchmark-compare=0001")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*benchmark file is of another place*", "*cores: * 4096 there*"])


def test_a_worker_of_xdist_measures_nothing_and_says_so(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(GATE.replace(", benchmark", ""))
    result = suite.runpytest_subprocess(
        "-n1", "--llmperf-attach=http://127.0.0.1:9", "-p", "no:cacheprovider"
    )
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*runs in a worker of pytest-xdist*"])


def test_a_gate_that_is_run_again_after_failing_is_invalid(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(GATE.replace(", benchmark", ""))
    with (suite.path / "conftest.py").open("a") as file:
        file.write(
            "\ndef pytest_runtest_setup(item):\n    item.execution_count = 2  # as reruns count\n"
        )
    result = attached()
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*This gate was run again after it failed.*"])
