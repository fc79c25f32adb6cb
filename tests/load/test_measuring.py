"""What a load leaves: every request in its window and stream, pages read beside it, no loss."""

from __future__ import annotations

import gc
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.errors import UsageError
from pytest_llmperf.load.in_flight import flight, steady_span, windows_of
from pytest_llmperf.testing import Faults
from pytest_llmperf.traffic import Traffic

if TYPE_CHECKING:
    from pytest_llmperf.workload import Conversations, Prompts
    from tests.load.conftest import Bench

SECOND_NS = 1_000_000_000


class TestAClosedLoop:
    def test_keeps_as_many_requests_in_flight_as_it_has_streams(
        self, bench: Bench, questions: Prompts
    ) -> None:
        measured = bench.measure("aggregate_throughput", questions, streams=4, turns=48, windows=3)
        assert measured.end == record.MeasurementEnd(measurement_id="m0", completed=True)
        assert len(measured.turns) == 48
        assert bench.server.most_open == 4
        for window in windows_of(measured.requests).values():
            load = [each for each in window if each.role != "warmup"]
            flown = flight(load, steady_span(load))
            assert flown is not None
            assert flown.peak == 4
            assert flown.mean > 3
            assert {each.stream for each in load} == {0, 1, 2, 3}

    def test_leaves_the_first_wave_out_where_there_is_no_ramp(
        self, bench: Bench, questions: Prompts
    ) -> None:
        measured = bench.measure("aggregate_throughput", questions, streams=4, turns=16, windows=2)
        for window in windows_of(measured.requests).values():
            load = sorted(
                (each for each in window if each.role in {"ramp", "turn"}),
                key=lambda each: each.position or 0,
            )
            assert [each.role for each in load] == ["ramp"] * 4 + ["turn"] * 8

    def test_starts_its_streams_one_by_one_over_a_ramp(
        self, bench: Bench, questions: Prompts
    ) -> None:
        measured = bench.measure(
            "aggregate_throughput", questions, streams=3, turns=36, windows=1, ramp_s=0.2
        )
        assert {each.role for each in measured.requests} == {"warmup", "turn"}
        first = [
            min(each.stamps.sent_ns or 0 for each in measured.turns if each.stream == stream)
            for stream in range(3)
        ]
        assert all(later - earlier >= SECOND_NS // 20 for earlier, later in pairwise(first))

    def test_warms_up_at_the_load_that_is_measured(self, bench: Bench, questions: Prompts) -> None:
        measured = bench.measure(
            "aggregate_throughput", questions, streams=6, turns=12, windows=1, warmup=2
        )
        assert sum(each.role == "warmup" for each in measured.requests) == 6

    def test_primes_one_conversation_for_each_stream_before_the_window(
        self, bench: Bench, talks: Conversations
    ) -> None:
        measured = bench.measure("cached_turn", talks, streams=3, turns=12, windows=2, warmup=0)
        for window in windows_of(measured.requests).values():
            primes = [each for each in window if each.role == "prime"]
            rest = [each for each in window if each.role != "prime"]
            assert len(primes) == 3
            last = max(each.stamps.closed_ns or 0 for each in primes)
            assert all((each.stamps.sent_ns or 0) >= last for each in rest)
        for each in measured.turns:
            assert (each.usage.cached_tokens or 0) >= (each.expected_cached_tokens or 0) > 0


class TestASchedule:
    def test_sends_when_a_request_is_due_whatever_was_answered(
        self, bench: Bench, questions: Prompts
    ) -> None:
        measured = bench.measure(
            "aggregate_throughput",
            questions,
            arrival="constant",
            rate_rps=50,
            turns=20,
            windows=1,
            warmup=0,
        )
        due = [each.stamps.due_ns or 0 for each in measured.turns]
        assert [later - earlier for earlier, later in pairwise(due)] == [SECOND_NS // 50] * 19
        assert all(
            (each.stamps.sent_ns or 0) >= (each.stamps.due_ns or 0) for each in measured.turns
        )
        assert {each.stream for each in measured.turns} == {None}

    def test_is_drawn_anew_for_each_window_and_alike_for_each_run(
        self, bench: Bench, questions: Prompts
    ) -> None:
        keywords: dict[str, Any] = {
            "arrival": "poisson",
            "rate_rps": 200,
            "turns": 20,
            "windows": 2,
            "warmup": 0,
        }

        def gaps() -> list[list[int]]:
            bench.records = bench.records[:1]
            measured = bench.measure("aggregate_throughput", questions, **keywords)
            found = []
            for window in windows_of(measured.turns).values():
                due = [each.stamps.due_ns or 0 for each in window]
                found.append([later - earlier for earlier, later in pairwise(due)])
            return found

        first, second = gaps(), gaps()
        assert first == second
        assert first[0] != first[1]

    def test_of_more_than_a_day_is_refused_before_anything_is_sent(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        log = tmp_path / "log.jsonl"
        line = (
            '{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2, "timestamp": %d}'
        )
        log.write_text("\n".join(line % stamp for stamp in (0, 1, 2, 3 * 86_400)))
        with pytest.raises(UsageError, match="lasts more than a day"):
            bench.measure(
                "aggregate_throughput", Traffic.from_jsonl(log), arrival="trace", turns=4, windows=1
            )
        assert bench.server.generations == []


class TestABurst:
    def test_is_open_at_the_server_all_at_once(self, bench: Bench, questions: Prompts) -> None:
        bench.server.faults.hang = True
        seen: list[bool] = []

        def let_go() -> None:
            seen.append(bench.server.wait_open(100))
            bench.server.die()

        waiting = threading.Thread(target=let_go)
        waiting.start()
        measured = bench.measure("burst", questions, requests=100, warmup=0)
        waiting.join()
        assert seen == [True]
        assert len(measured.turns) == 100
        assert len({each.stamps.due_ns for each in measured.turns}) == 1
        assert {each.failure.kind for each in measured.turns if each.failure} == {"reset"}


class TestTheServersPage:
    def test_is_read_while_the_load_runs(self, bench: Bench, questions: Prompts) -> None:
        measured = bench.measure("aggregate_throughput", questions, streams=4, turns=16, windows=2)
        assert len(measured.during) >= 2
        assert measured.before is not None
        assert measured.after is not None
        for each in measured.during:
            assert each.readable
            assert each.asked_ns is not None
            assert measured.before.at_ns <= each.asked_ns <= each.at_ns <= measured.after.at_ns

    def test_is_not_waited_for_to_show_what_was_refused(
        self, bench: Bench, faults: Faults, questions: Prompts
    ) -> None:
        faults.admit = 4
        measured = bench.measure("burst", questions, requests=20, warmup=0)
        assert {each.failure.kind for each in measured.turns if each.failure} == {"refused"}
        assert len([each for each in bench.server.requests if each.path == "/metrics"]) < 20

    def test_that_is_missing_is_recorded_as_missing(
        self, bench: Bench, faults: Faults, questions: Prompts
    ) -> None:
        faults.no_metrics = True
        measured = bench.measure("aggregate_throughput", questions, streams=2, turns=8, windows=1)
        assert [each.readable for each in measured.during] == [False]
        assert measured.end is not None
        assert measured.end.completed


class TestThePythonCollector:
    def test_rests_while_requests_are_stamped_and_no_longer(
        self, bench: Bench, questions: Prompts
    ) -> None:
        seen: list[bool] = []

        def add(entry: record.Record) -> None:
            bench.records.append(entry)
            if isinstance(entry, record.Request):
                seen.append(gc.isenabled())

        frozen = gc.get_freeze_count()
        bench.measure("aggregate_throughput", questions, add=add, streams=2, turns=8, windows=1)
        assert set(seen) == {False}
        assert gc.isenabled()
        assert gc.get_freeze_count() == frozen


class TestALoadThatIsCutShort:
    def test_by_a_dead_engine_stops_and_says_so(
        self, bench: Bench, faults: Faults, questions: Prompts
    ) -> None:
        faults.die_after = 20
        bench.alive = False
        measured = bench.measure("aggregate_throughput", questions, streams=4, turns=100, windows=1)
        assert measured.end is not None
        assert not measured.end.completed
        assert measured.end.reason == "the engine gemma died while it was measured"
        failed_in_a_row, in_flight = 8, 4
        assert len(measured.turns) <= 20 + failed_in_a_row + in_flight

    def test_by_an_interrupt_keeps_what_was_finished_and_what_was_under_way(
        self, bench: Bench, questions: Prompts
    ) -> None:
        def add(entry: record.Record) -> None:
            bench.records.append(entry)
            turns = [each for each in bench.records if isinstance(each, record.Request)]
            if len(turns) == 20:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            bench.measure(
                "aggregate_throughput", questions, add=add, streams=4, turns=100, windows=1
            )
        measured = bench.measured()
        kinds = {each.failure.kind for each in measured.requests if each.failure is not None}
        assert kinds == {"cancelled"}
        assert any(each.completed and each.role == "turn" for each in measured.turns)
        assert measured.end is not None
        assert measured.end.reason == "interrupted"
        assert bench.server.wait_open(0)
