"""A sound measurement to be broken field by field; what a rule must say stands in the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import BUILT_IN
from pytest_llmperf.evidence import Evidence, Measured
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


class Making:
    """Builds arms of one engine whose turns come one a second, 16 chunks of 3 tokens each."""

    def sound(
        self,
        *,
        turns: int = 8,
        of: str = "cached_turn",
        declared: record.Declared = MTP,
        arm: str = "candidate",
        boot: str = "b0",
        measurement: dict[str, Any] | None = None,
        engine: dict[str, Any] | None = None,
        **fields: Any,  # noqa: ANN401 - any field of a request
    ) -> Measured:
        """A prime and turns that prove the denominator, with counters that agree."""
        denominator = BUILT_IN[of]
        cached = 2176 if denominator.prefix == "warm" else 0
        common = 2230 if denominator.prefix == "warm" else None
        prime = self.request(0, arm, boot, role="prime", cached=0, tokens=3, prompt="prime")
        sent = [prime] + [
            self.request(
                number,
                arm,
                boot,
                **{
                    "cached": cached,
                    "expected_cached_tokens": cached if common else None,
                    "common_prefix_tokens": common,
                    **fields,
                },
            )
            for number in range(1, turns + 1)
        ]
        side = record.Arm(
            name=arm, boot_id=boot, engine="gemma", denominator=denominator, declared=declared
        )
        start = a_measurement(**{"turns": turns, "arms": (side,), **(measurement or {})})
        booted = an_engine(boot_id=boot, declared=declared, **(engine or {}))
        before = some_counters(boot_id=boot, at_ns=SECOND_NS // 2, started_at=1.7e9)
        if declared.speculation is not None:
            before = msgspec.structs.replace(
                before, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0
            )
        end = record.MeasurementEnd(measurement_id="m0", completed=True)
        after = self.counted(before, sent)
        records: list[record.Record] = [a_session(), booted, start, before, after, *sent, end]
        return Evidence(records).measured("m0")[0]

    def request(
        self,
        number: int,
        arm: str,
        boot: str,
        **fields: Any,  # noqa: ANN401 - any field of a request
    ) -> record.Request:
        """The request at one position; it takes 0.4 s of its second."""
        fields = {
            "prompt": f"p{number}",
            "prompt_digest": f"d{number}",
            "tokens": 48,
            "tokens_per_chunk": 3,
            "prompt_tokens": 2240,
            "loop_lag_ns": 1_000_000,
            **fields,
        }
        return a_request(
            request_id=f"{arm}.{number}",
            measurement_id="m0",
            arm=arm,
            boot_id=boot,
            position=number,
            start_ns=(number + 1) * SECOND_NS,
            **fields,
        )

    def counted(self, before: record.Counters, sent: list[record.Request]) -> record.Counters:
        """What the counters say once these requests, and no others, were served."""
        output = sum(each.usage.completion_tokens or 0 for each in sent)
        prompts = sum(each.usage.prompt_tokens or 0 for each in sent)
        grown: dict[str, float] = {
            "prefix_queries": prompts,
            "prefix_hits": sum(each.usage.cached_tokens or 0 for each in sent),
            "prompt_tokens": prompts,
            "generation_tokens": output,
            "requests_finished": len(sent),
        }
        if before.drafts is not None:
            drafts = (output - len(sent)) / 3
            grown |= {
                "drafts": drafts,
                "draft_tokens": 3 * drafts,
                "accepted_tokens": 2 * drafts,
            }
        return msgspec.structs.replace(
            before,
            when="after",
            at_ns=(len(sent) + 3) * SECOND_NS,
            **{name: (getattr(before, name) or 0.0) + more for name, more in grown.items()},
        )

    def with_turns(
        self, measured: Measured, change: Callable[[int, record.Request], record.Request]
    ) -> Measured:
        """The same arm with every turn changed; counters stay as they are."""
        numbers = {each.request_id: n for n, each in enumerate(measured.turns)}
        return msgspec.structs.replace(
            measured,
            requests=tuple(
                change(numbers[each.request_id], each) if each.request_id in numbers else each
                for each in measured.requests
            ),
        )

    def with_usage(
        self,
        measured: Measured,
        which: slice = slice(None),
        **usage: int | None,
    ) -> Measured:
        """The same arm with the usage of some turns changed."""
        chosen = set(range(len(measured.turns))[which])
        return self.with_turns(
            measured,
            lambda n, each: (
                msgspec.structs.replace(each, usage=msgspec.structs.replace(each.usage, **usage))
                if n in chosen
                else each
            ),
        )

    def with_after(self, measured: Measured, **counters: float | str | bool | None) -> Measured:
        """The same arm with other counters after it."""
        assert measured.after is not None
        return msgspec.structs.replace(
            measured, after=msgspec.structs.replace(measured.after, **counters)
        )

    def with_before(self, measured: Measured, **counters: float | str | bool | None) -> Measured:
        """The same arm with other counters before it."""
        assert measured.before is not None
        return msgspec.structs.replace(
            measured, before=msgspec.structs.replace(measured.before, **counters)
        )

    def with_more(self, measured: Measured, **more: float) -> Measured:
        """The same arm whose counters grew by more than its own traffic."""
        return self.with_after(
            measured, **{name: getattr(measured.after, name) + each for name, each in more.items()}
        )

    def unreadable(
        self, measured: Measured, problem: str = "the metrics page is empty"
    ) -> Measured:
        """The same arm without counters."""
        blank = [
            record.Counters(
                measurement_id="m0",
                boot_id="b0",
                when=when,
                at_ns=0,
                readable=False,
                problem=problem,
            )
            for when in ("before", "after")
        ]
        return msgspec.structs.replace(measured, before=blank[0], after=blank[1])


@pytest.fixture
def making() -> Making:
    return Making()
