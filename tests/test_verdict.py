"""Four words: which one, why, what would decide, and the process's exit status."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.assumption import Comparison, quantile_against, ratio_against
from pytest_llmperf.denominator import CACHED_TURN, SINGLE_STREAM, Denominator
from pytest_llmperf.errors import Regression
from pytest_llmperf.verdict import (
    WORDS,
    Objection,
    Verdict,
    Word,
    claim_text,
    exit_code,
    failure_parts,
    judge,
    undecided,
    unjudged,
    worst,
)

PROVEN = "30 of 30 turns cached, 2,176 of 2,240 tokens"
UNCACHED = Objection(
    kind="not_cached",
    reason="no turn found its prefix in the cache",
    evidence="0 of 30 turns cached, 2,176 tokens expected",
    remedy="move today's date behind the system prompt",
)


def compared(**changed: Any) -> Comparison:  # noqa: ANN401 - fields of several types
    """A p50 of 30 turns whose interval straddles 0.250 s, but for what is changed."""
    found = Comparison(
        relation="at most",
        boundary=0.25,
        estimate=0.2474,
        low=0.2411,
        high=0.2563,
        confidence=0.94,
        replicate="turn",
        n=30,
        alpha=0.01,
        beta=0.05,
        p_regress=0.7,
        p_pass=0.3,
        detectable=0.0714,
        needed=84,
        assumption="the turns of this boot are independent draws of one distribution of any shape",
    )
    return msgspec.structs.replace(found, **changed)


GREEN = compared(estimate=0.182, low=0.171, high=0.196, p_regress=1.0, p_pass=0.0002)
RED = compared(estimate=0.312, low=0.298, high=0.331, p_regress=0.0031, p_pass=1.0)


def judged(comparison: Comparison | None, *objections: Objection, unit: str = "s") -> Verdict:
    claim = claim_text("p50 of cached_turn", "at most", 0.25, unit)
    return judge(comparison, objections, claim=claim, scope="this boot only", unit=unit)


class TestTheWord:
    def test_a_rejected_claim_is_a_regression(self) -> None:
        assert judged(RED).word == "REGRESS"

    def test_a_proven_claim_passes(self) -> None:
        assert judged(GREEN).word == "PASS"

    def test_neither_is_inconclusive(self) -> None:
        assert judged(compared()).word == "INCONCLUSIVE"

    @pytest.mark.parametrize("comparison", [None, GREEN, RED, compared()])
    def test_a_contradiction_comes_before_every_number(self, comparison: Comparison | None) -> None:
        verdict = judged(comparison, UNCACHED)
        assert (verdict.word, verdict.reason) == ("INVALID", UNCACHED.reason)
        assert verdict.comparison is None

    def test_regress_comes_before_pass(self) -> None:
        assert judged(compared(p_regress=0.001, p_pass=0.001)).word == "REGRESS"

    def test_nothing_compared_is_never_a_pass(self) -> None:
        assert judged(None).word == "INCONCLUSIVE"

    @pytest.mark.parametrize("p", [None, float("nan")])
    def test_a_test_that_was_not_made_decides_nothing(self, p: float | None) -> None:
        assert judged(compared(p_regress=p, p_pass=p)).word == "INCONCLUSIVE"

    def test_a_p_value_at_its_level_rejects(self) -> None:
        assert judged(compared(p_regress=0.01)).word == "REGRESS"
        assert judged(compared(p_pass=0.05)).word == "PASS"

    def test_the_levels_are_those_of_the_comparison(self) -> None:
        assert judged(compared(p_regress=0.02)).word == "INCONCLUSIVE"
        assert judged(compared(p_regress=0.02, alpha=0.05)).word == "REGRESS"
        assert judged(compared(p_pass=0.051)).word == "INCONCLUSIVE"
        assert judged(compared(p_pass=0.051, beta=0.1)).word == "PASS"

    def test_any_contradiction_of_the_same_shape_is_taken_as_text(self) -> None:
        class Foreign:
            kind, reason, evidence, remedy = "foreign", "a", "b", "c"

        verdict = judge(GREEN, [Foreign()], claim="x", scope="y", unit="s")
        assert verdict.contradictions == (Objection("foreign", "a", "b", "c"),)

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.floats(0.01, 10), min_size=1, max_size=70),
        st.sampled_from([0.5, 0.95]),
        st.floats(0.01, 10),
    )
    def test_seconds_and_milliseconds_come_to_the_same_word(
        self, turns: list[float], p: float, limit: float
    ) -> None:
        in_s = judged(quantile_against(turns, p=p, limit=limit))
        scaled = [1024 * turn for turn in turns]
        in_ms = judged(quantile_against(scaled, p=p, limit=1024 * limit), unit="ms")
        assert in_s.word == in_ms.word


class TestTheReason:
    def test_of_a_pass(self) -> None:
        assert judged(GREEN).reason == (
            "even the upper end of the interval, 0.196 s, is below 0.250 s (p < 0.001 at level 5 %)"
        )

    def test_of_a_regression(self) -> None:
        assert judged(RED).reason == (
            "even the lower end of the interval, 0.298 s, is above 0.250 s "
            "(p = 0.0031 at level 1 %)"
        )

    def test_of_a_ratio_under_its_floor(self) -> None:
        verdict = judge(
            compared(
                relation="at least", boundary=1.4, estimate=1.2, low=1.1, high=1.3, p_regress=0.004
            ),
            (),
            claim="speed-up at least 1.40x",
            scope="this pair of boots only",
            unit="x",
        )
        assert verdict.reason == (
            "even the upper end of the interval, 1.30x, is below 1.40x (p = 0.004 at level 1 %)"
        )

    def test_of_no_decision(self) -> None:
        verdict = judged(compared())
        assert verdict.reason == "the interval [0.241, 0.256] s does not exclude 0.250 s"
        assert verdict.would_decide == (
            "about 54 more turns would decide at this estimate; "
            "30 turns can see a change of 7.1 % or more"
        )

    def test_of_too_few_turns(self) -> None:
        verdict = judged(quantile_against([0.1] * 30, p=0.95, limit=0.25))
        assert verdict.reason == (
            "the interval [0.100, no bound] s does not exclude 0.250 s; "
            "p95 of 30 turns can never be PASS: that takes at least 59"
        )
        assert verdict.would_decide == (
            "about 29 more turns would decide at this estimate; "
            "30 turns can see a change of 0 % or more"
        )
        assert verdict.notes == ()

    def test_of_one_block(self) -> None:
        verdict = judged(ratio_against([0.5], floor=1.4), unit="x")
        assert verdict.reason == "a test takes at least 2 blocks, and there is 1"
        assert verdict.would_decide == (
            "how many more blocks would decide cannot be said from this estimate; "
            "1 block cannot see any change"
        )

    def test_a_warning_that_is_no_reason_stays_a_note(self) -> None:
        assert judged(msgspec.structs.replace(GREEN, warnings=("flat",))).notes == ("flat",)

    def test_only_no_decision_says_what_would_decide(self) -> None:
        for comparison in (GREEN, RED):
            assert judged(comparison).would_decide is None
        assert judged(compared(), UNCACHED).would_decide is None


class TestOutsideTheNumbers:
    def test_a_missing_round_is_inconclusive(self) -> None:
        verdict = undecided(
            "1 of 3 rounds ran", claim="c", scope="this build", would_decide="all three rounds"
        )
        assert (verdict.word, verdict.would_decide) == ("INCONCLUSIVE", "all three rounds")

    def test_a_missing_budget_has_no_word(self) -> None:
        verdict = unjudged("no budget on this machine", claim="p50 of cached_turn")
        assert (verdict.word, verdict.reason) == (None, "no budget on this machine")


def of(word: Word | None) -> Verdict:
    return Verdict(word=word, claim="", scope="", reason="")


class TestSeveralClaims:
    @pytest.mark.parametrize(
        ("words", "together"),
        [
            ([], None),
            ([None], None),
            ([None, "PASS"], "PASS"),
            (["PASS", "INCONCLUSIVE"], "INCONCLUSIVE"),
            (["INCONCLUSIVE", "REGRESS", "PASS"], "REGRESS"),
            (["REGRESS", "INVALID"], "INVALID"),
        ],
    )
    def test_the_worst_word_stands_for_all(
        self, words: list[Word | None], together: Word | None
    ) -> None:
        assert worst(map(of, words)) == together


class TestExitStatus:
    @pytest.mark.parametrize(
        ("words", "changed", "status"),
        [
            (["PASS"], {}, 0),
            ([], {"selected": 0, "judged": 0}, 0),
            (["PASS", "INCONCLUSIVE"], {}, 0),
            (["PASS", "INCONCLUSIVE"], {"strict": True}, 12),
            (["REGRESS", "INVALID"], {"ordinary_failures": 2, "strict": True}, 10),
            (["INVALID", "PASS"], {"ordinary_failures": 2}, 11),
            (["INCONCLUSIVE"], {"ordinary_failures": 2, "strict": True}, 1),
            ([None], {"judged": 0}, 13),
            ([], {"judged": 0, "ordinary_failures": 1}, 1),
            (["PASS"], {"pytest_status": 1}, 1),
            (["REGRESS"], {"pytest_status": 1}, 10),
        ],
    )
    def test_the_precedence_is_10_11_1_12_13(
        self, words: list[Word | None], changed: dict[str, Any], status: int
    ) -> None:
        given_: dict[str, Any] = {
            "strict": False,
            "ordinary_failures": 0,
            "selected": 2,
            "judged": 2,
        }
        assert exit_code(words, **(given_ | changed)) == status

    @pytest.mark.parametrize("own", [2, 3, 4, 5])
    def test_pytests_own_statuses_are_left_alone(self, own: int) -> None:
        status = exit_code(
            ["REGRESS", "INVALID"],
            strict=True,
            ordinary_failures=1,
            selected=2,
            judged=2,
            pytest_status=own,
        )
        assert status == own

    def test_no_run_with_a_bad_word_is_a_success(self) -> None:
        for words, strict in product(product(WORDS, repeat=2), (False, True)):
            status = exit_code(words, strict=strict, ordinary_failures=0, selected=2, judged=2)
            bad = {"REGRESS", "INVALID"} | ({"INCONCLUSIVE"} if strict else set())
            assert (status != 0) == bool(bad & set(words))


def told(
    verdict: Verdict,
    denominator: Denominator,
    evidence: str,
    beside: Sequence[tuple[str, str]] = (),
) -> str:
    """The whole text of the error that an assertion raises."""
    return str(Regression(*failure_parts(verdict, denominator, evidence, beside)))


class TestFailureText:
    BESIDE = (
        ("time to first token, per request", "41.2 ms"),
        ("decode only, prefill removed", "86.2 tok/s"),
    )

    def test_of_a_regression(self) -> None:
        assert told(judged(RED), CACHED_TURN, PROVEN, self.BESIDE) == (
            """\
