"""A burst and a ladder as a user runs them, against a server that counts what it has in hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_llmperf.client.exchange  # noqa: F401 - its library's errors must stay the same classes
from pytest_llmperf import proof
from pytest_llmperf.proof import load
from pytest_llmperf.testing import Behaviour, ScriptedServer
from tests.plugin.conftest import Run

BURST = """
import pytest
from pytest_llmperf import assert_burst

@pytest.mark.burst(requests={requests}, warmup=0)
def test_burst(llmperf, gemma, questions) -> None:
    assert_burst(llmperf(gemma, questions){more})
"""

LADDER = """
import pytest
from pytest_llmperf import assert_ladder

@pytest.mark.ladder(streams=(1, 2, 4), turns=2, warmup=1)
def test_ladder(llmperf, gemma, questions) -> None:
    assert_ladder(llmperf.ladder(gemma, questions), gain_at_least={gain})
"""


@pytest.fixture(autouse=True)
def _steadily_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules on how steadily this machine sends have tests of their own."""
    rules = tuple(rule for rule in proof.RULES if rule is not load.streams_not_held)
    monkeypatch.setattr(proof, "RULES", rules)


def turns(evidence: Callable[[], Path]) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in evidence().read_text(encoding="utf-8").splitlines()]
    return [each for each in lines if each["record"] == "request" and each["role"] == "turn"]


class TestABurst:
    def test_of_five_hundred_has_five_hundred_open_at_once(
        self, suite: pytest.Pytester, evidence: Callable[[], Path]
    ) -> None:
        suite.makepyfile(BURST.format(requests=500, more=""))
        with ScriptedServer(behaviour=Behaviour(gather=500, before_gathering=1)) as server:
            result = suite.runpytest_inprocess(
                "-p", "no:cacheprovider", f"--llmperf-attach={server.url}"
            )
            assert server.most_open == 500
            assert len(server.generations) == 501  # with the one that looks who is there
        assert result.ret == 0
        found = turns(evidence)
        assert len(found) == 500
        assert not any(each.get("failure") for each in found)

    def test_that_is_refused_in_part_is_red_and_names_the_code(
        self,
        suite: pytest.Pytester,
        healthy: ScriptedServer,
        attached: Run,
        evidence: Callable[[], Path],
    ) -> None:
        healthy.faults.admit = 8
        suite.makepyfile(BURST.format(requests=40, more=""))
        result = attached()
        assert result.ret == 10
        text = " ".join(result.stdout.str().split())
        assert "REGRESS: at least 40 of 40 requests complete" in text
        assert "refused (503)" in text
        assert len(turns(evidence)) == 40

    def test_whose_server_dies_is_invalid_and_loses_no_record(
        self,
        suite: pytest.Pytester,
        healthy: ScriptedServer,
        attached: Run,
        evidence: Callable[[], Path],
    ) -> None:
        healthy.faults.die_after = 30
        suite.makepyfile(BURST.format(requests=40, more=", completed=1"))
        result = attached()
        assert result.ret in (10, 11)
        found = turns(evidence)
        assert len(found) == 40
        assert all(each["failure"] for each in found)

    def test_is_judged_alike_when_it_is_replayed(
        self, suite: pytest.Pytester, healthy: ScriptedServer, attached: Run
    ) -> None:
        healthy.faults.admit = 8
        suite.makepyfile(BURST.format(requests=40, more=", completed=5, p99_s=300"))
        live = attached("--llmperf-evidence=recorded")
        replayed = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-replay=recorded")
        assert (live.ret, replayed.ret) == (0, 0)
        assert "open at the server at once" in replayed.stdout.str()

    def test_leaves_the_picture_of_its_queue_with_the_evidence(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(BURST.format(requests=10, more=""))
        attached("--llmperf-evidence=recorded")
        drawn = suite.path / "recorded" / "pictures" / "test_burst-queue.svg"
        assert drawn.read_text(encoding="utf-8").startswith("<svg ")


class TestALadder:
    def test_shows_all_streams_and_each_and_passes_where_more_bring_more(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(LADDER.format(gain=1.01))
        result = attached("--llmperf-evidence=recorded")
        result.stdout.fnmatch_lines(
            [
                "PASS *x *",
                "*best throughput of 1 to*",
                "*where * at 1 stream: queue *",
                "*streams *together *each 1st token*",
            ]
        )
        assert re.search(r"at [24] streams: queue ", result.stdout.str())
        assert (suite.path / "recorded" / "pictures" / "test_ladder-ladder.svg").exists()

    def test_is_judged_alike_when_it_is_replayed(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(LADDER.format(gain=1.01))
        live = attached("--llmperf-evidence=recorded")
        replayed = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-replay=recorded")
        assert replayed.ret == live.ret
        table = [line for line in live.stdout.lines if "tok/s" in line]
        assert table
        assert set(table) <= set(replayed.stdout.lines)

    def test_that_gains_less_than_it_must_is_red(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(LADDER.format(gain=1000))
        result = attached()
        assert result.ret == 10
        result.stdout.fnmatch_lines(["*REGRESS: best throughput of 1 to 4 streams over that of 1*"])

    def test_is_climbed_by_its_own_call(self, suite: pytest.Pytester, attached: Run) -> None:
        suite.makepyfile(LADDER.format(gain=2).replace("llmperf.ladder(", "llmperf("))
        result = attached()
        result.stdout.fnmatch_lines(["*Call llmperf.ladder(engine, workload).*"])
        assert result.ret == 11
