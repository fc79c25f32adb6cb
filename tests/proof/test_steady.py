"""Turns that still get faster measure the engine's warming up."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from scipy.stats import kendalltau

from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.fitness import Canary
from pytest_llmperf.proof import TREND, contradictions, findings
from pytest_llmperf.proof.steady import falling_p
from pytest_llmperf.run import Pair, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmperf.evidence import Measured
    from tests.proof.conftest import Making


SECOND_NS = 1_000_000_000


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def lasting(making: Making, seconds: Sequence[float]) -> Measured:
    """Turns whose last tokens come so long after they were sent."""
    sound = making.sound(turns=len(seconds), loop_lag_ns=0)
    return making.with_turns(
        sound,
        lambda n, each: msgspec.structs.replace(
            each,
            chunks=(),
            stamps=msgspec.structs.replace(
                each.stamps,
                sent_ns=(n + 2) * 10**10,
                first_byte_ns=None,
                first_event_ns=None,
                first_token_ns=(n + 2) * 10**10 + 10**8,
                last_token_ns=(n + 2) * 10**10 + round(seconds[n] * 1e9),
                closed_ns=(n + 2) * 10**10 + round(seconds[n] * 1e9) + 1,
            ),
        ),
    )


def within(making: Making, seconds: Sequence[float]) -> Measured:
    return making.with_after(lasting(making, seconds), at_ns=10**13)


def a_pair(
    making: Making, mine: Sequence[float], other: Sequence[float], *, apart: bool = False
) -> Pair:
    candidate, reference = within(making, mine), within(making, other)
    if apart:
        start = msgspec.structs.replace(reference.measurement, measurement_id="another")
        reference = msgspec.structs.replace(reference, measurement=start)
    runs = [Run([each], denominator=SINGLE_STREAM) for each in (candidate, reference)]
    return Pair(*runs, of=SINGLE_STREAM, factor="speculation")


def test_a_slow_first_turn_is_not_warm(making: Making) -> None:
    measured = within(making, [2.1, 0.31, 0.30, 0.30])
    (found,) = contradictions(measured)
    assert found.kind == "not_warm"
    assert found.reason == (
        "Not warm: the first 1 turn of 4 took at least 6.77x as long as every later one."
    )
    assert found.evidence == "First 2.1, later at most 0.31 s."
    assert found.remedy == (
        "Warm up longer, with the prompt lengths and sampling that are measured."
    )


@pytest.mark.parametrize(
    ("seconds", "warm"),
    [
        ([0.31, 0.30, 0.30, 0.30], True),
        ([0.46, 0.31, 0.30, 0.30], True),
        ([0.47, 0.31, 0.30, 0.30], False),
        ([2.1, 1.9, 0.31, 0.30, 0.30, 0.30], False),
        ([2.1, 2.0, 1.9, 0.31, 0.30, 0.30], False),
        ([0.30, 2.1, 0.30, 0.30, 0.30, 0.30], True),
        ([2.1, 0.3, 0.3], False),
        ([2.1, 0.3], True),
    ],
)
def test_a_change_point_in_the_first_turns_is_found(
    making: Making, seconds: list[float], warm: bool
) -> None:
    assert kinds(within(making, seconds)) == ([] if warm else ["not_warm"])


def test_a_longer_answer_explains_a_slow_first_turn(making: Making) -> None:
    measured = within(making, [0.9, 0.3, 0.3, 0.3])
    asked = making.with_turns(
        measured, lambda _, each: msgspec.structs.replace(each, max_tokens=144)
    )
    longer = making.with_usage(asked, slice(0, 1), completion_tokens=144)
    assert kinds(longer) == []
    much_slower = making.with_usage(
        making.with_turns(
            within(making, [2.1, 0.3, 0.3, 0.3]),
            lambda _, each: msgspec.structs.replace(each, max_tokens=60),
        ),
        slice(0, 1),
        completion_tokens=60,
    )
    assert kinds(much_slower) == ["not_warm"]


def test_turns_that_get_steadily_faster_are_not_warm(making: Making) -> None:
    measured = within(making, [0.50 - 0.01 * n for n in range(12)])
    (found,) = contradictions(measured)
    assert found.kind == "still_warming"
    assert found.reason == "Not warm: the turns got steadily faster while they were measured."
    assert found.evidence == (
        "The first third took 1.20x as long as the last (Kendall's tau, one-sided p < 0.001)."
    )
    assert found.remedy == "Warm up longer, until the turns stand still."


FASTER = [0.50 - 0.01 * n for n in range(12)]


def test_a_trend_that_both_arms_share_is_the_machine_s_and_is_told(making: Making) -> None:
    pair = a_pair(making, FASTER, [2 * each for each in FASTER])
    assert all(TREND in [each.kind for each in run.contradictions] for run in pair.runs)
    assert TREND not in [each.kind for each in pair.contradictions]
    assert pair.findings[-1] == (
        "All arms got steadily faster together: the machine's drift, which cancels in a ratio."
    )


@pytest.mark.parametrize("other", [[1.0] * 12, FASTER[::-1], FASTER[:11]])
def test_a_trend_of_one_arm_by_itself_is_its_warming_up(
    making: Making, other: Sequence[float]
) -> None:
    pair = a_pair(making, FASTER, other)
    assert TREND in [each.kind for each in pair.contradictions]
    assert not [text for text in pair.findings if "together" in text]


def test_arms_that_were_not_measured_in_turn_share_no_trend(making: Making) -> None:
    pair = a_pair(making, FASTER, FASTER, apart=True)
    assert TREND in [each.kind for each in pair.contradictions]


@pytest.mark.parametrize(("answered", "fresh"), [(99, True), (100, False), (None, True)])
def test_an_engine_long_in_use_does_not_warm_up(
    making: Making, answered: int | None, fresh: bool
) -> None:
    measured = within(making, FASTER)
    after = 0 if measured.after is None else measured.after.requests_finished or 0
    measured = making.with_before(measured, requests_finished=answered)
    measured = making.with_after(measured, requests_finished=after + (answered or 0))
    assert (TREND in kinds(measured)) is fresh
    told = [each.text for each in findings(measured) if each.kind == "drifting"]
    assert len(told) == (not fresh)
    assert "".join(told) in (
        "The turns got steadily faster: the slower end took 1.20x as long (Kendall's tau, "
        "one-sided p < 0.001); the engine had answered 100 requests before, so it is the "
        "machine's."
    )


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "warm"),
    [(12, 10, True), (10, 10, False), (10, 12, False), (105, 100, False)],
)
def test_a_trend_of_the_canary_s_size_is_the_machine_s(
    making: Making, before_ns: int, after_ns: int, warm: bool
) -> None:
    canaries = (
        Canary(measurement_id="m0", when="before", at_ns=0, loop_ns=before_ns, copy_ns=1),
        Canary(measurement_id="m0", when="after", at_ns=1, loop_ns=after_ns, copy_ns=1),
    )
    measured = msgspec.structs.replace(within(making, FASTER), canaries=canaries)
    assert (TREND not in kinds(measured)) is warm
    told = " ".join(each.text for each in findings(measured) if each.kind == "drifting")
    assert ("got 1.20x faster: it is the machine's" in told) is warm


def test_a_canary_does_not_explain_a_far_larger_trend(making: Making) -> None:
    canaries = (
        Canary(measurement_id="m0", when="before", at_ns=0, loop_ns=12, copy_ns=1),
        Canary(measurement_id="m0", when="after", at_ns=1, loop_ns=10, copy_ns=1),
    )
    much = within(making, [0.50 - 0.03 * n for n in range(12)])
    assert TREND in kinds(msgspec.structs.replace(much, canaries=canaries))


def test_a_small_trend_and_one_for_the_worse_are_told(making: Making) -> None:
    falling = within(making, [0.50 - 0.001 * n for n in range(12)])
    rising = within(making, [0.50 + 0.01 * n for n in range(12)])
    assert kinds(falling) == kinds(rising) == []
    texts = [each.text for each in findings(falling) + findings(rising) if each.kind == "drifting"]
    assert texts == [
        (
            "The turns got steadily faster: the slower end took 1.02x as long "
            "(Kendall's tau, one-sided p < 0.001)."
        ),
        (
            "The turns got steadily slower: the slower end took 1.16x as long "
            "(Kendall's tau, one-sided p < 0.001)."
        ),
    ]


def test_a_warm_up_at_another_temperature_is_told(making: Making) -> None:
    def with_warmup(temperature: float) -> Measured:
        sound = making.sound(temperature=0.7)
        early = making.request(-1, "candidate", "b0", role="warmup", temperature=temperature)
        moved = msgspec.structs.replace(sound, requests=(early, *sound.requests))
        return making.with_before(moved, at_ns=SECOND_NS)

    assert kinds(with_warmup(0.0)) == []
    assert [each.text for each in findings(with_warmup(0.0))] == [
        "Warm-up ran at temperature 0, the turns at 0.7."
    ]
    assert findings(with_warmup(0.7)) == ()


def test_noise_is_neither_warming_nor_drifting(making: Making) -> None:
    chance = random.Random(7)
    measured = within(making, [0.3 * (1 + 0.1 * chance.random()) for _ in range(30)])
    assert kinds(measured) == []
    assert "drifting" not in [each.kind for each in findings(measured)]


@pytest.mark.parametrize("seed", range(20))
def test_the_trend_is_close_to_the_exact_one(seed: int) -> None:
    chance = random.Random(seed)
    values = [chance.random() - 0.02 * seed * n / 20 for n in range(30)]
    exact = kendalltau(range(30), values, alternative="less", method="exact").pvalue
    assert falling_p(values) == pytest.approx(exact, rel=0.25, abs=2e-5)
