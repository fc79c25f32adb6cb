"""--llmperf-dry-run: everything is checked and told, nothing is booted and nothing is left."""

from __future__ import annotations

import pytest

from pytest_llmperf.session import LiveSession

SUITE = """
import pytest
from pytest_llmperf import assert_latency, assert_speedup

@pytest.mark.cached_turn(turns=8, warmup=2)
def test_turns(llmperf, gemma, talks, budget):
    assert_latency(llmperf(gemma, talks), p50_s=budget("turns.p50"))

@pytest.mark.speedup(of="single_stream", factor="speculation", turns=4)
def test_pair(llmperf, gemma, gemma_autoregressive, questions):
    assert_speedup(llmperf.compare(gemma, gemma_autoregressive, questions), at_least=1.0)

@pytest.mark.single_stream(turns=4)
def test_own(llmperf, engine, questions):
    llmperf(engine("wide"), questions)
"""


@pytest.fixture
def rehearsed(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a session was begun")

    monkeypatch.setattr(LiveSession, "__init__", refuse)
    monkeypatch.delenv("LLMPERF_ENGINE_PYTHON", raising=False)  # what is told names it
    suite.makepyfile(test_suite=SUITE)
    return suite


def dry(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-dry-run", *arguments)


def test_each_engine_that_is_asked_for_is_told_with_all_that_would_boot_it(
    rehearsed: pytest.Pytester,
) -> None:
    result = dry(rehearsed, "--llmperf-profile=miniature")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "engine gemma, profile miniature",
            "  warning      vllm is not installed beside *: a boot would fail",
            (
                "  command      * -m vllm.entrypoints.openai.api_server --model *target "
                "--enable-prefix-caching --speculative-config *--port PORT "
                "--served-model-name gemma-NONCE"
            ),
            "  environment  OMP_NUM_THREADS=? *VLLM_CPU_KVCACHE_SPACE=1 *",
            "  cache unit   32 tokens a block; mtp costs one block more",
            "  weights      target *, drafter *",
            "  KV cache     1 GiB (VLLM_CPU_KVCACHE_SPACE)",
            "  memory       * of * are available here now*",
            "engine gemma_autoregressive, profile miniature",
            "  cache unit   32 tokens a block",
            "1 test with engine(...): made while they run; [[]engines[]] of the profile names *",
            "3 gates would run",
            (
                "  test_suite.py::test_turns: cached_turn; about 15 requests, 0.2 min at 1 s a *, "
                "not measured here yet"
            ),
            "  test_suite.py::test_pair: single_stream; about 12 requests, *",
            "about 3 min in all, 60 s for each boot in it",
        ]
    )


def test_nothing_is_left_behind(rehearsed: pytest.Pytester) -> None:
    before = sorted(rehearsed.path.iterdir())
    assert dry(rehearsed, "--llmperf-profile=miniature").ret == 0
    made = set(rehearsed.path.iterdir()) - set(before)
    assert {path.name for path in made} <= {
        "__pycache__",
        ".benchmarks",
    }  # the latter is pytest-benchmark's


def test_only_what_is_selected_is_told(rehearsed: pytest.Pytester) -> None:
    result = dry(rehearsed, "--llmperf-profile=miniature", "-m", "cached_turn")
    result.stdout.fnmatch_lines(["1 gate would run"])
    result.stdout.no_fnmatch_line("engine gemma_autoregressive*")


def test_the_spark_is_told_with_its_share_of_memory_and_an_unknown_cache_unit(
    rehearsed: pytest.Pytester,
) -> None:
    result = dry(rehearsed, "--llmperf-profile=spark", "-k", "turns")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  cache unit   unknown: only the server knows its block size; mtp costs one *",
            "  weights      target unknown, not on disk yet, drafter unknown, not on disk yet",
            "  KV cache     what weights and activations leave of --gpu-memory-utilization",
            (
                "  memory       0.8 of the device's; * GiB if it is this machine's; *"
                "100.0 GiB are asked for before a boot*"
            ),
        ]
    )


def test_the_reference_of_a_comparison_is_told_too(rehearsed: pytest.Pytester) -> None:
    result = dry(rehearsed, "--llmperf-profile=spark", "--llmperf-against=spark-fp8", "-k", "turns")
    result.stdout.fnmatch_lines(
        [
            "engine gemma, profile spark",
            "engine gemma (reference), profile spark-fp8",
            "  command * --quantization fp8 *",
        ]
    )


def test_attached_servers_are_named_and_nothing_is_booted(rehearsed: pytest.Pytester) -> None:
    result = dry(rehearsed, "--llmperf-attach=http://127.0.0.1:1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "engine gemma: attached at http://127.0.0.1:1; nothing is booted",
            "engine gemma_autoregressive: not attached; its tests would skip",
            "about 1 min in all",
        ]
    )


def test_a_wrong_profile_is_a_usage_error(rehearsed: pytest.Pytester) -> None:
    rehearsed.makefile(".toml", wrong="extends = 'spark'\n[drafter]\nmethod = 'mpt'\n")
    result = dry(rehearsed, "--llmperf-profile=wrong.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*drafter] method = 'mpt' is not a method of vLLM 0.32; did *mtp?*"]
    )


def test_a_python_that_is_not_there_is_a_usage_error(rehearsed: pytest.Pytester) -> None:
    rehearsed.makefile(".toml", wrong="extends = 'miniature'\npython = '/nowhere/python'\n")
    result = dry(rehearsed, "--llmperf-profile=wrong.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*The Python of engine gemma is not there: /nowhere/python.*"])


def test_a_reference_that_does_not_exist_is_a_usage_error(rehearsed: pytest.Pytester) -> None:
    result = dry(rehearsed, "--llmperf-profile=spark", "--llmperf-against=spark-fp9")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Did you mean 'spark-fp8'?*"])


def test_a_dry_run_without_gates_runs_no_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_ordinary():\n    raise RuntimeError\n")
    result = dry(pytester)
    assert result.ret == 0
    result.assert_outcomes()


def test_an_unknown_flag_is_told_and_passed_on(rehearsed: pytest.Pytester) -> None:
    flags = "extends = 'miniature'\n[engine.flags]\n'--enforce-eagre' = true\n"
    rehearsed.makefile(".toml", odd=flags)
    result = dry(rehearsed, "--llmperf-profile=odd.toml", "-k", "turns")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            (
                "  warning      [[]engine.flags[]] --enforce-eagre is no flag of vLLM 0.32; did "
                "you mean --enforce-eager? It is passed on."
            ),
            "  command * --enforce-eagre *",
        ]
    )


def test_a_budget_that_is_almost_what_a_test_asks_for_is_warned_of(
    rehearsed: pytest.Pytester,
) -> None:
    rehearsed.makefile(".toml", here="extends = 'miniature'\n[budgets.trns]\np50 = 1.0\n")
    result = dry(rehearsed, "--llmperf-profile=here.toml")
    result.stdout.fnmatch_lines(
        [
            (
                "llmperf: warning: the profile has a budget trns.p50, which no test asks for, and "
                "none called turns.p50"
            )
        ]
    )
