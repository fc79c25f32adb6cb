"""What the machine was like in past sessions of one place: its canaries and its clocks.

What is made of them is in ``assumption``; how a session came here is in ``store``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from pytest_llmperf import record
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import NAME as EVIDENCE
from pytest_llmperf.fitness import Canary, MachineState
from pytest_llmperf.history.layout import SESSIONS, read_verdicts

_KINDS = tuple(
    f'{{"record":"{kind}"'.encode()
    for kind in ("session", "measurement", "canary", "machine_state")
)
"""How the lines begin that are decoded; the requests beside them are most of a file."""

_decoder: msgspec.json.Decoder[record.Record] = msgspec.json.Decoder(record.Record)


def machine_facts(
    root: Path, place: Mapping[str, Any], *, newest: int
) -> tuple[dict[str, float], ...]:
    """The machine's facts in the newest sessions of a place, each the median over its measurements.

    Only measurements of gates that were not INVALID count. By fact: ``canary_loop_ns``,
    ``canary_copy_ns``, ``mhz``.
    """
    found: list[dict[str, float]] = []
    for file in sorted(root.glob(f"{SESSIONS}/*/{EVIDENCE}"), reverse=True):
        facts = _facts(file, place)
        if facts:
            found.append(facts)
        if len(found) == newest:
            break
    return tuple(found)


def _facts(file: Path, place: Mapping[str, Any]) -> dict[str, float]:
    try:
        verdicts, records = read_verdicts(file), list(_records(file))
    except (OSError, EvidenceError, msgspec.DecodeError):
        return {}  # the index names such a file among its problems
    if verdicts is None or not any(
        isinstance(each, record.Session) and each.place == place for each in records
    ):
        return {}
    valid = {name for name, judged in verdicts.gates.items() if judged.word != "INVALID"}
    counted = {
        each.measurement_id
        for each in records
        if isinstance(each, record.Measurement) and each.gate in valid
    }
    sung = [each for each in records if isinstance(each, Canary)]
    states = [each for each in records if isinstance(each, MachineState)]
    values: dict[str, Sequence[float]] = {
        "canary_loop_ns": [each.loop_ns for each in sung if each.measurement_id in counted],
        "canary_copy_ns": [each.copy_ns for each in sung if each.measurement_id in counted],
        "mhz": [x for each in states if each.measurement_id in counted for x in each.mhz or ()],
    }
    return {name: median(several) for name, several in values.items() if several}


def _records(file: Path) -> Iterator[record.Record]:
    for line in file.read_bytes().splitlines():
        if line.startswith(_KINDS):
            yield _decoder.decode(line)
