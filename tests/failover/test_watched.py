"""The machine is watched during a failover as elsewhere; an unfit one makes it INVALID."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.claims import assert_failover
from pytest_llmperf.denominator import FAILOVER
from pytest_llmperf.errors import InvalidMeasurement
from pytest_llmperf.fitness import MachineState
from pytest_llmperf.markers import Failover
from pytest_llmperf.measure import Surroundings, Target
from pytest_llmperf.session.taking_over import hand_over
from pytest_llmperf.testing import ScriptedServer, an_engine
from pytest_llmperf.workload import Prompts
from tests.failover.conftest import Victim, arm, planned, started


def on_a_machine(run: Handover, *, foreign_s: float) -> Handover:
    """The same switch on two cores, of which strangers took so many seconds in ten."""
    ends = (("before", 0, 0.0, 0.0), ("after", 10, 20.0, 20.0 - foreign_s))
    states = tuple(
        MachineState(
            measurement_id="m0",
            when=when,  # type: ignore[arg-type]  # of a table
            at_ns=at_s * 10**9,
            cores=2,
            busy_s=busy_s,
            ours_s=ours_s,
        )
        for when, at_s, busy_s, ours_s in ends
    )
    arms = [msgspec.structs.replace(each, machine=states) for each in run.newest.arms]
    return Handover([arms], fault=run.fault, denominator=FAILOVER)


def test_strangers_on_the_cores_make_a_failover_invalid(a_failover: Handover) -> None:
    run = a_failover
    with pytest.raises(InvalidMeasurement, match="Other processes took 35 % of the CPU"):
        assert_failover(on_a_machine(run, foreign_s=7.0), within_s=10.0)
    verdicts = assert_failover(on_a_machine(run, foreign_s=0.2), within_s=10.0)
    assert [each.word for each in verdicts] == ["PASS", "PASS"]


def test_a_machine_that_was_a_little_disturbed_is_told(a_failover: Handover) -> None:
    run = a_failover
    assert on_a_machine(run, foreign_s=0.2).findings == run.findings
    assert on_a_machine(run, foreign_s=1.4).findings == (
        *run.findings,
        "The machine was disturbed: other processes took 7 % of the CPU.",
    )


class Watched:
    """Surroundings that write down what happens, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.kept: list[record.Record] = []

    @contextlib.contextmanager
    def watching(self, identity: str) -> Iterator[Callable[[], None]]:
        self.seen.append(f"watching {identity}")
        try:
            yield lambda: self.seen.append("looked")
        finally:
            self.seen.append("watched")

    def tell(self, line: str) -> None:
        if line.startswith("anton"):
            self.seen.append(line)

    @property
    def around(self) -> Surroundings:
        return Surroundings(
            add=self.kept.append,
            clock=time.monotonic_ns,
            sleep=time.sleep,
            tell=self.tell,
            seed=1,
            watching=self.watching,
        )


def target(place: int, server: ScriptedServer) -> Target:
    running: Any = SimpleNamespace(
        engine=an_engine(boot_id=f"b{place}"),
        url=server.url,
        model="scripted",
        signal=Victim(server).signal,
    )
    return Target(arm=arm(place), running=running, client=SimpleNamespace())  # type: ignore[arg-type]  # not asked


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_the_machine_is_watched_and_looked_at_before_a_process_is_gone(
    servers: tuple[ScriptedServer, ScriptedServer], fault: str
) -> None:
    watched = Watched()
    questions = Prompts(name="questions", items=tuple(planned(each) for each in range(8)))
    plan = Failover(turns=6, streams=2, warmup=1, fault=fault, stall_s=0.4)  # type: ignore[arg-type]
    targets = [target(place, each) for place, each in enumerate(servers)]
    hand_over(started(), plan, targets, questions, watched.around)
    looked = ["looked"] if fault == "killed" else []
    assert watched.seen == ["watching m0", *looked, f"anton {fault} under load", "watched"]
    faults = [each.pids for each in watched.kept if isinstance(each, record.Fault)]
    assert faults
    assert set(faults) == {(4242,)}
