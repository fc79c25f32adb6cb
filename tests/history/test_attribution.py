"""Which part of a number moved, in words; what the evidence lacks is said and is never zero."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.attribution import (
    Arms,
    Terms,
    conditions,
    explain,
    explain_ratio,
    explain_terms,
    joint,
    terms,
    verifying_step,
)
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured

if TYPE_CHECKING:
    from tests.history.conftest import Runs

MTP = record.Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)


def only(runs: Runs, **how: Any) -> Measured:  # noqa: ANN401 - any argument of records
    (found,) = runs.measured(*runs.records([1.0], **{"declared": MTP, **how}))
    return found


def decode(runs: Runs, **how: Any) -> Measured:  # noqa: ANN401 - any argument of records
    return only(runs, of="decode_throughput", **how)


class TestDecode:
    def test_a_fall_in_acceptance_is_told_from_a_slower_step(self) -> None:
        # B15: 120.5 to 101.4 tok/s is -15.8 %, 3.19 to 2.66 tokens a step is -16.6 %.
        then = Terms(decode_rate=120.5, acceptance_length=3.19)
        now = Terms(decode_rate=101.4, acceptance_length=2.66)
        found = explain_terms(now, then, wall=False)
        assert found.headline == (
            (
                "decode throughput fell from 120 tok/s to 101 tok/s (-15.9 %): "
                "acceptance length, not step time"
            ),
        )
        assert [(each.name, each.text) for each in found.parts] == [
            (
                "acceptance length",
                (
                    "acceptance length fell from 3.19 tokens to 2.66 tokens (-16.6 %): "
                    "105 % of the change"
                ),
            ),
            (
                "step time",
                "step time hardly moved from 26.5 ms to 26.2 ms (-0.9 %): -5 % of the change",
            ),
        ]

    def test_a_slower_step_is_told_from_a_fall_in_acceptance(self, runs: Runs) -> None:
        found = explain([decode(runs, gap_s=0.025)], [decode(runs, gap_s=0.02)])
        assert found.headline == (
            (
                "decode throughput fell from 150 tok/s to 120 tok/s (-20.0 %): "
                "step time, not acceptance length"
            ),
        )
        assert [each.share for each in found.parts] == pytest.approx([0.0, 1.0])

    def test_parts_that_work_against_each_other_are_both_told(self) -> None:
        then = Terms(decode_rate=100.0, acceptance_length=2.0)
        found = explain_terms(Terms(decode_rate=90.0, acceptance_length=3.0), then, wall=False)
        assert found.headline == (
            (
                "decode throughput fell from 100 tok/s to 90.0 tok/s (-10.0 %): "
                "step time, while acceptance length went the other way"
            ),
        )

    def test_two_parts_of_like_size_are_both_named(self) -> None:
        then = Terms(decode_rate=100.0, acceptance_length=2.0)
        found = explain_terms(Terms(decode_rate=81.0, acceptance_length=1.8), then, wall=False)
        (headline,) = found.headline
        assert headline.endswith(": both step time and acceptance length")

    def test_what_hardly_moved_is_nobody_s_fault(self) -> None:
        then = Terms(decode_rate=100.0, acceptance_length=2.0)
        found = explain_terms(Terms(decode_rate=101.0, acceptance_length=2.0), then, wall=False)
        assert found.headline == (
            "decode throughput hardly moved from 100 tok/s to 101 tok/s (+1.0 %)",
        )

    def test_no_change_has_no_shares(self) -> None:
        same = Terms(decode_rate=100.0, acceptance_length=2.0)
        assert [each.share for each in explain_terms(same, same, wall=False).parts] == [None, None]

    def test_without_counters_nothing_is_split_and_nothing_is_zero(self, runs: Runs) -> None:
        blind = msgspec.structs.replace(decode(runs), after=None)
        found = explain([blind], [decode(runs)])
        assert found.parts == ()
        assert found.notes == (
            "decode throughput is not split: the evidence lacks acceptance length now",
        )

    @given(*[st.floats(0.1, 1000)] * 4)
    def test_the_shares_add_up_to_the_whole_change(
        self, rate: float, length: float, rate_then: float, length_then: float
    ) -> None:
        found = explain_terms(
            Terms(decode_rate=rate, acceptance_length=length),
            Terms(decode_rate=rate_then, acceptance_length=length_then),
            wall=False,
        )
        shares = [each.share for each in found.parts if each.share is not None]
        total = math.log(rate / rate_then)
        assert not shares or total * sum(shares) == pytest.approx(total, abs=1e-9)


class TestWall:
    def test_a_longer_wait_is_told_from_slower_decoding(self, runs: Runs) -> None:
        found = explain([only(runs, first_s=0.36)], [only(runs)])
        assert found.headline[0] == (
            "wall clock rose from 0.360 s to 0.660 s (+83.3 %): time to first token, not decode"
        )
        assert [each.share for each in found.parts if each.of == "wall clock"] == pytest.approx(
            [1.0, 0.0]
        )

    def test_tokens_that_are_no_longer_cached_are_named(self, runs: Runs) -> None:
        found = explain([only(runs, first_s=0.36, cached=0)], [only(runs, cached=96)])
        (first,) = [each for each in found.parts if each.name == "time to first token"]
        assert first.text.endswith("; cached tokens a turn went from 96 to 0")

    def test_answers_of_other_length_make_whole_turns_incomparable(self, runs: Runs) -> None:
        # D19
        found = explain([only(runs, tokens=60)], [only(runs)])
        assert found.notes == (
            (
                "answers changed in length by +25.0 % (48.0 to 60.0 tokens a turn): times of whole "
                "turns are not comparable, decode throughput is"
            ),
        )

    def test_one_wild_turn_moves_nothing(self, runs: Runs) -> None:
        calm = only(runs)
        wild = calm.turns[3]
        late = msgspec.structs.replace(
            wild,
            stamps=msgspec.structs.replace(
                wild.stamps, last_token_ns=(wild.stamps.last_token_ns or 0) + 10**10
            ),
        )
        turns = tuple(late if each is wild else each for each in calm.requests)
        found = explain([msgspec.structs.replace(calm, requests=turns)], [calm])
        assert found.headline[0] == "wall clock hardly moved from 0.360 s to 0.360 s (+0.0 %)"

    def test_the_wait_alone_is_not_split(self, runs: Runs) -> None:
        now, then = (only(runs, of="time_to_first_token", first_s=first) for first in (0.12, 0.06))
        found = explain([now], [then])
        assert found.headline == ("time to first token rose from 60.0 ms to 0.120 s (+100.0 %)",)
        assert found.parts == ()


class TestTerms:
    def test_an_engine_without_a_drafter_yields_one_token_a_step(self, runs: Runs) -> None:
        plain = only(runs, declared=record.Declared(prefix_caching=True))
        assert terms(plain).acceptance_length == 1.0

    def test_of_an_attached_engine_without_drafting_counters_it_is_not_known(
        self, runs: Runs
    ) -> None:
        plain = only(runs, declared=record.Declared(), engine={"attached": True})
        assert terms(plain).acceptance_length is None

    def test_a_term_that_one_boot_lacks_is_not_known_of_all(self) -> None:
        both = joint([Terms(turns=8, wall_s=1.0), Terms(turns=8)])
        assert both == Terms(turns=16)

    def test_step_time_is_exact_over_boots(self) -> None:
        boots = [Terms(decode_rate=r, acceptance_length=a) for r, a in ((100, 2.0), (50, 3.0))]
        both = joint(boots)
        logs = [math.log(each.step_s or 0.0) for each in boots]
        assert math.log(both.step_s or 0.0) == pytest.approx(sum(logs) / 2)

    def test_no_turns_have_no_terms(self) -> None:
        assert joint([]) == Terms()


class TestRatio:
    def arms(self, runs: Runs, candidate: float, reference: float, **how: Any) -> Arms:  # noqa: ANN401
        found = runs.measured(*runs.records([candidate], reference=reference, **how))
        return Arms(candidate=found[:1], reference=found[1:])

    def test_the_arm_that_moved_is_named(self, runs: Runs) -> None:
        found = explain_ratio(self.arms(runs, 1.0, 1.5), self.arms(runs, 1.0, 2.0))
        assert found.headline == (
            "ratio fell from 2.00x to 1.50x (-25.0 %): reference, not candidate",
        )
        assert found.parts[1].text == (
            "reference fell from 0.720 s to 0.540 s (-25.0 %): 100 % of the change"
        )

    def test_a_rate_s_ratio_has_its_better_arm_above(self, runs: Runs) -> None:
        of = "decode_throughput"
        now, then = (self.arms(runs, each, 2.0, of=of, declared=MTP) for each in (1.25, 1.0))
        found = explain_ratio(now, then)
        assert found.headline == (
            "ratio fell from 2.00x to 1.60x (-20.0 %): candidate, not reference",
        )

    def test_an_arm_without_values_is_named(self, runs: Runs) -> None:
        now = self.arms(runs, 1.0, 2.0)
        empty = [msgspec.structs.replace(each, requests=()) for each in now.reference]
        found = explain_ratio(Arms(candidate=now.candidate, reference=empty), now)
        assert found.notes == (
            "which arm moved is not known: no turn of the reference now has a value",
        )

    def test_the_cost_of_a_verifying_step_follows_from_length_and_speed_up(self) -> None:
        # D10: 2.33 tokens a step at 1.30x means a step costs as much as 1.8 plain ones.
        assert verifying_step(2.33, 1.30) == pytest.approx(1.79, abs=0.005)

    def test_a_speed_up_s_conditions_are_printed_known_or_not(self, runs: Runs) -> None:
        # D10
        arm = only(runs, content_class="code", temperature=0.0)
        assert conditions(arm) == (
            "acceptance length 3.00, content code, temperature 0.0, quantisation flag not given"
        )


class TestSubject:
    def explained(self, runs: Runs, **subject: Any) -> str:  # noqa: ANN401 - any fact
        then = decode(runs)
        assert then.engine is not None
        engine = msgspec.structs.replace(then.engine, subject=then.engine.subject | subject)
        return explain([msgspec.structs.replace(then, engine=engine)], [then]).cause

    def test_nothing_that_differs_is_said_to_be_nothing(self, runs: Runs) -> None:
        assert self.explained(runs) == "nothing in the subject is known to differ"

    def test_one_difference_is_named(self, runs: Runs) -> None:
        assert self.explained(runs, engine_files="f1") == (
            "the subject differs in one thing: build.files: f1 against f0"
        )

    def test_two_differences_are_confounded(self, runs: Runs) -> None:
        assert self.explained(runs, engine_files="f1", model_digest="d1") == (
            "confounded, 2 differences in the subject: build.files: f1 against f0; "
            "model.digest: d1 against d0"
        )

    def test_what_is_not_known_to_agree_is_named_beside(self, runs: Runs) -> None:
        assert self.explained(runs, engine_files="f1", model_digest=None) == (
            "the subject differs in one thing: build.files: f1 against f0; "
            "not known to agree: model.digest"
        )


def test_two_denominators_are_not_explained_by_each_other(runs: Runs) -> None:
    with pytest.raises(UsageError) as caught:
        explain([decode(runs)], [only(runs)])
    assert str(caught.value) == (
        "A change cannot be split between two denominators.\n"
        "clock: 'decode' against 'wall'; unit: 'output_token' against 'request'; "
        "prefix: 'any' against 'cold' (now against then).\n"
        "Compare numbers of one denominator only."
    )


def test_nothing_on_one_side_is_not_explained(runs: Runs) -> None:
    with pytest.raises(UsageError) as caught:
        explain([decode(runs)], [])
    assert str(caught.value) == (
        "A change cannot be split with nothing on one side.\n"
        "There are 1 measurements now and 0 then.\n"
        "Give at least one boot of each."
    )
