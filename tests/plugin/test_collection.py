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
