"""Budgets by name: what a test asks for, what a profile has, and what was probably meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_llmperf.budget import asked_for, by_keyword, look_up, misspelt


def a_test(budget: Callable[[str], Any], name: str) -> None:
    budget("turn.p50")
    budget(name)
    budget("turn.p95")


def test_the_names_that_a_test_asks_for_are_read_from_its_text() -> None:
    assert asked_for(a_test) == ["turn.p50", "turn.p95"]
    assert asked_for(len) == []


def a_gate(check: Callable[..., None], budget: Callable[[str], Any], limit: float) -> None:
    check(p50_s=budget("turn.p50"), p90_s=budget("turn.p90"), p95_s=limit)
    check(p50_s=budget("other.p50"), p90_s=limit, p99_s=budget(f"turn_{limit}.p99"))


def test_keywords_that_have_no_limit_but_budgets_are_read_from_a_test_s_text() -> None:
    assert by_keyword(a_gate) == {
        "p50_s": ("turn.p50", "other.p50"),
        "p99_s": ("turn_*.p99",),
    }
    assert by_keyword(len) == {}


def test_a_budget_that_is_there_has_its_limit_and_no_guess() -> None:
    found = look_up("turn.p50", {"turn.p50": 0.5}, "here")
    assert (found.limit, found.near) == (0.5, None)


def test_a_missing_budget_names_the_one_that_is_spelt_alike() -> None:
    found = look_up("turn.p50", {"trun.p50": 0.5}, "here")
    assert found.missing == ("no budget turn.p50 on this machine (profile here; it has trun.p50)")


def test_another_quantile_is_no_misspelling() -> None:
    assert look_up("turn.p50", {"turn.p95": 0.5}, "here").near is None


def test_a_budget_that_a_test_asks_for_was_not_meant_as_another() -> None:
    known = {"turn.p50": 1.0, "burn.p50": 1.0}
    assert misspelt(["turn.p50", "burn.p50", "churn.p50"], known) == []
    assert misspelt(["turns.p50"], {"turn.p50": 1.0}) == [
        "the profile has a budget turn.p50, which no test asks for, and none called turns.p50"
    ]
