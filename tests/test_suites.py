"""The suites as a guest of the plugin: all are collected, none is green for want of a budget."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SUITES = Path(__file__).parent.parent / "perf_suites"


def functions_of_suites() -> dict[str, ast.FunctionDef]:
    return {
        f"{path.name}::{node.name}": node
        for path in sorted(SUITES.glob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


TESTS = functions_of_suites()
LIMITED = ("assert_speedup", "assert_throughput", "assert_latency", "assert_ladder")
LIMITS = {"at_least", "gain_at_least", "at_least_tps", "p50_s", "p90_s", "p95_s", "p99_s"}


def test_every_declaration_of_the_suites_is_accepted_at_collection() -> None:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", SUITES],
        cwd=SUITES.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    assert collected.returncode == 0, collected.stdout
    assert f"{len(TESTS) + 2} tests collected" in collected.stdout  # one has three lengths


@pytest.mark.parametrize("name", TESTS)
def test_every_test_of_the_suites_has_a_gate_that_needs_no_budget(name: str) -> None:
    floors = [
        keyword.value
        for node in ast.walk(TESTS[name])
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(LIMITED)
        for keyword in node.keywords
        if keyword.arg in LIMITS and "budget" not in ast.unparse(keyword.value)
    ]
    others = (
        "assert_no_regression",
        "assert_ceiling",
        "assert_claim",
        "assert_budget_holds",
        "assert_burst",
        "assert_failover",
    )
    if any(other in ast.unparse(TESTS[name]) for other in others):
        return  # its gate is the past, the hardware's limit, a claim, or what was lost
    assert floors
