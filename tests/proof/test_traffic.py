"""Whoever else uses the server is seen in its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_llmperf.proof import contradictions, findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from tests.proof.conftest import Making


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def test_foreign_requests_are_told_with_numbers(making: Making) -> None:
    measured = making.with_more(
        making.sound(), requests_finished=3, prompt_tokens=300, generation_tokens=900
    )
    (found,) = contradictions(measured)
    assert found.kind == "foreign_traffic"
    assert found.reason == "Foreign traffic in the measured window."
    assert found.evidence == (
        "The server counted 12 finished requests, 9 of them ours; "
        "20,460 prompt tokens, 20,160 of them ours; 1,287 output tokens, 387 of them ours."
    )
    assert found.remedy == ("Stop whatever else uses this server, or measure a server of your own.")


@pytest.mark.parametrize(
    "more",
    [{"requests_finished": 1}, {"prompt_tokens": 5}, {"generation_tokens": 37}],
)
def test_one_sign_of_foreign_traffic_is_enough(making: Making, more: dict[str, float]) -> None:
    assert kinds(making.with_more(making.sound(), **more)) == ["foreign_traffic"]


def test_a_step_past_a_stop_string_is_ours(making: Making) -> None:
    assert kinds(making.with_more(making.sound(), generation_tokens=36)) == []


def test_the_other_arm_on_the_same_engine_is_ours(making: Making) -> None:
    sound = making.sound()
    cold = tuple(making.request(number, "reference", "b0", cached=0) for number in range(9, 17))
    shared = msgspec.structs.replace(sound, beside=cold)
    assert sound.before is not None
    after = making.counted(sound.before, [*sound.requests, *cold])
    assert kinds(msgspec.structs.replace(shared, after=after)) == []
    assert kinds(msgspec.structs.replace(sound, after=after)) == ["foreign_traffic"]


def test_a_request_that_names_no_boot_is_its_arms(making: Making) -> None:
    measured = making.with_turns(
        making.sound(), lambda _, each: msgspec.structs.replace(each, boot_id=None)
    )
    assert kinds(measured) == []


def test_warm_up_before_the_window_is_not_counted_into_it(making: Making) -> None:
    sound = making.sound()
    early = msgspec.structs.replace(making.request(0, "candidate", "b0"), request_id="warmup")
    early = msgspec.structs.replace(
        early,
        role="warmup",
        stamps=msgspec.structs.replace(early.stamps, sent_ns=1, closed_ns=2, last_token_ns=2),
    )
    measured = msgspec.structs.replace(sound, requests=(early, *sound.requests))
    assert kinds(measured) == []
    assert kinds(making.with_more(measured, requests_finished=1)) == ["foreign_traffic"]


@pytest.mark.parametrize(
    ("counters", "seen"),
    [
        ({"requests_running": 2.0}, "2 running before it"),
        ({"requests_waiting": 1.0}, "1 waiting before it"),
        (
            {"requests_running": 1.0, "requests_waiting": 3.0},
            "1 running before it, 3 waiting before it",
        ),
    ],
)
def test_a_server_that_was_busy_before_is_not_idle(
    making: Making, counters: dict[str, Any], seen: str
) -> None:
    (found,) = contradictions(making.with_before(making.sound(), **counters))
    assert found.kind == "not_idle"
    assert found.reason == "The server was not idle around the measured window."
    assert found.evidence == f"Requests: {seen}."
    assert found.remedy == (
        "Stop whatever else uses this server, or measure a server of your own. "
        "After a cancelled request, wait until none is running."
    )


def test_a_server_that_is_still_busy_afterwards_is_not_idle(making: Making) -> None:
    assert kinds(making.with_after(making.sound(), requests_running=1.0)) == ["not_idle"]


def test_unknown_gauges_and_counters_accuse_nobody(making: Making) -> None:
    unknown = {
        "requests_running": None,
        "requests_waiting": None,
        "requests_finished": None,
        "prompt_tokens": None,
        "generation_tokens": None,
        "preemptions": None,
    }
    measured = making.with_before(making.with_after(making.sound(), **unknown), **unknown)
    assert kinds(measured) == []


def test_one_stream_is_never_preempted(making: Making) -> None:
    (found,) = contradictions(making.with_after(making.sound(), preemptions=2.0))
    assert found.kind == "preempted"
    assert found.reason == "The engine preempted a request while one stream was measured."
    assert found.evidence == "2 preemptions in the window."
    assert found.remedy == ("Give the KV cache more memory, or keep other traffic off the server.")


def test_counters_of_another_process_prove_nothing(making: Making) -> None:
    measured = making.with_after(making.sound(), requests_finished=4.0)
    (found,) = contradictions(measured)
    assert found.kind == "counters_partial"
    assert found.reason == "The server's counters are not of the traffic that was measured."
    assert found.evidence == "In the window the counters saw 4 of 9 requests of ours end."
    assert found.remedy == (
        "Read the metrics page of the engine itself; "
        "with several API processes each page shows one of them."
    )


def test_a_last_request_that_is_not_yet_counted_is_no_fault(making: Making) -> None:
    assert kinds(making.with_after(making.sound(), requests_finished=8.0)) == []


def test_partial_counters_are_told_where_nothing_hangs_on_them(making: Making) -> None:
    from pytest_llmperf.record import Declared  # noqa: PLC0415 - only here

    measured = making.sound(declared=Declared(prefix_caching=True))
    measured = making.with_after(measured, requests_finished=0.0)
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        (
            "The counters are not of this traffic alone: the counters saw 0 of 9 requests of ours "
            "end; foreign traffic is unchecked."
        )
    ]


def test_odd_pages_are_told_once(making: Making) -> None:
    odd = "drafts is nan"
    measured = making.with_before(making.with_after(making.sound(), problem=odd), problem=odd)
    assert [each.text for each in findings(measured)] == ["The metrics page is odd: drafts is nan."]


def test_a_pause_before_some_turns_is_told(making: Making) -> None:
    sound = making.sound()
    late = making.with_turns(
        sound,
        lambda n, each: (
            msgspec.structs.replace(
                each,
                chunks=(),
                stamps=msgspec.structs.replace(
                    each.stamps,
                    **{
                        name: at + 20_000_000_000
                        for name in msgspec.structs.asdict(each.stamps)
                        if (at := getattr(each.stamps, name)) is not None
                    },
                ),
            )
            if n == 7
            else each
        ),
    )
    late = making.with_after(late, at_ns=10**11)
    assert kinds(late) == []
    assert [each.text for each in findings(late)] == [
        "1 turn of 8 came after the engine had been idle for 10 s or more, the others did not."
    ]
