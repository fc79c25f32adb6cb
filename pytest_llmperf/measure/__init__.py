"""Carrying out one measurement: it leaves records and returns their id, never a number.

Turns that follow one another are in ``in_turn``, requests that overlap in ``load``. The order of
requests is in ``plan`` and ``load_plan``, one request in ``client``, what the records mean in
``proof`` and ``sample``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf import record
from pytest_llmperf.measure.in_turn import InTurn
from pytest_llmperf.measure.load import UnderLoad
from pytest_llmperf.measure.work import Surroundings, Target
from pytest_llmperf.workload import Workload


def measure(
    start: record.Measurement,
    targets: Sequence[Target],
    workload: Workload,
    around: Surroundings,
) -> str:
    """Carry out one measurement and return its id.

    Whatever goes wrong at the server is left in the records; the caller judges them.

    :raises UsageError: the plan does not fit the engine (context, cache or connections).
    """
    kind = InTurn if start.windows is None else UnderLoad
    kind(start, {each.arm.name: each for each in targets}, around).carry_out(workload)
    return start.measurement_id


__all__ = ["Surroundings", "Target", "measure"]
