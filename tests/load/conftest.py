"""A load on a scripted server, carried out for real, with its records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.client import (
    Client,
    exchange,  # noqa: F401 - loaded once: a suite that runs inside pytest would load it again
    wire,  # noqa: F401 - likewise
)
from pytest_llmperf.declaration import declare
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Evidence, Measured
from pytest_llmperf.load import schedule
from pytest_llmperf.measure import Surroundings, Target, measure
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.server.launch import RunningEngine
from pytest_llmperf.testing import (
    Behaviour,
    Faults,
    ScriptedServer,
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)
from pytest_llmperf.workload import Conversations, Prompts, Workload

SECOND_NS = 1_000_000_000


class Bench:
    """Measures markers' loads on one scripted server and keeps what was recorded."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.records: list[record.Record] = [a_session()]
        self.told: list[str] = []
        self.alive = True
        facts = record.Facts(block_size=16, cache_blocks=4096, metrics=True, tokenize=True)
        self.engine = an_engine(url=server.url, served_model=server.model, facts=facts)

    # What a running engine must be, and no more than a measurement asks of it.
    @property
    def model(self) -> str:
        return self.server.model

    def is_alive(self) -> bool:
        return self.alive

    def measure(
        self,
        marker: str,
        workload: Workload,
        *,
        add: Callable[[record.Record], None] | None = None,
        **keywords: Any,  # noqa: ANN401 - any keyword of the marker
    ) -> Measured:
        """Carry out what a marker declares."""
        declared, problems = declare([(marker, (), keywords)])
        assert problems == []
        assert declared is not None
        arm = record.Arm(
            name="candidate",
            boot_id=self.engine.boot_id,
            engine="gemma",
            denominator=declared.denominator,
            declared=self.engine.declared,
        )
        start = record.Measurement(
            measurement_id="m0",
            gate="test_gate.py::test_gate",
            arms=(arm,),
            workload=workload.name,
            workload_digest=workload.digest,
            turns=declared.plan.turns,
            windows=declared.windows,
            warmup=declared.plan.warmup,
        )
        around = Surroundings(
            add=add or self.records.append,
            clock=time.monotonic_ns,
            sleep=time.sleep,
            tell=self.told.append,
            seed=1,
        )
        if self.engine not in self.records:
            self.records.append(self.engine)
        with Client(self.server.url, model=self.server.model, token_ids=True) as client:
            running: RunningEngine = self  # type: ignore[assignment]  # as much as is asked of it
            measure(start, [Target(arm=arm, running=running, client=client)], workload, around)
        return self.measured()

    def measured(self) -> Measured:
        """The one arm, from what was recorded."""
        return Evidence(self.records).measured("m0")[0]


@pytest.fixture
def behaviour() -> Behaviour:
    """An engine whose answers take long enough to overlap."""
    return Behaviour(head_s=0.004, step_s=0.002, prefill_token_s=0)


@pytest.fixture
def faults() -> Faults:
    """Nothing is broken, unless a test says so."""
    return Faults()


@pytest.fixture
def bench(behaviour: Behaviour, faults: Faults) -> Iterator[Bench]:
    """A server to measure."""
    with ScriptedServer(behaviour=behaviour, faults=faults) as server:
        yield Bench(server)


@pytest.fixture
def questions() -> Prompts:
    """Requests without a conversation."""
    return Prompts(name="questions", items=tuple(_ask(f"Question {n}?") for n in range(8)))


@pytest.fixture
def talks() -> Conversations:
    """Live conversations with fewer branches than a window may need."""
    rules = " ".join(f"rule {n} of the house" for n in range(60))
    histories = tuple(_ask(f"I am guest {who}.", rules) for who in "ab")
    branches = tuple(f"Light {number}, please." for number in range(10, 14))
    return Conversations(name="talks", histories=histories, branches=branches)


def _ask(text: str, system: str = "Be brief.") -> PlannedRequest:
    messages = ({"role": "system", "content": system}, {"role": "user", "content": text})
    return PlannedRequest(prompt="", messages=messages, max_tokens=10, content_class="prose")


def a_load(
    denominator: Denominator,
    *,
    windows: int = 3,
    turns: int = 16,
    lasting: Callable[[int, int], float] = lambda _window, _turn: 1.0,
    **fields: Any,  # noqa: ANN401 - any field of a request
) -> Measured:
    """A load as it should be: streams that never pause, or arrivals that are never late.

    :param lasting: seconds that the turn of a window takes, by their numbers.
    """
    arm = record.Arm(name="candidate", boot_id="b0", engine="gemma", denominator=denominator)
    start = a_measurement(arms=(arm,), turns=windows * turns, windows=windows)
    begins, sent = 10 * SECOND_NS, []
    for window in range(windows):
        made = list(_window(denominator, window, begins, turns, lasting, fields))
        sent += made
        begins = max(each.stamps.closed_ns or 0 for each in made) + SECOND_NS
    whole = [
        msgspec.structs.replace(each, request_id=f"m0.{number}", position=number)
        for number, each in enumerate(sent)
    ]
    before = some_counters(at_ns=SECOND_NS)
    tokens = [each.usage.completion_tokens or 0 for each in whole]
    after = some_counters(
        when="after",
        at_ns=begins,
        requests_finished=float(len(whole)),
        generation_tokens=float(sum(tokens)),
        prompt_tokens=float(sum(each.usage.prompt_tokens or 0 for each in whole)),
        prefix_queries=float(sum(each.usage.prompt_tokens or 0 for each in whole)),
        prefix_hits=float(sum(each.usage.cached_tokens or 0 for each in whole)),
    )
    end = record.MeasurementEnd(measurement_id="m0", completed=True)
    return Evidence([a_session(), an_engine(), start, before, *whole, after, end]).measured("m0")[0]


def _window(
    of: Denominator,
    window: int,
    begins: int,
    turns: int,
    lasting: Callable[[int, int], float],
    fields: dict[str, Any],
) -> Iterator[record.Request]:
    due = schedule.arrivals(of, turns, seed=window)
    if due is not None:
        for number, at in enumerate(due):
            yield _lasting(begins + at, lasting(window, number), window, None, "turn", fields)
        return
    streams = of.streams or 1
    free = [begins + at for at in schedule.starts(streams, of.ramp_s)]
    waves = streams if of.ramp_s is None and streams > 1 else 0
    for number in range(turns + waves):
        stream = free.index(min(free))
        role: record.Role = "ramp" if number < waves else "turn"
        made = _lasting(free[stream], lasting(window, number), window, stream, role, fields)
        free[stream] = (made.stamps.closed_ns or 0) + 1_000_000
        yield made


def _lasting(
    at_ns: int,
    seconds: float,
    window: int,
    stream: int | None,
    role: record.Role,
    fields: dict[str, Any],
) -> record.Request:
    gap_s = seconds / 20
    made = a_request(start_ns=at_ns, first_s=seconds - 15 * gap_s, tokens=16, gap_s=gap_s, **fields)
    return msgspec.structs.replace(
        made,
        measurement_id="m0",
        arm="candidate",
        boot_id="b0",
        block=window,
        stream=stream,
        role=role,
    )


@pytest.fixture
def load() -> Callable[..., Measured]:
    """Makes a load's records; see ``a_load``."""
    return a_load
