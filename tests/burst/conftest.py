"""Bursts as a session would record them, without a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from pytest_llmperf import proof, record
from pytest_llmperf.denominator import BURST
from pytest_llmperf.evidence import Measured
from pytest_llmperf.record import Failure, FailureKind, Request, Stamps
from pytest_llmperf.run import Levels, Run
from pytest_llmperf.testing import a_measurement, a_request, some_counters

DUE_NS = 1_000_000_000

Make = Callable[..., Run]


def answered(wait_s: float, tokens: int = 10) -> Request:
    last_ns = DUE_NS + round(wait_s * 1e9)
    stamps = Stamps(
        due_ns=DUE_NS, sent_ns=DUE_NS, first_token_ns=last_ns - 1, last_token_ns=last_ns
    )
    return a_request(stamps=stamps, tokens=tokens)


def failed(kind: FailureKind, after_s: float = 0.1, status: int | None = None) -> Request:
    stamps = Stamps(due_ns=DUE_NS, sent_ns=DUE_NS, closed_ns=DUE_NS + round(after_s * 1e9))
    failure = Failure(kind=kind, detail="")
    return a_request(stamps=stamps, failure=failure, http_status=status, chunks=())


@pytest.fixture
def burst(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a run of one burst a boot; what other rooms prove of it is theirs to test."""
    monkeypatch.setattr(proof, "RULES", ())
    monkeypatch.setattr(proof, "NOTICES", ())

    def make(*boots: Sequence[Request], planned: int | None = None) -> Run:
        found = [_measured(number, sent, planned) for number, sent in enumerate(boots)]
        return Run(found, levels=Levels(detect=0.25))

    return make


def _measured(number: int, sent: Sequence[Request], planned: int | None) -> Measured:
    arm = record.Arm(
        name="candidate",
        boot_id=f"b{number}",
        engine="gemma",
        denominator=msgspec.structs.replace(BURST, streams=len(sent)),
    )
    pages = [(0.5, 3.0, 1.0), (1.0, 2.0, 4.0), (2.0, 1.0, 0.0)]
    return Measured(
        measurement=a_measurement(turns=len(sent) if planned is None else planned, arms=(arm,)),
        arm=arm,
        requests=tuple(sent),
        before=some_counters(preemptions=1.0),
        during=tuple(
            some_counters(
                when="during",
                at_ns=DUE_NS + round(at_s * 1e9),
                requests_running=running,
                requests_waiting=waiting,
            )
            for at_s, running, waiting in pages
        ),
        after=some_counters(when="after", at_ns=DUE_NS + 4 * 10**9, preemptions=3.0),
    )
