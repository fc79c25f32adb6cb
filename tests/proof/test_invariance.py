"""What may not change a proof: order, the clock's origin; and unknown is never zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.proof import contradictions, evidence_line, findings
from pytest_llmperf.record import Request

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from tests.proof.conftest import Making

quickly = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def told(measured: Measured) -> tuple[Any, ...]:
    return contradictions(measured), findings(measured), evidence_line(measured)


def shifted(request: Request, by_ns: int) -> Request:
    stamps = {
        name: None if at is None else at + by_ns
        for name, at in msgspec.structs.asdict(request.stamps).items()
    }
    return msgspec.structs.replace(
        request,
        stamps=msgspec.structs.replace(request.stamps, **stamps),
        chunks=tuple(
            msgspec.structs.replace(each, at_ns=each.at_ns + by_ns) for each in request.chunks
        ),
    )


def drawn(making: Making, cached: list[int | None], of: str) -> Measured:
    sound = making.sound(turns=len(cached), of=of)
    return making.with_turns(
        sound,
        lambda n, each: msgspec.structs.replace(
            each, usage=msgspec.structs.replace(each.usage, cached_tokens=cached[n])
        ),
    )


cached_counts = st.lists(st.sampled_from([None, 0, 32, 2144, 2176, 2208]), min_size=4, max_size=12)
denominators = st.sampled_from(["cached_turn", "single_stream", "decode_throughput"])


@quickly
@given(cached=cached_counts, of=denominators, data=st.data())
def test_the_order_of_requests_changes_nothing(
    making: Making, cached: list[int | None], of: str, data: st.DataObject
) -> None:
    measured = drawn(making, cached, of)
    order = data.draw(st.permutations(measured.requests))
    assert told(msgspec.structs.replace(measured, requests=tuple(order))) == told(measured)


@quickly
@given(cached=cached_counts, of=denominators, by_ns=st.integers(0, 10**15))
def test_the_origin_of_the_clock_changes_nothing(
    making: Making, cached: list[int | None], of: str, by_ns: int
) -> None:
    measured = drawn(making, cached, of)
    assert measured.before is not None
    assert measured.after is not None
    moved = msgspec.structs.replace(
        measured,
        requests=tuple(shifted(each, by_ns) for each in measured.requests),
        before=msgspec.structs.replace(measured.before, at_ns=measured.before.at_ns + by_ns),
        after=msgspec.structs.replace(measured.after, at_ns=measured.after.at_ns + by_ns),
    )
    assert told(moved) == told(measured)


@quickly
@given(which=st.integers(0, 7))
def test_an_unknown_cached_count_is_never_taken_for_zero(making: Making, which: int) -> None:
    place = slice(which, which + 1)
    for of in ("cached_turn", "single_stream"):
        sound = making.with_more(making.sound(of=of), prefix_hits=32)
        unknown = making.with_usage(sound, place, cached_tokens=None)
        zero = making.with_usage(sound, place, cached_tokens=0)
        assert told(unknown) != told(zero)


@pytest.mark.parametrize("name", ["drafts", "requests_finished", "prefix_hits", "preemptions"])
def test_an_unknown_counter_is_never_taken_for_zero(making: Making, name: str) -> None:
    sound = making.sound()
    unknown, zero = (making.with_after(sound, **{name: each}) for each in (None, 0.0))
    if name == "preemptions":
        # None in the window and none known accuse alike; more than none does.
        assert told(making.with_after(sound, preemptions=1.0)) != told(unknown)
    else:
        assert told(unknown) != told(zero)
