"""A server that refuses this kind of request: told at once, with the flag to add, and no retry."""

from __future__ import annotations

import pytest

from pytest_llmperf.measure.work import is_final
from pytest_llmperf.testing import ScriptedServer

SUITE = """
import pytest
from pytest_llmperf import PlannedRequest, Prompts, assert_latency

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

@pytest.mark.single_stream(turns=8)
def test_tools(llmperf, gemma):
    asked = ({"role": "user", "content": "the lamp, please"},)
    item = PlannedRequest(prompt="p", messages=asked, tools=(TOOL,), max_tokens=10)
    assert_latency(llmperf(gemma, Prompts(name="w", items=(item,))), p50_s=9.0)
"""
HINT = "Set --enable-auto-tool-choice and --tool-call-parser (gemma4 for Gemma 4)"


def test_readiness_asks_as_the_benchmark_does_and_a_refusal_ends_it(
    suite: pytest.Pytester, healthy: ScriptedServer
) -> None:
    healthy.faults.refuse_tools = True
    suite.makepyfile(test_suite=SUITE)
    result = suite.runpytest_inprocess(f"--llmperf-attach={healthy.url}")
    assert result.ret == 11
    assert HINT in " ".join(result.stdout.str().split())
    assert len(healthy.generations) == 1


def test_a_refusal_in_the_benchmark_is_not_repeated(
    suite: pytest.Pytester, healthy: ScriptedServer
) -> None:
    healthy.faults.refuse_tools = True
    suite.makepyfile(test_suite=SUITE)
    lines = f"extends = 'attach'\n[engine]\ntools = false\n[attach]\ngemma = '{healthy.url}'\n"
    suite.makefile(".toml", here=lines)
    result = suite.runpytest_inprocess("--llmperf-profile=here.toml")
    assert result.ret == 11
    said = " ".join(result.stdout.str().split())
    assert "the server refuses this kind of request: HTTP 400" in said
    assert "Set --enable-auto-tool-choice and --tool-call-parser" in said
    assert len(healthy.generations) == 2  # the test of readiness, without tools, and one turn


@pytest.mark.parametrize(
    ("status", "final"),
    [(400, True), (401, True), (404, True), (422, True), (429, False), (408, False), (503, False)],
)
def test_a_refusal_is_final_where_it_would_come_again(status: int, final: bool) -> None:
    assert is_final(status) is final
    assert not is_final(None)
