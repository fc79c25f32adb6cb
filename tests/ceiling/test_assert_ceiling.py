"""The share of the ceiling, judged: green, red, and what makes it no measurement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf import InvalidMeasurement, Regression, Run, assert_ceiling, record
from pytest_llmperf.claims.ceiling import limit_of
from pytest_llmperf.claims.ceiling.reached import log_shares
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured

BoundTo = Callable[..., Measured]

MTP = record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)


def test_the_ceiling_is_bandwidth_over_what_a_token_reads(boot: BoundTo) -> None:
    limit = limit_of(boot(bandwidth=20e9))
    # 100 prompt tokens and half of 17: three layers see 64 of them, one sees all.
    kv = (3 * 64 + 108.5) * 2 * 32 * 2 * 4
    assert limit.step_bytes == pytest.approx(400e6 + kv)
    assert limit.tps == pytest.approx(20e9 / (400e6 + kv))


def test_the_fastest_kernel_is_the_bandwidth(boot: BoundTo) -> None:
    assert limit_of(boot()).bandwidth.threads == 2


def test_the_share_is_what_decoding_read_over_the_bandwidth(boot: BoundTo) -> None:
    shares = log_shares(boot(tps=20.0, bandwidth=20e9))
    assert len(shares) == 4
    assert math.exp(sum(shares) / 4) == pytest.approx(0.4, rel=0.02)


def test_a_share_above_the_floor_passes(boot: BoundTo) -> None:
    (verdict,) = assert_ceiling(Run([boot(tps=20.0)]), at_least=0.3)
    assert verdict.word == "PASS"
    assert verdict.comparison is not None
    assert verdict.comparison.low is not None
    assert 0.35 < verdict.comparison.low < verdict.comparison.estimate < 0.45


def test_a_share_below_the_floor_is_red(boot: BoundTo) -> None:
    with pytest.raises(Regression, match=r"decoding reaches at least 0\.300 of the ceiling"):
        assert_ceiling(Run([boot(tps=8.0)]), at_least=0.3)


def test_twice_the_bytes_for_the_same_tokens_reach_twice_the_share(boot: BoundTo) -> None:
    light = record.Network(
        source="target",
        parts=(record.Part(name="layers", elements=100_000_000, stored="BF16", bytes_each=2.0),),
        kv=(),
    )
    assert_ceiling(Run([boot(tps=20.0)]), at_least=0.3)
    with pytest.raises(Regression):
        assert_ceiling(Run([boot(tps=20.0, weights={"target": light})]), at_least=0.3)


def test_a_share_on_the_floor_stays_open(boot: BoundTo) -> None:
    (verdict,) = assert_ceiling(Run([boot(tps=15.0)]), at_least=0.3005)
    assert verdict.word == "INCONCLUSIVE"


def test_three_boots_speak_for_the_build(boot: BoundTo) -> None:
    boots = [boot(tps=20.0 + n / 10, name=f"b{n}") for n in range(3)]
    (verdict,) = assert_ceiling(Run(boots), at_least=0.3)
    assert (verdict.word, verdict.scope) == ("PASS", "this build")
    assert verdict.comparison is not None
    assert verdict.comparison.n == 3


def test_two_boots_are_too_few(boot: BoundTo) -> None:
    boots = [boot(tps=20.0, name=f"b{n}") for n in range(2)]
    (verdict,) = assert_ceiling(Run(boots), at_least=0.3)
    assert verdict.word == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weights": {"problem": "lost"}}, "How many bytes a decode step reads is not known."),
        (
            {"probe": {"series": (), "problem": "no memory"}},
            "The memory's bandwidth was not measured.",
        ),
        (
            {"probe": {"cache_bytes": 500_000_000}},
            "The weights fit in the last-level cache: memory bandwidth is no limit to them.",
        ),
    ],
)
def test_what_was_not_measured_is_invalid(
    boot: BoundTo, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidMeasurement) as told:
        assert_ceiling(Run([boot(**changed)]), at_least=0.3)
    assert reason in " ".join(str(told.value).split())


def test_turns_without_usage_have_no_context(boot: BoundTo) -> None:
    with pytest.raises(InvalidMeasurement, match="How many tokens stood before each step"):
        assert_ceiling(Run([boot(usage=record.Usage(completion_tokens=17))]), at_least=0.3)


def test_an_engine_with_a_drafter_has_no_ceiling_of_one_token_a_read(boot: BoundTo) -> None:
    with pytest.raises(UsageError) as told:
        assert_ceiling(Run([boot(declared=MTP)]), at_least=0.3)
    assert str(told.value).splitlines() == [
        "A ceiling of one token for each read of the weights needs an engine without drafter.",
        "Measured: plain, all of them with one.",
        "Boot one with engine(name, speculation=False), or compare with and without.",
    ]


@pytest.mark.parametrize("share", [0, -0.1, 1.5, True, "half", math.nan])
def test_a_floor_that_is_no_share_is_refused(boot: BoundTo, share: float) -> None:
    with pytest.raises(UsageError) as told:
        assert_ceiling(Run([boot()]), at_least=share)
    assert str(told.value).splitlines() == [
        f"{share!r} is no share of a ceiling.",
        "A share is more than 0 and at most 1.",
        "Give 0.3 for thirty percent.",
    ]


def test_anything_but_a_run_or_a_pair_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a run nor a pair"):
        assert_ceiling(0.4, at_least=0.3)  # type: ignore[arg-type]
