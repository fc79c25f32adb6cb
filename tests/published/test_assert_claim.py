"""A claim held against our samples: met, not met, open, or of something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf import Pair, Regression, assert_claim
from pytest_llmperf.claims.published import Claim, _row
from pytest_llmperf.errors import UsageError

Pairs = Callable[..., Pair]
Claims = Callable[..., Claim]


def told(pair: Pair, claim: Claim) -> tuple[str | None, str]:
    row = _row(pair.candidate, pair, claim)
    return row.verdict.word, " ".join([row.verdict.claim, row.verdict.reason, *row.findings])


def test_a_claim_that_our_samples_meet_passes(pair: Pairs, claim: Claims) -> None:
    (verdict,) = assert_claim(pair(), claim())
    assert (verdict.word, verdict.claim) == ("PASS", "headline claims at least 2.20x")
    assert verdict.comparison is not None
    assert verdict.comparison.estimate == pytest.approx(2.4, rel=0.02)


def test_a_claim_that_our_samples_do_not_meet_is_red(pair: Pairs, claim: Claims) -> None:
    with pytest.raises(Regression, match=r"REGRESS: headline claims at least 2\.20x"):
        assert_claim(pair(faster=1.5), claim())


def test_a_claim_of_just_what_we_have_stays_open(pair: Pairs, claim: Claims) -> None:
    (verdict,) = assert_claim(pair(), claim(number=2.4))
    assert verdict.word == "INCONCLUSIVE"


def test_the_clock_explains_a_gap(pair: Pairs, claim: Claims) -> None:
    word, text = told(pair(first_s=1.0), claim())
    assert word == "PASS"
    assert re.search(
        r"By decode only, prefill removed, per output token these samples give 2\.4\dx \[.+\]: "
        r"it holds\.",
        text,
    ) or re.search(r"these samples give 2\.[34]\dx \[.+?\]: it holds\.", text)
    assert re.search(
        r"By this test's own count, wall clock as the caller sees it, per request, they give "
        r"1\.\d\dx \[.+?\]: the difference is the clock\.",
        text,
    )


def test_where_both_count_alike_nothing_is_to_be_explained(pair: Pairs, claim: Claims) -> None:
    alike = claim(denominator={"clock": "wall", "unit": "request"}, number=1.2)
    word, text = told(pair(), alike)
    assert word == "PASS"
    assert "the difference is the" not in text


def test_acceptance_explains_a_gap_too(pair: Pairs, claim: Claims) -> None:
    _, text = told(pair(), claim(conditions={"acceptance_length": 2.33}))
    assert (
        "A step gives 3.00 tokens here and 2.33 in the claim, 29 % more: "
        "the difference is acceptance too." in text
    )


def test_what_a_claim_does_not_say_is_said(pair: Pairs, claim: Claims) -> None:
    _, text = told(pair(), claim(conditions={"content_class": "code", "temperature": 0.0}))
    assert (
        "The claim does not say its draft tokens, acceptance length, quantisation: "
        "no ranking can rest on it." in text
    )


@pytest.mark.parametrize(
    ("denominator", "conditions", "why"),
    [
        ({"clock": None}, {}, "clock: unknown in the claim"),
        ({"unit": None}, {}, "unit: unknown in the claim"),
        ({"prefix": None}, {}, "prefix: unknown in the claim"),
        ({"streams": None}, {}, "streams: unknown in the claim"),
        ({"factor": None}, {}, "factor: unknown in the claim"),
        ({"streams": 8}, {}, "streams: 8 in the claim, 1 here"),
        ({"prefix": "warm"}, {}, "prefix: warm in the claim, cold here"),
        ({"factor": "prefix"}, {}, "factor: prefix in the claim, speculation here"),
        ({}, {"content_class": "prose"}, "content class: prose in the claim, code here"),
        ({}, {"temperature": 1.0}, "temperature: 1.0 in the claim, 0.0 here"),
        ({}, {"draft_tokens": 4}, "draft tokens: 4 in the claim, 3 here"),
        ({}, {"quantisation": "fp8"}, "quantisation: fp8 in the claim, float32 here"),
    ],
)
def test_samples_of_something_else_do_not_judge_a_claim(
    pair: Pairs, claim: Claims, denominator: dict[str, Any], conditions: dict[str, Any], why: str
) -> None:
    (verdict,) = assert_claim(pair(faster=1.1), claim(denominator, conditions))
    assert verdict.word == "INCONCLUSIVE"
    assert verdict.reason == f"these samples and the claim are not known to be alike: {why}"


def test_where_the_time_went_is_told_of_a_claim_that_is_judged_and_of_one_that_is_not(
    pair: Pairs, claim: Claims
) -> None:
    made = pair()
    for each in (claim(), claim({"streams": 8})):
        where = _row(made.candidate, made, each).where
        assert [line.partition(": queue")[0] for line in where] == [
            "engine candidate",
            "engine reference",
        ]


def test_what_our_samples_do_not_say_is_unknown_too(pair: Pairs, claim: Claims) -> None:
    (verdict,) = assert_claim(pair(content_class=None), claim(conditions={"content_class": "code"}))
    assert verdict.reason.endswith("content class: code in the claim, unknown here")


def test_a_claim_over_any_prefix_is_met_by_a_cold_one(pair: Pairs, claim: Claims) -> None:
    (verdict,) = assert_claim(pair(), claim(denominator={"prefix": "any"}))
    assert verdict.word == "PASS"


def test_a_claim_of_tokens_per_second_is_held_against_the_median_turn(
    pair: Pairs, claim: Claims
) -> None:
    rate = claim(unit="tok/s", number=50, denominator={"factor": None})
    (verdict,) = assert_claim(pair().candidate, rate)
    assert verdict.claim == "headline claims at least 50.0 tok/s"
    assert verdict.word == "PASS"
    with pytest.raises(Regression):
        assert_claim(pair(faster=0.5).candidate, rate)


def test_a_claim_of_seconds_is_held_from_above(pair: Pairs, claim: Claims) -> None:
    wait = claim(
        unit="s", number=2.0, denominator={"factor": None, "clock": "wall", "unit": "request"}
    )
    (verdict,) = assert_claim(pair().candidate, wait)
    assert (verdict.word, verdict.claim) == ("PASS", "headline claims at most 2.00 s")


def test_a_ratio_is_not_claimed_of_one_run(pair: Pairs, claim: Claims) -> None:
    with pytest.raises(UsageError) as error:
        assert_claim(pair().candidate, claim())
    assert error.value.evidence == "It is of 2.20x, and that is a Run."
    assert error.value.next_step == (
        "Give what llmperf.compare(...) handed back for a ratio, else what llmperf(...) did."
    )


def test_only_a_claim_is_held_against_samples(pair: Pairs) -> None:
    with pytest.raises(UsageError) as error:
        assert_claim(pair(), "headline.toml")  # type: ignore[arg-type]
    assert str(error.value).splitlines() == [
        "'headline.toml' is no claim.",
        "It is a str.",
        "Read one: Claim.read(Path(__file__).with_name('claim.toml')).",
    ]
