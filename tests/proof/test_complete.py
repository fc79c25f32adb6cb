"""A measurement must be all there, and come from the one engine that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.proof import contradictions, findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.proof import Contradiction
    from tests.proof.conftest import Making

PLAIN = record.Declared(prefix_caching=True)


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def only(measured: Measured, kind: str) -> Contradiction:
    return next(each for each in contradictions(measured) if each.kind == kind)


def failing(measured: Making, sound: Measured, failures: dict[int, str]) -> Measured:
    return measured.with_turns(
        sound,
        lambda n, each: (
            msgspec.structs.replace(
                each,
                failure=msgspec.convert(
                    {"kind": failures[n], "detail": f"detail {n}"}, record.Failure
                ),
                usage=record.Usage(),
            )
            if n in failures
            else each
        ),
    )


def test_a_measurement_without_its_end_was_cut_short(making: Making) -> None:
    found = only(msgspec.structs.replace(making.sound(), end=None), "incomplete")
    assert found.reason == "The measurement was not completed."
    assert found.evidence == "Its end is not recorded: the run was cut short."
    assert found.remedy == "Run it again to its end."


def test_a_measurement_that_stopped_early_says_why(making: Making) -> None:
    end = record.MeasurementEnd(measurement_id="m0", completed=False, reason="interrupted")
    found = only(msgspec.structs.replace(making.sound(), end=end), "incomplete")
    assert found.evidence == "It stopped early: interrupted."


def test_fewer_turns_than_planned_are_told(making: Making) -> None:
    found = only(making.sound(turns=8, measurement={"turns": 30}), "fewer_turns")
    assert found.reason == "8 of 30 turns were sent."
    assert found.evidence == "The plan of candidate is 30 turns."
    assert found.remedy == "Run the measurement again to its end."


def test_no_turn_at_all_is_too_few(making: Making) -> None:
    assert "fewer_turns" in kinds(making.sound(turns=0, measurement={"turns": 0}))


def test_more_turns_than_planned_are_no_fault(making: Making) -> None:
    assert kinds(making.sound(turns=8, measurement={"turns": 7})) == []


def test_failed_turns_are_counted_by_kind_and_never_dropped(making: Making) -> None:
    measured = failing(making, making.sound(), {2: "timeout", 4: "reset", 5: "timeout"})
    found = only(measured, "failed_requests")
    assert kinds(measured) == ["failed_requests"]
    assert found.reason == "3 of 8 turns failed: 1 reset, 2 timeout."
    assert found.evidence == "The first: candidate.3, timeout: detail 2."
    assert found.remedy == (
        "Look into the engine's log; a slower server must not look faster by failing."
    )


@pytest.mark.parametrize(
    "kind",
    [
        "connect",
        "reset",
        "interrupted",
        "timeout",
        "stalled",
        "refused",
        "server_error",
        "protocol",
        "no_token",
        "incomplete",
        "cancelled",
    ],
)
def test_a_failure_of_any_kind_is_invalid(making: Making, kind: str) -> None:
    assert kinds(failing(making, making.sound(), {0: kind})) == ["failed_requests"]


def test_a_failed_prime_is_told(making: Making) -> None:
    sound = making.sound()
    failure = record.Failure(kind="stalled", detail="no event for 5 s")
    first = msgspec.structs.replace(sound.requests[0], failure=failure)
    measured = msgspec.structs.replace(sound, requests=(first, *sound.requests[1:]))
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        (
            "1 priming or warm-up request failed (1 stalled); "
            "the first: candidate.0, stalled: no event for 5 s."
        )
    ]


def test_an_engine_that_died_in_the_window_is_named_with_its_exit_code(making: Making) -> None:
    end = record.EngineEnd(
        boot_id="b0", ending="died", exit_code=-9, detail="killed", at_ns=5_000_000_000
    )
    found = only(msgspec.structs.replace(making.sound(), engine_end=end), "engine_died")
    assert found.reason == "The engine gemma died while it was measured."
    assert found.evidence == "Exit code -9: killed"
    assert found.remedy == "Read the engine's log, fix the cause and measure again."


def test_a_death_of_unknown_time_counts(making: Making) -> None:
    end = record.EngineEnd(boot_id="b0", ending="died")
    found = only(msgspec.structs.replace(making.sound(), engine_end=end), "engine_died")
    assert found.evidence == "Exit code unknown."


@pytest.mark.parametrize(("ending", "at_ns"), [("died", 10**12), ("stopped", None)])
def test_an_engine_that_ended_afterwards_does_not_count(
    making: Making, ending: str, at_ns: int | None
) -> None:
    end = msgspec.convert(
        {"record": "engine_end", "boot_id": "b0", "ending": ending, "at_ns": at_ns},
        record.EngineEnd,
    )
    assert kinds(msgspec.structs.replace(making.sound(), engine_end=end)) == []


@pytest.mark.parametrize(
    ("counters", "seen"),
    [
        (
            {"started_at": 1.7e9 + 90},
            "the server's start moved from 1700000000 to 1700000090 (Unix seconds)",
        ),
        ({"prefix_hits": -1.0}, "prefix_hits fell from 0 to -1"),
    ],
)
def test_a_restart_inside_the_window_voids_it(
    making: Making, counters: dict[str, float], seen: str
) -> None:
    measured = making.with_after(making.sound(), **counters)
    found = only(measured, "restart")
    assert kinds(measured) == ["restart"] or "prefix_hits" in counters
    assert found.reason == "The server restarted inside the measured window."
    assert found.evidence == f"Between the two readings of its counters, {seen}."
    assert found.remedy == "Find out who restarts the server and measure again."


def test_another_model_than_the_served_one_is_no_answer(making: Making) -> None:
    measured = making.with_turns(
        making.sound(),
        lambda n, each: (
            msgspec.structs.replace(each, answered_by=record.Answerer(model="gemma-3"))
            if n > 4
            else each
        ),
    )
    found = only(measured, "wrong_answerer")
    assert found.reason == "Another model answered than the one that is measured."
    assert found.evidence == "Expected 'scripted', answered by 'gemma-3' (3 of 8 turns)."
    assert found.remedy == (
        "Check the address: another server, a gateway or a failover may stand behind it."
    )
    without_engine = msgspec.structs.replace(measured, engine=None)
    assert kinds(without_engine) == ["wrong_answerer", "engine_unproven"]


def test_an_answer_that_names_no_model_is_not_a_stranger(making: Making) -> None:
    measured = making.with_turns(
        making.sound(), lambda _, each: msgspec.structs.replace(each, answered_by=record.Answerer())
    )
    assert kinds(measured) == []


def test_two_servers_behind_one_address_are_seen(making: Making) -> None:
    measured = making.with_turns(
        making.sound(),
        lambda n, each: msgspec.structs.replace(
            each,
            boot_id="b7" if n == 1 else each.boot_id,
            answered_by=record.Answerer(model="scripted", system_fingerprint=f"fp{n % 2}"),
            warnings=("spliced: the id changed in mid-stream: a -> b",) if n == 3 else (),
        ),
    )
    found = only(measured, "several_servers")
    assert found.reason == "More than one server answered."
    assert found.evidence == (
        "Seen: system fingerprints fp0, fp1; turns of other boots b7; "
        "1 of 8 turns changed answerer in mid-stream."
    )
    assert found.remedy == "Measure one server by its own address, without gateway or failover."


def test_two_requests_at_once_are_not_one_stream(making: Making) -> None:
    sound = making.sound()
    late = msgspec.structs.replace(
        sound.requests[3].stamps, last_token_ns=sound.requests[4].stamps.first_token_ns
    )
    measured = making.with_turns(
        sound, lambda n, each: msgspec.structs.replace(each, stamps=late) if n == 2 else each
    )
    found = only(measured, "streams")
    assert found.reason == "1 stream declared, 2 at once measured."
    assert found.evidence == "At most 2 requests of this measurement overlapped in time."
    assert found.remedy == "Send as many requests at once as the denominator declares."


def test_the_other_arm_must_be_idle_too(making: Making) -> None:
    other = making.sound(arm="reference", boot="b1")
    measured = msgspec.structs.replace(making.sound(), beside=other.requests)
    assert kinds(measured) == ["streams"]


def test_one_at_a_time_is_not_two_streams(making: Making) -> None:
    sound = making.sound()
    two = msgspec.structs.replace(sound.arm.denominator, streams=2)
    measured = msgspec.structs.replace(
        sound, arm=msgspec.structs.replace(sound.arm, denominator=two)
    )
    assert only(measured, "streams").reason == (
        "The load was not the declared one: 2 streams, and no window in which all of them had "
        "started before the last request was sent."
    )


def test_doubts_of_the_client_are_told(making: Making) -> None:
    measured = making.with_turns(
        making.sound(),
        lambda n, each: (
            msgspec.structs.replace(
                each, warnings=("text incomplete: usage counts 40 tokens, the chunks bore 30",)
            )
            if n < 2
            else each
        ),
    )
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        (
            "Odd streams: text incomplete: 2 of 8 turns. "
            "The first: text incomplete: usage counts 40 tokens, the chunks bore 30."
        )
    ]


def test_an_engine_without_a_record_is_told(making: Making) -> None:
    measured = msgspec.structs.replace(
        making.sound(of="single_stream", declared=PLAIN), engine=None
    )
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        "The engine of boot b0 is not recorded: who is unknown."
    ]


def test_a_cache_or_a_drafter_of_an_unrecorded_engine_proves_nothing(making: Making) -> None:
    measured = msgspec.structs.replace(making.sound(), engine=None)
    found = only(measured, "engine_unproven")
    assert found.reason == "The engine is not recorded, and a cached prefix is declared of it."
    assert found.evidence == (
        "There is no engine record of boot b0: which build, cache and drafter answered is unknown."
    )
    assert found.remedy == (
        "Record the engine beside the measurement, or measure with the llmperf fixture."
    )
    assert findings(measured) == ()
    cold = msgspec.structs.replace(making.sound(of="single_stream"), engine=None)
    assert only(cold, "engine_unproven").reason == (
        "The engine is not recorded, and speculation is declared of it."
    )
