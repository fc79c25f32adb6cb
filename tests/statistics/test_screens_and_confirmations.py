"""A gate before history, and before fresh boots: what is said, what is not, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.assumption import block_log_ratios
from pytest_llmperf.assumption.boots import (
    history_of,
    log_quantile,
    session_of,
)
from pytest_llmperf.assumption.borrow import boot_variance, ratio_against_borrowing
from pytest_llmperf.assumption.confirm import Confirmed, Suspect, confirm
from pytest_llmperf.assumption.looks import Design, design_of
from pytest_llmperf.assumption.path import look_tests
from pytest_llmperf.assumption.screen import Screened, screen, suspicion
from pytest_llmperf.errors import InvalidMeasurement, UsageError

FAST = settings(max_examples=60, deadline=None)
POOLED = design_of("pooled")
PAIRED = design_of("paired")

noise = st.floats(-0.1, 0.1)
boots = st.lists(noise, min_size=3, max_size=3)
histories = st.lists(boots, min_size=6, max_size=10)
arms = st.lists(st.tuples(noise, noise), min_size=3, max_size=6)


def drawn(seed: int, *shape: int, sd: float = 0.03) -> list[list[float]]:
    values: list[list[float]] = (sd * np.random.default_rng(seed).standard_normal(shape)).tolist()
    return values


HISTORY = drawn(1, 10, 3)


def moved(sessions: list[list[float]], by: float) -> list[list[float]]:
    return [[value + by for value in session] for session in sessions]


def screened(now: list[float], history: list[list[float]] = HISTORY) -> Screened:
    return screen(now, history, detect=0.10)


def suspect(pairs: list[tuple[float, float]], slower: float = 0.0, **more: float) -> Suspect:
    settings = {"detect": 0.10, "tolerance": 0.02, **more}
    return Suspect(
        candidate=tuple(a + slower for a, _ in pairs),
        reference=tuple(b for _, b in pairs),
        **settings,  # type: ignore[arg-type]  # only numbers are handed in
    )


def alone(one: Suspect, design: Design = POOLED) -> Confirmed:
    return confirm({"gate": one}, design=design)["gate"]


class TestPerBoot:
    def test_a_quantile_is_median_unbiased(self) -> None:
        assert log_quantile([1.0, 2.0, 3.0, 4.0], 0.5) == pytest.approx(math.log(2.5))

    @FAST
    @given(st.permutations([(0, 1.0), (0, 1.2), (1, 3.0), (1, 2.5)]))
    def test_a_block_s_turns_may_come_in_any_order(self, a: list[tuple[int, float]]) -> None:
        b = [(0, 2.0), (0, 2.1), (1, 5.0), (1, 5.5)]
        first = block_log_ratios([(0, 1.0), (0, 1.2), (1, 3.0), (1, 2.5)], b)
        assert block_log_ratios(a, b) == pytest.approx(first)

    @FAST
    @given(st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
    def test_swapping_arms_turns_a_ratio_round(self, values: list[float]) -> None:
        a, b = list(enumerate(values[:2])), list(enumerate(values[2:]))
        turned = [-each for each in block_log_ratios(b, a)]
        assert block_log_ratios(a, b) == pytest.approx(turned)


class TestScreen:
    def test_an_unchanged_gate_passes_quiet_history(self) -> None:
        found = screened(HISTORY[0])
        assert (found.word, found.df, found.sessions, found.warnings) == ("PASS", 9, 10, ())
        assert found.detectable == pytest.approx(0.09, abs=0.03)

    def test_a_slow_session_is_suspected_and_never_red(self) -> None:
        found = screened([0.15, 0.16, 0.14])
        assert found.word == "SUSPECT"
        assert found.low is not None
        assert found.low > 1

    def test_what_is_neither_is_unresolved(self) -> None:
        noisy = drawn(2, 10, 3, sd=0.15)
        assert screened([0.02, 0.0, 0.01], noisy).word == "UNRESOLVED"

    def test_it_equals_student_s_prediction_test(self) -> None:
        from scipy import stats  # noqa: PLC0415 - only this test compares

        means = [sum(each) / 3 for each in HISTORY]
        found = screened([0.05, 0.06, 0.04])
        theirs = stats.ttest_ind([0.05], means, equal_var=True, alternative="greater")
        assert found.p_suspect == pytest.approx(float(theirs.pvalue))

    @pytest.mark.parametrize("stored", [0, 1, 5])
    def test_a_short_history_resolves_nothing(self, stored: int) -> None:
        found = screened([0.0, 0.0, 0.0], HISTORY[:stored])
        assert (found.word, found.p_suspect, found.p_pass) == ("UNRESOLVED", None, None)
        noun = "session" if stored == 1 else "sessions"
        assert found.warnings == (f"history has {stored} {noun}, and screening takes 6",)
        assert found.weight == suspicion(0.02)

    def test_a_constant_history_proves_nothing(self) -> None:
        found = screened([0.0, 0.0, 0.0], [[0.0] * 3] * 10)
        assert found.word == "UNRESOLVED"
        assert found.warnings == ("all stored sessions are equal, so no noise was seen",)

    def test_a_session_known_by_its_mean_can_be_screened(self) -> None:
        assert screened([0.0], [[value] for value, *_ in HISTORY]).boots == 1

    def test_fewer_boots_than_history_s_count_for_less(self) -> None:
        three, one = screened([0.05, 0.05, 0.05]), screened([0.05])
        assert one.is_widened
        assert not three.is_widened
        assert (one.p_suspect or 0) > (three.p_suspect or 0)

    def test_boots_more_scattered_than_history_s_count_for_less(self) -> None:
        calm, wild = screened([0.05, 0.05, 0.05]), screened([-0.15, 0.05, 0.25])
        assert wild.is_widened
        assert (wild.p_pass or 0) > (calm.p_pass or 0) or wild.p_suspect != calm.p_suspect

    @FAST
    @given(boots, histories, st.floats(-5, 5))
    def test_units_do_not_matter(
        self, now: list[float], history: list[list[float]], unit: float
    ) -> None:
        here = screened(now, history)
        there = screened([value + unit for value in now], moved(history, unit))
        assert there.p_suspect == pytest.approx(here.p_suspect, rel=1e-4, abs=1e-9)
        assert there.p_pass == pytest.approx(here.p_pass, rel=1e-4, abs=1e-9)

    @FAST
    @given(boots, histories, st.permutations([0, 1, 2]))
    def test_the_order_of_boots_does_not_matter(
        self, now: list[float], history: list[list[float]], order: list[int]
    ) -> None:
        shuffled = screened([now[i] for i in order], history[::-1])
        assert shuffled.p_pass == pytest.approx(screened(now, history).p_pass, abs=1e-9)

    @FAST
    @given(boots, histories, st.floats(0, 0.3))
    def test_slower_is_more_suspect_and_passes_less(
        self, now: list[float], history: list[list[float]], slower: float
    ) -> None:
        before = screened(now, history)
        after = screened([value + slower for value in now], history)
        assert (after.p_suspect or 0) <= (before.p_suspect or 0) + 1e-12
        assert (after.p_pass or 0) >= (before.p_pass or 0) - 1e-12
        assert after.weight >= before.weight * (1 - 1e-9)

    def test_suspicion_grows_until_normal_tails_are_not_known(self) -> None:
        weights = suspicion(np.array([1.0, 0.1, 0.01, 1e-4, 1e-9]))
        assert (np.diff(weights) >= 0).all()
        assert weights[-1] == weights[-2]

    def test_detect_is_positive(self) -> None:
        with pytest.raises(UsageError) as caught:
            screen([0.0], HISTORY, detect=0.0)
        assert str(caught.value) == (
            "detect is 0.0.\n"
            "It is the relative slow-down that a PASS must exclude: more than 0.\n"
            "Give 0.10 for ten percent."
        )

    def test_a_level_is_a_chance(self) -> None:
        with pytest.raises(UsageError) as caught:
            screen([0.0], HISTORY, detect=0.1, alpha_screen=0.7)
        assert str(caught.value) == (
            "a level of the screen is 0.7.\n"
            "A level is the chance of a wrong word: more than 0 and less than 0.5.\n"
            "Give 0.02 for two percent."
        )


class TestBorrowing:
    def test_history_s_spread_is_pooled_with_the_session_s(self) -> None:
        spread = boot_variance(session_of(HISTORY[0]), history_of(HISTORY))
        assert bool(spread.is_borrowed)
        assert spread.df == 22

    def test_the_guard_refuses_history_to_wilder_boots(self) -> None:
        spread = boot_variance(session_of([-0.3, 0.0, 0.3]), history_of(HISTORY))
        assert not bool(spread.is_borrowed)
        assert spread.df == 2
        assert float(spread.variance) == pytest.approx(0.09)

    def test_a_floor_that_three_boots_leave_open_is_decided_by_history(self) -> None:
        ratios = [math.log(1.62), math.log(1.66), math.log(1.64)]
        stored = moved(drawn(3, 10, 3, sd=0.02), math.log(1.6))
        found = ratio_against_borrowing(ratios, stored, floor=1.5)
        assert found.p_pass is not None
        assert found.p_pass < 0.001
        assert "spread as in history" in found.assumption

    def test_wilder_boots_are_said_to_be(self) -> None:
        found = ratio_against_borrowing([0.1, 0.5, 0.9], HISTORY, floor=1.2)
        assert found.assumption.endswith("(more spread than history)")


class TestConfirm:
    def test_an_open_gate_says_how_many_pairs_would_decide(self) -> None:
        pairs = [(a + 0.085, b) for a, b in drawn(4, 6, 2)]
        found = alone(suspect(pairs))
        assert found.word is None
        assert found.needed is not None
        assert found.needed > 6
        assert alone(suspect(pairs, slower=0.5)).needed is None

    def test_before_the_first_look_nothing_is_said(self) -> None:
        found = alone(suspect([(0.1, 0.0), (0.2, 0.1)]))
        assert (found.word, found.p_regress, found.detectable) == (None, None, None)
        assert found.warnings == ("the first look is after 3 pairs of boots, and there are 2",)

    def test_a_gate_far_slower_is_red_early(self) -> None:
        pairs = [(0.30, 0.00), (0.31, 0.01), (0.29, -0.01)]
        found = alone(suspect(pairs))
        assert (found.word, found.decided_at) == ("REGRESS", 3)
        assert found.low is not None
        assert found.low > 1.02

    def test_an_unchanged_gate_passes_early(self) -> None:
        pairs = [(0.001, 0.0), (0.0, 0.002), (0.003, 0.001)]
        found = alone(suspect(pairs))
        assert (found.word, found.decided_at) == ("PASS", 3)
        assert found.high is not None
        assert found.high < 1.10

    def test_a_word_once_reached_stays(self) -> None:
        pairs = [(0.30, 0.00), (0.31, 0.01), (0.29, -0.01), (0.0, 0.0), (-0.3, 0.0), (-0.3, 0.0)]
        assert alone(suspect(pairs)).decided_at == 3

    def test_equal_boots_prove_nothing(self) -> None:
        found = alone(suspect([(0.5, 0.0)] * 6))
        assert found.word is None
        assert found.warnings == (
            "all boots are equal, so no noise was seen and nothing is tested",
        )

    def test_the_screened_boots_lend_their_spread_and_not_their_mean(self) -> None:
        pairs = [(a + 0.06, b) for a, b in drawn(4, 6, 2)]
        design = design_of("pooled", screened=3)

        def found(own: tuple[float, ...]) -> Confirmed:
            one = suspect(pairs)
            return alone(
                Suspect(candidate=one.candidate, reference=one.reference, detect=0.1, own=own),
                design,
            )

        assert found((0.0, 0.1, 0.2)).p_regress == pytest.approx(found((5.0, 5.1, 5.2)).p_regress)
        assert found((0.0, 0.1, 0.2)).df == design.df(6)

    def test_a_suspect_among_others_needs_more(self) -> None:
        # Case C7: dozens of alarms a pair of runs, most of them by their number alone.
        pairs = [(0.115 + a, b) for a, b in drawn(5, 6, 2)][:4]
        calm = [(a, b) for a, b in drawn(6, 4, 2)]
        together = confirm({"slow": suspect(pairs), "calm": suspect(calm)}, design=POOLED)
        slow, single = together["slow"], alone(suspect(pairs))
        assert slow.adjusted_regress > slow.worth_regress
        assert (slow.decided_at or 9) >= (single.decided_at or 9)
        assert slow.level_regress < single.level_regress

    def test_a_stronger_suspicion_takes_more_of_the_level(self) -> None:
        pairs = [(a, b) for a, b in drawn(7, 6, 2)]
        strong = suspect(pairs, weight=9.0)
        found = confirm({"strong": strong, "weak": suspect(pairs)}, design=POOLED)
        assert found["strong"].level_regress > found["weak"].level_regress

    @FAST
    @given(arms, st.floats(-5, 5), st.sampled_from([POOLED, PAIRED]))
    def test_units_do_not_matter(
        self, pairs: list[tuple[float, float]], unit: float, design: Design
    ) -> None:
        there = alone(suspect([(a + unit, b + unit) for a, b in pairs]), design)
        here = alone(suspect(pairs), design)
        assert there.word == here.word
        assert there.p_regress == pytest.approx(here.p_regress, rel=1e-3, abs=1e-9)

    @FAST
    @given(arms, st.sampled_from([POOLED, PAIRED]))
    def test_swapping_the_arms_mirrors_the_tests(
        self, pairs: list[tuple[float, float]], design: Design
    ) -> None:
        a, b = np.array(pairs).T
        here, _ = look_tests(a, b, design=design, tolerance=0.0, detect=0.1)
        there, _ = look_tests(b, a, design=design, tolerance=0.0, detect=0.1)
        assert here == there == 1 or here + there == pytest.approx(1)

    @FAST
    @given(arms, st.floats(0, 0.09), st.floats(0, 0.09))
    def test_more_tolerance_is_never_redder(
        self, pairs: list[tuple[float, float]], one: float, other: float
    ) -> None:
        low, high = sorted((one, other))
        strict, lax = (alone(suspect(pairs, tolerance=t)) for t in (low, high))
        assert strict.word == "REGRESS" or lax.word != "REGRESS"

    @FAST
    @given(arms, st.floats(0, 0.3))
    def test_slower_is_never_greener(self, pairs: list[tuple[float, float]], slower: float) -> None:
        before, after = alone(suspect(pairs)), alone(suspect(pairs, slower))
        assert after.word == "REGRESS" or before.word != "REGRESS"
        assert before.word == "PASS" or after.word != "PASS"

    @FAST
    @given(arms)
    def test_adding_turns_never_adds_degrees_of_freedom(
        self, pairs: list[tuple[float, float]]
    ) -> None:
        few = [math.log(1.0 + 0.01 * i) for i in range(5)]
        many = few * 20
        medians = [log_quantile([math.exp(v + a) for v in few], 0.5) for a, _ in pairs]
        longer = [log_quantile([math.exp(v + a) for v in many], 0.5) for a, _ in pairs]
        one = alone(suspect(list(zip(medians, [b for _, b in pairs], strict=True))))
        other = alone(suspect(list(zip(longer, [b for _, b in pairs], strict=True))))
        for found in (one, other):
            assert found.df == 2 * (found.decided_at or len(pairs)) - 2

    def test_all_suspects_ride_on_the_same_boots(self) -> None:
        two, three = suspect([(0.0, 0.1)] * 2), suspect([(0.0, 0.1)] * 3)
        with pytest.raises(InvalidMeasurement) as caught:
            confirm({"a": two, "b": three}, design=POOLED)
        assert str(caught.value) == (
            "Suspects have 2, 3 boots an arm.\n"
            "All suspects ride on the same boots, and each boot has its partner.\n"
            "Find out where a gate lacks a boot; a pair with one arm is no pair."
        )

    def test_detect_is_over_tolerance(self) -> None:
        with pytest.raises(UsageError) as caught:
            alone(suspect([(0.0, 0.1)] * 3, tolerance=0.2))
        assert str(caught.value) == (
            "tolerance is 0.2 and detect 0.1.\n"
            "A slow-down within tolerance is no regression; one of detect must be seen.\n"
            "Give a tolerance of 0 or more, and a larger detect."
        )

    def test_a_design_with_own_boots_takes_them(self) -> None:
        with pytest.raises(InvalidMeasurement) as caught:
            alone(suspect([(0.0, 0.1)] * 3), design_of("pooled", screened=3))
        assert str(caught.value) == (
            "0 screened boots are handed in for 2 degrees of freedom.\n"
            "n boots know their spread with n - 1 degrees of freedom.\n"
            "Hand in the boots that were screened, or a design without them."
        )
