"""Every declaration is checked for the whole run before anything boots."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run


def test_a_typo_in_a_marker_s_keyword_is_a_usage_error_that_names_the_test(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        test_typo="""
        import pytest

        @pytest.mark.cached_turn(turn=3)
        def test_router(llmperf, gemma, talks) -> None: ...
        """
    )
    result = attached()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*1 wrong declaration; nothing was booted.*",
            "test_typo.py::test_router: cached_turn: turn is not a keyword*Did you mean turns?*",
        ]
    )


def test_a_typo_in_a_marker_s_name_is_a_usage_error(suite: pytest.Pytester, attached: Run) -> None:
    suite.makepyfile(
        test_typo="""
        import pytest

        @pytest.mark.cached_trun(turns=3)
        def test_router(llmperf, gemma, talks) -> None: ...
        """
    )
    result = attached("-W", "ignore::pytest.PytestUnknownMarkWarning")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*test_router: marker cached_trun is not known. Did you mean cached_turn?*"]
    )


def test_all_wrong_declarations_come_in_one_message_even_of_deselected_tests(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        test_typo="""
        import pytest

        @pytest.mark.cached_turn(turns=0)
        def test_one(llmperf, gemma, talks) -> None: ...

        @pytest.mark.speedup(of="single_stream", factor="prefix")
        def test_two(llmperf, gemma, talks) -> None: ...

        def test_three(llmperf, gemma, talks) -> None: ...
        """
    )
    result = attached("-k", "test_one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*3 wrong declarations*", "*::test_one: *", "*::test_two: *", "*::test_three: *"]
    )


def test_an_item_that_does_not_use_the_plugin_may_use_the_words_as_it_likes(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.denominator("of a fraction", whatever=1)
        def test_arithmetic() -> None: ...
        """
    )
    result = suite.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--llmperf-profile", "miniatur"], "*miniatur*miniature*"),
        (
            ["--llmperf-attach", "localhost:8000"],
            "*='localhost:8000' is no address*",
        ),
        (
            ["--llmperf-attach", "http://a", "--llmperf-attach", "http://b"],
            "*--llmperf-attach names gemma twice: http://a and http://b.*",
        ),
    ],
)
def test_a_wrong_option_is_a_usage_error_before_any_boot(
    suite: pytest.Pytester, arguments: list[str], message: str
) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.cached_turn(turns=4)
        def test_router(llmperf, gemma, talks) -> None: ...
        """
    )
    result = suite.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_wrong_declaration_is_not_hidden_by_what_comes_after(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        test_two="""
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=5)
        def test_few(llmperf, gemma, talks) -> None:
            assert_latency(llmperf(gemma, talks), p50_s=1.0)

        def test_undeclared(llmperf, gemma, talks) -> None: ...
        """
    )
    result = attached()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*1 wrong declaration; nothing was booted.*"])


def test_all_that_measure_are_left_out_by_one_marker(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_both="""
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=8)
        def test_router(llmperf, gemma, talks) -> None:
            assert_latency(llmperf(gemma, talks), p50_s=1.0)

        def test_plain() -> None: ...
        """
    )
    result = suite.runpytest_inprocess("-m", "not llmperf", "--strict-markers")
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=1)


def test_the_markers_are_registered_with_their_keywords(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.cached_turn(turns=30, *): Wall clock of the next turn of a live*",
            "@pytest.mark.speedup(of, factor, *",
        ]
    )


def test_a_run_without_gates_loads_no_heavy_library(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_nothing() -> None:
            heavy = {"scipy", "httpx", "httpcore", "vllm", "torch", "prometheus_client", "psutil"}
            assert not heavy & set(sys.modules)
        """
    )
    result = suite.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:anyio")
    result.assert_outcomes(passed=1)


