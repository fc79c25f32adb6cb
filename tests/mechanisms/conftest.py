"""Four cells of one measurement on two engines, with times that are planted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.analysis.factorial import Factorial, cell_names
from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.plan import _order
from pytest_llmperf.run import Run
from pytest_llmperf.testing import (
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)

SECOND_NS = 1_000_000_000
MTP = record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)
PLAIN = record.Declared(prefix_caching=True)
FACTORS = ("speculation", "prefix")
CELLS = cell_names(*FACTORS)
CACHED = 2176

Times = Callable[[str, int], tuple[float, float]]
"""For a cell and a block: seconds to the first token, and between steps."""


def additive(cell: str, block: int) -> tuple[float, float]:
    """Prefill 0.5 s or 0.05 s; 15 steps of three tokens, or 47 of one, 20 ms each; little noise."""
    first_s = 0.05 if cell in ("both", "prefix") else 0.5
    scale = 1 + Random(f"{cell}/{block}").gauss(0, 0.01)
    return first_s * scale, 0.02 * scale


@pytest.fixture
def grid() -> Callable[..., Factorial]:
    """Make a factorial of planted times; ``uncached`` names cells whose cache did not hold."""

    def make(times: Times = additive, *, blocks: int = 6, uncached: str = "") -> Factorial:
        records = _records(times, blocks, uncached)
        arms = {each.arm.name: each for each in Evidence(records).measured("m0")}
        cells = {name: Run([arms[name]]) for name in CELLS}
        return Factorial(cells, of=SINGLE_STREAM, factors=FACTORS)

    return make


def _records(times: Times, blocks: int, uncached: str) -> list[record.Record]:
    start = a_measurement(
        turns=2 * blocks, factors=FACTORS, arms=tuple(map(_arm, CELLS)), workload_digest="w"
    )
    sent = [
        _request(cell, index, block, times, uncached, position)
        for position, (block, (cell, index)) in enumerate(
            (block, each) for block in range(blocks) for each in _order(list(CELLS), 2, block=block)
        )
    ]
    engines: list[record.Record] = [
        an_engine(boot_id=boot, name=name, declared=declared)
        for boot, name, declared in (("b0", "gemma", MTP), ("b1", "gemma_autoregressive", PLAIN))
    ]
    end = record.MeasurementEnd(measurement_id="m0", completed=True)
    read = [each for boot in ("b0", "b1") for each in _counted(boot, sent)]
    return [a_session(), *engines, start, *read, *sent, end]


def _boot(cell: str) -> str:
    return "b0" if cell in ("both", "speculation") else "b1"


def _arm(cell: str) -> record.Arm:
    speculates = _boot(cell) == "b0"
    warm = cell in ("both", "prefix")
    return record.Arm(
        name=cell,
        boot_id=_boot(cell),
        engine="gemma" if speculates else "gemma_autoregressive",
        denominator=msgspec.structs.replace(SINGLE_STREAM, prefix="warm" if warm else "cold"),
        declared=MTP if speculates else PLAIN,
    )


def _request(
    cell: str, index: int, block: int, times: Times, uncached: str, position: int
) -> record.Request:
    first_s, gap_s = times(cell, block)
    warm = cell in ("both", "prefix")
    cached = CACHED if warm and cell != uncached else 0
    return a_request(
        request_id=f"m0.{position}",
        measurement_id="m0",
        arm=cell,
        boot_id=_boot(cell),
        block=block,
        position=position,
        prompt=f"p{2 * block + index}",
        prompt_digest=f"d{2 * block + index}.{'warm' if warm else 'cold'}",
        content_class="tool_call",
        start_ns=(2 + 3 * position) * SECOND_NS,
        first_s=first_s,
        gap_s=gap_s,
        tokens=48,
        tokens_per_chunk=3 if _boot(cell) == "b0" else 1,
        prompt_tokens=2240,
        cached=cached,
        expected_cached_tokens=CACHED if warm else None,
        common_prefix_tokens=2230 if warm else None,
        loop_lag_ns=1_000_000,
    )


def _counted(boot: str, sent: list[record.Request]) -> list[record.Counters]:
    mine = [each for each in sent if each.boot_id == boot]
    drafts = 16.0 * len(mine)
    drafting = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0} if boot == "b0" else {}
    grown = {"drafts": drafts, "draft_tokens": 3 * drafts, "accepted_tokens": 2 * drafts}
    before = some_counters(boot_id=boot, at_ns=SECOND_NS, started_at=1.7e9, **drafting)
    after = some_counters(
        boot_id=boot,
        at_ns=10_000 * SECOND_NS,
        when="after",
        started_at=1.7e9,
        prefix_queries=2240.0 * len(mine),
        prefix_hits=float(sum(each.usage.cached_tokens or 0 for each in mine)),
        prompt_tokens=2240.0 * len(mine),
        generation_tokens=48.0 * len(mine),
        requests_finished=float(len(mine)),
        **(grown if drafting else {}),
    )
    return [before, after]
