"""Factorials and classes of output inside pytest, on two scripted servers, live and replayed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_llmperf.testing import Behaviour, Faults, ScriptedServer
from tests.plugin.conftest import Run

FACTORIAL = """
import pytest
from pytest_llmperf import assert_speedup

@pytest.mark.factorial(of="single_stream", turns=4)
def test_cells(llmperf, gemma, gemma_autoregressive, talks) -> None:
    cells = llmperf.factorial(gemma, gemma_autoregressive, talks)
    assert_speedup(cells.effect("speculation"), at_least={floor})
    assert_speedup(cells.effect("prefix", by="time_to_first_token"), at_least=1e-30)
    assert_speedup(cells.interaction(), at_least=1e-30)
"""

BY_CLASS = """
import msgspec
import pytest
from pytest_llmperf import Prompts, assert_speedup_by_class

@pytest.mark.speedup(of="single_stream", factor="speculation", turns=4)
def test_classes(llmperf, gemma, gemma_autoregressive, questions) -> None:
    sampled = msgspec.structs.replace(questions, items=tuple(
        msgspec.structs.replace(each, temperature=0.7) for each in questions.items
    ))
    found = llmperf.by_class(gemma, gemma_autoregressive, [questions, sampled])
    assert_speedup_by_class(found, at_least={floors})
"""

BLOCK = 16
SPECULATING = Behaviour(draft_tokens=3, step_s=0.001)


@pytest.fixture
def drafting() -> Iterator[ScriptedServer]:
    """A server that speculates as the miniature's profile declares."""
    with ScriptedServer(behaviour=SPECULATING) as server:
        yield server


@pytest.fixture
def both(suite: pytest.Pytester, healthy: ScriptedServer, drafting: ScriptedServer) -> Run:
    """Run the suite against a server that drafts and one that does not."""

    def run(*arguments: str) -> pytest.RunResult:
        return suite.runpytest_inprocess(
            "-p",
            "no:cacheprovider",
            "--llmperf-profile=miniature",
            f"--llmperf-attach=gemma={drafting.url}",
            f"--llmperf-attach=gemma_autoregressive={healthy.url}",
            *arguments,
        )

    return run


class TestAFactorial:
    def test_judges_three_effects_and_shows_all_of_them(
        self, suite: pytest.Pytester, both: Run, evidence: Callable[[], Path]
    ) -> None:
        suite.makepyfile(FACTORIAL.format(floor=1e-30))
        result = both("--llmperf-summary=summary.md")
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            [
                "PASS *",
                "PASS *",
                "PASS *",
                "3 PASS, 0 REGRESS, 0 INCONCLUSIVE, 0 INVALID; exit status 0",
            ]
        )
        text = (suite.path / "summary.md").read_text()
        for said in (
            "main effect of speculation on single_stream at least",
            "main effect of prefix on time_to_first_token at least",
            "interaction of speculation and prefix on single_stream at least",
            "where: gemma_autoregressive, cached: queue 0.00 s, prefill",
            "note: At acceptance length",
            "speculation: whole turn, wall clock",
            "interaction: decode only",
            "no drafter, cold prefix: whole turn, wall clock",
        ):
            assert said in text
        records = [json.loads(line) for line in evidence().read_text().splitlines()]
        (start,) = (each for each in records if each["record"] == "measurement")
        assert start["factors"] == ["speculation", "prefix"]
        turns = Counter(each["arm"] for each in records if each.get("role") == "turn")
        assert turns == dict.fromkeys(("both", "speculation", "prefix", "neither"), 4)

    def test_is_red_below_a_floor_and_replayed_to_the_same_words(
        self, suite: pytest.Pytester, both: Run
    ) -> None:
        suite.makepyfile(FACTORIAL.format(floor=1e30))
        live = both()
        again = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert (live.ret, again.ret) == (10, 10)
        assert "0 PASS, 1 REGRESS" in live.stdout.str()
        assert "0 PASS, 1 REGRESS" in again.stdout.str()

    def test_with_a_cell_that_is_not_cached_is_invalid(
        self, suite: pytest.Pytester, healthy: ScriptedServer
    ) -> None:
        suite.makepyfile(FACTORIAL.format(floor=1e-30))
        with ScriptedServer(behaviour=SPECULATING, faults=Faults(cache_off=True)) as broken:
            result = suite.runpytest_inprocess(
                "--llmperf-profile=miniature",
                f"--llmperf-attach=gemma={broken.url}",
                f"--llmperf-attach=gemma_autoregressive={healthy.url}",
            )
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*Prefix caching off?*"])

    def test_wants_its_own_call_and_no_other(self, suite: pytest.Pytester, both: Run) -> None:
        suite.makepyfile(
            FACTORIAL.format(floor=1).replace(
                "llmperf.factorial(gemma, gemma_autoregressive, talks)", "llmperf(gemma, talks)"
            )
        )
        result = both()
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*Call llmperf.factorial(candidate, reference, workload).*"])


class TestClasses:
    def test_have_a_row_each_with_acceptance_and_repetition_beside(
        self, suite: pytest.Pytester, both: Run
    ) -> None:
        suite.makepyfile(BY_CLASS.format(floors=1e-30))
        result = both("--llmperf-summary=summary.md")
        assert result.ret == 0
        text = (suite.path / "summary.md").read_text()
        assert "by speculation on prose at temperature 0.7 at least" in text
        assert "% of 4-grams repeated" in text
        assert "temperature 0.7, quantisation flag" in text
        assert "2 PASS, 0 REGRESS" in text

    def test_below_their_floor_are_named_and_the_others_judged(
        self, suite: pytest.Pytester, both: Run
    ) -> None:
        suite.makepyfile(BY_CLASS.format(floors={"prose": 1e-30, "prose at temperature 0.7": 1e30}))
        live = both()
        again = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert (live.ret, again.ret) == (10, 10)
        assert "1 PASS, 1 REGRESS" in again.stdout.str()
        again.stdout.re_match_lines([".*REGRESS: speed-up of .* on prose at temperature 0.7.*"])

    def test_without_a_floor_are_refused(self, suite: pytest.Pytester, both: Run) -> None:
        suite.makepyfile(BY_CLASS.format(floors={"prose": 1.0, "verse": 1.0}))
        both("--llmperf-summary=summary.md")
        text = (suite.path / "summary.md").read_text()
        assert "Floors and classes differ in 'prose at temperature 0.7', 'verse'." in text


@pytest.mark.parametrize("marked", ["cached_turn(turns=4)", "speedup(of='single_stream')"])
def test_a_factorial_stands_alone(suite: pytest.Pytester, both: Run, marked: str) -> None:
    suite.makepyfile(
        f"import pytest\n@pytest.mark.{marked}\n" + FACTORIAL.format(floor=1).split("\n\n", 1)[1]
    )
    assert both().ret == 4