def test_a_gate_that_could_never_be_red_is_a_usage_error(
    suite: pytest.Pytester, attached: Run
) -> None:
    # Case C8: five turns of which all are slow, at a level of one percent.
    suite.makepyfile(
        """
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=5)
        def test_router(llmperf, gemma, talks) -> None:
            assert_latency(llmperf(gemma, talks), p50_s=1)
        """
    )
    result = attached()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*1 of 1 selected gates could never fail.*",
            (
                "*::test_router: p50: A quantile test over 5 turns can never say REGRESS. "
                "Its smallest p-value is 0.0312, and its level is 0.01. Plan 7 turns; "
                "a gate that cannot fail is no gate."
            ),
        ]
    )


def test_what_a_plan_cannot_decide_is_told_before_anything_runs(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        """
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=12)
        def test_router(llmperf, gemma, talks) -> None:
            assert_latency(llmperf(gemma, talks), p95_s=30)
        """
    )
    attached().stdout.fnmatch_lines(
        ["llmperf: underpowered: *::test_router: p95 of 12 turns can never be PASS*59 turns"]
    )


def test_a_limit_that_this_machine_lacks_is_not_called_underpowered(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        """
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=12)
        def test_router(llmperf, gemma, talks, budget) -> None:
            assert_latency(llmperf(gemma, talks), p95_s=budget("router.p95"), p90_s=30)
        """
    )
    suite.makefile(".toml", here="extends = 'miniature'\n[budgets.router]\np95 = 30\n")
    without = attached("--collect-only").stdout.str()
    assert "p95 of 12 turns" not in without
    assert "p90 of 12 turns can never be PASS" in without
    with_it = attached("--collect-only", "--llmperf-profile=here.toml").stdout.str()
    assert "p95 of 12 turns can never be PASS" in with_it


def test_rounds_on_an_attached_server_are_told_to_be_one_boot(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        """
        import pytest
        from pytest_llmperf import assert_latency

        @pytest.mark.cached_turn(turns=12)
        def test_router(llmperf, gemma, talks) -> None:
            assert_latency(llmperf(gemma, talks), p50_s=30)
        """
    )
    attached("--llmperf-mode=gate", "--collect-only").stdout.fnmatch_lines(
        ["llmperf: an attached server is not booted again: 3 rounds on it are one boot, *"]
    )


@pytest.mark.parametrize("arguments", ["gemma, talks", "talks", ""])
def test_a_marked_test_without_the_llmperf_fixture_is_a_usage_error(
    suite: pytest.Pytester, attached: Run, arguments: str
) -> None:
    suite.makepyfile(
        f"""
        import pytest

        @pytest.mark.cached_turn(turns=12)
        def test_router({arguments}) -> None: ...
        """
    )
    result = attached()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*::test_router: is marked cached_turn and does not ask for the llmperf fixture, so it *"]
    )


def test_two_markers_of_one_name_on_one_test_are_refused_and_one_on_its_class_is_overridden(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.cached_turn(turns=30)
        class TestRouter:
            @pytest.mark.cached_turn(turns=12)
            def test_nearer(self, llmperf, gemma, talks) -> None: ...

            @pytest.mark.cached_turn(turns=12)
            @pytest.mark.cached_turn(turns=20)
            def test_twice(self, llmperf, gemma, talks) -> None: ...
        """
    )
    result = attached("--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*1 wrong declaration; nothing was booted.*",
            (
                "*::test_twice: cached_turn stands 2 times on one test: cached_turn(turns=20) and "
                "cached_turn(turns=12). Keep one of them."
            ),
        ]
    )


def test_confirm_items_are_among_what_was_collected_and_selected(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(
        """
        import pytest
        from pytest_llmperf import assert_no_regression

        @pytest.mark.cached_turn(turns=12)
        def test_turn(llmperf, gemma, talks) -> None:
            assert_no_regression(llmperf(gemma, talks))

        @pytest.mark.cached_turn(turns=12)
        def test_other(llmperf, gemma, talks) -> None:
            assert_no_regression(llmperf(gemma, talks))
        """
    )
    result = attached("--llmperf-mode=gate", "--collect-only", "-k", "other")
    result.stdout.fnmatch_lines(["collected 8 items / 4 deselected / 4 selected"])
