"""Speculation is proven by the drafting counters: requested, active, and accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.proof import contradictions, evidence_line, findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.proof import Contradiction
    from tests.proof.conftest import Making

PLAIN = record.Declared(prefix_caching=True)


def only(measured: Measured, kind: str) -> Contradiction:
    return next(each for each in contradictions(measured) if each.kind == kind)


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def test_a_drafter_that_never_drafted_is_not_active(making: Making) -> None:
    measured = making.with_after(making.sound(), drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0)
    assert kinds(measured) == ["no_drafts"]
    found = only(measured, "no_drafts")
    assert found.reason == "Speculation: requested mtp, active no."
    assert found.evidence == "0 drafts in the window, while 387 tokens came out."
    assert found.remedy == (
        "Check --speculative-config in the engine's command and its log: "
        "the engine must not run without its drafter."
    )
    assert evidence_line(measured).endswith("; no drafts; machine not watched")


def test_a_page_without_drafting_counters_leaves_it_unknown(making: Making) -> None:
    blank = {"drafts": None, "draft_tokens": None, "accepted_tokens": None}
    found = only(making.with_after(making.sound(), **blank), "no_drafts")
    assert found.reason == "Speculation: requested mtp, active unknown."
    assert found.evidence == "The metrics page has no drafting counters."


def test_an_old_page_without_steps_proves_drafting_by_drafted_tokens(making: Making) -> None:
    assert kinds(making.with_after(making.sound(), drafts=None)) == []


def test_a_drafter_of_another_target_is_a_configuration_error(making: Making) -> None:
    subject = {"model": "gemma-4-26B-A4B-it", "drafter": "gemma-4-26B-A4B-assistant"}
    measured = making.with_after(
        making.sound(engine={"subject": subject}),
        drafts=1000.0,
        draft_tokens=4000.0,
        accepted_tokens=4.0,
    )
    found = only(measured, "low_acceptance")
    assert found.reason == (
        "Acceptance of gemma-4-26B-A4B-assistant by gemma-4-26B-A4B-it is 0.1 %, the floor is 15 %."
    )
    assert found.evidence == ("In the window 4 accepted of 4,000 drafted tokens in 1,000 drafts.")
    assert found.remedy == (
        "Pair the drafter made for this target (an -it drafter with an -it target), "
        "and look at the sampling temperature."
    )


@pytest.mark.parametrize(("accepted", "valid"), [(0.0, False), (14.0, False), (15.0, True)])
def test_fifteen_percent_is_the_floor(making: Making, accepted: float, valid: bool) -> None:
    measured = making.with_after(
        making.sound(), drafts=129.0, draft_tokens=100.0, accepted_tokens=accepted
    )
    assert kinds(measured) == ([] if valid else ["low_acceptance"])


def test_the_floor_is_the_declared_one(making: Making) -> None:
    assert kinds(making.sound(measurement={"min_acceptance": 0.7})) == ["low_acceptance"]


def test_with_a_floor_of_none_drafting_alone_proves_speculation(making: Making) -> None:
    sampled = making.sound(measurement={"min_acceptance": 0.0})
    assert kinds(making.with_after(sampled, draft_tokens=100.0, accepted_tokens=0.0)) == []
    assert kinds(making.with_after(sampled, drafts=0.0, draft_tokens=0.0)) == ["no_drafts"]


@pytest.mark.parametrize("accepted", [None, 500.0])
def test_acceptance_that_is_unknown_or_beyond_everything_proves_nothing(
    making: Making, accepted: float | None
) -> None:
    measured = making.with_after(making.sound(), accepted_tokens=accepted)
    assert kinds(measured) == ["low_acceptance"]


def test_unreadable_counters_cannot_prove_speculation(making: Making) -> None:
    measured = making.unreadable(making.sound())
    assert kinds(measured) == ["counters_unreadable"]
    found = only(measured, "counters_unreadable")
    assert found.reason == (
        "The server's counters cannot be read, and only they prove speculation."
    )
    assert found.evidence == (
        "Speculation: requested mtp, active unknown (before and after: the metrics page is empty)."
    )
    assert found.remedy == (
        "Make the metrics page readable (no --disable-log-stats; the address of the engine "
        "itself), or measure an engine that declares no speculation."
    )
    assert evidence_line(measured).endswith("; drafts not measured; machine not watched")


def test_no_counters_at_all_are_unreadable_counters(making: Making) -> None:
    measured = msgspec.structs.replace(making.sound(), before=None, after=None)
    assert only(measured, "counters_unreadable").evidence == (
        "Speculation: requested mtp, active unknown (before and after: no reading is recorded)."
    )


def test_an_engine_of_ours_must_not_draft_undeclared(making: Making) -> None:
    measured = making.sound(declared=PLAIN)
    assert kinds(measured) == []
    measured = making.with_before(measured, drafts=0.0)
    found = only(making.with_after(measured, drafts=612.0), "undeclared_speculation")
    assert found.reason == "The engine speculates, and its profile declares that it does not."
    assert found.evidence == "612 drafts in the window."
    assert found.remedy == (
        "Declare the drafter in the profile, or take it out of the engine's command."
    )


def test_of_an_attached_server_nothing_is_declared_and_drafting_is_only_told(
    making: Making,
) -> None:
    measured = making.sound(declared=PLAIN, engine={"attached": True})
    measured = making.with_before(measured, drafts=0.0)
    measured = making.with_after(measured, drafts=612.0)
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        "The attached server made 612 drafts; nothing is declared of it."
    ]


def test_without_counters_it_is_unknown_whether_an_undeclared_drafter_runs(making: Making) -> None:
    measured = making.unreadable(making.sound(declared=PLAIN))
    assert kinds(measured) == []
    assert [each.kind for each in findings(measured)] == [
        "traffic_unchecked",
        "speculation_unknown",
    ]
    assert findings(measured)[1].text == (
        "Whether the engine speculates is unknown: no counters "
        "(before and after: the metrics page is empty)."
    )


def test_answers_of_one_token_leave_nothing_to_draft(making: Making) -> None:
    one = making.sound(of="time_to_first_token", tokens=1)
    alone = tuple(each for each in one.requests if each.role == "turn")
    one = making.with_after(
        msgspec.structs.replace(one, requests=alone),
        requests_finished=8.0,
        prompt_tokens=8 * 2240.0,
        generation_tokens=8.0,
    )
    none = making.with_after(one, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0)
    assert kinds(none) == []
    assert "nothing_to_draft" in [each.kind for each in findings(none)]


def test_output_that_drafts_cannot_explain_is_told(making: Making) -> None:
    measured = making.with_after(making.sound(), accepted_tokens=60.0, drafts=60.0)
    (found,) = [each for each in findings(measured) if each.kind == "output_disagrees"]
    assert found.text == "Drafts and acceptance add up to 129 output tokens, usage says 387."
