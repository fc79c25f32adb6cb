"""What a p-value is worth among other gates, and at one look of several."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.assumption.family import holm
from pytest_llmperf.assumption.looks import (
    LEVELS,
    SHIPPED,
    Design,
    LookTable,
    _smallest,
    calibrate,
    design_of,
    flat,
    look_table,
    rising,
)
from pytest_llmperf.calibrate.looks import designs, main
from pytest_llmperf.errors import UsageError

FAST = settings(max_examples=80, deadline=None)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=8)
weights = st.floats(0.01, 100)


class TestHolm:
    def test_the_smallest_is_multiplied_by_all_and_the_largest_by_none(self) -> None:
        assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])

    def test_weights_share_the_level(self) -> None:
        assert holm([0.008, 0.001], [4, 1]) == pytest.approx([0.008, 0.005])

    def test_a_gate_without_weight_is_not_of_the_family(self) -> None:
        assert holm([0.02, 1e-9, 0.01], [1, 0, 1]) == pytest.approx([0.02, 1.0, 0.02])

    @FAST
    @given(p_values)
    def test_it_never_rejects_more_than_unadjusted(self, p: list[float]) -> None:
        assert (holm(p) >= np.array(p) - 1e-15).all()

    @FAST
    @given(p_values, st.data())
    def test_nor_with_weights(self, p: list[float], data: st.DataObject) -> None:
        shares = data.draw(st.lists(weights, min_size=len(p), max_size=len(p)))
        assert (holm(p, shares) >= np.array(p) * (1 - 1e-9) - 1e-300).all()

    @FAST
    @given(p_values, weights)
    def test_only_the_proportions_of_weights_matter(self, p: list[float], scale: float) -> None:
        shares = np.arange(1, len(p) + 1)
        assert holm(p, shares * scale) == pytest.approx(holm(p, shares), rel=1e-9)

    @FAST
    @given(p_values)
    def test_equal_weights_are_plain_holm(self, p: list[float]) -> None:
        steps = np.maximum.accumulate([x * (len(p) - i) for i, x in enumerate(sorted(p))])
        assert sorted(holm(p)) == pytest.approx(np.minimum(steps, 1))

    @FAST
    @given(p_values, st.integers(0, 7), st.floats(0, 1))
    def test_less_evidence_in_one_gate_helps_no_gate(
        self, p: list[float], which: int, more: float
    ) -> None:
        weaker = list(p)
        weaker[which % len(p)] = min(1.0, weaker[which % len(p)] + more)
        shares = np.arange(1, len(p) + 1)
        assert (holm(weaker, shares) >= holm(p, shares) - 1e-15).all()

    def test_many_sessions_are_adjusted_row_by_row(self) -> None:
        p = np.array([[0.01, 0.5], [0.2, 0.001]])
        assert holm(p) == pytest.approx(np.array([holm(row) for row in p]))


class TestLooks:
    @pytest.mark.parametrize("spending", [rising, flat])
    def test_shares_of_a_level_are_the_level(self, spending: object) -> None:
        assert callable(spending)
        assert math.fsum(spending((3, 4, 5, 6))) == pytest.approx(1)

    def test_a_rising_table_takes_least_at_the_first_look(self) -> None:
        table = look_table(design_of("pooled"))
        levels = [table.level(k, 0.01) for k in range(4)]
        assert levels == sorted(levels)
        assert levels[0] < 0.0005
        assert levels[-1] > 0.007

    def test_all_shipped_tables_are_those_that_the_calibrator_makes(self) -> None:
        tables = SHIPPED.read_text(encoding="utf-8")
        assert [d.name for d in designs() if f'"{d.name}"' not in tables] == []

    @pytest.mark.parametrize("design", [design_of("paired"), design_of("pooled", screened=3)])
    def test_shipped_tables_hold_their_level_under_another_seed(self, design: Design) -> None:
        rng = np.random.default_rng(77)
        for spending in ("rising", "flat"):
            table = look_table(design, "rising" if spending == "rising" else "flat")
            worth = table.worth(_smallest(design, table.shares, rng, 100_000))
            for level in (0.001, 0.01, 0.025):
                error = math.sqrt(level / 100_000)
                assert (worth <= level).mean() == pytest.approx(level, abs=5 * error)

    @FAST
    @given(st.floats(1e-9, 1), st.floats(1e-9, 1))
    def test_more_evidence_is_worth_more(self, one: float, other: float) -> None:
        table = look_table(design_of("paired"))
        low, high = sorted((one, other))
        assert table.worth(low) <= table.worth(high)

    @FAST
    @given(st.floats(1e-9, 1))
    def test_it_is_never_worth_less_than_by_bonferroni(self, smallest: float) -> None:
        assert look_table(design_of("pooled")).worth(smallest) <= smallest

    @FAST
    @given(st.sampled_from([0.0005, 0.004, 0.01, 0.02, 0.05]), st.integers(0, 3))
    def test_a_look_s_level_is_worth_the_total(self, total: float, look: int) -> None:
        table = look_table(design_of("pooled"))
        assert table.worth(table.level(look, total) / table.shares[look]) == pytest.approx(total)

    def test_one_look_is_an_ordinary_test(self) -> None:
        assert look_table(design_of("paired", pairs=3)) == LookTable((1.0,), LEVELS)

    def test_a_design_that_is_not_shipped_is_calibrated_with_a_fixed_seed(self) -> None:
        design = Design("paired", 0, (2, 3))
        found = calibrate(design, "flat", seed=1, paths=20_000)
        assert found == calibrate(design, "flat", seed=1, paths=20_000)
        assert all(a <= b for a, b in zip(LEVELS, found.reaches, strict=True))

    def test_degrees_of_freedom_follow_the_arms(self) -> None:
        assert design_of("paired", screened=3).df(6) == 5
        assert design_of("pooled").df(6) == 10
        assert design_of("pooled", screened=3).df(6) == 12
        assert design_of("pooled", screened=9).own_df == 4

    def test_too_few_pairs_are_refused(self) -> None:
        with pytest.raises(UsageError) as caught:
            design_of("pooled", pairs=2)
        assert str(caught.value) == (
            "the looks are ().\n"
            "Looks are counts of pairs of boots in ascending order, the first at least 2.\n"
            "Plan three pairs or more; looks at 3, 4, 5 and 6 are the default."
        )

    def test_the_calibrator_writes_tables(self, tmp_path: object) -> None:
        from pathlib import Path  # noqa: PLC0415 - only this test needs it

        out = Path(str(tmp_path)) / "looks.json"
        assert main(["--seed", "2", "--paths", "500", "--out", str(out)]) == 0
        assert "pooled+2 at 3,4,5,6" in out.read_text(encoding="utf-8")
