"""Performance regression tests of LLM serving whose numbers declare their denominator.

The names below are all that a test suite needs; each loads its room when it is first used, so
that importing this package costs a plain pytest run nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmperf.analysis.factorial import Factorial as Factorial
    from pytest_llmperf.assertions import assert_latency as assert_latency
    from pytest_llmperf.assertions import assert_no_regression as assert_no_regression
    from pytest_llmperf.assertions import assert_speedup as assert_speedup
    from pytest_llmperf.assertions import assert_speedup_by_class as assert_speedup_by_class
    from pytest_llmperf.assertions import assert_throughput as assert_throughput
    from pytest_llmperf.claims import assert_burst as assert_burst
    from pytest_llmperf.claims import assert_failover as assert_failover
    from pytest_llmperf.claims import assert_ladder as assert_ladder
    from pytest_llmperf.claims.ceiling import assert_ceiling as assert_ceiling
    from pytest_llmperf.claims.published import Claim as Claim
    from pytest_llmperf.claims.published import assert_claim as assert_claim
    from pytest_llmperf.client import Client as Client
    from pytest_llmperf.denominator import Denominator as Denominator
    from pytest_llmperf.errors import InvalidMeasurement as InvalidMeasurement
    from pytest_llmperf.errors import LlmperfError as LlmperfError
    from pytest_llmperf.errors import Regression as Regression
    from pytest_llmperf.planned import PlannedRequest as PlannedRequest
    from pytest_llmperf.run import Pair as Pair
    from pytest_llmperf.run import Run as Run
    from pytest_llmperf.verdict import Verdict as Verdict
    from pytest_llmperf.workload import Conversations as Conversations
    from pytest_llmperf.workload import Prompts as Prompts

_ROOMS = {
    "Claim": "claims.published",
    "Client": "client",
    "Conversations": "workload",
    "Denominator": "denominator",
    "Factorial": "analysis.factorial",
    "InvalidMeasurement": "errors",
    "LlmperfError": "errors",
    "Pair": "run",
    "PlannedRequest": "planned",
    "Prompts": "workload",
    "Regression": "errors",
    "Run": "run",
    "Verdict": "verdict",
    "assert_burst": "claims",
    "assert_ceiling": "claims.ceiling",
    "assert_claim": "claims.published",
    "assert_failover": "claims",
    "assert_ladder": "claims",
    "assert_latency": "assertions",
    "assert_no_regression": "assertions",
    "assert_speedup": "assertions",
    "assert_speedup_by_class": "assertions",
    "assert_throughput": "assertions",
}

__all__ = sorted(_ROOMS)  # noqa: PLE0605 - one list of names, pinned by a test


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names above
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pytest_llmperf.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
