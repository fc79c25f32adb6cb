"""Two mechanisms in four cells: what each gains, and how the gains combine."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from statistics import fmean

import pytest

from pytest_llmperf import Factorial, assert_speedup
from pytest_llmperf.errors import InvalidMeasurement, Regression, UsageError
from tests.mechanisms.conftest import additive

Make = Callable[..., Factorial]


def test_each_effect_is_the_mean_over_both_states_of_the_other_factor(grid: Make) -> None:
    cells = grid()
    # Cold 1.44 to 0.80 s, cached 0.99 to 0.35 s by wall clock; the square root of the product.
    assert cells.effect("speculation").ratio() == pytest.approx((1.8 * 2.829) ** 0.5, rel=0.02)
    by_first = cells.effect("prefix", by="time_to_first_token")
    assert by_first.ratio() == pytest.approx(10, rel=0.05)
    # 2.829 / 1.8: what one saves is a larger part of what the other leaves.
    assert cells.interaction().ratio() == pytest.approx(1.571, rel=0.02)


def test_decode_alone_has_no_interaction(grid: Make) -> None:
    cells = grid()
    assert cells.effect("speculation", by="decode_throughput").ratio() == pytest.approx(3, rel=0.05)
    assert cells.interaction(by="decode_throughput").ratio() == pytest.approx(1, rel=0.03)


def test_effects_at_their_floors_pass_and_are_red_above_them(grid: Make) -> None:
    cells = grid()
    effects = (
        (cells.effect("speculation"), 1.9, 2.6),
        (cells.effect("prefix", by="time_to_first_token"), 5, 15),
        (cells.interaction(), 1.4, 1.7),
    )
    for effect, kept, missed in effects:
        (verdict,) = assert_speedup(effect, at_least=kept)
        assert verdict.word == "PASS"
        with pytest.raises(Regression):
            assert_speedup(effect, at_least=missed)


def test_a_claim_names_its_effect_and_its_denominator(grid: Make) -> None:
    cells = grid()
    said = [
        assert_speedup(effect, at_least=0.1)[0].claim
        for effect in (cells.effect("speculation"), cells.interaction(by="decode_throughput"))
    ]
    assert said == [
        "main effect of speculation on single_stream at least 0.100x",
        "interaction of speculation and prefix on decode_throughput at least 0.100x",
    ]


def test_mechanisms_that_save_the_same_time_are_said_to_overlap(grid: Make) -> None:
    def overlapping(cell: str, block: int) -> tuple[float, float]:
        first_s, gap_s = additive(cell, block)
        return first_s, 2 * gap_s if cell == "both" else gap_s

    table = dict(grid(overlapping).table)
    assert "interaction: decode only; they overlap" in table
    assert "interaction: time to first token; they multiply" in table


def test_the_table_has_every_effect_by_every_clock_and_the_cells(grid: Make) -> None:
    words = [words for words, _ in grid().table]
    assert words == [
        "speculation: whole turn, wall clock",
        "prefix: whole turn, wall clock",
        "interaction: whole turn, wall clock; they reinforce each other",
        "speculation: time to first token",
        "prefix: time to first token",
        "interaction: time to first token; they multiply",
        "speculation: decode only",
        "prefix: decode only",
        "interaction: decode only; they multiply",
        "drafter, cached prefix: whole turn, wall clock / time to first token / decode only",
        "drafter, cold prefix: whole turn, wall clock / time to first token / decode only",
        "no drafter, cached prefix: whole turn, wall clock / time to first token / decode only",
        "no drafter, cold prefix: whole turn, wall clock / time to first token / decode only",
    ]


def test_a_cell_whose_cache_did_not_hold_makes_every_effect_invalid(grid: Make) -> None:
    cells = grid(uncached="both")
    with pytest.raises(InvalidMeasurement, match="speculation on single_stream"):
        assert_speedup(cells.effect("speculation"), at_least=0.1)
    kinds = {each.kind for each in cells.contradictions}
    assert "not_cached" in kinds


def test_the_effect_of_a_prefix_is_judged_by_the_first_token_only(grid: Make) -> None:
    # M12: a cached prefix saves prefill; the ratio of whole turns also contains decoding.
    with pytest.raises(UsageError) as refused:
        grid().effect("prefix")
    assert str(refused.value) == (
        "The effect of a cached prefix is asked for by single_stream.\n"
        "A cached prefix saves prefill and nothing else; a whole turn also decodes.\n"
        "Write effect('prefix', by='time_to_first_token'); the others are shown beside it."
    )


def test_a_factor_or_a_denominator_that_is_not_there_is_refused(grid: Make) -> None:
    with pytest.raises(UsageError) as factor:
        grid().effect("profile")
    assert str(factor.value) == (
        "'profile' is no factor of this factorial.\n"
        "Its factors are speculation and prefix.\n"
        "Name one of them, or ask for interaction()."
    )
    with pytest.raises(UsageError, match="There is no denominator 'wall'"):
        grid().interaction(by="wall")


def test_blocks_are_the_replicates(grid: Make) -> None:
    (verdict,) = assert_speedup(grid(blocks=7).interaction(), at_least=0.5)
    assert verdict.comparison is not None
    assert (verdict.comparison.n, verdict.comparison.replicate) == (7, "block")


def test_two_gains_and_their_interaction_make_the_gain_of_both(grid: Make) -> None:
    cells = grid()
    whole = [block for name in ("speculation", "prefix") for block in cells.logs(name, cells.of)]
    first, second = (fmean(each) for each in whole)
    wall = cells.cells
    gain = fmean(wall["neither"].values[0]) / fmean(wall["both"].values[0])
    assert first + second == pytest.approx(log(gain), abs=0.02)
