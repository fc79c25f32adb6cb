"""Where one engine fits at a time, a gate is confirmed on boots that follow one another."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_llmperf import proof, session
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.proof.window import Window
from pytest_llmperf.reference import FIRST_FRESH_ROUND
from pytest_llmperf.server.attach import AttachedEngine, attach
from pytest_llmperf.spec import EngineSpec
from pytest_llmperf.testing import Behaviour, ScriptedServer

GATE = """
import pytest
from pytest_llmperf import assert_no_regression

@pytest.mark.cached_turn(turns=8, warmup=1, detect=0.9)
def test_turn(llmperf, gemma, talks) -> None:
    assert_no_regression(llmperf(gemma, talks))
"""
PROFILE = 'extends = "miniature"\nresident = 1\ndrafter = false\n'


class Boots:
    """Boots scripted servers for engines, one at a time; has what the session asks of a pool."""

    slow: str = ""
    """Which engine is slow."""
    log: list[str]
    most = 0

    def __init__(self, *, resident: int, on_boot: Callable[[Any], None], **_: object) -> None:
        assert resident == 1
        self._on_boot = on_boot
        self._up: dict[tuple[str, int], tuple[ExitStack, AttachedEngine]] = {}

    def lease(self, spec: EngineSpec, round_number: int = 0) -> AttachedEngine:
        key = (spec.name, round_number)
        if key not in self._up:
            self.close()
            stack = ExitStack()
            step_s = 0.005 if spec.name == self.slow else 0.001
            server = stack.enter_context(ScriptedServer(behaviour=Behaviour(step_s=step_s)))
            found = stack.enter_context(
                attach(spec.name, server.url, declared=spec.declared, round_number=round_number)
            )
            found.engine = msgspec.structs.replace(found.engine, attached=False)
            self._up[key] = (stack, found)
            Boots.most = max(Boots.most, len(self._up))
            Boots.log.append(spec.name)
            self._on_boot(found.engine)
        return self._up[key][1]

    def lease_many(self, specs: list[EngineSpec], round_number: int = 0) -> None:
        assert len(specs) == 1
        self.lease(specs[0], round_number)

    def close(self) -> None:
        for stack, _ in self._up.values():
            stack.close()
        self._up.clear()


@pytest.fixture
def boots(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> type[Boots]:
    suite.makepyfile(GATE)
    (suite.path / "one.toml").write_text(PROFILE)
    (suite.path / "other.toml").write_text(PROFILE)
    Boots.log, Boots.most, Boots.slow = [], 0, ""
    monkeypatch.setattr(session, "EnginePool", Boots)
    return Boots


def gate(suite: pytest.Pytester) -> pytest.RunResult:
    return suite.runpytest_inprocess(
        "-p",
        "no:cacheprovider",
        "--llmperf-profile=one.toml",
        "--llmperf-mode=gate",
        "--llmperf-boots=1",
        "--llmperf-against=other.toml",
        "--llmperf-evidence=ev",
    )


def confirmed(folder: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (folder / "ev/evidence.jsonl").read_text().splitlines())
    return [each for each in records if each.get("stage") == "confirm"]


def disturb(monkeypatch: pytest.MonkeyPatch, *, attempts: int) -> None:
    """Let something else run beside the first pair, as often as it is measured."""

    def rule(window: Window) -> Contradiction | None:
        start = window.measured.measurement
        if start.stage != "confirm" or start.round != FIRST_FRESH_ROUND or start.attempt > attempts:
            return None
        return Contradiction(kind="noise", reason="A neighbour.", evidence="9 %", remedy="Wait.")

    monkeypatch.setattr(proof, "RULES", (*proof.RULES, rule))
    monkeypatch.setattr(proof, "PASSING", (rule,))


def test_a_slow_candidate_is_red_on_boots_in_turn(
    suite: pytest.Pytester, boots: type[Boots]
) -> None:
    boots.slow = "gemma"
    result = gate(suite)
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*gemma against gemma (reference)*"])
    assert boots.most == 1
    fresh = boots.log[1:]
    assert fresh[:4] == ["gemma", "gemma (reference)", "gemma (reference)", "gemma"]
    made = confirmed(suite.path)
    assert {len(each["arms"]) for each in made} == {1}
    assert len(made) == len(fresh) >= 6
    replayed = suite.runpytest_inprocess(
        "-p", "no:cacheprovider", "--llmperf-replay=ev", "--llmperf-profile=one.toml"
    )
    assert replayed.ret == 10


def test_the_same_build_is_not_red(suite: pytest.Pytester, boots: type[Boots]) -> None:
    assert gate(suite).ret == 0


def test_a_pair_that_something_disturbed_is_measured_again_on_its_boots(
    suite: pytest.Pytester, boots: type[Boots], monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, attempts=1)
    result = gate(suite)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*measuring again: A neighbour."])
    said = " ".join(result.stdout.str().split())
    assert "Measured again, since the machine was disturbed the first time: pair 1." in said
    first = [each for each in confirmed(suite.path) if each["round"] == FIRST_FRESH_ROUND]
    assert [each.get("attempt", 1) for each in first] == [1, 1, 2, 2]
    replayed = suite.runpytest_inprocess(
        "-p", "no:cacheprovider", "--llmperf-replay=ev", "--llmperf-profile=one.toml"
    )
    assert replayed.ret == 0


def test_a_pair_that_is_disturbed_each_time_is_invalid(
    suite: pytest.Pytester, boots: type[Boots], monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, attempts=99)
    result = gate(suite)
    assert result.ret == 11
    assert "A neighbour." in result.stdout.str()
    first = [each for each in confirmed(suite.path) if each["round"] == FIRST_FRESH_ROUND]
    assert len(first) == 2 * session.MOST_ATTEMPTS
