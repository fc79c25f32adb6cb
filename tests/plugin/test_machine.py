"""The machine is watched while it is measured on, and one run at a time holds the host."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf import proof
from pytest_llmperf.machine import host
from pytest_llmperf.proof import fitness
from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_latency

@pytest.mark.cached_turn(turns=8, warmup=1)
def test_turn(llmperf, gemma, talks):
    assert_latency(llmperf(gemma, talks), p50_s=30)

@pytest.mark.cached_turn(turns=8, warmup=1)
def test_other(llmperf, gemma, talks):
    assert_latency(llmperf(gemma, talks), p50_s=30)
"""


@pytest.fixture
def held(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's lock, held by nobody that is known to have ended."""
    path = suite.path / "host.lock"
    monkeypatch.setenv("LLMPERF_LOCK", str(path))
    return path


def test_every_window_has_its_machine_in_the_evidence_and_in_the_row(
    suite: pytest.Pytester, attached: Run, evidence: Callable[[], Path]
) -> None:
    suite.makepyfile(GATE)
    result = attached("-k", "test_turn")
    assert result.ret == 0
    lines = [json.loads(line) for line in evidence().read_text().splitlines()]
    kinds = [each["record"] for each in lines]
    assert kinds.count("precondition") == 1
    assert kinds.count("canary") == 2
    whens = [each["when"] for each in lines if each["record"] == "machine_state"]
    assert (whens[0], whens[-1]) == ("before", "after")
    assert "CPU not known" in " ".join(result.stdout.str().split())


def test_an_unfit_machine_is_invalid_with_advice_and_so_is_its_replay(
    suite: pytest.Pytester, attached: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "RULES", (*proof.RULES, fitness.throttled))
    events = itertools.count()
    monkeypatch.setattr(host, "throttle_events", lambda _: next(events))
    suite.makepyfile(GATE)
    live = attached("-k", "test_turn")
    replayed = suite.runpytest_inprocess("--llmperf-replay=.llmperf", "-k", "test_turn")
    for result in (live, replayed):
        assert result.ret == 11
        text = " ".join(result.stdout.str().split())
        assert "The machine was throttled while it was measured." in text
        assert "Let it cool down" in text


def test_a_run_that_does_not_get_the_host_is_invalid_at_once_for_every_gate(
    suite: pytest.Pytester, attached: Run, held: Path, evidence: Callable[[], Path]
) -> None:
    other = os.open(held, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    suite.makepyfile(GATE)
    result = attached("--llmperf-lock-wait=0")
    os.close(other)
    assert result.parseoutcomes() == {"invalid": 2}
    assert result.ret == 11
    assert "another process has measured on this host" in " ".join(result.stdout.str().split())
    assert '"record":"measurement"' not in evidence().read_text()


def test_a_replay_asks_for_no_lock(suite: pytest.Pytester, attached: Run, held: Path) -> None:
    suite.makepyfile(GATE)
    assert attached("-k", "test_turn").ret == 0
    other = os.open(held, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    replay = ("--llmperf-replay=.llmperf", "-k", "test_turn", "--llmperf-lock-wait=0")
    assert suite.runpytest_inprocess(*replay).ret == 0
    os.close(other)


def test_the_host_is_free_again_after_a_run(
    suite: pytest.Pytester, attached: Run, held: Path
) -> None:
    suite.makepyfile(GATE)
    for _ in range(2):
        assert attached("--llmperf-lock-wait=0", "-k", "test_turn").ret == 0
    after = os.open(held, os.O_RDWR)
    fcntl.flock(after, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(after)


def test_limits_of_the_machine_are_checked_with_the_profile(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(GATE)
    profile = suite.path / "mine.toml"
    profile.write_text('extends = "miniature"\n[fitness]\nforeign_cpu = 0.2\nsteal_share = 2\n')
    result = attached(f"--llmperf-profile={profile}")
    text = " ".join(result.stderr.str().split())
    assert "[fitness] foreign_cpu is not known; did you mean foreign_cpu_share?" in text
    assert "[fitness] steal_share = 2 is not a number between 0 and 1" in text
