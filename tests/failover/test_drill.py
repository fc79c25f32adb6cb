"""A server fails under load, on real sockets: who takes over, what is lost or answered twice."""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals

import pytest

from pytest_llmperf.analysis.handover import Handover
from pytest_llmperf.analysis.handover.proven import IN_THE_PIPE_NS
from pytest_llmperf.claims import assert_failover
from pytest_llmperf.errors import InvalidMeasurement, Regression
from pytest_llmperf.testing import chat_stream
from tests.failover.conftest import STREAMS, Deaf, Drilled, Servers, Victim


class TestAServerThatIsKilled:
    def test_is_followed_by_the_next_and_nothing_is_lost(self, a_failover: Handover) -> None:  # F10
        run = a_failover
        assert run.contradictions == ()
        verdicts = assert_failover(run, within_s=10.0, lost=0)
        assert [each.word for each in verdicts] == ["PASS", "PASS"]
        assert {each.scope for each in verdicts} == {"this switch only"}

    def test_leaves_its_tokens_in_evidence_and_its_asks_linked(self, a_failover: Handover) -> None:
        switch = a_failover.newest
        assert len(switch.sent_again) == STREAMS
        for ask in switch.sent_again:
            one, other = ask.attempts
            assert (one.boot_id, other.boot_id) == ("b0", "b1")
            assert (one.attempt, other.attempt) == (1, 2)
            assert one.attempt_of == other.attempt_of
            assert one.failure is not None
            assert one.failure.kind in {"interrupted", "incomplete"}
            assert one.chunks
            assert one.stamps.closed_ns is not None
            assert other.stamps.sent_ns is not None
            assert one.stamps.closed_ns <= other.stamps.sent_ns
        assert switch.tokens_kept == sum(len(ask.attempts[0].chunks) for ask in switch.sent_again)

    def test_was_silent_from_its_last_token_to_the_next_one_s_first(
        self, a_failover: Handover
    ) -> None:
        switch = a_failover.newest
        assert switch.fault is not None
        assert len(switch.silences) == STREAMS
        for each in switch.silences:
            assert each.last_ns is not None
            assert each.first_ns is not None
            assert each.last_ns <= switch.fault.at_ns + IN_THE_PIPE_NS
            assert switch.fault.at_ns < each.first_ns
        gaps = [each for each in switch.gaps_s if each is not None]
        assert switch.worst_s == max(gaps)
        assert switch.overall.gap_s is not None
        assert switch.overall.gap_s <= min(gaps)

    def test_and_the_next_are_told_apart_by_their_own_counts(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        switch = drilled("killed").newest
        answered = switch.who
        assert answered["b0"] >= STREAMS
        assert answered["b1"] >= 6
        assert sum(servers[1].counts.finished.values()) == answered["b1"] + 1  # its warm-up

    def test_is_thrown_out_where_the_next_one_s_count_is_another(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        def disturb(line: str) -> None:
            if "killed" in line:
                servers[1].counts.finished["stop"] = 40

        with pytest.raises(InvalidMeasurement, match="What we had of berta is not what it says"):
            assert_failover(drilled("killed", told=disturb))


class TestAServerThatIsFrozen:
    def test_is_noticed_by_the_stall_limit_alone(self, a_frozen_one: Handover) -> None:
        run = a_frozen_one
        assert run.contradictions == ()
        assert run.worst_s is not None
        assert run.worst_s > 0.39
        assert assert_failover(run, within_s=10.0)[0].word == "PASS"

    def test_and_thawed_answers_again_what_the_next_one_answered(
        self, a_frozen_one: Handover
    ) -> None:
        switch = a_frozen_one.newest
        assert switch.thaw is not None
        assert len(switch.twice) == STREAMS
        for ask in switch.twice:
            assert {each.boot_id for each in ask.answers} == {"b0", "b1"}
            assert ask.answers[0].boot_id == "b1"
            assert any(
                each.startswith("left: no event for 0.4 s") for each in ask.attempts[0].warnings
            )
        assert switch.lost == ()

    def test_is_always_thawed_in_the_end(self, drilled: Drilled, servers: Servers) -> None:
        victim = Victim(servers[0])
        drilled("frozen", victim=victim)
        assert victim.got == [Signals.SIGSTOP, Signals.SIGCONT, Signals.SIGCONT]

    def test_is_thawed_when_the_run_is_interrupted(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        victim = Victim(servers[0])

        def interrupt(line: str) -> None:
            if "frozen" in line:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            drilled("frozen", victim=victim, told=interrupt)
        assert victim.got[-1] is Signals.SIGCONT

    def test_late_tokens_do_not_shorten_the_silence(self, a_frozen_one: Handover) -> None:
        switch = a_frozen_one.newest
        for each in switch.silences:
            assert each.gap_s is not None
            assert each.gap_s > 0.3


class TestAnOrder:
    def test_of_two_that_both_die_loses_what_is_asked_and_says_so(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        run = drilled("killed", victim=Victim(*servers))
        assert run.contradictions == ()
        with pytest.raises(Regression) as raised:
            assert_failover(run, within_s=10.0)
        assert "3 streams of 3 never had a token of the next server" in " ".join(
            str(raised.value).split()
        )
        with pytest.raises(Regression) as raised:
            assert_failover(run, lost=0)
        text = " ".join(str(raised.value).split())
        assert text.startswith("REGRESS: at most 0 of")
        assert "had no answer of any server; the first, m0." in text
        assert "at last by connect:" in text
        assert 0 < run.lost <= run.asked

    def test_whose_second_refuses_connections_is_no_order(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        servers[1].die()
        with pytest.raises(InvalidMeasurement) as raised:
            assert_failover(drilled("killed"))
        text = " ".join(str(raised.value).split())
        assert "The failover was not carried out." in text
        assert "berta failed before the fault: connect:" in text

    def test_of_one_server_named_twice_is_thrown_out(
        self, drilled: Drilled, servers: Servers
    ) -> None:
        url = servers[0].url
        with pytest.raises(
            InvalidMeasurement, match="Two servers of the order are one and the same"
        ):
            assert_failover(drilled("killed", urls=(url, url)))

    def test_whose_first_no_signal_reaches_is_thrown_out(
        self, drilled: Drilled, servers: Servers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_llmperf.failover.drill.TAKE_OVER_S", 0.5)
        with pytest.raises(
            InvalidMeasurement, match="The first server went on after it was killed"
        ):
            assert_failover(drilled("killed", victim=Deaf(servers[0])), within_s=5.0)

    def test_whose_first_is_never_in_mid_answer_is_thrown_out(
        self, drilled: Drilled, servers: Servers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_llmperf.failover.drill.FLOW_S", 0.2)
        servers[0].faults.hang = True
        with pytest.raises(InvalidMeasurement, match="The failover was not carried out"):
            assert_failover(drilled("killed", warmup=0, stall_s=5.0, timeout_s=1.0))


def test_an_answer_that_was_spliced_counts_as_a_failover_and_for_no_silence(
    drilled: Drilled, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:  # F2
    # A server that answers by script does not count it: its counters never show all of ours.
    monkeypatch.setattr("pytest_llmperf.failover.drill._SETTLE_S", 0.2)
    spliced = chat_stream(tokens=4, model="somebody else")
    whole = chat_stream(tokens=4)
    mixed = type(whole)(parts=whole.parts[:3] + spliced.parts[3:])
    servers[1]._script.extend([chat_stream(tokens=2), mixed])
    run = drilled("killed")
    assert len(run.newest.spliced) == 1
    assert any("changed answerer in mid-stream" in each for each in run.findings)
    first_ns = {each.first_ns for each in run.newest.silences}
    assert run.newest.spliced[0].stamps.first_token_ns not in first_ns


def test_progress_says_what_happens(drilled: Drilled) -> None:
    told: list[str] = []
    keep: Callable[[str], None] = told.append
    drilled("killed", told=keep)
    assert told[0] == "warming up server 1: request 1"
    assert "anton killed under load" in told
    assert "the next server answered 6 of 6" in told
