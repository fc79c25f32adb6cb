"""Numbers as they are printed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not measured"),
        (0.0, "0.00 s"),
        (0.1234, "0.123 s"),
        (0.25, "0.250 s"),
        (0.09996, "0.100 s"),
        (0.0999, "99.9 ms"),
        (0.0123, "12.3 ms"),
        (0.0000451, "0.0451 ms"),
        (9.996, "10.0 s"),
        (264.2, "264 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds_keep_three_digits_and_turn_to_milliseconds_below_a_tenth(
    value: float | None, text: str
) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.rate(86.24), "86.2 tok/s"),
        (units.rate(1024.2), "1,024 tok/s"),
        (units.rate(None), "not measured"),
        (units.ratio(1.6249), "1.62x"),
        (units.ratio(0.9524), "0.952x"),
        (units.ratio(1.4), "1.40x"),
        (units.count(2176), "2,176"),
        (units.count(0), "0"),
        (units.count(None), "not measured"),
        (units.counted(1, "turn"), "1 turn"),
        (units.counted(1200, "turn"), "1,200 turns"),
        (units.share(2176, 2240), "2,176 of 2,240"),
        (units.share(None, 2240), "not measured of 2,240"),
        (units.percent(0.14), "14 %"),
        (units.percent(0.0154), "1.5 %"),
        (units.percent(0.01), "1 %"),
        (units.percent(0.00024), "0.02 %"),
        (units.percent(1e-9), "0 %"),
        (units.percent(0.0996), "10 %"),
        (units.percent(None), "not measured"),
        (units.probability(0.0004), "p < 0.001"),
        (units.probability(0.0312), "p = 0.031"),
        (units.probability(None), "no test"),
        (units.quantile_name(0.5), "p50"),
        (units.quantile_name(0.999), "p99.9"),
        (units.quantity(12.34, "tokens"), "12.3 tokens"),
    ],
)
def test_each_sort_of_number_has_one_form(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("numbers", "unit", "text"),
    [
        ((0.18241, 0.1711, 0.196), "s", "0.182 s [0.171, 0.196]"),
        ((0.0412, 0.0391, 0.1021), "s", "41.2 ms [39.1, 102.1]"),
        ((1.6249, 1.5, 1.74), "x", "1.62x [1.50, 1.74]"),
        ((86.2, None, 92.31), "tok/s", "86.2 tok/s [no bound, 92.3]"),
        ((0.204, 0.194, None), "s", "0.204 s [0.194, no bound]"),
        ((0.204, None, None), "s", "0.204 s"),
        ((None, None, None), "s", "not measured"),
    ],
)
def test_an_interval_shares_unit_and_decimals_with_its_number(
    numbers: tuple[float | None, float | None, float | None], unit: str, text: str
) -> None:
    assert units.measured(*numbers, unit) == text


@given(st.floats(1e-6, 1e9))
def test_a_printed_number_is_within_half_a_percent_of_the_number(value: float) -> None:
    text, unit = units.seconds(value).split()
    printed = float(text.replace(",", "")) / (1000 if unit == "ms" else 1)
    assert math.isclose(printed, value, rel_tol=0.0051)
