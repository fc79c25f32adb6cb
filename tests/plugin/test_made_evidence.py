"""Recorded evidence whose every turn is known, judged by `--llmperf-replay`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pytest_llmperf
from pytest_llmperf import record
from pytest_llmperf.denominator import CACHED_TURN
from pytest_llmperf.evidence import EvidenceWriter
from pytest_llmperf.history import History
from pytest_llmperf.testing import a_boot, a_session

FILE = "test_made.py"
TURN = f"{FILE}::test_turn"
SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580.95"}
KNOWN = {"subject": {"engine_version": "0.32.0", "engine_files": "f0", "flags": {}}}
TODAY = datetime(2026, 6, 1, tzinfo=UTC)

Replay = Callable[..., pytest.RunResult]


def write(
    folder: Path, *records: record.Record, name: str = "s0", day: int = 0, instrument: int = 1
) -> Path:
    started = (TODAY + timedelta(days=day)).isoformat()
    session = a_session(session_id=name, started_at=started, place=SPARK, instrument=instrument)
    with EvidenceWriter(folder / name, session) as writer:
        for each in records:
            writer.write(each)
    return folder / name


def lines(boots: Iterable[list[record.Record]]) -> list[record.Record]:
    return [each for boot in boots for each in boot]


def around(seconds: float, turns: int, *, seed: int = 0, sd: float = 0.02) -> list[float]:
    """Durations of some scatter about a median."""
    rng = random.Random(seed)
    return [seconds * math.exp(rng.gauss(0, sd)) for _ in range(turns)]


def stalling(durations: Sequence[float]) -> list[float]:
    """The same, but every tenth turn takes three seconds."""
    return [3.0 if place % 10 == 7 else each for place, each in enumerate(durations)]


def boots(medians: Sequence[float], turns: int = 30, tag: str = "") -> list[record.Record]:
    return lines(
        a_boot(
            {"candidate": around(each, turns, seed=n)}, gate=TURN, number=n, tag=tag, engine=KNOWN
        )
        for n, each in enumerate(medians)
    )


def pairs(arms: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[record.Record]:
    return lines(
        a_boot(
            {"candidate": mine, "reference": other},
            gate=TURN,
            number=n,
            factor="profile",
            engine=KNOWN,
        )
        for n, (mine, other) in enumerate(arms)
    )


def one_arm(assertion: str, marker: str = "single_stream(turns=30)") -> str:
    return f"""
import pytest
from pytest_llmperf import assert_latency, assert_no_regression

@pytest.mark.{marker}
def test_turn(llmperf, gemma, questions) -> None:
    run = llmperf(gemma, questions)
    {assertion}
"""


TWO_ARMS = """
import pytest
from pytest_llmperf import assert_speedup

@pytest.mark.speedup(of="single_stream", factor="profile", turns=30)
def test_turn(llmperf, gemma, engine, questions) -> None:
    assert_speedup(llmperf.compare(gemma, engine("other"), questions), at_least=%s)
