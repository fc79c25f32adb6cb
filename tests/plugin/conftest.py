"""A suite to run inside pytest, against a scripted server that behaves as a healthy engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import prometheus_client.parser  # noqa: F401 - as below: what a suite inside loads, it loads anew
import pytest
import scipy.stats  # noqa: F401 - numpy cannot be loaded again by each suite that runs inside

import pytest_llmperf
from pytest_llmperf import proof
from pytest_llmperf.machine import canary
from pytest_llmperf.proof import fitness, steady, values
from pytest_llmperf.session import LiveSession
from pytest_llmperf.testing import Behaviour, ScriptedServer

for each in walk_packages(pytest_llmperf.__path__, "pytest_llmperf."):
    # What is loaded inside a run of pytester's is thrown away with it, and takes a tenth of a
    # second and more to load again in the next.
    if not each.name.endswith("__main__") and ".miniature" not in each.name:
        import_module(each.name)

CONFTEST = """
import pytest
from pytest_llmperf import Conversations, PlannedRequest, Prompts

SYSTEM = {"role": "system", "content": " ".join(f"rule {n} of the house" for n in range(60))}

def ask(text):
    messages = (SYSTEM, {"role": "user", "content": text})
    return PlannedRequest(prompt="", messages=messages, max_tokens=10, content_class="prose")

@pytest.fixture
def talks():
    histories = tuple(ask(f"I am guest {who}.") for who in "abc")
    branches = tuple(f"Light {number}, please." for number in range(10, 60))
    return Conversations(name="talks", histories=histories, branches=branches)

@pytest.fixture
def questions():
    return Prompts(name="questions", items=tuple(ask(f"Question {n}?") for n in range(8)))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with workloads; make test files in it."""
    pytester.makeconftest(CONFTEST)
    return pytester


@pytest.fixture
def healthy() -> Iterator[ScriptedServer]:
    """A server that caches prefixes and counts what it does."""
    with ScriptedServer(behaviour=Behaviour(step_s=0.001)) as server:
        yield server


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the rules on timing to their own tests: here this machine's load must not decide."""
    timed = (steady.slow_head, steady.warming, values.client_bottleneck)
    rules = tuple(
        rule for rule in proof.RULES if rule not in timed and rule.__module__ != fitness.__name__
    )
    monkeypatch.setattr(proof, "RULES", rules)
    monkeypatch.setattr(proof, "PASSING", ())
    monkeypatch.setattr(canary, "STEPS", 10)
    monkeypatch.setattr(canary, "COPIED_BYTES", 16)


@pytest.fixture
def rebooted(healthy: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attached server is a fresh process in every round, as an engine of ours would be."""
    begin = LiveSession.begin_round

    def reboot(session: LiveSession, number: int) -> None:
        healthy.restart()
        begin(session, number)

    monkeypatch.setattr(LiveSession, "begin_round", reboot)


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def attached(suite: pytest.Pytester, healthy: ScriptedServer) -> Run:
    """Run the suite against the healthy server."""

    def run(*arguments: str) -> pytest.RunResult:
        return suite.runpytest_inprocess(
            "-p", "no:cacheprovider", f"--llmperf-attach={healthy.url}", *arguments
        )

    return run


@pytest.fixture
def evidence(suite: pytest.Pytester) -> Callable[[], Path]:
    """The evidence file of the suite's only run."""

    def find() -> Path:
        (found,) = suite.path.glob(".llmperf/*/evidence.jsonl")
        return found

    return find
