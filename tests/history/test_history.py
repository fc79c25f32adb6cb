"""Past sessions are found by gate and identity; evidence and decisions are the truth."""

from __future__ import annotations

import math
import multiprocessing
import shutil
import sqlite3
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.denominator import BUILT_IN
from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.history import MEAN, RATIO, History, Rules
from pytest_llmperf.history import derive as deriving
from pytest_llmperf.identity import denominator_id, place_of, place_of_pair, ratio_id

if TYPE_CHECKING:
    from tests.history.conftest import Runs

GATE = "perf/test_router.py::test_turn"
OTHER = "perf/test_router.py::test_other"
SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580.95"}


class TestFinding:
    def test_a_recorded_session_is_found_with_its_boots(self, runs: Runs) -> None:
        runs.recorded("s1", *runs.records([1.0, 1.1, 0.9]))
        with runs.open() as history:
            (past,) = history.sessions(GATE, runs.place, runs.denominator_id)
            assert history.gates() == (GATE,)
            assert history.problems == ()
        assert past.standing.state == "recorded"
        assert [each.turns for each in past.boots] == [8, 8, 8]
        assert past.logs("p50") == pytest.approx([math.log(0.36 * x) for x in (1.0, 1.1, 0.9)])
        assert past.mean(MEAN) == pytest.approx(math.log(0.36) + math.log(1.1 * 0.9) / 3)

    def test_numbers_are_unrounded_and_come_from_samples(self, runs: Runs) -> None:
        # D12: 51.5, 48.2 or 52? What is kept follows from the turns, to the last digit.
        folder = runs.recorded("s1", *runs.records([1.0123456789, 1.0, 1.0]))
        with runs.open() as history:
            (past,) = history.sessions(GATE, runs.place, runs.denominator_id)
            first = history.evidence("s1").measured("m0")[0].turns[0].stamps
        assert first.last_token_ns is not None
        assert first.sent_ns is not None
        assert math.exp(past.logs("p50")[0]) == pytest.approx(
            (first.last_token_ns - first.sent_ns) / 1e9, rel=1e-15
        )
        assert sorted(each.name for each in folder.iterdir()) == ["evidence.jsonl", "verdicts.json"]

    def test_a_quantile_that_a_boot_has_too_few_turns_for_is_not_there(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            (past,) = history.sessions(GATE, runs.place, runs.denominator_id)
        assert sorted(past.boots[0].logs) == ["mean", "p50", "p90"]
        assert past.logs("p95") == ()
        assert past.mean("p95") is None

    def test_rates_are_turned_so_that_more_is_worse(self, runs: Runs) -> None:
        mtp = record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)
        lines = runs.records([1.0] * 3, of="decode_throughput", declared=mtp)
        runs.recorded("s1", *lines)
        of = BUILT_IN["decode_throughput"]
        with runs.open() as history:
            place = place_of(runs.measured(*lines)[0])
            (past,) = history.sessions(GATE, place, denominator_id(of))
        assert past.slowness("p50") == tuple(-each for each in past.logs("p50"))
        assert past.boots[0].terms.acceptance_length == pytest.approx(3.0)

    def test_a_ratio_is_found_beside_its_arms(self, runs: Runs) -> None:
        lines = runs.records([1.0, 1.0, 1.0], reference=2.0)
        runs.recorded("s1", *lines)
        candidate, reference = runs.measured(*lines)[:2]
        of = candidate.arm.denominator
        with runs.open() as history:
            (ratio,) = history.sessions(
                GATE,
                place_of_pair(candidate, reference),
                ratio_id(of, of, "profile"),
                series="ratio",
            )
            (arm,) = history.sessions(
                GATE, place_of(reference), denominator_id(of), series="reference"
            )
        assert ratio.mean(RATIO) == pytest.approx(math.log(2.0))
        assert arm.mean("p50") == pytest.approx(math.log(0.72))

    def test_the_newest_are_given_oldest_first(self, runs: Runs) -> None:
        for day in (3, 1, 2):
            runs.recorded(f"s{day}", day=day)
        assert runs.found() == ["s1", "s2", "s3"]
        assert runs.found(newest=2) == ["s2", "s3"]
        assert runs.found(without="s2") == ["s1", "s3"]

    def test_sessions_grow_too_old(self, runs: Runs) -> None:
        for day in (1, 2, 3):
            runs.recorded(f"s{day}", day=day)
        assert runs.found(max_age_days=98) == ["s2", "s3"]
        assert runs.found(max_age_days=1) == []

    @pytest.mark.parametrize("fact", ["machine", "gpu", "gpu_driver", "kernel"])
    def test_another_place_has_no_past_here_and_is_told_why(self, runs: Runs, fact: str) -> None:
        runs.recorded("s1")
        other = place_of(runs.measured(place=SPARK | {fact: "x"})[0])
        with runs.open() as history:
            assert history.sessions(GATE, other, runs.denominator_id) == []
            (why,) = history.nearest(GATE, other)
        assert why.field == fact

    def test_an_unknown_place_has_no_past_not_even_its_own(self, runs: Runs) -> None:
        runs.recorded("s1", place=SPARK | {"gpu": None})
        unknown = place_of(runs.measured(place=SPARK | {"gpu": None})[0])
        with runs.open() as history:
            assert history.sessions(GATE, unknown, runs.denominator_id) == []
            assert [str(each) for each in history.nearest(GATE, unknown)] == [
                "gpu: unknown against unknown"
            ]

    def test_another_denominator_has_no_past_here(self, runs: Runs) -> None:
        # D16
        runs.recorded("s1")
        with runs.open() as history:
            other = denominator_id(BUILT_IN["cached_turn"])
            assert history.sessions(GATE, runs.place, other) == []

    def test_another_subject_does_have_a_past(self, runs: Runs) -> None:
        # B16: what differs is named by its subject, and judged.
        subject = {"engine_version": "0.33.0", "engine_files": "f1", "flags": {}}
        runs.recorded("s1", *runs.records(engine={"subject": subject}))
        with runs.open() as history:
            (past,) = history.sessions(GATE, runs.place, runs.denominator_id)
        assert past.subject.facts["build.files"] == "f1"

    def test_a_folder_that_is_not_there_is_an_empty_history(self, runs: Runs) -> None:
        with runs.open() as history:
            assert history.gates() == ()
            assert history.sessions(GATE, runs.place, runs.denominator_id) == []
        assert not runs.history.exists()

    def test_evidence_of_an_unknown_session_is_refused(self, runs: Runs) -> None:
        with runs.open() as history, pytest.raises(EvidenceError) as caught:
            history.evidence("s9")
        assert str(caught.value) == (
            "The history holds no evidence of session s9.\n"
            f"{runs.history} has no such session.\n"
            "Ask for a session that `sessions` gives and that is replicated."
        )