"""


@pytest.fixture
def replay(suite: pytest.Pytester) -> Replay:
    """Judge the evidence in the folder ``made``."""

    def run(text: str, *arguments: str) -> pytest.RunResult:
        (suite.path / FILE).write_text(text)
        return suite.runpytest_inprocess(
            "-p", "no:cacheprovider", "--llmperf-replay=made", *arguments
        )

    return run


@pytest.fixture
def made(suite: pytest.Pytester) -> Path:
    return suite.path / "made"


class TestBootsNotRequests:
    def test_three_hundred_requests_of_three_boots_that_disagree_decide_nothing(
        self, made: Path, replay: Replay
    ) -> None:
        write(made, *boots([1.0, 1.0, 1.4], turns=100))
        result = replay(one_arm("assert_latency(run, p50_s=1.05)"))
        assert result.parseoutcomes() == {"inconclusive": 1}
        result.stdout.fnmatch_lines(["*this build, 3 boots*"])

    def test_three_boots_that_agree_decide(self, made: Path, replay: Replay) -> None:
        write(made, *boots([1.0, 1.01, 0.99]))
        assert replay(one_arm("assert_latency(run, p50_s=1.2)")).ret == 0
        assert replay(one_arm("assert_latency(run, p50_s=0.8)")).ret == 10


class TestOneWildRun:
    def test_of_five_boots_turns_no_green_into_red(self, made: Path, replay: Replay) -> None:
        write(made, *boots([1.0, 1.0, 1.01, 0.99, 5.0]))
        result = replay(one_arm("assert_latency(run, p50_s=1.2)"))
        assert result.parseoutcomes() == {"inconclusive": 1}

    def test_of_five_boots_turns_no_red_into_green(self, made: Path, replay: Replay) -> None:
        write(made, *boots([1.0, 1.0, 1.01, 0.99, 0.05]))
        result = replay(one_arm("assert_latency(run, p50_s=0.8)"))
        assert result.parseoutcomes() == {"inconclusive": 1}

    def test_turn_moves_no_median(self, made: Path, replay: Replay) -> None:
        turns = [*around(1.0, 29), 90.0]
        write(made, *a_boot({"candidate": turns}, gate=TURN))
        assert replay(one_arm("assert_latency(run, p50_s=1.2)")).ret == 0


class TestAMeanAndItsTail:
    def test_a_mean_is_not_called_better_when_its_tail_is_worse(
        self, made: Path, replay: Replay
    ) -> None:
        mine = [3.0 if n % 10 == 7 else each for n, each in enumerate(around(0.4, 100))]
        write(made, *pairs([(mine, around(1.0, 100, seed=1))]))
        result = replay(TWO_ARMS % 1.2)
        assert result.parseoutcomes() == {"inconclusive": 1}
        result.stdout.fnmatch_lines(["*its tail is worse: p95 is*"])

    def test_with_a_sound_tail_it_is(self, made: Path, replay: Replay) -> None:
        write(made, *pairs([(around(0.4, 100), around(1.0, 100, seed=1))]))
        assert replay(TWO_ARMS % 1.2).ret == 0

    def test_it_is_refused_under_another_factor_than_was_recorded(
        self, made: Path, replay: Replay
    ) -> None:
        write(made, *pairs([(around(0.4, 100), around(1.0, 100, seed=1))]))
        result = replay((TWO_ARMS % 1.2).replace('factor="profile"', 'factor="speculation"'))
        assert result.ret == 11
        said = " ".join(result.stdout.str().split())
        assert "declares the factor speculation; profile was recorded" in said

    def test_over_boots_the_boots_p95s_are_compared(self, made: Path, replay: Replay) -> None:
        write(
            made,
            *pairs(
                [(stalling(around(0.4, 60, seed=n)), around(1.0, 60, seed=9 + n)) for n in range(3)]
            ),
        )
        result = replay(TWO_ARMS % 1.2)
        assert result.parseoutcomes() == {"inconclusive": 1}
        result.stdout.fnmatch_lines(["*its tail is worse: p95 is*"])


class TestTheInstrument:
    def test_that_contradicts_itself_makes_every_verdict_of_the_session_invalid(
        self, made: Path, replay: Replay
    ) -> None:
        other = f"{FILE}::test_before"
        halves = [each * (1.6 if n // 2 % 2 else 1.0) for n, each in enumerate(around(1.0, 48))]
        write(
            made,
            *a_boot({"candidate": around(1.0, 48)}, gate=other),
            *a_boot({"candidate": halves}, gate=TURN, prompts=3),
        )
        text = one_arm("assert_latency(run, p50_s=9)", "single_stream(turns=48)")
        before = text.replace("test_turn", "test_before")
        result = replay(before + text[text.index("@pytest") :])
        assert result.parseoutcomes() == {"passed": 1, "invalid": 1}
        assert result.ret == 11
        result.stdout.fnmatch_lines(
            ["*0 PASS, 0 REGRESS, 0 INCONCLUSIVE, 2 INVALID; exit status 11*"]
        )
        result.stdout.fnmatch_lines(["*odd and even blocks of the same*"])

    def test_is_not_suspected_for_what_prompts_differ_by(self, made: Path, replay: Replay) -> None:
        # Four prompts, two a block: odd blocks always hold the longer two.
        halves = [each * (1.6 if n // 2 % 2 else 1.0) for n, each in enumerate(around(1.0, 48))]
        write(made, *a_boot({"candidate": halves}, gate=TURN, prompts=4))
        text = one_arm("assert_latency(run, p50_s=9)", "single_stream(turns=48)")
        assert replay(text).ret == 0


class TestHonesty:
    def test_of_several_sessions_the_newest_is_judged_and_named(
        self, made: Path, replay: Replay
    ) -> None:
        write(made, *boots([9.0], tag="new"), name="a-new", day=2)
        write(made, *boots([1.0]), name="z-old", day=1)
        result = replay(one_arm("assert_latency(run, p50_s=1.5)"))
        assert result.ret == 10
        text = result.stdout.str().replace("\n", " ")
        assert "Session a-new is judged, the newest of 2" in " ".join(text.split())
        assert "also there: z-old." in " ".join(text.split())

    def test_of_two_at_one_moment_the_id_decides_and_not_the_path(
        self, made: Path, replay: Replay
    ) -> None:
        write(made / "z", *boots([1.0]), name="a")
        write(made / "a", *boots([9.0], tag="b"), name="b")
        assert replay(one_arm("assert_latency(run, p50_s=1.5)")).ret == 10

    def test_another_instrument_is_refused(self, made: Path, replay: Replay) -> None:
        write(made, *boots([1.0]), instrument=2)
        result = replay(one_arm("assert_latency(run, p50_s=1.5)"))
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*was recorded by instrument 2; this is instrument 1.*"])

    def test_a_cached_turn_of_an_unrecorded_engine_is_invalid(
        self, made: Path, replay: Replay
    ) -> None:
        records = a_boot(
            {"candidate": around(1.0, 30)},
            gate=TURN,
            of=CACHED_TURN,
            cached=64,
            prompt_tokens=100,
            expected_cached_tokens=64,
            common_prefix_tokens=70,
        )
        text = one_arm(
            "assert_latency(run, p50_s=1.5)", "cached_turn(turns=30, min_cached_share=.5)"
        )
        write(made, *(each for each in records if not isinstance(each, record.Engine)))
        result = replay(text)
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*The engine is not recorded*"])

    def test_a_line_that_a_crash_cut_off_is_told(self, made: Path, replay: Replay) -> None:
        path = write(made, *boots([1.0])) / "evidence.jsonl"
        path.write_bytes(path.read_bytes() + b'{"record":"engine_end","boot')
        result = replay(one_arm("assert_latency(run, p50_s=1.5)"))
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*was cut off*"])

    @pytest.mark.parametrize(
        "given",
        [
            *("--llmperf-mode=aa", "--llmperf-mode=plan", "--llmperf-against=miniature"),
            *("--llmperf-dry-run", "--llmperf-attach=http://127.0.0.1:8000"),
        ],
    )
    def test_what_needs_engines_is_refused(self, made: Path, replay: Replay, given: str) -> None:
        write(made, *boots([1.0]))
        result = replay(one_arm("assert_latency(run, p50_s=1.5)"), given)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            [f"*{given.partition('=http')[0]} was given with --llmperf-replay.*"]
        )

    def test_a_folder_that_is_not_there_is_refused_before_any_test(self, replay: Replay) -> None:
        result = replay(one_arm("assert_latency(run, p50_s=1.5)"))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--llmperf-replay=made is not there."])


class TestAlpha:
    def test_is_shared_by_the_claims_of_all_selected_tests(
        self, made: Path, replay: Replay
    ) -> None:
        # Seven of seven turns over the limit: p = 0.0078, red alone and not beside another claim.
        write(made, *a_boot({"candidate": around(1.0, 7)}, gate=TURN))
        marker = "single_stream(turns=7)"
        assert replay(one_arm("assert_latency(run, p50_s=0.5)", marker)).ret == 10
        result = replay(one_arm("assert_latency(run, p50_s=0.5, p90_s=9)", marker))
        assert result.parseoutcomes() == {"inconclusive": 1}


class TestHistory:
    @staticmethod
    def _recorded(root: Path, name: str, day: int, *records: record.Record) -> None:
        folder = write(root / "runs", *records, name=name, day=day)
        with History(root / "history") as history:
            history.record_session(folder, {TURN: "PASS"})

    def test_nine_steps_of_one_and_a_half_percent_creep_away_from_the_anchor(
        self, made: Path, replay: Replay
    ) -> None:
        # Case C5: each step is small enough, together they are 14 percent.
        root = made.parent
        for day in range(6):
            self._recorded(root, f"s{day}", day, *boots([1 + 0.001 * day] * 3))
        with History(root / "history") as history:
            history.pin_anchor(TURN, "release", "ada", label="v1")
        for step in range(1, 9):
            self._recorded(root, f"t{step}", 9 + step, *boots([1.015**step] * 3))
        write(made, *boots([1.015**9] * 3), name="now", day=30)
        text = one_arm("assert_no_regression(run)")
        told = replay(text, "--llmperf-history=history")
        told.stdout.fnmatch_lines(["*CREEPING: 1.*"])
        judged = replay(text, "--llmperf-history=history", "--llmperf-creep=0.05")
        assert judged.ret == 10
        judged.stdout.fnmatch_lines(["*not crept from anchor v1*"])
        assert replay(text, "--llmperf-history=history", "--llmperf-creep=0.5").ret == 0

    def test_the_scatter_of_boots_is_borrowed_for_a_floor(self, made: Path, replay: Replay) -> None:
        root = made.parent

        def session(seed: int, gains: Sequence[float]) -> list[record.Record]:
            return pairs(
                [
                    (around(1 / gain, 30, seed=seed + n), around(1.0, 30, seed=50 + seed + n))
                    for n, gain in enumerate(gains)
                ]
            )

        now = session(0, [2.08, 2.26, 2.14])
        write(made, *now, name="now", day=30)
        alone = replay(TWO_ARMS % 2.04, "--llmperf-history=nowhere")
        assert alone.parseoutcomes() == {"inconclusive": 1}
        for day in range(6):
            self._recorded(root, f"s{day}", day, *session(7 * day, [2.10, 2.16, 2.22]))
        result = replay(TWO_ARMS % 2.04, "--llmperf-history=history")
        assert result.parseoutcomes() == {"passed": 1}


class TestPublicCases:
    @staticmethod
    def _confirmed(gaps: Sequence[float], sd: float) -> list[record.Record]:
        """Three boots that were judged, then fresh pairs whose candidate is slower by a gap."""
        fresh = lines(
            a_boot(
                {
                    "candidate": around(gap, 30, seed=3 * n, sd=sd),
                    "reference": around(1.0, 30, seed=3 * n + 1, sd=sd),
                },
                gate=TURN,
                number=1000 + n,
                stage="confirm",
                factor="profile",
                engine=KNOWN,
            )
            for n, gap in enumerate(gaps)
        )
        return [*boots([1.1, 1.1, 1.1]), *fresh]

    @pytest.mark.parametrize(
        ("gaps", "word"),
        [
            ([1.10, 1.11, 1.09, 1.10, 1.105, 1.095], "failed"),
            (
                [1.015, 1.014, 1.016, 1.015, 1.015, 1.014],
                "passed",
            ),  # within tolerance, however sure
            ([1.4, 0.8, 1.3, 0.9, 1.35, 0.85], "inconclusive"),  # as large on average, by luck
        ],
    )
    def test_red_takes_an_effect_beyond_the_bound_and_an_interval_beyond_it(
        self, made: Path, replay: Replay, gaps: Sequence[float], word: str
    ) -> None:
        # Case C1: a fixed percentage on raw numbers; here by the measured spread of boots.
        write(made, *self._confirmed(gaps, 0.01))
        text = one_arm(
            "assert_no_regression(run)", "single_stream(turns=30, tolerance=0.02, detect=0.1)"
        )
        assert replay(text).parseoutcomes() == {word: 1}

    def test_what_is_on_a_hair_is_neither_green_nor_red(self, made: Path, replay: Replay) -> None:
        # Case C9: slower by a fifth, and just on the bound.
        write(made, *boots([1.188, 1.19, 1.193]))
        result = replay(one_arm("assert_latency(run, p50_s=1.19)"))
        assert result.parseoutcomes() == {"inconclusive": 1}
        result.stdout.fnmatch_lines(["*the interval * does not exclude 1.19 s*"])

    def test_a_drift_of_the_machine_is_in_both_arms_alike(self, made: Path, replay: Replay) -> None:
        # Case D18: run order alone gave 20 percent; A against A under a drift of 10 percent.
        def drifting(*places: int) -> list[float]:
            return [1 + 0.1 * (4 * block + place) / 120 for block in range(30) for place in places]

        write(made, *pairs([(drifting(0, 3), drifting(1, 2))]))
        marked = TWO_ARMS.replace("turns=30", "turns=60")
        assert replay(marked % 0.99).ret == 0
        assert replay(marked % 1.01).ret == 10

    def test_acceptance_is_evidence_and_never_a_gate(self, made: Path, replay: Replay) -> None:
        # Case B17: with 35 percent accepted one machine gained 1.72x, and another lost half.
        assert not [name for name in pytest_llmperf.__all__ if "accept" in name]
        write(made, *pairs([(around(1 / 0.52, 30), around(1.0, 30, seed=1))]))
        assert replay(TWO_ARMS % 1.0).ret == 10
