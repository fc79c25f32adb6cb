"""Pairs of measured engines whose decode and prefill times are known, and claims about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf import Pair, Run, record
from pytest_llmperf.claims.published import Claim
from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine, some_counters

TURNS = 8
TOKENS = 49


@pytest.fixture
def pair() -> Callable[..., Pair]:
    """Make a pair: a drafter that decodes ``faster`` times as fast, after ``first_s`` of prefill.

    Without it a token takes 40 ms.
    """

    def make(*, faster: float = 2.4, first_s: float = 0.5, **turn: Any) -> Pair:  # noqa: ANN401
        declared = {
            "candidate": record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3),
            "reference": record.Declared(prefix_caching=True),
        }
        gaps = {"candidate": 0.04 / faster, "reference": 0.04}
        boots = {"candidate": "b0", "reference": "b1"}
        arms = tuple(
            record.Arm(
                name=name,
                boot_id=boots[name],
                engine=f"engine {name}",
                denominator=SINGLE_STREAM,
                declared=declared[name],
            )
            for name in boots
        )
        lines: list[record.Record] = [
            a_session(),
            *(
                an_engine(
                    boot_id=boots[name],
                    name=f"engine {name}",
                    declared=declared[name],
                    subject={"flags": {"--dtype": "float32"}},
                )
                for name in boots
            ),
            a_measurement(arms=arms, turns=TURNS, factor="speculation", warmup=0),
            *(
                some_counters(
                    boot_id=boot, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0, at_ns=1
                )
                for boot in boots.values()
            ),
        ]
        for number in range(2 * TURNS):
            name = ("candidate", "reference", "reference", "candidate")[number % 4]
            prompt = number // 2
            lines.append(
                a_request(
                    request_id=f"r{number}",
                    measurement_id="m0",
                    arm=name,
                    boot_id=boots[name],
                    block=number // 4,
                    position=number,
                    prompt=f"p{prompt}",
                    prompt_digest=f"d{prompt}",
                    first_s=first_s,
                    tokens=TOKENS,
                    gap_s=gaps[name] * (1 + (number % 3 - 1) / 200),
                    start_ns=(1 + 10 * number) * 1_000_000_000,
                    **{"content_class": "code", **turn},
                )
            )
        drafts = float(TURNS * 16)
        for name, boot in boots.items():
            drafting = name == "candidate"
            lines.append(
                some_counters(
                    boot_id=boot,
                    when="after",
                    at_ns=1_000 * 1_000_000_000,
                    requests_finished=float(TURNS),
                    prompt_tokens=100.0 * TURNS,
                    generation_tokens=float(TOKENS * TURNS),
                    drafts=drafts if drafting else 0.0,
                    draft_tokens=3 * drafts if drafting else 0.0,
                    accepted_tokens=2 * drafts if drafting else 0.0,
                    prefix_queries=100.0 * TURNS,
                )
            )
        lines.append(record.MeasurementEnd(measurement_id="m0", completed=True))
        candidate, reference = Evidence(lines).measured("m0")
        return Pair(Run([candidate]), Run([reference]), of=SINGLE_STREAM, factor="speculation")

    return make


@pytest.fixture
def claim() -> Callable[..., Claim]:
    """Make a claim of twice the decode throughput by speculation; ``None`` leaves a key out."""

    def make(
        denominator: dict[str, Any] | None = None,
        conditions: dict[str, Any] | None = None,
        **top: Any,  # noqa: ANN401 - any key of a claim
    ) -> Claim:
        counted = {
            "clock": "decode",
            "unit": "output_token",
            "prefix": "cold",
            "streams": 1,
            "factor": "speculation",
        } | (denominator or {})
        table = {
            "number": 2.2,
            "unit": "x",
            "denominator": {key: value for key, value in counted.items() if value is not None},
            "conditions": conditions or {},
        } | top
        return Claim.of("headline", table)

    return make
