"""What can be seen and at what cost; and what keeps a baseline sound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.assumption import reach
from pytest_llmperf.assumption.components import (
    BootValue,
    Component,
    added,
    careful,
    components,
    less,
    pair_component,
    quantile_error,
)
from pytest_llmperf.assumption.creep import creep
from pytest_llmperf.assumption.instrument import aa_check, self_check
from pytest_llmperf.assumption.looks import design_of
from pytest_llmperf.assumption.modes import modes
from pytest_llmperf.assumption.sensitivity import (
    Screening,
    confirm_detectable,
    gate_detectable,
    level_share,
    screen_detectable,
    screen_passes,
)
from pytest_llmperf.assumption.sizing import Costs, Gate, plan
from pytest_llmperf.errors import InvalidMeasurement, UsageError

FAST = settings(max_examples=60, deadline=None)
COSTS = Costs(boot_s=90, turn_s=1)


def history(
    sessions: int = 40, boots: int = 5, *, session_sd: float = 0.02, boot_sd: float = 0.03
) -> list[list[BootValue]]:
    rng = np.random.default_rng(11)
    stored = []
    for shift in session_sd * rng.standard_normal(sessions):
        level = shift + boot_sd * rng.standard_normal(boots)
        turns = np.exp(level[:, None] + 0.08 * rng.standard_normal((boots, 60)))
        stored.append(
            [
                BootValue(
                    log=float(np.log(np.median(each))),
                    turns=60,
                    error=quantile_error(each.tolist(), 0.5),
                )
                for each in turns
            ]
        )
    return stored


class TestComponents:
    def test_each_is_found_where_it_was_put(self) -> None:
        found = components(history())
        assert found.turn is not None
        assert found.boot is not None
        assert found.session is not None
        assert found.turn.sd == pytest.approx(0.08 * math.sqrt(math.pi / 2), rel=0.15)
        assert found.boot.sd == pytest.approx(0.03, rel=0.15)
        assert found.session.sd == pytest.approx(0.02, rel=0.4)
        assert (found.sessions, round(found.boots, 9)) == (40, 5)
        assert found.turns == pytest.approx(60)

    def test_what_is_not_there_is_zero_and_known_as_well_as_its_parts(self) -> None:
        rest = less(Component(0.001, 9), Component(0.002, 20))
        assert rest == Component(0.0, 9)

    def test_what_cannot_be_told_is_none(self) -> None:
        found = components([[BootValue(log=0.1)], [BootValue(log=0.2)]])
        assert (found.turn, found.boot, found.turns) == (None, None, None)
        assert found.session == Component(pytest.approx(0.005), 1)  # type: ignore[arg-type]  # approx

    def test_degrees_of_freedom_of_a_sum_are_between_its_parts_and_their_sum(self) -> None:
        total = added(Component(0.001, 9), Component(0.001, 20))
        assert total.variance == pytest.approx(0.002)
        assert 9 < total.df < 29

    def test_a_careful_variance_is_larger_the_less_is_known(self) -> None:
        found = careful(1.0, np.array([2, 20, 2000]))
        assert found[0] > found[1] > found[2] > 1

    def test_a_single_pair_has_no_spread(self) -> None:
        assert pair_component([0.1]) is None
        assert pair_component([0.0, 0.1]) == Component(pytest.approx(0.005), 1)  # type: ignore[arg-type]  # approx

    def test_an_error_takes_five_turns(self) -> None:
        assert quantile_error([1.0] * 4, 0.5) is None


class TestSensitivity:
    QUIET = Screening(0.028, 10, 20)

    def test_a_noisier_machine_sees_less(self) -> None:
        design = design_of("pooled", screened=3)
        seen = [
            float(gate_detectable(2 * sd**2, self.QUIET, design=design, detect=0.01))
            for sd in (0.005, 0.01, 0.03, 0.05)
        ]
        assert seen == sorted(seen)
        assert seen[2] == pytest.approx(0.11, abs=0.015)

    def test_paired_boots_see_less_than_pooled_ones_of_the_same_spread(self) -> None:
        kept = {"level": 0.01, "detect": 0.01}
        paired = confirm_detectable(0.0018, design=design_of("paired"), **kept)
        assert paired > confirm_detectable(0.0018, design=design_of("pooled"), **kept)

    def test_no_less_than_detect_is_stated(self) -> None:
        design = design_of("pooled")
        assert confirm_detectable(1e-8, design=design, level=0.01, detect=0.1) == 0.1

    def test_a_slower_gate_has_a_larger_share(self) -> None:
        shares = level_share(np.array([0.0, 0.05, 0.1, 0.2]), self.QUIET, 0.1)
        assert (np.diff(shares) > 0).all()
        assert shares[-1] > 0.7

    def test_many_effects_at_once_are_one_by_one(self) -> None:
        design, variances = design_of("pooled"), np.array([0.001, 0.003])
        screening = Screening(np.array([0.02, 0.05]), 10, 20)
        both = gate_detectable(variances, screening, design=design, detect=0.1)
        for i in range(2):
            one = Screening(screening.error[i], 10, 20)
            alone = gate_detectable(variances[i], one, design=design, detect=0.1)
            assert float(alone) == pytest.approx(float(both[i]))

    def test_a_screen_s_power_is_the_noncentral_t_s(self) -> None:
        seen = float(screen_detectable(Screening(0.0284, 10), 0.01))
        assert seen == pytest.approx(0.131, abs=0.01)
        assert screen_passes(Screening(0.0284, 10), 0.10) == pytest.approx(0.85, abs=0.02)


class TestPlan:
    def test_it_says_boots_turns_minutes_and_what_it_sees(self) -> None:
        found = plan(components(history(boot_sd=0.01, session_sd=0.005)), COSTS, Gate(detect=0.10))
        assert not found.is_underpowered
        assert found.reason == "6 pairs of boots see a slow-down of 10 %"
        assert found.boots < 5
        assert 60 < found.turns < 130
        minute = (90 + found.turns) / 60
        assert found.minutes == pytest.approx(found.boots * minute)
        assert found.minutes_confirm == pytest.approx(12 * minute)

    def test_an_underpowered_gate_says_so_and_what_it_would_take(self) -> None:
        found = plan(components(history(boot_sd=0.06)), COSTS, Gate(detect=0.10))
        assert found.is_underpowered
        assert found.detectable is not None
        assert found.reason == (
            f"6 pairs of boots see a slow-down of {100 * found.detectable:.1f} %, not of 10 %"
        )
        assert found.pairs_needed is not None
        assert found.pairs_needed > 6

    def test_too_few_pairs_can_never_say_regress(self) -> None:
        found = plan(components(history()), COSTS, Gate(detect=0.10, pairs=2))
        assert (found.is_underpowered, found.detectable) == (True, None)
        assert found.reason == "2 pairs of boots can never say REGRESS"

    def test_resident_pairs_are_planned_by_pairs(self) -> None:
        gate = Gate(detect=0.25, arms="paired")
        unknown = plan(components(history()), COSTS, gate)
        assert unknown.reason == ("its noise is not known, for history holds no resident pairs")
        known = plan(components(history()), COSTS, gate, Component(0.05**2, 11))
        assert not known.is_underpowered

    def test_without_turns_stored_a_hundred_are_planned(self) -> None:
        stored = [[BootValue(log=each.log) for each in row] for row in history(8, 3)]
        assert plan(components(stored), COSTS, Gate(detect=0.25)).turns == 100


class TestReach:
    @pytest.mark.parametrize(
        ("smallest", "value"),
        [
            (reach.of_quantile(2, 0.95), 0.05**2),
            (reach.of_quantile(2, 0.95, "at least"), 0.95**2),
        ],
    )
    def test_floors_of_tests(self, smallest: float, value: float) -> None:
        assert smallest == pytest.approx(value)

    def test_a_plan_of_four_turns_is_refused_and_told_seven(self) -> None:
        reach.quantile_plan(7, 0.5, 0.01)
        with pytest.raises(UsageError) as caught:
            reach.quantile_plan(4, 0.5, 0.01)
        assert str(caught.value) == (
            "A quantile test over 4 turns can never say REGRESS.\n"
            "Its smallest p-value is 0.0625, and its level is 0.01.\n"
            "Plan 7 turns; a gate that cannot fail is no gate."
        )


class TestCreep:
    ANCHOR = (0.00, 0.01, -0.01, 0.005, -0.005, 0.01, -0.01, 0.0, 0.005, -0.005)

    def test_nine_accepted_steps_are_seen_against_the_anchor(self) -> None:
        steps = [-math.log(1 - 0.015) * i for i in range(1, 10)]
        found = creep(steps, self.ANCHOR)
        assert found.is_creeping
        assert found.ratio == pytest.approx(1.11, abs=0.01)

    def test_what_is_allowed_is_no_creep(self) -> None:
        found = creep([0.03, 0.03, 0.031, 0.029, 0.03], self.ANCHOR, allowed=0.05)
        assert found.is_creeping is False

    def test_too_few_sessions_say_nothing(self) -> None:
        found = creep([0.5] * 4, self.ANCHOR)
        assert (found.is_creeping, found.p, found.latest) == (None, None, 4)

    @FAST
    @given(st.lists(st.floats(-0.1, 0.1), min_size=5, max_size=9), st.floats(0, 0.3))
    def test_slower_creeps_more(self, sessions: list[float], slower: float) -> None:
        before = creep(sessions, self.ANCHOR)
        after = creep([value + slower for value in sessions], self.ANCHOR)
        assert (after.p or 0) <= (before.p or 0) + 1e-12


class TestSelfCheck:
    def test_the_same_thing_is_the_same(self) -> None:
        blocks = (0.05 * np.random.default_rng(5).standard_normal(24)).tolist()
        assert self_check(blocks).is_sound

    def test_an_instrument_that_favours_odd_blocks_is_found(self) -> None:
        rng = np.random.default_rng(5)
        blocks = 0.01 * rng.standard_normal(24) + 0.05 * (np.arange(24) % 2)
        found = self_check(blocks.tolist())
        assert (found.is_sound, found.pairs) == (False, 12)

    def test_two_pairs_say_nothing(self) -> None:
        assert self_check([0.0, 0.1, 0.2, 0.3, 0.4]).is_sound is None

    def test_equal_blocks_are_sound_and_a_constant_gap_is_not(self) -> None:
        assert aa_check([0.0] * 4, [0.0] * 4).is_sound
        assert not aa_check([0.5] * 4, [0.0] * 4).is_sound

    def test_both_arms_are_measured(self) -> None:
        with pytest.raises(InvalidMeasurement) as caught:
            aa_check([0.0], [0.0, 0.1])
        assert str(caught.value) == (
            "The two arms of the self-check have 1 and 2 values.\n"
            "They are the same workload, measured in turn.\n"
            "Find out where one of them was not measured."
        )


class TestModes:
    def test_a_slow_mode_is_seen(self) -> None:
        rng = np.random.default_rng(9)
        logs = 0.02 * rng.standard_normal(12) + math.log(1.8) * (np.arange(12) % 2)
        found = modes(logs.tolist())
        assert found.are_two
        assert (found.faster, found.slower) == (6, 6)
        assert found.ratio == pytest.approx(1.8, rel=0.05)

    def test_scatter_is_one_mode(self) -> None:
        logs = (0.05 * np.random.default_rng(9).standard_normal(30)).tolist()
        assert modes(logs).are_two is False

    def test_one_bad_boot_is_no_mode(self) -> None:
        logs = (0.02 * np.random.default_rng(9).standard_normal(12)).tolist()
        assert modes([*logs, 0.6]).are_two is False

    def test_five_boots_cannot_tell(self) -> None:
        assert modes([0.0, 0.0, 0.5, 0.5, 0.5]).are_two is None

    def test_equal_boots_are_one_mode(self) -> None:
        assert modes([0.2] * 8).are_two is False
