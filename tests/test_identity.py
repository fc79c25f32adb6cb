"""A place forbids comparison, a subject is named; unknown equals nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import identity, record
from pytest_llmperf.denominator import BUILT_IN, DECODE_THROUGHPUT, SINGLE_STREAM, Denominator
from pytest_llmperf.evidence import Evidence, Measured
from pytest_llmperf.identity import Difference, Half, confounded, differences, place_of, subject_of
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine

SPARK = {"machine": "m1", "gpu": "GB10", "gpu_driver": "580", "memory_bytes": 128 * 2**30}
SUBJECT: dict[str, Any] = {
    "engine_version": "0.32.0",
    "engine_files": "f0",
    "packages": {"transformers": "5.10", "torch": "2.13"},
    "model": {"source": "google/gemma-4", "revision": None},
    "model_digest": "d0",
    "drafter": None,
    "flags": {"--model": "google/gemma-4", "--max-num-seqs": 4},
}


def measured(
    *,
    place: dict[str, Any] | None = None,
    denominator: Denominator = SINGLE_STREAM,
    session: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
    subject: dict[str, Any] | None = None,
    workload_digest: str = "w0",
    turn: dict[str, Any] | None = None,
) -> Measured:
    (arm,) = a_measurement().arms
    start = a_measurement(
        arms=(msgspec.structs.replace(arm, denominator=denominator),),
        workload_digest=workload_digest,
    )
    records: list[record.Record] = [
        a_session(**{"place": SPARK if place is None else place, **(session or {})}),
        an_engine(**{"subject": SUBJECT | (subject or {}), **(engine or {})}),
        start,
        a_request(
            measurement_id="m0", arm="candidate", boot_id="b0", temperature=0.0, **(turn or {})
        ),
    ]
    return Evidence(records).measured("m0")[0]


def placed(**how: Any) -> list[str]:  # noqa: ANN401 - any argument of measured
    return [str(each) for each in differences(place_of(measured()), place_of(measured(**how)))]


def changed(**how: Any) -> list[str]:  # noqa: ANN401 - any argument of measured
    return [str(each) for each in differences(subject_of(measured()), subject_of(measured(**how)))]


def without(*names: str, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 - any facts
    return {name: each for name, each in (SPARK | facts).items() if name not in names}


class TestPlace:
    def test_one_place_is_one_place(self) -> None:
        assert placed() == []
        assert place_of(measured()).digest == place_of(measured()).digest is not None

    @pytest.mark.parametrize(
        ("how", "named"),
        [
            ({"place": SPARK | {"machine": "m2"}}, ["machine: m1 against m2"]),
            ({"place": SPARK | {"gpu": "H200"}}, ["gpu: GB10 against H200"]),
            ({"place": SPARK | {"gpu_driver": "590"}}, ["gpu_driver: 580 against 590"]),
            ({"place": SPARK | {"kernel": "6"}}, ["kernel: unknown against 6"]),
            ({"place": SPARK | {"memory_bytes": 64 * 2**30}}, ["memory_gib: 128 against 64"]),
            ({"session": {"instrument": 2}}, ["instrument: 1 against 2"]),
            ({"subject": {"flags": None}}, ["stream_interval: 1 against unknown"]),
        ],
    )
    def test_each_field_that_differs_is_named(self, how: dict[str, Any], named: list[str]) -> None:
        assert placed(**how) == named

    def test_another_denominator_is_another_place_field_by_field(self) -> None:
        # D9: one box, one model, and numbers that are never ranked.
        assert placed(denominator=DECODE_THROUGHPUT) == [
            "clock: wall against decode",
            "formula: t_last_token - t_sent against (N - k) / (t_last_token - t_first_token)",
            "prefix: cold against any",
            "tokens_from: unknown against server",
            "unit: request against output_token",
        ]

    def test_another_stream_interval_is_another_place_and_no_flag_of_the_subject(self) -> None:
        # S7
        how = {"subject": {"flags": SUBJECT["flags"] | {"--stream-interval": 10}}}
        assert placed(**how) == ["stream_interval: 1 against 10"]
        assert changed(**how) == []

    def test_tokens_counted_by_a_tokenizer_are_no_tokens_counted_by_the_server(self) -> None:
        # S5
        ours, other = (
            place_of(measured(denominator=DECODE_THROUGHPUT, turn={"tokens_from": source}))
            for source in ("usage", "retokenised")
        )
        assert [str(each) for each in differences(ours, other)] == [
            "tokens_from: server against tokenizer"
        ]

    @pytest.mark.parametrize("name", identity.CORE)
    @pytest.mark.parametrize("kind", ["absent", "null"])
    def test_an_unknown_fact_equals_nothing_not_even_itself(self, name: str, kind: str) -> None:
        place = without(name) if kind == "absent" else SPARK | {name: None}
        half = place_of(measured(place=place))
        assert half.digest is None
        assert [str(each) for each in differences(half, half)] == [
            f"{name}: unknown against unknown"
        ]

    def test_memory_that_firmware_shaves_a_little_off_is_the_same_memory(self) -> None:
        assert placed(place=SPARK | {"memory_bytes": 128 * 2**30 - 4096}) == []

    def test_evidence_without_a_session_has_no_place(self) -> None:
        alone = msgspec.structs.replace(measured(), session=None)
        assert place_of(alone).unknown == ("gpu", "gpu_driver", "instrument", "machine")


class TestSubject:
    def test_one_subject_is_one_subject(self) -> None:
        assert changed() == []

    @pytest.mark.parametrize(
        ("how", "named"),
        [
            # B16: an image's tag is no identity, its files and packages are.
            ({"subject": {"engine_files": "f1"}}, ["build.files: f0 against f1"]),
            (
                {"subject": {"packages": {"transformers": "5.15", "torch": "2.13"}}},
                ["build.transformers: 5.10 against 5.15"],
            ),
            ({"subject": {"model_digest": "d1"}}, ["model.digest: d0 against d1"]),
            ({"subject": {"engine_version": "0.33.0"}}, ["build.version: 0.32.0 against 0.33.0"]),
            (
                {"subject": {"model": {"source": "google/gemma-3"}}},
                ["model.source: google/gemma-4 against google/gemma-3"],
            ),
            (
                {"subject": {"flags": SUBJECT["flags"] | {"--max-num-seqs": 8}}},
                ["flags.--max-num-seqs: 4 against 8"],
            ),
            (
                {"subject": {"flags": SUBJECT["flags"] | {"--async-scheduling": True}}},
                ["flags.--async-scheduling: not given against True"],
            ),
            (
                {"engine": {"environment": {"OMP_NUM_THREADS": "1"}}},
                ["environment.OMP_NUM_THREADS: not given against 1"],
            ),
            ({"workload_digest": "w1"}, ["workload.digest: w0 against w1"]),
        ],
    )
    def test_each_thing_that_differs_is_named(self, how: dict[str, Any], named: list[str]) -> None:
        assert changed(**how) == named

    def test_a_flag_that_is_true_is_not_the_number_one(self) -> None:
        flags = SUBJECT["flags"] | {"--max-num-seqs": True}
        one = SUBJECT["flags"] | {"--max-num-seqs": 1}
        halves = [subject_of(measured(subject={"flags": each})) for each in (flags, one)]
        assert len(differences(*halves)) == 1

    def test_a_drafter_that_is_there_differs_from_none_as_one_thing(self) -> None:
        drafter = {"source": "google/gemma-4-assistant", "method": "mtp", "draft_tokens": 3}
        found = differences(
            subject_of(measured()),
            subject_of(measured(subject={"drafter": drafter, "drafter_digest": "a0"})),
        )
        assert [str(each) for each in found] == [
            "drafter: none against given",
            "drafter.digest: not given against a0",
            "drafter.draft_tokens: not given against 3",
            "drafter.method: not given against mtp",
            "drafter.source: not given against google/gemma-4-assistant",
        ]
        assert not confounded(found)

    def test_an_attached_server_s_flags_are_unknown_as_a_whole(self) -> None:
        subject = {"engine_version": "0.32.0", "model": "google/gemma-4"}
        start = measured()
        engine = an_engine(attached=True, subject=subject)
        attached = subject_of(msgspec.structs.replace(start, engine=engine))
        assert [str(each) for each in differences(subject_of(start), attached)] == [
            "build.files: f0 against unknown",
            "build.torch: 2.13 against unknown",
            "build.transformers: 5.10 against unknown",
            "drafter: none against unknown",
            "environment: given against unknown",
            "flags: given against unknown",
            "model.--model: google/gemma-4 against unknown",
            "model.digest: d0 against unknown",
        ]

    def test_a_model_without_a_digest_is_not_known_to_be_the_same_model(self) -> None:
        half = subject_of(measured(subject={"model_digest": None}))
        (found,) = differences(half, half)
        assert found == Difference("subject", "model.digest", None, None)
        assert found.is_unknown
        assert not confounded([found])


class TestConfounding:
    def test_a_new_build_is_one_thing_however_many_of_its_facts_differ(self) -> None:
        how: dict[str, Any] = {"subject": {"engine_version": "0.33.0", "engine_files": "f1"}}
        found = differences(subject_of(measured()), subject_of(measured(**how)))
        assert len(found) == 2
        assert not confounded(found)

    def test_a_new_build_and_another_flag_are_two(self) -> None:
        flags = SUBJECT["flags"] | {"--max-num-seqs": 8}
        how: dict[str, Any] = {"subject": {"engine_files": "f1", "flags": flags}}
        assert confounded(differences(subject_of(measured()), subject_of(measured(**how))))

    def test_two_flags_are_two(self) -> None:
        flags = SUBJECT["flags"] | {"--max-num-seqs": 8, "--async-scheduling": True}
        found = differences(subject_of(measured()), subject_of(measured(subject={"flags": flags})))
        assert confounded(found)

    def test_the_same_change_in_both_arms_of_a_ratio_is_one_thing(self) -> None:
        then, now = measured(), measured(subject={"engine_files": "f1"})
        found = differences(
            identity.subject_of_pair(now, now), identity.subject_of_pair(then, then)
        )
        assert [each.field for each in found] == ["build.files", "reference build.files"]
        assert not confounded(found)


class TestDenominatorIds:
    def test_the_formula_is_part_of_the_id(self) -> None:
        # D16
        assert identity.denominator_id(DECODE_THROUGHPUT) == (
            "decode, output_token, any, 1: (N - k) / (t_last_token - t_first_token)"
        )

    def test_no_two_denominators_share_an_id(self) -> None:
        assert len({identity.denominator_id(each) for each in BUILT_IN.values()}) == len(BUILT_IN)

    def test_another_name_for_the_same_denominator_is_the_same_id(self) -> None:
        renamed = msgspec.structs.replace(SINGLE_STREAM, name="mine")
        assert identity.denominator_id(renamed) == identity.denominator_id(SINGLE_STREAM)

    def test_a_ratio_s_id_holds_both_denominators_and_the_factor(self) -> None:
        cold, warm = SINGLE_STREAM, BUILT_IN["cached_turn"]
        assert identity.ratio_id(warm, cold, "prefix") == (
            "(wall, request, warm, 1: t_last_token - t_sent) / "
            "(wall, request, cold, 1: t_last_token - t_sent) by prefix"
        )


values = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
halves = st.builds(
    Half,
    side=st.just("subject"),
    facts=st.dictionaries(st.sampled_from(["a", "a.x", "a.y", "b", "c"]), values),
)


@given(halves, halves)
def test_differences_are_the_same_from_either_side(one: Half, other: Half) -> None:
    mirrored = [Difference(d.half, d.field, d.theirs, d.mine) for d in differences(other, one)]
    assert list(differences(one, other)) == mirrored


@given(halves)
def test_a_half_differs_from_itself_exactly_in_what_it_does_not_know(half: Half) -> None:
    assert all(each.is_unknown for each in differences(half, half))
    assert bool(half.unknown) == bool(differences(half, half))
    assert (half.digest is None) == bool(half.unknown)


@given(halves, halves)
def test_equal_digests_mean_no_difference(one: Half, other: Half) -> None:
    if one.digest is not None and one.digest == other.digest:
        assert differences(one, other) == ()


DIGEST = "f2591c" * 11


def shown(mine: identity.Value, theirs: identity.Value) -> list[str]:
    text = str(Difference("subject", "drafter.digest", mine, theirs))
    return text.removeprefix("drafter.digest: ").split(" against ")


def test_long_values_are_shown_where_they_begin_to_differ() -> None:
    mine, theirs = shown(f"{DIGEST} mtp", f"{DIGEST} small")
    assert (mine, theirs) == ("...2591cf2591c mtp", "...2591cf2591c small")
    early = shown("a" * 70, "b" * 70)
    assert early == ["a" * 60 + "...", "b" * 60 + "..."]


def test_a_text_is_told_from_the_number_that_it_spells() -> None:
    assert shown("1", 1) == ["'1'", "1"]


@given(st.text("ab", max_size=200), st.text("ab", max_size=200))
def test_what_differs_never_looks_the_same(mine: str, theirs: str) -> None:
    one, other = shown(mine, theirs)
    assert (one == other) == (mine == theirs)
    assert max(len(one), len(other)) <= 66
