"""Contrasts of two factors: planted effects are found, drift cancels, errors are as stated."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import assumption
from pytest_llmperf.assumption import Comparison, contrasts, ratio_against, together
from pytest_llmperf.errors import InvalidMeasurement
from pytest_llmperf.plan import _order

CELLS = ("both", "first", "second", "neither")
logs = st.floats(-2, 2)


def arms(
    first: float, second: float, interaction: float, *, blocks: int = 4, noise: Random | None = None
) -> dict[str, list[tuple[int, float]]]:
    """Two values a block and cell with planted log gains; more is worse."""
    gains = {
        "neither": 0.0,
        "first": first - interaction / 2,
        "second": second - interaction / 2,
        "both": first + second,
    }
    return {
        name: [
            (block, math.exp(-gain + (noise.gauss(0, 0.1) if noise else 0.0)))
            for block in range(blocks)
            for _ in range(2)
        ]
        for name, gain in gains.items()
    }


@given(logs, logs, logs)
def test_planted_effects_are_what_the_contrasts_give(a: float, b: float, both: float) -> None:
    found = contrasts(**arms(a, b, both))
    assert found.first == pytest.approx([a] * 4, abs=1e-9)
    assert found.second == pytest.approx([b] * 4, abs=1e-9)
    assert found.interaction == pytest.approx([both] * 4, abs=1e-9)


@given(logs, logs, logs)
def test_the_interaction_does_not_depend_on_which_factor_is_called_the_first(
    a: float, b: float, both: float
) -> None:
    made = arms(a, b, both)
    swapped = contrasts(
        both=made["both"], first=made["second"], second=made["first"], neither=made["neither"]
    )
    assert swapped.interaction == pytest.approx(contrasts(**made).interaction, abs=1e-9)


@pytest.mark.parametrize("block", range(4))
@given(slope=st.floats(-0.05, 0.05))
def test_a_steady_drift_inside_a_block_of_four_cells_cancels(block: int, slope: float) -> None:
    drifting: dict[str, list[tuple[int, float]]] = {name: [] for name in CELLS}
    for place, (name, _) in enumerate(_order(list(CELLS), 2, block=block)):
        drifting[name].append((0, math.exp(slope * place)))
    found = contrasts(**drifting)
    assert [*found.first, *found.second, *found.interaction] == pytest.approx([0] * 3, abs=1e-9)


def test_over_four_blocks_each_cell_stands_once_at_each_place_and_follows_each_other_once() -> None:
    rows = [[arm for arm, index in _order(list(CELLS), 2, block=n) if index == 0] for n in range(4)]
    assert all(set(column) == set(CELLS) for column in zip(*rows, strict=True))
    followed = {pair for row in rows for pair in pairwise(row)}
    assert len(followed) == 12


def test_a_block_without_one_of_its_cells_is_no_block() -> None:
    made = arms(0, 0, 0)
    with pytest.raises(InvalidMeasurement, match="blocks lack one of their two arms"):
        contrasts(**made | {"both": made["both"][:-2]})


def interval(low: float | None, high: float | None) -> Comparison:
    made = ratio_against([0.0, 0.1], floor=1.0)
    return Comparison(
        **{name: getattr(made, name) for name in made.__struct_fields__}
        | {"low": low, "high": high}
    )


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.01, 1.6, "reinforce"),
        (0.6, 0.99, "overlap"),
        (0.9, 1.1, "multiply"),
        (0.7, 1.1, "open"),
        (0.9, 1.4, "open"),
        (None, 1.1, "open"),
        (0.9, None, "open"),
        (1.1, None, "reinforce"),
        (None, 0.9, "overlap"),
    ],
)
def test_the_interval_of_the_interaction_says_how_gains_combine(
    low: float | None, high: float | None, word: assumption.Together
) -> None:
    assert together(interval(low, high), within=0.25) == word


@pytest.mark.parametrize("effect", ["first", "interaction"])
def test_a_true_effect_at_its_floor_is_red_no_oftener_than_alpha(effect: str) -> None:
    drawn, red, sessions = Random(1), 0, 1000
    for _ in range(sessions):
        found = contrasts(**arms(math.log(1.4), 0.5, math.log(1.2), blocks=5, noise=drawn))
        floor = {"first": 1.4, "interaction": 1.2}[effect]
        p = ratio_against(getattr(found, effect), floor=floor, alpha=0.05).p_regress
        red += p is not None and p <= 0.05
    assert red / sessions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sessions)


def test_an_overlap_that_is_planted_is_found() -> None:
    drawn = Random(2)
    found = contrasts(**arms(0.6, 0.6, math.log(0.6), blocks=6, noise=drawn))
    assert together(ratio_against(found.interaction, floor=1.0), within=0.25) == "overlap"
