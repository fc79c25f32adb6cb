"""What a gate comes to: pytest's outcome, its own category, the exit status, the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf.testing import Behaviour, ScriptedServer
from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_latency, assert_speedup, assert_throughput

@pytest.mark.cached_turn(turns=8, warmup=1)
def test_turn(llmperf, gemma, talks, budget) -> None:
    run = llmperf(gemma, talks)
    {assertion}
"""


def _gate(assertion: str) -> str:
    return GATE.format(assertion=assertion)


class TestAGate:
    def test_that_passes_is_passed_and_the_run_exits_with_0(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        result = attached()
        result.assert_outcomes(passed=1)
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*::test_turn", "PASS *", "*8 of 8 turns cached*"])

    def test_passes_on_a_server_whose_drafter_nobody_declared(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        with ScriptedServer(behaviour=Behaviour(step_s=0.001, draft_tokens=3)) as server:
            result = suite.runpytest_inprocess(f"--llmperf-attach={server.url}")
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*8 of 8 turns cached*", "*acceptance length*"])

    def test_of_cached_turns_sends_nothing_where_no_hit_could_prove_them(
        self, suite: pytest.Pytester, healthy: ScriptedServer
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        healthy.faults.no_tokenize = True
        result = suite.runpytest_inprocess(f"--llmperf-attach={healthy.url}")
        assert result.ret == 11
        assert "gives no /tokenize; nothing was sent" in " ".join(result.stdout.str().split())
        assert len(healthy.generations) == 1  # the test of readiness

    def test_that_regresses_fails_and_the_run_exits_with_10(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=1e-6)"))
        result = attached()
        result.assert_outcomes(failed=1)
        assert result.ret == 10
        result.stdout.fnmatch_lines(
            ["*: REGRESS: p50 of cached_turn at most 0.00100 ms", "*formula *t_last_token - t_sent"]
        )

    def test_whose_regression_the_test_catches_fails_all_the_same(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        caught = "try:\n        assert_latency(run, p50_s=1e-6)\n    except AssertionError: pass"
        suite.makepyfile(_gate(caught))
        result = attached("--junitxml=junit.xml")
        assert (result.ret, result.parseoutcomes()) == (10, {"failed": 1})
        assert 'failures="1"' in (suite.path / "junit.xml").read_text(encoding="utf-8")

    def test_that_is_undecided_is_its_own_category_and_exits_with_0(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p99_s=30)"))
        result = attached()
        assert result.parseoutcomes() == {"inconclusive": 1}
        assert result.ret == 0

    def test_that_is_undecided_is_named_with_its_cause_and_run_again_by_lf(
        self, suite: pytest.Pytester, healthy: ScriptedServer
    ) -> None:
        suite.makepyfile(
            _gate("assert_latency(run, p99_s=30)") + "\n\ndef test_other() -> None: ...\n"
        )
        attach = f"--llmperf-attach={healthy.url}"
        result = suite.runpytest_inprocess(attach)
        result.stdout.fnmatch_lines(["INCONCLUSIVE *::test_turn - *can never be PASS*"])
        again = suite.runpytest_inprocess(attach, "--lf")
        assert again.parseoutcomes() == {"inconclusive": 1}

    def test_that_is_undecided_exits_with_12_when_strict(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p99_s=30)"))
        assert attached("--llmperf-strict").ret == 12

    def test_that_asserts_nothing_is_invalid_and_exits_with_11(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("pass"))
        result = attached()
        assert result.parseoutcomes() == {"invalid": 1}
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*declares a denominator and asserts nothing*"])

    def test_without_a_budget_here_is_not_judged_and_exits_with_13(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate('assert_latency(run, p50_s=budget("cached_turn.p50"))'))
        result = attached()
        result.assert_outcomes(skipped=1)
        assert result.ret == 13
        result.stdout.fnmatch_lines(
            [
                "*no budget cached_turn.p50 on this machine*",
                "exit status 13: 1 gate ran and none of them was judged; *",
            ]
        )

    def test_that_fails_ordinarily_exits_with_1(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert 1 == 2"))
        result = attached()
        result.assert_outcomes(failed=1)
        assert result.ret == 1

    def test_whose_engine_is_not_attached_skips_with_the_reason_and_exits_with_13(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(
            """
            import pytest
            from pytest_llmperf import assert_speedup

            @pytest.mark.speedup(of="single_stream", factor="speculation", turns=4)
            def test_pays(llmperf, gemma, gemma_autoregressive, questions) -> None:
                assert_speedup(llmperf.compare(gemma, gemma_autoregressive, questions), at_least=1)
            """
        )
        result = attached("-rs")
        result.assert_outcomes(skipped=1)
        assert result.ret == 13
        result.stdout.fnmatch_lines(["*gemma_autoregressive*attached*"])


class TestSeveralGates:
    def test_exit_with_the_worst_word_and_regress_before_invalid(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(
            test_one=_gate("assert_latency(run, p50_s=1e-6)"),
            test_two=_gate("pass"),
            test_three="def test_ordinary(): assert False",
        )
        result = attached()
        assert result.ret == 10
        assert result.parseoutcomes() == {"failed": 2, "invalid": 1}

    def test_on_one_test_each_have_a_row_even_when_one_is_red(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=1e-6, p90_s=30)"))
        result = attached()
        result.stdout.fnmatch_lines(["*REGRESS*", "*p90*"])


class TestAComparison:
    def test_of_cached_against_cold_alternates_and_judges_the_first_token(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(
            """
            import pytest
            from pytest_llmperf import assert_latency, assert_speedup

            @pytest.mark.cached_turn(turns=8)
            @pytest.mark.speedup(of="time_to_first_token", factor="prefix")
            def test_cache(llmperf, gemma, talks) -> None:
                pair = llmperf.compare(gemma, talks)
                assert_speedup(pair, at_least=1e-30)
            """
        )
        result = attached()
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*PASS*", "*whole turn, wall clock*"])


class TestAFault:
    @pytest.mark.parametrize(
        ("fault", "cause"),
        [
            ({"cache_off": True}, "*Prefix caching off?*"),
            ({"no_cached_in_usage": True}, "*--enable-prompt-tokens-details*"),
        ],
    )
    def test_at_the_server_makes_the_gate_invalid_and_names_the_cause(
        self, suite: pytest.Pytester, fault: dict[str, bool], cause: str
    ) -> None:
        from pytest_llmperf.testing import Faults  # noqa: PLC0415 - beside its use

        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        with ScriptedServer(faults=Faults(**fault)) as server:
            result = suite.runpytest_inprocess(f"--llmperf-attach={server.url}")
        assert result.parseoutcomes() == {"invalid": 1}
        assert result.ret == 11
        result.stdout.fnmatch_lines([cause])


class TestOtherReporters:
    def test_get_the_verdict_through_junit(self, suite: pytest.Pytester, attached: Run) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached("--junitxml=out.xml")
        assert "PASS" in (suite.path / "out.xml").read_text()

    def test_find_every_record_in_the_evidence(
        self, suite: pytest.Pytester, attached: Run, evidence: Callable[[], Path]
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        records = [json.loads(line) for line in evidence().read_text().splitlines()]
        kinds = [each["record"] for each in records]
        assert kinds[:3] == ["session", "engine", "measurement"]
        whens = Counter(each["when"] for each in records if each["record"] == "counters")
        assert whens == {"before": 1, "during": 16, "after": 1}
        assert kinds[-2:] == ["measurement_end", "engine_end"]

    def test_are_not_sent_where_another_session_s_lie(
        self, suite: pytest.Pytester, attached: Run, healthy: ScriptedServer
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached("--llmperf-evidence=here")
        before = len(healthy.generations)
        result = attached("--llmperf-evidence=here")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*It holds a session's evidence.", "Name another folder; *"])
        assert len(healthy.generations) == before


class TestReplay:
    def test_gives_the_same_verdict_and_exit_code_without_an_engine(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        live = attached()
        replayed = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert (live.ret, replayed.ret) == (0, 0)
        replayed.stdout.fnmatch_lines(["*judging recorded evidence*", "*::test_turn", "PASS *"])

    def test_judges_by_the_limits_of_today(self, suite: pytest.Pytester, attached: Run) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        suite.makepyfile(_gate("assert_latency(run, p50_s=1e-6)"))
        assert suite.runpytest_inprocess("--llmperf-replay=.llmperf").ret == 10

    def test_refuses_evidence_of_another_denominator(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        suite.makepyfile(
            _gate("assert_latency(run, p50_s=30)").replace("cached_turn", "single_stream")
        )
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*prefix: 'cold' against 'warm'*"])

    def test_tells_that_the_evidence_is_of_another_engine(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        suite.makepyfile(
            _gate("assert_latency(run, p50_s=30)")
            .replace("gemma, talks", "engine('x'), talks", 2)
            .replace("llmperf, engine('x'), talks", "llmperf, engine, talks")
        )
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert result.ret == 0
        said = " ".join(result.stdout.str().split())
        assert "The evidence is of the engine gemma; the test now asks x." in said

    def test_of_a_drafter_is_not_taken_for_an_engine_without_one(
        self, suite: pytest.Pytester, healthy: ScriptedServer
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        suite.makefile(".toml", here=f"extends = 'miniature'\n[attach]\ngemma = '{healthy.url}'\n")
        suite.runpytest_inprocess("--llmperf-profile=here.toml")
        suite.makepyfile(
            _gate("assert_latency(run, p50_s=30)").replace(
                "gemma, talks", "gemma_autoregressive, talks"
            )
        )
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert result.ret == 11
        said = " ".join(result.stdout.str().split())
        assert "measures gemma_autoregressive now; gemma was recorded" in said

    def test_of_a_gate_that_was_not_recorded_is_invalid(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)").replace("test_turn", "test_new"))
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*There is no recorded measurement number 0 of *"])

    def test_by_a_marker_that_asks_for_more_turns_is_invalid(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)").replace("turns=8", "turns=300"))
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
        assert result.ret == 11
        result.stdout.fnmatch_lines(["*declares 300 turns; 8 were planned*"])

    def test_that_is_to_be_recorded_is_a_usage_error(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
        attached()
        result = suite.runpytest_inprocess("--llmperf-replay=.llmperf", "--llmperf-record")
        assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("limit", ["float('nan')", "-2", "0", "'0.3'", "True", "float('inf')"])
def test_what_is_no_limit_is_refused_and_the_gate_invalid(
    suite: pytest.Pytester, attached: Run, limit: str
) -> None:
    suite.makepyfile(_gate(f"assert_latency(run, p50_s={limit})"))
    result = attached()
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*is no limit.*"])
