"""A turn whose record contradicts itself has no number, whoever wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.proof import contradictions
from tests.proof.conftest import SECOND_NS, Making

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured

STAMPS = ("sent_ns", "first_byte_ns", "first_event_ns", "first_token_ns", "last_token_ns")


def why(measured: Measured, kind: str) -> str:
    found = [each for each in contradictions(measured) if each.kind == kind]
    return found[0].evidence if found else ""


def stamped(making: Making, measured: Measured, **changes: Any) -> Measured:  # noqa: ANN401 - stamps
    """The same arm whose first turn has other stamps."""
    return making.with_turns(
        measured,
        lambda n, each: (
            msgspec.structs.replace(each, stamps=msgspec.structs.replace(each.stamps, **changes))
            if n == 0
            else each
        ),
    )


def test_a_sound_turn_is_possible(making: Making) -> None:
    assert why(making.sound(), "stamps_out_of_order") == ""
    assert why(making.sound(), "miscounted") == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(1, len(STAMPS) - 1), early_ns=st.integers(1, 10 * SECOND_NS))
def test_a_stamp_before_the_one_that_it_follows_cannot_be(
    making: Making, place: int, early_ns: int
) -> None:
    measured = making.sound()
    stamps = measured.turns[0].stamps
    known = [at for name in STAMPS[:place] if (at := getattr(stamps, name)) is not None]
    wrong = stamped(making, measured, **{STAMPS[place]: max(known) - early_ns})
    assert f"{STAMPS[place]} is" in why(wrong, "stamps_out_of_order")


def test_a_last_token_before_the_first_one_is_told(making: Making) -> None:
    first_ns = making.sound().turns[0].stamps.first_token_ns
    assert first_ns is not None
    wrong = stamped(making, making.sound(), last_token_ns=first_ns - SECOND_NS // 4)
    assert why(wrong, "stamps_out_of_order") == (
        "In candidate.1 last_token_ns is 0.250 s before first_token_ns."
    )


@pytest.mark.parametrize("late_s", [-5, 5])
def test_a_chunk_outside_its_answer_cannot_be(making: Making, late_s: int) -> None:
    measured = making.with_turns(
        making.sound(),
        lambda _, each: msgspec.structs.replace(
            each,
            chunks=tuple(
                msgspec.structs.replace(chunk, at_ns=chunk.at_ns + late_s * SECOND_NS)
                for chunk in each.chunks
            ),
        ),
    )
    assert "a chunk is stamped before the first token or after the last" in why(
        measured, "stamps_out_of_order"
    )


def test_more_tokens_than_were_asked_for_cannot_be(making: Making) -> None:
    measured = making.sound(max_tokens=24)
    assert why(measured, "miscounted") == (
        "In candidate.1 usage says 48 output tokens where at most 24 were asked for."
    )


def test_no_tokens_in_chunks_that_brought_some_cannot_be(making: Making) -> None:
    measured = making.with_usage(making.sound(), completion_tokens=0)
    assert "usage says 0 output tokens, and chunks brought some" in why(measured, "miscounted")


def test_fewer_cached_tokens_than_none_cannot_be(making: Making) -> None:
    measured = making.with_usage(making.sound(of="decode_throughput"), cached_tokens=-5)
    assert "usage says -5 cached tokens" in why(measured, "miscounted")


def test_a_refusal_did_not_complete(making: Making) -> None:
    measured = making.sound(http_status=500)
    assert "a turn that completed was answered with HTTP 500" in why(measured, "miscounted")
