"""A load is held against its declaration: streams, schedule, saturation, sums, who else came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import AGGREGATE_THROUGHPUT, CACHED_TURN, Denominator
from pytest_llmperf.load.in_flight import flight, mean_flight, rates, steady_span, windows_of
from pytest_llmperf.proof import contradictions, findings, pair_contradictions
from pytest_llmperf.testing import a_request, some_counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.proof import Contradiction

    Load = Callable[..., Measured]

SECOND_NS = 1_000_000_000
FOUR = msgspec.structs.replace(AGGREGATE_THROUGHPUT, streams=4)
WAITS = msgspec.structs.replace(CACHED_TURN, prefix="any", streams=None)
STEADILY = msgspec.structs.replace(WAITS, arrival="constant", rate_rps=2.0)
RANDOMLY = msgspec.structs.replace(WAITS, arrival="poisson", rate_rps=2.0)


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def only(measured: Measured, kind: str) -> Contradiction:
    (found,) = [each for each in contradictions(measured) if each.kind == kind]
    return found


def with_requests(
    measured: Measured, change: Callable[[int, record.Request], record.Request]
) -> Measured:
    changed = tuple(change(number, each) for number, each in enumerate(measured.requests))
    return msgspec.structs.replace(measured, requests=changed)


def later(each: record.Request, by_ns: int) -> record.Request:
    """Sent so much later; when it was due and when it was answered stay."""
    sent_ns = (each.stamps.sent_ns or 0) + by_ns
    return msgspec.structs.replace(
        each,
        stamps=msgspec.structs.replace(
            each.stamps, sent_ns=sent_ns, first_byte_ns=None, first_event_ns=None
        ),
    )


def showing(measured: Measured, running: float, *, pages: int = 12) -> Measured:
    """Pages under the full load that say how many requests run."""
    requests = next(iter(windows_of(measured.requests).values()))
    span = steady_span(requests)
    assert span is not None
    step = (span[1] - span[0]) // (pages + 1)
    during = tuple(
        some_counters(
            when="during",
            asked_ns=span[0] + number * step,
            at_ns=span[0] + number * step + 1,
            requests_running=running,
        )
        for number in range(1, pages + 1)
    )
    return msgspec.structs.replace(measured, during=during)


class TestALoadAsDeclared:
    @pytest.mark.parametrize("denominator", [FOUR, STEADILY, RANDOMLY])
    def test_is_not_contradicted(self, load: Load, denominator: Denominator) -> None:
        assert kinds(load(denominator)) == []
        assert [each.kind for each in findings(load(denominator))] == []

    def test_with_a_ramp_is_not_contradicted(self, load: Load) -> None:
        assert kinds(load(msgspec.structs.replace(FOUR, ramp_s=1.0))) == []

    def test_is_not_taken_for_turns_that_were_not_warm_by_its_queue(self, load: Load) -> None:
        # Within each window the first turns meet a full queue and the last an empty one.
        measured = load(STEADILY, lasting=lambda _window, turn: 0.4 if turn > 1 else 0.9)
        assert kinds(measured) == []


class TestStreams:
    def test_that_pause_are_not_the_declared_ones(self, load: Load) -> None:
        measured = load(msgspec.structs.replace(FOUR, streams=2))
        more = msgspec.structs.replace(
            measured, arm=msgspec.structs.replace(measured.arm, denominator=FOUR)
        )
        found = only(more, "streams")
        assert found.reason == (
            "The load was not the declared one: 4 streams, 2.0 in flight on average where fewest, "
            "2 at most."
        )
        assert found.evidence == (
            "Counted from the requests themselves, between the last stream's start and the last "
            "sending, in 3 windows."
        )
        assert found.remedy == (
            "Plan more turns for each stream or a shorter ramp; look for a client or a proxy that "
            "holds requests back."
        )

    def test_that_are_more_than_declared_are_not_the_declared_ones(self, load: Load) -> None:
        measured = load(FOUR)
        fewer = msgspec.structs.replace(FOUR, streams=3)
        arm = msgspec.structs.replace(measured.arm, denominator=fewer)
        assert "streams" in kinds(msgspec.structs.replace(measured, arm=arm))

    def test_that_had_not_all_started_were_never_the_load(self, load: Load) -> None:
        measured = load(msgspec.structs.replace(FOUR, ramp_s=30.0), turns=8)
        assert only(measured, "streams").reason == (
            "The load was not the declared one: 4 streams, 1.0 in flight on average where fewest, "
            "1 at most."
        )

    def test_of_which_the_last_to_start_was_the_last_to_send_were_never_the_load(
        self, load: Load
    ) -> None:
        assert only(load(FOUR, turns=0), "streams").reason == (
            "The load was not the declared one: 4 streams, and no window in which all of them had "
            "started before the last request was sent."
        )

    def test_in_flight_are_weighted_by_time(self) -> None:
        one, two = a_request(request_id="a"), a_request(request_id="b", start_ns=1_200_000_000)
        flown = flight([one, two])
        assert flown is not None
        lasted = (one.stamps.closed_ns or 0) - SECOND_NS
        assert flown.peak == 2
        assert flown.mean == pytest.approx(2 * lasted / (lasted + 200_000_000))

    def test_in_flight_are_averaged_over_windows(self, load: Load) -> None:
        flown = mean_flight(load(FOUR).requests)
        assert flown is not None
        assert flown.peak == 4
        assert 3.5 < flown.mean <= 4


class TestASchedule:
    def test_that_the_client_did_not_keep_is_no_schedule(self, load: Load) -> None:
        measured = with_requests(
            load(STEADILY), lambda n, each: later(each, SECOND_NS // 5) if n % 4 == 0 else each
        )
        found = only(measured, "schedule_not_kept")
        assert found.reason == "The client did not keep the schedule in 12 of 48 turns."
        assert found.evidence == (
            "They were sent 0.200 s after they were due (median), connecting not counted."
        )
        assert found.remedy == "Give the client a core of its own, or offer a lower rate."

    def test_that_waited_for_connections_was_kept(self, load: Load) -> None:
        measured = with_requests(
            load(STEADILY, connect_ns=SECOND_NS // 5),
            lambda _n, each: later(each, SECOND_NS // 5),
        )
        assert kinds(measured) == []

    def test_that_a_few_turns_missed_was_kept(self, load: Load) -> None:
        measured = with_requests(
            load(STEADILY), lambda n, each: later(each, SECOND_NS // 5) if n == 3 else each
        )
        assert kinds(measured) == []


class TestASaturatedServer:
    @staticmethod
    def queued(_window: int, turn: int) -> float:
        """One request a second is served of two that come."""
        return 1.0 + 0.5 * turn

    def test_has_a_capacity_and_no_latency(self, load: Load) -> None:
        found = only(load(STEADILY, lasting=self.queued), "saturated")
        assert found.reason == (
            "Saturated: 2 requests a second were offered and 1 achieved, so that the queue grew "
            "while it was measured."
        )
        assert found.evidence == (
            "A latency under these arrivals depends on how long they last; what was measured is a "
            "capacity of 1 requests a second."
        )
        assert found.remedy == (
            "Offer a lower rate, or gate the capacity with aggregate_throughput."
        )

    def test_gives_its_throughput_with_a_word_of_warning(self, load: Load) -> None:
        total = msgspec.structs.replace(
            AGGREGATE_THROUGHPUT, streams=None, arrival="constant", rate_rps=2.0
        )
        measured = load(total, lasting=self.queued)
        assert kinds(measured) == []
        assert [each.text for each in findings(measured)] == [
            (
                "Saturated: of 2 offered requests a second 1 were achieved; the throughput is the "
                "capacity, and latencies of this load depend on how long it lasts."
            )
        ]

    def test_is_told_from_one_that_keeps_up_with_uneven_answers(self, load: Load) -> None:
        measured = load(RANDOMLY, lasting=lambda _window, turn: 0.3 + 0.2 * (turn % 3))
        found = rates(measured.turns, RANDOMLY)
        assert found is not None
        assert not found.is_saturated
        assert found.achieved_rps == pytest.approx(found.offered_rps, rel=0.03)

    def test_is_no_matter_of_a_closed_loop(self, load: Load) -> None:
        assert rates(load(FOUR).turns, FOUR) is None


class TestTheServersPages:
    def test_that_show_our_own_requests_agree(self, load: Load) -> None:
        assert kinds(showing(load(FOUR), 4)) == []

    def test_that_show_more_have_foreign_traffic(self, load: Load) -> None:
        found = only(showing(load(FOUR), 5), "foreign_traffic")
        assert found.reason == "Foreign traffic while the load ran."
        assert found.evidence == (
            "The server showed 5 requests running or waiting when 4 requests of ours could be "
            "there."
        )
        assert found.remedy == (
            "Stop whatever else uses this server, or measure a server of your own."
        )

    def test_that_never_show_the_streams_say_they_were_held_back(self, load: Load) -> None:
        found = only(showing(load(FOUR), 2), "held_back")
        assert found.reason == "The server never had the declared 4 streams open."
        assert found.evidence == (
            "On 12 of its pages under the full load it showed at most 2 requests running or "
            "waiting."
        )
        assert found.remedy == (
            "Look for a proxy or a limit of connections between client and engine."
        )

    def test_that_are_few_prove_nothing(self, load: Load) -> None:
        assert kinds(showing(load(FOUR), 2, pages=9)) == []


class TestTheSum:
    def test_is_not_below_what_each_stream_had(self, load: Load) -> None:
        measured = load(FOUR)

        def shortened(number: int, each: record.Request) -> record.Request:
            """A turn of each window seems to have ended long after the others."""
            if number % 20 != 19:
                return each
            late = (each.stamps.last_token_ns or 0) + 400 * SECOND_NS
            stamps = msgspec.structs.replace(
                each.stamps, last_token_ns=late, closed_ns=late + 1_000_000
            )
            return msgspec.structs.replace(each, stamps=stamps)

        found = only(with_requests(measured, shortened), "inconsistent")
        assert found.reason == "The total is below what each stream had by itself."
        assert found.evidence.startswith("All streams: 0.")
        assert found.evidence.endswith("the median request: 16.0 tok/s.")

    def test_is_in_the_server_s_own_counter(self, load: Load) -> None:
        measured = load(FOUR)
        assert measured.after is not None
        short = msgspec.structs.replace(measured.after, generation_tokens=900.0)
        found = only(msgspec.structs.replace(measured, after=short), "inconsistent")
        assert found.reason == (
            "The server's counter does not show the tokens that were summed up."
        )
        assert found.evidence == "By usage 960 output tokens, by the counter 900."
        assert found.remedy == (
            "Read the metrics page of the engine itself, and its usage without a proxy."
        )


class TestWarmth:
    def test_is_judged_by_windows(self, load: Load) -> None:
        measured = load(FOUR, lasting=lambda window, _turn: 2.0 if window == 0 else 1.0)
        found = only(measured, "not_warm")
        assert found.reason.startswith("Not warm: the first 1 window of 3 took at least")


class TestOurOwnLoop:
    """These turns take a second, their chunks come every 50 ms."""

    EACH = msgspec.structs.replace(FOUR, clock="wall", unit="request")

    @staticmethod
    def late(measured: Measured, turns: int) -> Measured:
        """So many turns of the second window were looked after 60 ms late."""
        number_in_block: dict[int | None, int] = {}

        def delayed(_number: int, each: record.Request) -> record.Request:
            if each.role != "turn":
                return each
            place = number_in_block[each.block] = number_in_block.get(each.block, 0) + 1
            is_late = each.block == 1 and place <= turns
            return msgspec.structs.replace(each, loop_lag_ns=60_000_000 if is_late else 1_000_000)

        return with_requests(measured, delayed)

    def test_may_pause_once_for_all_that_were_in_flight(self, load: Load) -> None:
        measured = self.late(load(self.EACH), 8)
        assert kinds(measured) == []
        assert [each.kind for each in findings(measured)] == ["client_late"]

    def test_is_the_bottleneck_where_the_typical_turn_of_a_window_was_late(
        self, load: Load
    ) -> None:
        found = only(self.late(load(self.EACH), 9), "client_bottleneck")
        assert found.reason == "The client was the bottleneck in 9 of 48 turns."


class TestPreemptions:
    def test_are_told_under_load(self, load: Load) -> None:
        measured = load(FOUR)
        assert measured.after is not None
        after = msgspec.structs.replace(measured.after, preemptions=3.0)
        measured = msgspec.structs.replace(measured, after=after)
        assert kinds(measured) == []
        assert [each.text for each in findings(measured)] == [
            (
                "The engine set requests aside 3 times for want of KV cache: what was computed for "
                "them is computed again, and it is in the numbers."
            )
        ]


class TestTwoArms:
    ANY = msgspec.structs.replace(FOUR, prefix="any")

    def arms(self, load: Load, cached: int | None, other: int | None) -> list[Contradiction]:
        candidate, reference = load(self.ANY, cached=cached), load(self.ANY, cached=other)
        found = pair_contradictions(candidate, reference, "profile", self.ANY)
        return [each for each in found if each.kind == "hit_shares"]

    def test_with_alike_hits_are_compared(self, load: Load) -> None:
        assert self.arms(load, 50, 50) == []

    def test_with_unequal_hits_are_not(self, load: Load) -> None:
        (found,) = self.arms(load, 50, 0)
        assert found.reason == (
            "The arms did not find alike shares of their prompts cached, or it is not known."
        )
        assert found.evidence == "Cached tokens of prompt tokens: 50 % against 0 %."
        assert found.remedy == (
            "Declare prefix='cold' or prefix='warm', so that each arm's share is proven; "
            "start the server with --enable-prompt-tokens-details."
        )

    def test_whose_hits_nobody_knows_are_not(self, load: Load) -> None:
        (found,) = self.arms(load, None, 50)
        assert found.evidence == "Cached tokens of prompt tokens: not measured against 50 %."
