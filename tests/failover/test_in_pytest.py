"""The failover marker in a test: what is refused, and verdicts from recorded evidence alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.evidence import EvidenceWriter
from pytest_llmperf.fitness import MachineState
from pytest_llmperf.testing import ScriptedServer, a_session

SUITE = """
import pytest
from pytest_llmperf import PlannedRequest, Prompts, assert_failover

ASKED = PlannedRequest(prompt="", messages=({"role": "user", "content": "Well?"},), max_tokens=24)
QUESTIONS = Prompts(name="questions", items=(ASKED,))

@pytest.mark.failover(streams=3, requests=6, fault="FAULT")
def test_anton_is_followed_by_berta(llmperf, engine):
    run = llmperf.failover(SERVERS, QUESTIONS)
    assert_failover(run, within_s=WITHIN, lost=0)
"""
TWO = "engine('anton'), engine('berta')"


def suite(fault: str = "killed", servers: str = TWO, within: str = "10.0") -> str:
    text = SUITE.replace("FAULT", fault).replace("SERVERS", servers)
    return text.replace("WITHIN", within)


def machine(when: Literal["before", "after"], at_s: int) -> MachineState:
    """Of two cores that are full of our own work."""
    return MachineState(
        measurement_id="m0",
        when=when,
        at_ns=at_s * 10**9,
        cores=2,
        busy_s=2.0 * at_s,
        ours_s=1.99 * at_s,
    )


@pytest.fixture
def recorded(a_failover: Handover, pytester: pytest.Pytester) -> Path:
    """A session's evidence of a failover of three streams."""
    run = a_failover
    first = run.newest.first
    folder = pytester.path / "recorded"
    start = msgspec.structs.replace(
        first.measurement,
        gate="test_it.py::test_anton_is_followed_by_berta",
        arms=tuple(
            msgspec.structs.replace(
                arm, denominator=msgspec.structs.replace(arm.denominator, streams=3)
            )
            for arm in first.measurement.arms
        ),
    )
    with EvidenceWriter(folder, a_session()) as writer:
        records: list[record.Record | None] = [start, first.end]
        for arm in run.newest.arms:
            records += [arm.engine, arm.before, arm.after, arm.endpoint]
            records += [*arm.faults, *arm.requests]
        records += [machine("before", 0), machine("after", 10)]
        for each in records:
            if each is not None:
                writer.write(each)
    return folder


def run_suite(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def test_recorded_evidence_gives_the_verdict_with_no_engine(
    pytester: pytest.Pytester, recorded: Path
) -> None:
    result = run_suite(pytester, suite(), f"--llmperf-replay={recorded}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "PASS * ms *silence across a failover, per stream,*",
            "*other processes 0.5 % of 2 cores*",
            "PASS *0 asks *silence across a failover, per stream,*",
            "*each stream's silence (the caller's*",
            "*2 PASS, 0 REGRESS, 0 INCONCLUSIVE, 0 INVALID; exit status 0",
        ]
    )


def test_a_tighter_limit_turns_the_same_evidence_red(
    pytester: pytest.Pytester, recorded: Path
) -> None:
    result = run_suite(pytester, suite(within="1e-6"), f"--llmperf-replay={recorded}")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*REGRESS: silence of the worst stream at most*"])


def test_another_fault_than_the_declared_one_is_invalid(
    pytester: pytest.Pytester, recorded: Path
) -> None:
    result = run_suite(pytester, suite("frozen"), f"--llmperf-replay={recorded}")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*The first server was not frozen.*"])


def test_one_server_is_no_order(pytester: pytest.Pytester, recorded: Path) -> None:
    result = run_suite(pytester, suite(servers="engine('anton')"), f"--llmperf-replay={recorded}")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*A failover needs two servers or more; it was given 1.*"])


def test_attached_servers_are_not_made_to_fail(
    pytester: pytest.Pytester, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    first, following = servers
    result = run_suite(
        pytester,
        suite(),
        f"--llmperf-attach=anton={first.url}",
        f"--llmperf-attach=berta={following.url}",
    )
    assert result.ret == 11
    result.stdout.fnmatch_lines(
        [
            "llmperf: test_it.py::*: attached servers cannot be made to fail, and nothing is *",
            "*why *The server anton is attached and cannot be made to*",
        ]
    )
    assert first.generations == []


def test_a_failover_of_one_attached_and_one_booted_server_is_said_to_be_none(
    pytester: pytest.Pytester, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    first, _ = servers
    result = run_suite(pytester, suite(), f"--llmperf-attach=anton={first.url}", "-rs")
    result.assert_outcomes(skipped=1)
    told = " ".join(" ".join(result.outlines).split())
    assert (
        "There is no failover between attached servers and berta, which is not attached. "
        f"Attached are: anton={first.url}. Beside them nothing is booted, and none of them can be "
        "made to fail. Let the profile boot all servers of the test: run it without "
        "--llmperf-attach, with a profile that has resident = 2 and no [attach]."
    ) in told
    assert "Add --llmperf-attach berta=URL" not in told
    assert first.generations == []


def test_a_failover_beside_a_speed_up_is_refused_at_collection(pytester: pytest.Pytester) -> None:
    text = suite().replace(
        "@pytest.mark.failover",
        "@pytest.mark.speedup(of='single_stream', factor='profile')\n@pytest.mark.failover",
    )
    result = run_suite(pytester, text)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["*failover and speedup: a switch from one server to the next has no ratio.*"]
    )
