"""Servers that a profile names: attached in its order, with its budgets, and taken as found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmperf import profile
from pytest_llmperf.errors import UsageError
from pytest_llmperf.testing import ScriptedServer

SUITE = """
import pytest
from pytest_llmperf import assert_latency

@pytest.mark.cached_turn(turns=30, warmup=2)
def test_turns(llmperf, gemma, talks, budget):
    assert_latency(llmperf(gemma, talks), p50_s=budget("turns.p50"))
"""


def test_a_server_is_measured_that_only_the_profile_names(
    suite: pytest.Pytester, healthy: ScriptedServer
) -> None:
    suite.makepyfile(test_suite=SUITE)
    lines = f"extends = 'attach'\n[attach]\ngemma = '{healthy.url}'\n[budgets.turns]\np50 = 60\n"
    suite.makefile(".toml", here=lines)
    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=here.toml")
    result.stdout.fnmatch_lines([f"llmperf: attached: gemma at {healthy.url}; *"])
    assert result.ret == 0


def test_the_attach_profile_alone_names_nothing_and_is_refused(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_suite=SUITE)
    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=attach")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*The profile 'attach' names no server.",
            "It takes servers as they are found, and its [[]attach[]] is empty.",
            "Extend it and name them under [[]attach[]], or give --llmperf-attach URL.",
        ]
    )


def test_servers_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    lines = "extends = 'attach'\n[attach]\nz = 'http://one:1'\na = 'http://two:2'\n"
    path.write_text(lines, encoding="utf-8")
    assert list(profile.load(path).attach) == ["z", "a"]


def test_what_is_no_address_is_a_fault_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("extends = 'attach'\n[attach]\ngemma = 'here:1'\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"gemma = 'here:1' is not an address as http://host:port"):
        profile.load(path)