class TestWhatEnters:
    @pytest.mark.parametrize(
        ("word", "state", "reason"),
        [
            ("PASS", "recorded", None),
            ("INCONCLUSIVE", "recorded", None),
            (None, "recorded", None),
            ("REGRESS", "excluded", "REGRESS, not accepted"),
        ],
    )
    def test_valid_sessions_enter_but_for_regressions(
        self, runs: Runs, word: str | None, state: str, reason: str | None
    ) -> None:
        runs.recorded("s1", word=word)
        with runs.open() as history:
            (past,) = history.everything(GATE)
        assert (past.standing.state, past.standing.reason) == (state, reason)
        assert runs.found() == (["s1"] if state == "recorded" else [])

    def test_an_invalid_gate_never_enters(self, runs: Runs) -> None:
        folder = runs.write("s1")
        with runs.open() as history:
            admission = history.record_session(folder, {GATE: "INVALID"})
        assert admission.path is None
        assert admission.lines == (
            "history: 0 gates of session s1 entered",
            f"not entered: {GATE}: INVALID",
        )
        assert not runs.history.exists()

    def test_evidence_that_proves_nothing_does_not_enter_whatever_is_said_of_it(
        self, runs: Runs
    ) -> None:
        # D17: a prompt of 801 tokens that calls itself 4,096.
        lines = runs.records(prompt_tokens=801, declared_prompt_tokens=4096)
        with runs.open() as history:
            admission = history.record_session(runs.write("s1", *lines), {GATE: "PASS"})
        assert admission.entered == ()
        assert admission.excluded == {
            GATE: "INVALID: 8 of 8 turns have a prompt of undeclared length."
        }

    def test_arms_of_unequal_answers_do_not_enter(self, runs: Runs) -> None:
        # D19
        lines = [
            msgspec.structs.replace(
                each, usage=msgspec.structs.replace(each.usage, completion_tokens=51)
            )
            if isinstance(each, record.Request) and each.arm == "reference"
            else each
            for each in runs.records(reference=2.0)
        ]
        with runs.open() as history:
            admission = history.record_session(runs.write("s1", *lines), {GATE: "PASS"})
        assert admission.entered == ()

    def test_one_boot_is_too_few(self, runs: Runs) -> None:
        # C6
        folder = runs.write("s1", *runs.records([1.0, 1.0]))
        with runs.open() as history:
            admission = history.record_session(folder, {GATE: "PASS"})
        assert admission.excluded == {GATE: "2 healthy boots, and at least 3 are asked for"}
        assert runs.found() == []

    def test_boots_that_scatter_too_much_are_refused_visibly(self, runs: Runs) -> None:
        # C6: a coefficient of variation of 41.8 % is noise.
        folder = runs.write("s1", *runs.records([1.0, 1.5, 2.2]))
        with runs.open() as history:
            admission = history.record_session(folder, {GATE: "PASS"})
        assert admission.excluded == {GATE: "the candidate's boots vary by 41 %, more than 25 %"}

    def test_two_modes_are_looked_for_among_past_and_present_boots(self, runs: Runs) -> None:
        # C6: 1.0 and 1.8.
        asked: list[int] = []

        def two_modes(logs: Any) -> str | None:  # noqa: ANN401 - logs of boots
            asked.append(len(logs))
            return "1.8x apart" if max(logs) - min(logs) > 0.5 else None

        rules = Rules(two_modes=two_modes)
        runs.recorded("s1", rules=rules)
        with runs.open() as history:
            folder = runs.write("s2", *runs.records([1.8, 1.8, 1.8]), day=1)
            admission = history.record_session(folder, {GATE: "PASS"}, rules=rules)
        assert asked == [3, 6]
        assert admission.excluded == {GATE: "the candidate has two modes: 1.8x apart"}
        assert runs.found() == ["s1"]

    def test_another_build_s_boots_are_not_taken_for_a_mode(self, runs: Runs) -> None:
        asked: list[int] = []
        rules = Rules(two_modes=lambda logs: asked.append(len(logs)))
        runs.recorded("s1", rules=rules)
        lines = runs.records(engine={"subject": {"engine_files": "f1", "flags": {}}})
        runs.recorded("s2", *lines, day=1, rules=rules)
        assert asked == [3, 3]

    def test_a_refused_gate_takes_no_other_with_it(self, runs: Runs) -> None:
        lines = [*runs.records([1.0], tag="a"), *runs.records(gate=OTHER, tag="b")]
        with runs.open() as history:
            admission = history.record_session(
                runs.write("s1", *lines), {GATE: "PASS", OTHER: "PASS"}
            )
            assert history.gates() == (OTHER,)
        assert admission.entered == (OTHER,)
        assert list(admission.excluded) == [GATE]

    def test_a_gate_that_measured_nothing_is_an_error(self, runs: Runs) -> None:
        with runs.open() as history, pytest.raises(EvidenceError) as caught:
            history.record_session(runs.write("s1"), {GATE: "PASS", OTHER: "PASS"})
        assert str(caught.value) == (
            "1 gate measured nothing.\n"
            f"- {OTHER}: nothing is recorded of it\n"
            "A gate without a number is an error and is never green; find out why."
        )

    def test_a_ratio_without_a_pair_is_an_error(self, runs: Runs) -> None:
        lines = runs.records(reference=2.0, block=None)
        with runs.open() as history, pytest.raises(EvidenceError) as caught:
            history.record_session(runs.write("s1", *lines), {GATE: "PASS"})
        assert str(caught.value) == (
            "1 gate measured nothing.\n"
            f"- {GATE}: no pair of arms to compare: There is no value to compare.\n"
            "A gate without a number is an error and is never green; find out why."
        )

    def test_boots_of_two_builds_are_no_session_of_either(self, runs: Runs) -> None:
        lines = runs.records()
        changed = [
            msgspec.structs.replace(each, subject=each.subject | {"engine_files": "f1"})
            if isinstance(each, record.Engine) and each.boot_id.startswith("b2")
            else each
            for each in lines
        ]
        with runs.open() as history:
            admission = history.record_session(runs.write("s1", *changed), {GATE: "PASS"})
        assert admission.excluded == {
            GATE: "INVALID: its boots differ in subject: build.files: f0 against f1"
        }

    def test_a_session_is_recorded_once(self, runs: Runs) -> None:
        final = runs.recorded("s1")
        with runs.open() as history, pytest.raises(EvidenceError) as caught:
            history.record_session(runs.folder / "runs" / "s1", {GATE: "PASS"})
        assert str(caught.value) == (
            "Session s1 is already in the history.\n"
            f"{final} is there.\n"
            "A session counts once; nothing was changed."
        )

    def test_recording_leaves_the_run_as_it_was(self, runs: Runs) -> None:
        folder = runs.write("s1")
        before = {each: each.read_bytes() for each in folder.iterdir()}
        with runs.open() as history:
            history.record_session(folder, {GATE: "PASS"})
        assert {each: each.read_bytes() for each in folder.iterdir()} == before

    def test_evidence_that_was_only_put_there_does_not_count(self, runs: Runs) -> None:
        runs.write("s1", below=runs.history)
        with runs.open() as history:
            (past,) = history.everything(GATE)
        assert past.standing.reason == "it was never recorded"
        assert runs.found() == []


