"""Usage, counters and timing may disagree; the disagreement is told and timing never proves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmperf.proof import contradictions, findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmperf.proof import Contradiction, Finding
    from tests.proof.conftest import Making


def kinds(found: Sequence[Contradiction] | Sequence[Finding]) -> list[str]:
    return [each.kind for each in found]


def test_a_hit_counter_that_stays_zero_is_told_and_usage_stands(making: Making) -> None:
    measured = making.with_after(making.sound(), prefix_hits=0.0)
    assert contradictions(measured) == ()
    (found,) = findings(measured)
    assert found.text == (
        "Usage and counters disagree: cached tokens: 17,408 by usage, 0 by the counters."
    )


def test_counters_that_hit_do_not_prove_what_usage_denies(making: Making) -> None:
    measured = making.with_usage(making.sound(), cached_tokens=0)
    (found,) = contradictions(measured)
    assert found.kind == "not_cached"
    assert found.remedy == "Usage and counters disagree: is the usage rewritten on its way to us?"
    assert kinds(findings(measured)) == ["counters_disagree"]


def test_a_hundredth_is_no_disagreement(making: Making) -> None:
    assert findings(making.with_after(making.sound(), prefix_hits=17_300.0)) == ()


def test_lookups_that_differ_from_prompts_are_told(making: Making) -> None:
    (found,) = findings(making.with_after(making.sound(), prefix_queries=18_000.0))
    assert found.text == (
        "Usage and counters disagree: "
        "prompt tokens looked up: 20,160 by usage, 18,000 by the counters."
    )


def test_unknown_counters_are_no_disagreement(making: Making) -> None:
    measured = making.with_after(making.sound(), prefix_hits=None, prefix_queries=None)
    assert findings(measured) == ()


@pytest.mark.parametrize("of", ["cached_turn", "single_stream"])
def test_more_hits_than_lookups_is_an_error_where_the_prefix_counts(
    making: Making, of: str
) -> None:
    measured = making.with_after(making.sound(of=of), prefix_hits=20_160.0, prefix_queries=17_408.0)
    found = next(each for each in contradictions(measured) if each.kind == "counters_swapped")
    assert found.reason == "The counters show more prefix hits than lookups."
    assert found.evidence == "In the window 20,160 hits, 17,408 lookups."
    assert found.remedy == (
        "Check whether the metrics page names hits and queries the wrong way round."
    )


def test_swapped_counters_matter_to_nobody_who_declares_any_prefix(making: Making) -> None:
    measured = making.with_after(
        making.sound(of="decode_throughput"), prefix_hits=9.0, prefix_queries=1.0
    )
    assert contradictions(measured) == ()


def test_fast_turns_without_a_reported_hit_are_only_suspected(making: Making) -> None:
    measured = making.sound(cached=None, first_s=0.02)
    measured = making.with_after(measured, prefix_hits=0.0)
    assert kinds(contradictions(measured)) == ["cached_unknown"]
    (found,) = findings(measured)
    assert found.text == (
        "By timing alone a cached prefix is suspected: time to first token fell 5.00x "
        "from priming to turns, and no hit is reported."
    )
