"""Two scripted servers in an order, the first of them made to fail while streams keep asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from signal import Signals

import pytest

from pytest_llmperf import record
from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.denominator import FAILOVER
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.failover.drill import Drill, Orders, Station
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.testing import Behaviour, ScriptedServer, a_session, an_engine

STEADY = Behaviour(head_s=0.005, step_s=0.005)
STREAMS = 3


class Victim:
    """A scripted server that takes signals as a process would."""

    def __init__(self, server: ScriptedServer, *others: ScriptedServer) -> None:
        self.server = server
        self.others = others
        self.got: list[Signals] = []

    def signal(self, number: Signals) -> tuple[int, ...]:
        self.got.append(number)
        for each in (self.server, *self.others):
            if number is Signals.SIGKILL:
                each.die()
            elif number is Signals.SIGSTOP:
                each.freeze()
            else:
                each.thaw()
        return (4242,)


class Deaf(Victim):
    """A server that no signal reaches."""

    def signal(self, number: Signals) -> tuple[int, ...]:
        self.got.append(number)
        return ()


def planned(index: int) -> PlannedRequest:
    messages = ({"role": "user", "content": f"Question {index}, if you please?"},)
    return PlannedRequest(prompt=f"q/{index}", messages=messages, max_tokens=24)


def arm(place: int) -> record.Arm:
    return record.Arm(
        name=f"server {place + 1}",
        boot_id=f"b{place}",
        engine=("anton", "berta")[place],
        denominator=FAILOVER,
    )


def started() -> record.Measurement:
    """The start of a failover from the first server to the next."""
    return record.Measurement(
        measurement_id="m0",
        gate="test_failover.py::test",
        arms=(arm(0), arm(1)),
        workload="questions",
        workload_digest="0",
        turns=6,
    )


Servers = tuple[ScriptedServer, ScriptedServer]
Drilled = Callable[..., Handover]


@contextmanager
def two_servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        first, following = (stack.enter_context(ScriptedServer(behaviour=STEADY)) for _ in range(2))
        yield first, following


@pytest.fixture
def servers() -> Iterator[Servers]:
    """The first and the next, serving one model under one name."""
    with two_servers() as both:
        yield both


@pytest.fixture
def drilled(servers: Servers) -> Drilled:
    """Carry out a failover and read what was recorded of it."""
    return drills(servers)


@pytest.fixture(scope="module")
def a_failover() -> Handover:
    """One that was carried out once, for all who only read its records."""
    with two_servers() as both:
        return drills(both)("killed")


@pytest.fixture(scope="module")
def a_frozen_one() -> Handover:
    """Likewise, where the first server stood still for more than its limit of 0.4 s."""
    with two_servers() as both:
        return drills(both)("frozen", stall_s=0.4)


def drills(servers: Servers) -> Drilled:
    def carry_out(
        fault: str = "killed",
        *,
        victim: Victim | None = None,
        urls: tuple[str, str] | None = None,
        told: Callable[[str], None] = lambda _line: None,
        **orders: object,
    ) -> Handover:
        first, following = servers
        urls = urls or (first.url, following.url)
        start = started()
        engines = [
            an_engine(boot_id=f"b{place}", name=arm(place).engine, url=url)
            for place, url in enumerate(urls)
        ]
        kept: list[record.Record] = [a_session(), *engines, start]
        what = {"streams": STREAMS, "requests": 6, "warmup": 1, "stall_s": 0.4} | orders
        drill = Drill(
            Orders(measurement_id="m0", fault=fault, planned=planned, **what),  # type: ignore[arg-type]  # of a table
            [Station(arm=arm(n), url=url, model="scripted") for n, url in enumerate(urls)],
            victim or Victim(first),
            add=kept.append,
            clock=time.monotonic_ns,
            tell=told,
        )
        reason = drill.run()
        kept.append(
            record.MeasurementEnd(measurement_id="m0", completed=reason is None, reason=reason)
        )
        arms = Evidence(kept).measured("m0")
        return Handover([arms], fault=fault, denominator=FAILOVER)

    return carry_out
