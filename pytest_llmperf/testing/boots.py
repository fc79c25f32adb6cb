"""Whole boots of made evidence: every turn's duration is given, and the rest of it proves itself.

Single records are in ``records``; writing files is in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_llmperf import record
from pytest_llmperf.denominator import SINGLE_STREAM, Denominator
from pytest_llmperf.testing.records import a_measurement, a_request, an_engine, some_counters

_SECOND_NS = 1_000_000_000
_APART_S = 100
"""Seconds from the start of one made turn to that of the next."""

_TOKENS = 10
_FIRST = 0.55
_GAP = 0.05
"""Parts of a turn's duration: its first token, and each of the nine that follow."""


def a_boot(
    durations_s: Mapping[str, Sequence[float]],
    *,
    gate: str,
    number: int = 0,
    call: int = 0,
    tag: str = "",
    stage: str = "judged",
    of: Denominator = SINGLE_STREAM,
    factor: str | None = None,
    prompts: int | None = None,
    engine: Mapping[str, Any] | None = None,
    **turn: Any,  # noqa: ANN401 - any argument of a_request
) -> list[record.Record]:
    """One boot of each arm, with a measurement in which they alternate, whole and proven.

    :param durations_s: each arm's turns in the order sent, as whole turns' durations.
    :param number: of the round; ids follow from it, the gate, the call and the tag.
    :param tag: of the session, where several are read together.
    :param prompts: how many there are, used in turn; each turn has its own unless told otherwise.
    """
    identity = f"{tag}{gate.rpartition('::')[2]}.{call}.{stage}.{number}"
    arms = {name: f"b.{identity}.{name}" for name in durations_s}
    start = a_measurement(
        measurement_id=f"m.{identity}",
        gate=gate,
        call=call,
        round=number,
        stage=stage,
        factor=factor,
        turns=max(map(len, durations_s.values())),
        arms=tuple(
            record.Arm(name=name, boot_id=boot, engine="gemma", denominator=of)
            for name, boot in arms.items()
        ),
    )
    lines: list[record.Record] = [start]
    for arm, (name, boot) in enumerate(arms.items()):
        sent = [
            a_request(
                **{
                    "arm": name,
                    "boot_id": boot,
                    "measurement_id": start.measurement_id,
                    "request_id": f"{start.measurement_id}.{len(arms) * place + arm}",
                    **_placed(place, len(arms) * place + arm, seconds, prompts),
                    **turn,
                }
            )
            for place, seconds in enumerate(durations_s[name])
        ]
        declared = {"declared": record.Declared(), "round": number, **(engine or {})}
        lines += [an_engine(boot_id=boot, **declared), *_counted(start, boot, sent)]
    return [*lines, record.MeasurementEnd(measurement_id=start.measurement_id, completed=True)]


def _placed(place: int, position: int, seconds: float, prompts: int | None) -> dict[str, Any]:
    """What of a turn follows from its place in its arm, and among all."""
    prompt = place if prompts is None else place % prompts
    return {
        "position": position,
        "block": place // 2,
        "start_ns": (1 + _APART_S * position) * _SECOND_NS,
        "prompt": f"questions/{prompt}",
        "prompt_digest": f"d{prompt}",
        "first_s": _FIRST * seconds,
        "gap_s": _GAP * seconds,
        "tokens": _TOKENS,
        "loop_lag_ns": 1_000,
    }


def _counted(
    start: record.Measurement, boot: str, sent: Sequence[record.Request]
) -> list[record.Record]:
    before = some_counters(measurement_id=start.measurement_id, boot_id=boot, at_ns=_SECOND_NS // 2)
    prompts = float(sum(each.usage.prompt_tokens or 0 for each in sent))
    last = max(each.stamps.closed_ns or 0 for each in sent)
    after = msgspec.structs.replace(
        before,
        when="after",
        at_ns=last + _SECOND_NS,
        prefix_queries=prompts,
        prompt_tokens=prompts,
        generation_tokens=float(sum(each.usage.completion_tokens or 0 for each in sent)),
        requests_finished=float(len(sent)),
    )
    return [before, *sent, after]