class TestTheIndex:
    def test_new_folders_are_found_and_deleted_ones_forgotten(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            assert len(history.sessions(GATE, runs.place, runs.denominator_id)) == 1
            second = runs.recorded("s2", day=1)
            history.refresh()
            assert len(history.sessions(GATE, runs.place, runs.denominator_id)) == 2
            shutil.rmtree(second)
            history.refresh()
            assert len(history.sessions(GATE, runs.place, runs.denominator_id)) == 1

    def test_what_has_not_changed_is_not_read_again(
        self, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs.recorded("s1")
        monkeypatch.setattr("pytest_llmperf.history.files.read", None)
        assert runs.found() == ["s1"]

    def test_it_is_computed_again_when_formulas_change(
        self, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs.recorded("s1")
        monkeypatch.setattr("pytest_llmperf.history.files.DERIVATION", "2")
        monkeypatch.setattr("pytest_llmperf.history.files.read", lambda _: None)
        with runs.open() as history:
            (problem,) = history.problems
        assert problem.startswith("sessions/s1/evidence.jsonl: It cannot be understood:")

    def test_rebuilt_it_says_the_same(self, runs: Runs) -> None:
        runs.recorded("s1")
        runs.recorded("s2", day=1, word="REGRESS")
        with runs.open() as history:
            before = history.everything(GATE)
            history.rebuild()
            assert history.everything(GATE) == before

    @pytest.mark.parametrize(
        "content", [b"", b"no database at all", b"SQLite format 3\0" + b"x" * 90]
    )
    def test_a_broken_one_is_built_anew(self, runs: Runs, content: bytes) -> None:
        runs.recorded("s1")
        (runs.history / "index.sqlite").write_bytes(content)
        for suffix in ("-wal", "-shm"):
            (runs.history / f"index.sqlite{suffix}").unlink(missing_ok=True)
        assert runs.found() == ["s1"]

    def test_one_of_another_schema_is_built_anew(self, runs: Runs) -> None:
        runs.recorded("s1")
        database = sqlite3.connect(runs.history / "index.sqlite")
        database.execute("PRAGMA user_version = 99")
        database.close()
        assert runs.found() == ["s1"]

    def test_a_folder_that_cannot_be_written_can_be_read(
        self, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs.recorded("s1")
        index = runs.history / "index.sqlite"
        index.unlink()
        monkeypatch.setattr("pytest_llmperf.history.index.os.access", lambda *_: False)
        assert runs.found() == ["s1"]
        assert not index.exists()

    def test_a_folder_being_written_is_not_seen(self, runs: Runs) -> None:
        final = runs.recorded("s1")
        shutil.copytree(final, final.parent / ".s2.half")
        with runs.open() as history:
            assert history.problems == ()
            assert len(history.everything(GATE)) == 1


class TestCopies:
    def test_a_copy_counts_once_wherever_it_lies(self, runs: Runs) -> None:
        final = runs.recorded("s1")
        shutil.copytree(final, runs.history / "a-copy")
        assert runs.found() == ["s1"]
        shutil.rmtree(final)
        assert runs.found() == ["s1"]

    def test_of_copies_the_one_with_verdicts_counts(self, runs: Runs) -> None:
        final = runs.recorded("s1")
        (runs.history / "a-copy").mkdir()
        shutil.copy(final / "evidence.jsonl", runs.history / "a-copy")
        assert runs.found() == ["s1"]

    def test_two_that_claim_to_be_one_session_are_both_refused_by_name(self, runs: Runs) -> None:
        runs.recorded("s1")
        runs.write("s1", *runs.records([2.0, 2.0, 2.0]), below=runs.history / "b")
        with runs.open() as history:
            assert history.problems == (
                (
                    "b/s1/evidence.jsonl: it says that it is session s1 too, and differs from "
                    "sessions/s1/evidence.jsonl"
                ),
                (
                    "sessions/s1/evidence.jsonl: it says that it is session s1 too, "
                    "and differs from b/s1/evidence.jsonl"
                ),
            )
            assert history.sessions(GATE, runs.place, runs.denominator_id) == []
            shutil.rmtree(runs.history / "b")
            history.refresh()
        with runs.open() as history:
            assert not history.problems
        assert runs.found() == ["s1"]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("spoil", "named"),
        [
            (lambda _: "not evidence\n", ", line 1, is not a session."),
            (lambda _: "", ", line 1, is not a session."),
            (lambda text: text.replace('"schema":1', '"schema":7', 1), "has evidence of schema 7."),
            (
                lambda text: text.replace('"turns":8', '"turns":"x"', 1),
                ", line 2, is not evidence.",
            ),
            (lambda text: text.replace("2026-06-01T", "some day ", 1), "is no time."),
        ],
    )
    def test_evidence_that_is_wrong_is_named_and_hides_nothing(
        self, runs: Runs, spoil: Callable[[str], str], named: str
    ) -> None:
        bad = runs.recorded("s1") / "evidence.jsonl"
        runs.recorded("s2", day=1)
        bad.write_text(spoil(bad.read_text(encoding="utf-8")), encoding="utf-8")
        with runs.open() as history:
            (problem,) = history.problems
            assert problem.startswith("sessions/s1/evidence.jsonl: ")
            assert named in problem
        assert runs.found() == ["s2"]

    def test_verdicts_of_another_schema_are_named(self, runs: Runs) -> None:
        path = runs.recorded("s1") / "verdicts.json"
        path.write_text(path.read_text(encoding="utf-8").replace('"schema": 1', '"schema": 2'))
        with runs.open() as history:
            assert history.problems == (
                (
                    f"sessions/s1/evidence.jsonl: {path} is of schema 2. "
                    "This version reads schema 1 and no other."
                ),
            )

    def test_a_session_that_was_cut_short_does_not_count(self, runs: Runs) -> None:
        bad = runs.recorded("s1") / "evidence.jsonl"
        text = bad.read_text(encoding="utf-8")
        bad.write_text(text[: len(text) * 2 // 3], encoding="utf-8")
        with runs.open() as history:
            (past,) = history.everything(GATE)
        assert past.standing.state == "excluded"
        assert runs.found() == []


class TestDecisions:
    def test_an_accepted_regression_counts_with_who_and_why(self, runs: Runs) -> None:
        runs.recorded("s1")
        runs.recorded("s2", day=1, word="REGRESS")
        with runs.open() as history:
            history.accept(GATE, "the new sampler is worth it", "ada")
            past = history.sessions(GATE, runs.place, runs.denominator_id)[-1]
        assert past.standing.state == "accepted"
        assert past.standing.reason == "the new sampler is worth it"
        assert past.standing.who == "ada"
        assert past.standing.when == "2026-09-09T00:00:00+00:00"
        assert runs.found() == ["s1", "s2"]

    def test_an_accepted_change_splits_the_history(self, runs: Runs) -> None:
        for day, word in enumerate(("PASS", "PASS", "REGRESS", "REGRESS")):
            runs.recorded(f"s{day}", day=day, word=word)
        with runs.open() as history:
            history.accept(GATE, "worth it", "ada")
            runs.recorded("s4", day=4)
            history.refresh()
            past = history.sessions(GATE, runs.place, runs.denominator_id)
        assert [each.epoch for each in past] == [0, 0, 1, 1, 1]

    def test_a_later_regression_waits_for_its_own_acceptance(self, runs: Runs) -> None:
        runs.recorded("s1", word="REGRESS")
        with runs.open() as history:
            history.accept(GATE, "worth it", "ada")
        runs.recorded("s2", day=1, word="REGRESS")
        assert runs.found() == ["s1"]

    def test_one_session_may_be_accepted_alone(self, runs: Runs) -> None:
        for day in (1, 2):
            runs.recorded(f"s{day}", day=day, word="REGRESS")
        with runs.open() as history:
            history.accept(GATE, "worth it", "ada", sessions=["s2"])
        assert runs.found() == ["s2"]

    def test_nothing_can_be_accepted_where_nothing_waits(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history, pytest.raises(UsageError) as caught:
            history.accept(GATE, "worth it", "ada")
        assert str(caught.value) == (
            f"{GATE} has no such regression to accept.\n"
            "Waiting to be accepted: nothing.\n"
            f"Known gates: {GATE}."
        )

    @pytest.mark.parametrize(("reason", "who"), [("", "ada"), (" ", "ada"), ("why", "")])
    def test_a_decision_says_why_and_who(self, runs: Runs, reason: str, who: str) -> None:
        runs.recorded("s1", word="REGRESS")
        name, text = ("who", who) if reason.strip() else ("reason", reason)
        with runs.open() as history, pytest.raises(UsageError) as caught:
            history.accept(GATE, reason, who)
        assert str(caught.value) == (
            f"The decision to accept {GATE} gives no {name}.\n"
            f"{name} is {text!r}.\n"
            "Say why and who; both are kept with the decision."
        )
        assert not (runs.history / "decisions.jsonl").exists()

    def test_a_cut_decision_is_named_and_takes_no_other_with_it(self, runs: Runs) -> None:
        runs.recorded("s1", word="REGRESS")
        path = runs.history / "decisions.jsonl"
        path.write_bytes(b'{"kind":"acc')
        with runs.open() as history:
            history.accept(GATE, "worth it", "ada")
            (problem,) = history.problems
        assert problem.startswith(f"{path}, line 1, is no decision: ")
        assert runs.found() == ["s1"]

    def test_a_decision_of_another_schema_is_named(self, runs: Runs) -> None:
        runs.recorded("s1", word="REGRESS")
        with runs.open() as history:
            history.accept(GATE, "worth it", "ada")
        path = runs.history / "decisions.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))
        with runs.open() as history:
            assert history.problems == (f"{path}, line 1, is of schema 2, not 1",)
        assert runs.found() == []


class TestAnchors:
    def test_nine_steps_are_seen_against_the_anchor(self, runs: Runs) -> None:
        # C5: nine accepted steps of 1.5 % each.
        for day in range(3):
            runs.recorded(f"s{day}", *runs.records([1.0] * 3), day=day)
        with runs.open() as history:
            history.pin_anchor(GATE, "release", "ada", label="v1")
        for step in range(1, 10):
            slow = [1.015**step] * 3
            runs.recorded(f"s{step + 2}", *runs.records(slow), day=step + 2, word="REGRESS")
            with runs.open() as history:
                history.accept(GATE, "small enough", "ada")
        with runs.open() as history:
            anchor = history.anchor(GATE, runs.place, runs.denominator_id)
            recent = history.sessions(GATE, runs.place, runs.denominator_id, newest=5)
        assert anchor is not None
        assert [each.session_id for each in anchor.sessions] == ["s0", "s1", "s2"]
        pinned = [each.mean("p50") for each in anchor.sessions]
        assert pinned == pytest.approx([math.log(0.36)] * 3)
        assert [each.session_id for each in recent] == [f"s{n}" for n in range(7, 12)]
        assert (recent[-1].mean("p50") or 0) - math.log(0.36) == pytest.approx(9 * math.log(1.015))

    def test_the_last_pin_holds_and_the_first_still_stands_in_the_file(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            assert history.anchor(GATE) is None
            history.pin_anchor(GATE, "release", "ada", label="v1")
            runs.recorded("s2", day=1)
            history.refresh()
            history.pin_anchor(GATE, "we moved on", "bob", label="v2")
            anchor = history.anchor(GATE, runs.place, runs.denominator_id)
        assert anchor is not None
        assert (anchor.label, anchor.reason, anchor.who) == ("v2", "we moved on", "bob")
        assert [each.session_id for each in anchor.sessions] == ["s1", "s2"]
        assert (runs.history / "decisions.jsonl").read_bytes().count(b"\n") == 2

    def test_without_an_anchor_there_is_nothing_to_creep_from(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            assert history.anchor(GATE, runs.place, runs.denominator_id) is None

    def test_nothing_that_counts_is_nothing_to_pin(self, runs: Runs) -> None:
        runs.recorded("s1", word="REGRESS")
        with runs.open() as history, pytest.raises(UsageError) as caught:
            history.pin_anchor(GATE, "release", "ada", label="v1")
        assert str(caught.value) == (
            f"{GATE} has nothing to pin.\n"
            "None of its sessions has entered history at a place that is fully known.\n"
            f"Known gates: {GATE}."
        )


class TestTheRoll:
    def test_a_gate_that_is_not_collected_any_more_is_missing(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            assert history.missing({"perf/test_router.py"}, set()) == (GATE,)
            assert history.missing({"perf/test_router.py"}, {GATE}) == ()

    def test_a_file_that_was_not_collected_misses_nothing(self, runs: Runs) -> None:
        runs.recorded("s1")
        with runs.open() as history:
            assert history.missing({"perf/test_else.py"}, set()) == ()

    def test_a_missing_gate_is_named_with_what_it_may_be_called_now(self, runs: Runs) -> None:
        runs.recorded("s1")
        renamed = "perf/test_router.py::test_turn_comes_back"
        with runs.open() as history, pytest.raises(UsageError) as caught:
            history.check_roll({"perf/test_router.py"}, {renamed})
        assert str(caught.value) == (
            "1 known gate is missing.\n"
            f"- {GATE} (renamed to {renamed}?)\n"
            "Bring it back under its name, or say that it is gone for good: "
            "python -m pytest_llmperf.history retire GATE --reason WHY"
        )

    def test_a_gate_that_only_waits_to_be_accepted_is_missed_too(self, runs: Runs) -> None:
        runs.recorded("s1", word="REGRESS")
        with runs.open() as history:
            assert history.missing({"perf/test_router.py"}, set()) == (GATE,)

    def test_a_retired_gate_is_missed_no_longer_until_it_is_measured_again(
        self, runs: Runs
    ) -> None:
        runs.recorded("s1")
        with runs.open(day=5) as history:
            history.retire(GATE, "merged into another", "ada")
            history.check_roll({"perf/test_router.py"}, set())
            runs.recorded("s2", day=6)
            history.refresh()
            assert history.gates() == (GATE,)

    def test_what_is_not_known_cannot_be_retired(self, runs: Runs) -> None:
        with runs.open() as history, pytest.raises(UsageError) as caught:
            history.retire(GATE, "gone", "ada")
        assert str(caught.value) == (
            f"{GATE} cannot be retired: history does not know it.\n"
            "Known gates: none.\n"
            "Name the gate as `python -m pytest_llmperf.history list` prints it."
        )


def _record_some(folder: Path, names: list[str], barrier: Barrier) -> None:
    """In a process of its own: record these runs as fast as it goes."""
    barrier.wait()
    for name in names:
        with History(folder / "history") as history:
            history.record_session(folder / "runs" / name, {GATE: "REGRESS"})
            history.accept(GATE, f"because of {name}", "ada", sessions=[name])


class TestTwoAtOnce:
    def test_two_processes_record_and_decide_without_losing_anything(
        self, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(Path(__file__).parents[2])  # spawned processes import this file
        names = [f"s{number}" for number in range(6)]
        for number, name in enumerate(names):
            runs.write(name, day=number)
        spawned = multiprocessing.get_context("spawn")
        barrier = spawned.Barrier(2)
        processes = [
            spawned.Process(target=_record_some, args=(runs.folder, names[half::2], barrier))
            for half in (0, 1)
        ]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        assert [each.exitcode for each in processes] == [0, 0]
        assert runs.found() == names

    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.permutations(range(4)))
    def test_the_order_in_which_folders_came_does_not_matter(
        self, runs: Runs, order: list[int]
    ) -> None:
        shutil.rmtree(runs.folder / "runs", ignore_errors=True)
        shutil.rmtree(runs.history, ignore_errors=True)
        for number in order:
            runs.recorded(f"s{number}", day=number // 2, word="REGRESS" if number == 3 else "PASS")
        assert runs.found() == ["s0", "s1", "s2"]


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_what_is_kept_of_a_boot_comes_back_to_the_last_digit(values: list[float]) -> None:
    boot = deriving.Boot(boot_id="b", turns=len(values), logs=deriving._logs(values))
    again = msgspec.json.decode(msgspec.json.encode(boot), type=deriving.Boot)
    assert again == boot