REGRESS: p50 of cached_turn at most 0.250 s
  estimate      0.312 s [0.298, 0.331] at 94 %, from 30 turns
  why           even the lower end of the interval, 0.298 s, is above 0.250 s (p = 0.0031 at
                level 1 %)
  counted over  wall clock as the caller sees it, per request, cached prefix, proven, 1 stream
  formula       t_last_token - t_sent
  scope         this boot only
  assumption    the turns of this boot are independent draws of one distribution of any shape
  evidence      30 of 30 turns cached, 2,176 of 2,240 tokens
  beside        time to first token, per request 41.2 ms
  beside        decode only, prefill removed 86.2 tok/s
  next step     compare the figures beside it to see which part moved; measuring again without a
                change is no evidence"""
        )

    def test_of_an_invalid_measurement_shows_no_number(self) -> None:
        second = Objection("late", "a metric was lost", "line one\nline two", "boot again")
        verdict = judged(RED, UNCACHED, second)
        assert told(verdict, CACHED_TURN, "0 of 30 turns cached", self.BESIDE) == (
            """\
INVALID: p50 of cached_turn at most 0.250 s
  why           no turn found its prefix in the cache
  seen          0 of 30 turns cached, 2,176 tokens expected
  why           a metric was lost
  seen          line one
                line two
  counted over  wall clock as the caller sees it, per request, cached prefix, proven, 1 stream
  formula       t_last_token - t_sent
  scope         this boot only
  evidence      0 of 30 turns cached
  next step     move today's date behind the system prompt
  next step     boot again"""
        )

    def test_of_no_decision(self) -> None:
        assert told(judged(compared()), SINGLE_STREAM, "0 tokens cached") == (
            """\
INCONCLUSIVE: p50 of cached_turn at most 0.250 s
  estimate      0.247 s [0.241, 0.256] at 94 %, from 30 turns
  why           the interval [0.241, 0.256] s does not exclude 0.250 s
  counted over  wall clock as the caller sees it, per request, cold prefix, proven, 1 stream
  formula       t_last_token - t_sent
  scope         this boot only
  assumption    the turns of this boot are independent draws of one distribution of any shape
  evidence      0 tokens cached
  next step     about 54 more turns would decide at this estimate; 30 turns can see a change of
                7.1 % or more"""
        )
