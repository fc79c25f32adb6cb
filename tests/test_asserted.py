"""What a test claims is read off its code, and claims share one alpha."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_llmperf
from pytest_llmperf import (
    Pair,
    Run,
    assert_failover,
    assert_latency,
    assert_no_regression,
    assert_speedup,
)
from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.asserted import EXACT, OF_LIMITS, OF_THE_PAST, Claims, claims_of, shares


def test_every_public_assertion_is_known() -> None:
    public = {name for name in pytest_llmperf.__all__ if name.startswith("assert_")}
    assert {*OF_LIMITS, *EXACT, OF_THE_PAST} == public
    assert not {*OF_LIMITS} & {*EXACT}


def _two(run: Run, pair: Pair) -> None:
    assert_latency(run, p50_s=1, p95_s=2)
    assert_speedup(pair, at_least=2)


def _past(run: Run) -> None:
    assert_no_regression(run)


def _through_a_module(run: Run) -> None:
    pytest_llmperf.assert_throughput(run, at_least_tps=2)


def _counted(run: Handover) -> None:
    assert_failover(run, within_s=2, lost=0)


def _counted_and_limited(run: Run, switch: Handover) -> None:
    assert_failover(switch)
    assert_latency(run, p50_s=1)


def _helped(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(
    ("test", "claims"),
    [
        (_two, Claims(of_limits=2, latencies=(0.5, 0.95))),
        (_past, Claims(of_limits=0, of_the_past=1)),
        (_through_a_module, Claims(is_throughput=True)),
        (_counted, Claims(of_limits=0)),
        (_counted_and_limited, Claims(of_limits=1, latencies=(0.5,))),
        (_helped, Claims()),
    ],
)
def test_claims_are_counted_in_a_test_s_own_body(test: FunctionType, claims: Claims) -> None:
    assert claims_of(test.__code__) == claims


def test_what_is_no_function_makes_one_claim() -> None:
    assert claims_of(None) == Claims()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1))
def test_all_claims_together_have_one_alpha(tests: list[tuple[int, int]]) -> None:
    claims = [Claims(of_limits=limits, of_the_past=past) for limits, past in tests]
    found = shares(claims)
    limits, past = (sum(each) for each in zip(*tests, strict=True))
    spent = found.claim * limits + (found.past if past else 0)
    assert spent == pytest.approx(1)


def test_a_run_of_gates_against_the_past_alone_leaves_them_everything() -> None:
    found = shares([Claims(of_limits=0, of_the_past=1)] * 4)
    assert (found.claim, found.past) == (0.25, 1.0)


def test_what_cannot_err_by_chance_takes_no_share() -> None:
    limited, exact = Claims(), Claims(of_limits=0)
    assert shares([limited, exact, exact]).claim == 1.0
    assert shares([exact]).claim == 1.0


def test_a_claim_is_judged_where_one_of_its_budgets_is_there() -> None:
    budgets = {"p50_s": ("turn.p50",), "p95_s": ("turn.p95", "other.p95"), "at_least_tps": ("tps",)}
    every = Claims(latencies=(0.5, 0.95, 0.99), is_throughput=True, budgets=budgets)
    none, all_of_it = every.judged_with(()), every.judged_with(("turn.p50", "other.p95", "tps"))
    assert (none.latencies, none.is_throughput) == ((0.99,), False)
    assert all_of_it == every
    assert none.count == every.count


def test_a_budget_whose_name_is_made_up_as_it_goes_is_there_where_one_fits() -> None:
    claims = Claims(latencies=(0.5,), budgets={"p50_s": ("cold_*.p50",)})
    assert claims.judged_with(("cold_256.p50",)).latencies == (0.5,)
    assert claims.judged_with(("cold_256.p95",)).latencies == ()
