"""Two arms may differ in their declared factor, and in nothing else that their ratio depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import DECODE_THROUGHPUT, SINGLE_STREAM, TIME_TO_FIRST_TOKEN
from pytest_llmperf.proof import pair_contradictions, pair_findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.proof import Contradiction
    from tests.proof.conftest import Making

PLAIN = record.Declared(prefix_caching=True)


def kinds(candidate: Measured, reference: Measured, factor: str | None, **of: Any) -> list[str]:  # noqa: ANN401 - the denominator or nothing
    return [each.kind for each in pair_contradictions(candidate, reference, factor, **of)]


def only(candidate: Measured, reference: Measured, factor: str | None) -> Contradiction:
    (found,) = pair_contradictions(candidate, reference, factor)
    return found


@pytest.fixture
def speculating(making: Making) -> Measured:
    return making.sound(of="single_stream")


@pytest.fixture
def plain(making: Making) -> Measured:
    return making.sound(of="single_stream", declared=PLAIN, arm="reference", boot="b1")


def test_arms_that_differ_in_their_factor_alone_are_comparable(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    assert kinds(speculating, plain, "speculation") == []
    warm = making.sound()
    cold = making.sound(of="single_stream", arm="reference")
    assert kinds(warm, cold, "prefix") == []


def test_a_comparison_without_a_factor_is_none(speculating: Measured, plain: Measured) -> None:
    found = only(speculating, plain, None)
    assert found.kind == "no_factor"
    assert found.reason == "Two arms are compared that differ in no declared factor."
    assert found.evidence == "The measurement names none."
    assert found.remedy == (
        "Declare the one factor in which the arms differ, and let them differ in it."
    )


@pytest.mark.parametrize("factor", ["speculation", "prefix"])
def test_arms_that_are_alike_in_their_factor_compare_nothing(
    making: Making, speculating: Measured, factor: str
) -> None:
    twin = making.sound(of="single_stream", arm="reference", boot="b1")
    assert only(speculating, twin, factor).evidence == f"Both arms are alike in {factor}."


def test_denominators_that_differ_elsewhere_are_named(making: Making, plain: Measured) -> None:
    found = only(making.sound(of="cached_turn"), plain, "speculation")
    assert found.kind == "denominators_differ"
    assert found.reason == "The arms are counted by different denominators."
    assert found.evidence == (
        "Apart from the factor 'speculation' they differ in prefix: 'warm' against 'cold'."
    )
    assert found.remedy == "Compare numbers of one denominator only."


def test_engines_that_differ_in_more_than_the_factor_are_named(
    making: Making, speculating: Measured
) -> None:
    other = record.Declared(prefix_caching=False)
    found = only(
        speculating,
        making.sound(of="single_stream", declared=other, arm="reference", boot="b1"),
        "speculation",
    )
    assert found.kind == "engines_differ"
    assert found.reason == "The engines differ in more than the factor 'speculation'."
    assert found.evidence == "Their declarations differ in prefix_caching: True against False."
    assert found.remedy == "Boot both engines alike but for the factor."
    warm_without_drafter = making.sound(declared=PLAIN)
    cold = making.sound(of="single_stream", arm="reference")
    assert kinds(warm_without_drafter, cold, "prefix") == ["engines_differ"]
    assert kinds(speculating, making.sound(of="single_stream", declared=other), "profile") == []


def test_prompts_on_one_side_only_are_counted(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    other = making.with_turns(
        plain, lambda n, each: msgspec.structs.replace(each, prompt="x") if n == 0 else each
    )
    found = only(speculating, other, "speculation")
    assert found.kind == "prompts_differ"
    assert found.reason == "The arms did not answer the same prompts."
    assert found.evidence == ("2 prompts stand on one side only, the first ('p1', 'd1').")
    assert found.remedy == "Give both arms the same workload and turns."


def test_equal_names_of_unequal_bytes_are_only_allowed_under_the_factor_prefix(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    def rewrite(measured: Measured) -> Measured:
        return making.with_turns(
            measured, lambda _, each: msgspec.structs.replace(each, prompt_digest="other")
        )

    assert kinds(speculating, rewrite(plain), "speculation") == ["prompts_differ"]
    cold = making.sound(of="single_stream", arm="reference")
    assert kinds(making.sound(), rewrite(cold), "prefix") == []


def test_prompts_that_are_unknown_on_both_sides_are_not_the_same(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    first, second = (
        making.with_turns(
            each,
            lambda _, turn: msgspec.structs.replace(turn, prompt=None, prompt_digest=None),
        )
        for each in (speculating, plain)
    )
    assert only(first, second, "speculation").evidence == (
        "Some turns do not say which prompt they are: unknown never equals known."
    )


def test_arms_are_asked_and_counted_alike(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    other = making.with_turns(
        plain,
        lambda _, each: msgspec.structs.replace(
            each, temperature=1.0, max_tokens=64, tokens_from="retokenised"
        ),
    )
    found = only(speculating, other, "speculation")
    assert found.kind == "sampling_differs"
    assert found.reason == "The arms were not asked and counted alike."
    assert found.evidence == (
        "They differ in temperature: 0.0 against 1.0; max_tokens: 48 against 64; "
        "tokens_from: server against tokenizer."
    )
    assert found.remedy == (
        "Ask both arms with the same temperature and max_tokens, counted by one source."
    )


@pytest.mark.parametrize(("tokens", "alike"), [(2300, True), (2353, False), (801, False)])
def test_prompts_are_equally_long_on_both_sides(
    making: Making, speculating: Measured, plain: Measured, tokens: int, alike: bool
) -> None:
    other = making.with_usage(plain, prompt_tokens=tokens)
    assert kinds(speculating, other, "speculation") == ([] if alike else ["prompt_lengths_differ"])
    if tokens == 801:
        found = only(speculating, other, "speculation")
        assert found.reason == "The arms' prompts are not equally long."
        assert found.evidence == (
            "17,920 against 6,408 prompt tokens over all turns; 5 % is allowed."
        )
        assert found.remedy == "Look at what the templates add on each side."


@pytest.mark.parametrize(
    ("output", "comparable"), [((51_083, 51_758), True), ((51_083, 52_500), False)]
)
def test_whole_answers_are_compared_at_equal_length_only(
    making: Making,
    speculating: Measured,
    plain: Measured,
    output: tuple[int, int],
    comparable: bool,
) -> None:
    first, second = (
        making.with_usage(each, slice(0, 1), completion_tokens=total - 7 * 48)
        for each, total in zip((speculating, plain), output, strict=True)
    )
    found = kinds(first, second, "speculation")
    assert found == ([] if comparable else ["output_lengths_differ"])
    for free in (DECODE_THROUGHPUT, TIME_TO_FIRST_TOKEN):
        assert kinds(first, second, "speculation", of=free) == []
    if not comparable:
        message = only(first, second, "speculation")
        assert message.reason == (
            "The arms' answers are not known to be equally long, "
            "so times for whole answers are not comparable."
        )
        assert message.evidence == (
            "51,083 against 52,500 output tokens over all turns; 2 % is allowed."
        )
        assert message.remedy == (
            "Compare per token (decode_throughput), or fix the length of the answers."
        )


def test_answers_of_unknown_length_are_not_equally_long(
    making: Making, speculating: Measured, plain: Measured
) -> None:
    other = making.with_usage(plain, completion_tokens=None)
    assert kinds(speculating, other, "speculation") == ["output_lengths_differ"]


def test_a_cached_over_cold_ratio_of_whole_turns_says_what_is_in_it(making: Making) -> None:
    cold = making.sound(of="single_stream", arm="reference")
    (found,) = pair_findings(making.sound(), cold, "prefix")
    assert found.text == (
        "A cached prefix only saves prefill: this ratio also contains decoding, which the cache "
        "does not touch; the ratio of times to first token is the cache's own."
    )
    assert pair_findings(making.sound(), cold, "prefix", TIME_TO_FIRST_TOKEN) == ()
    assert pair_findings(making.sound(), cold, "speculation", SINGLE_STREAM) == ()


def test_engines_that_differ_in_several_facts_are_told(making: Making) -> None:
    candidate = making.sound(engine={"subject": {"vllm": "0.32.0", "model": "a", "flags": "x"}})
    reference = making.sound(engine={"subject": {"vllm": "0.31.0", "model": "b", "flags": "x"}})
    (found,) = pair_findings(candidate, reference, "profile")
    assert found.text == "The engines differ in several facts: model, vllm."
