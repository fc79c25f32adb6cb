"""A ladder as measured: two results of one rung are both kept, and each claim names its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from pytest_llmperf import proof, record
from pytest_llmperf.analysis.climb import Climb, newest_dips
from pytest_llmperf.claims import assert_ladder
from pytest_llmperf.declaration import Declaration, declare, rung_of
from pytest_llmperf.denominator import AGGREGATE_THROUGHPUT
from pytest_llmperf.errors import Regression, UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.markers import Ladder
from pytest_llmperf.run import Levels, Run
from pytest_llmperf.testing import a_measurement, a_request
from pytest_llmperf.testing.records import START_NS

MakeRun = Callable[..., Run]
TOKENS = 16


@pytest.fixture(autouse=True)
def _unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other rooms prove of a rung is theirs to test."""
    monkeypatch.setattr(proof, "RULES", ())
    monkeypatch.setattr(proof, "NOTICES", ())


def a_run(streams: int, *each_tps: float) -> Run:
    """A rung on as many boots as there are rates, in which every stream gets that rate."""
    boots = [_boot(number, streams, rate) for number, rate in enumerate(each_tps)]
    return Run(boots, levels=Levels(detect=0.25))


def _boot(number: int, streams: int, each_tps: float) -> Measured:
    arm = record.Arm(
        name="candidate",
        boot_id=f"b{number}",
        engine="gemma",
        denominator=msgspec.structs.replace(AGGREGATE_THROUGHPUT, streams=streams),
    )
    wall_s = TOKENS / each_tps
    gap_s = (wall_s - 0.001) / (TOKENS - 1)
    turns = [
        a_request(
            request_id=f"{number}.{wave}.{stream}",
            tokens=TOKENS,
            first_s=0.001,
            gap_s=gap_s,
            start_ns=START_NS + round(wave * wall_s * 1e9),
        )
        for wave in range(2)
        for stream in range(streams)
    ]
    measurement = a_measurement(arms=(arm,), turns=len(turns), round=number)
    return Measured(measurement=measurement, arm=arm, requests=tuple(turns))


def climbed(rates: Mapping[int, float], again: Mapping[int, float] | None = None) -> Climb:
    second = {streams: a_run(streams, rate) for streams, rate in (again or {}).items()}
    return Climb([a_run(streams, rate) for streams, rate in rates.items()], second)


class TestAClimb:
    def test_has_the_newest_boot_s_best_rung_and_its_knee(self) -> None:
        climb = climbed({1: 40, 2: 40, 4: 40, 8: 20, 16: 10.5})
        assert climb.best is not None
        assert climb.best.streams == 16
        assert climb.knee is not None
        assert climb.knee.streams == 4
        assert climb.gains() == [pytest.approx(4.2, rel=0.01)]

    def test_measures_again_what_is_slower_than_a_greater_rung(self) -> None:  # D14
        first = climbed({4: 36, 8: 20, 16: 23}).first
        assert newest_dips(first) == (8,)

    def test_keeps_both_results_and_counts_the_second_whichever_way_it_turns_out(self) -> None:
        climb = climbed({4: 36, 8: 20, 16: 23}, again={8: 30})
        step = climb.steps()[1]
        assert step.first_try is not None
        assert (round(step.first_try.per_stream_tps), round(step.rung.per_stream_tps)) == (20, 30)
        (finding,) = climb.findings
        assert finding == (
            "8 streams were measured again, being slower than a greater rung: "
            "160 tok/s at first, 240 tok/s then; "
            "the first use of a batch shape is likely the cause."
        )

    def test_says_so_where_a_rung_stays_slow(self) -> None:
        (finding,) = climbed({4: 36, 8: 20, 16: 23}, again={8: 20}).findings
        assert "it stays slower than its neighbours say it can be" in finding


class TestAClaimOfCapacity:
    def test_names_the_streams_that_it_is_over(self) -> None:  # D15
        climb = climbed({1: 40, 2: 40, 4: 40})
        gain, rate = assert_ladder(climb, gain_at_least=2.0, at_least_tps=100)
        assert gain.claim == "best throughput of 1 to 4 streams over that of 1 at least 2.00x"
        assert rate.claim == "best throughput of 1 to 4 streams at least 100 tok/s"
        assert (gain.word, rate.word) == ("PASS", "PASS")

    def test_is_red_where_more_streams_bring_nothing(self) -> None:
        with pytest.raises(Regression, match=r"at least 2\.00x"):
            assert_ladder(climbed({1: 40, 2: 20, 4: 10}), gain_at_least=2.0)

    def test_is_undecided_within_the_machine_s_noise(self) -> None:
        (verdict,) = assert_ladder(climbed({1: 40, 2: 42}), gain_at_least=2.0)
        assert verdict.word == "INCONCLUSIVE"

    def test_over_boots_takes_the_boots_as_replicates(self) -> None:
        climb = Climb([a_run(1, 40, 40, 40), a_run(4, 39, 40, 41)])
        (verdict,) = assert_ladder(climb, gain_at_least=2.0)
        assert (verdict.word, verdict.scope) == ("PASS", "this build")

    def test_is_refused_of_anything_but_a_climb(self) -> None:
        with pytest.raises(UsageError, match="is not what this assertion judges"):
            assert_ladder(a_run(1, 40), gain_at_least=2.0)  # type: ignore[arg-type]


class TestTheMarker:
    def declared(self, **keywords: object) -> tuple[Declaration | None, list[str]]:
        return declare([("ladder", (), keywords)])

    def test_declares_rungs_that_each_have_their_own_denominator(self) -> None:
        declaration, problems = self.declared(streams=(1, 8), turns=3)
        assert problems == []
        assert declaration is not None
        assert isinstance(declaration.plan, Ladder)
        rung = rung_of(declaration, declaration.plan, 8)
        assert (rung.denominator.streams, rung.plan.turns, rung.windows) == (8, 24, 1)
        assert rung.denominator.differences(declaration.denominator) == ["streams: 8 against None"]

    @pytest.mark.parametrize(
        ("keywords", "problem"),
        [
            (
                {"streams": (4, 2, 2)},
                "ladder: streams=(4, 2, 2) do not rise. Write (2, 4).",
            ),
            (
                {"turns": 1},
                "ladder: turns=1 for each stream: with fewer than 2 the load is never steady.",
            ),
        ],
    )
    def test_is_refused_where_it_makes_no_ladder(
        self, keywords: dict[str, object], problem: str
    ) -> None:
        assert self.declared(**keywords) == (None, [problem])
