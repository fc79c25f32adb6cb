"""The quick form of every promise: a false one is found, and the true ones stand with a margin."""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_llmperf.assumption.confirm import Suspect, confirm
from pytest_llmperf.assumption.screen import screen
from pytest_llmperf.calibrate import __main__ as command
from pytest_llmperf.calibrate.__main__ import calibrate, is_quiet, share
from pytest_llmperf.calibrate.noise import Drawn, Machine, Noise, Shape, scenarios
from pytest_llmperf.calibrate.page import Calibration, text, write
from pytest_llmperf.calibrate.peers import peers
from pytest_llmperf.calibrate.promises import Held, Promise, Tally, design_for, hold
from pytest_llmperf.calibrate.trial import Rule, judge, slowed

BASE = Noise(name="base")
SHAPE = Shape()
SESSIONS = 300


def held(noise: Noise, sessions: int = SESSIONS) -> Held:
    return hold(noise, sessions=sessions, seed=5, is_promised=is_quiet(noise), shape=SHAPE)


def rate(found: Held, what: str) -> float:
    return next(each.rate for each in found.promises if each.what == what)


@pytest.fixture(scope="module")
def base() -> Held:
    return held(BASE, 2 * SESSIONS)


class TestPromises:
    def test_an_unchanged_session_is_hardly_ever_red(self, base: Held) -> None:
        assert rate(base, "false red a session, no change") <= 0.006

    def test_nor_is_one_at_the_edge_of_tolerance(self, base: Held) -> None:
        assert rate(base, "false red a session, all gates slower by tolerance") <= 0.015

    def test_ten_percent_hardly_ever_passes(self, base: Held) -> None:
        assert rate(base, "false PASS a gate, +10 %") <= 0.05

    def test_fifteen_percent_is_found_among_two_false_suspects(self, base: Held) -> None:
        assert rate(base, "REGRESS, +15 %, among two false suspects") >= 0.95

    def test_ten_percent_is_found_more_often_than_by_plain_holm(self, base: Held) -> None:
        weighted = rate(base, "REGRESS, +10 %, among two false suspects")
        assert weighted >= 0.65
        assert weighted > rate(base, "the same among two false suspects, plain Holm")
        assert rate(base, "REGRESS, +10 %, one slower gate") >= 0.8

    def test_no_change_is_hardly_ever_inconclusive(self, base: Held) -> None:
        assert rate(base, "INCONCLUSIVE a gate, no change") <= 0.02

    def test_the_printed_effect_is_found(self, base: Held) -> None:
        assert rate(base, "REGRESS at the printed detectable effect") >= 0.9
        assert 0.10 < base.detectable < 0.14

    @pytest.mark.parametrize("noise", scenarios(BASE)[1:], ids=lambda noise: noise.name)
    def test_errors_hold_in_every_scenario(self, noise: Noise) -> None:
        found = held(noise)
        assert rate(found, "false red a session, no change") <= 0.01
        assert rate(found, "false PASS a gate, +10 %") <= 0.055

    def test_a_broken_promise_is_seen(self) -> None:
        wild = hold(
            replace(BASE, boot_sd=0.05), sessions=200, seed=5, is_promised=True, shape=SHAPE
        )
        assert not wild.is_kept

    def test_what_is_at_most_is_held_by_its_upper_bound(self) -> None:
        tally = Tally()
        tally.add(np.zeros(300, dtype=bool))
        assert tally.bound("at most") == pytest.approx(0.00994, abs=1e-4)
        assert Promise("s", "w", 0.0, 0.0099, "at most", 0.01).is_kept
        assert not Promise("s", "w", 0.0, 0.0101, "at most", 0.01).is_kept

    def test_gates_of_one_session_count_for_what_they_are_worth(self) -> None:
        apart, together = Tally(), Tally()
        rng = np.random.default_rng(1)
        apart.add(rng.random((1000, 20)) < 0.05)
        together.add(np.repeat(rng.random((1000, 1)) < 0.05, 20, axis=1))
        assert apart.bound("at most") < together.bound("at most")


class TestTheProductIsSimulated:
    def test_one_session_at_a_time_says_what_many_at_once_say(self) -> None:
        machine = Machine(BASE, SHAPE, np.random.default_rng(8))
        effect = np.log(1.12) * (np.arange(SHAPE.gates) < 4)
        drawn = slowed(machine.sessions(12), effect)
        rule = Rule(design=design_for(BASE, SHAPE))
        said = judge(drawn, rule, np.random.default_rng(8))
        for i in range(12):
            assert one_by_one(drawn, i, rule) == [
                "REGRESS" if red else "PASS" if green else None
                for red, green in zip(said.regress[i], said.passed[i], strict=True)
            ]


def one_by_one(drawn: Drawn, trial: int, rule: Rule) -> list[str | None]:
    """A session's words by the functions that a session calls."""
    gates = range(drawn.now.shape[1])
    seen = {
        g: screen(drawn.now[trial, g].tolist(), drawn.past[trial, g].tolist(), detect=rule.detect)
        for g in gates
    }
    suspects = {
        str(g): Suspect(
            candidate=tuple(drawn.candidate[trial, g].tolist()),
            reference=tuple(drawn.reference[trial, g].tolist()),
            detect=rule.detect,
            weight=seen[g].weight,
            own=tuple(drawn.now[trial, g].tolist()),
        )
        for g in gates
        if seen[g].word != "PASS"
    }
    found = confirm(suspects, design=rule.design) if suspects else {}
    return ["PASS" if seen[g].word == "PASS" else found[str(g)].word for g in gates]


class TestPeers:
    def test_rules_on_requests_are_red_on_unchanged_code(self) -> None:
        found = {p.name: p for p in peers(BASE, sessions=40, seed=2, shape=SHAPE)}
        assert found["Mann-Whitney on requests, 1 %"].false_alarm > 0.15
        assert found["criterion-like"].false_alarm > 0.15
        assert found["pytest-benchmark, compare-fail mean:10%"].found < 0.7


@pytest.fixture(scope="module")
def small() -> Calibration:
    return calibrate(BASE, drift=0.1, sessions=40, seed=3, settings="the command")


class TestCommand:
    def test_the_page_and_its_pictures_are_written(
        self, small: Calibration, tmp_path: Path
    ) -> None:
        page = write(small, tmp_path).read_text(encoding="utf-8")
        assert page == text(small)
        assert "### drift, resident pairs" in page
        for picture in ("power.svg", "peers.svg"):
            assert picture in page
            drawn = (tmp_path / picture).read_text(encoding="utf-8")
            assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 - written above

    @pytest.mark.parametrize("is_broken", [True, False])
    def test_a_broken_promise_is_the_exit_status(
        self,
        is_broken: bool,
        small: Calibration,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        quiet = tuple(
            replace(each, promises=tuple(replace(p, limit=None) for p in each.promises))
            for each in small.held
        )
        promise = Promise("tests", "a promise", 0.5, 0.5, "at most", 0.01 if is_broken else 0.6)
        shown = replace(small, held=quiet, levels=(promise,))
        monkeypatch.setattr(command, "calibrate", lambda *_, **__: shown)
        assert command.main(["--quick"]) == int(is_broken)
        last = capsys.readouterr().out.strip().splitlines()[-1]
        assert last == ("- tests: a promise" if is_broken else "Every promise is kept.")

    @pytest.mark.parametrize("words", ["3", "3%", "0.03"])
    def test_a_spread_is_percent_or_a_fraction(self, words: str) -> None:
        assert share(words) == pytest.approx(0.03)

    def test_half_a_percent_is_percent(self) -> None:
        assert share("0.5") == pytest.approx(0.005)

    @pytest.mark.parametrize("words", ["-1", "inf", "nan", "much", "1e9", "500%"])
    def test_what_is_no_spread_is_refused(self, words: str) -> None:
        with pytest.raises(argparse.ArgumentTypeError, match="give a percentage from 0 to 100"):
            share(words)

    @pytest.mark.parametrize("arguments", [["--seed=-1"], ["--seed=x"], ["--out=/proc/x"]])
    def test_what_could_only_fail_after_the_run_is_refused_before(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as refused:
            command.main(arguments)
        assert refused.value.code == 2
        assert "is no" in capsys.readouterr().err
