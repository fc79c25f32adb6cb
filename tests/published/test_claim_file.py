"""A claim's file: what it may hold, what is wrong with it, and what two of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.claims.published import Claim, why_not_ranked
from pytest_llmperf.errors import UsageError

Claims = Callable[..., Claim]

SUITES = Path(__file__).parent.parent.parent / "perf_suites" / "claims"


def faults_of(table: dict[str, Any]) -> list[str]:
    with pytest.raises(UsageError) as told:
        Claim.of("c", table)
    return [line.removeprefix("- ") for line in told.value.evidence.splitlines()]


def test_a_number_that_no_float_holds_is_a_fault() -> None:
    (found,) = faults_of({"number": 10**400, "unit": "x"})
    assert found.endswith("is not a finite number above 0")


def test_a_whole_claim_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        """
number = 2.4
unit = "x"
says = "2.4 times with four drafts"
source = "https://example.org/recipe"

[denominator]
clock = "decode"
unit = "output_token"
prefix = "cold"
streams = 1
factor = "speculation"

[conditions]
content_class = "code"
temperature = 0.0
draft_tokens = 4
acceptance_length = 3.2
quantisation = "fp8"
""",
        encoding="utf-8",
    )
    claim = Claim.read(path)
    assert (claim.name, claim.number, claim.unit) == ("recipe", 2.4, "x")
    assert claim.counted_by is not None
    assert claim.counted_by.words == (
        "decode only, prefill removed, output tokens per second, cold prefix, proven, 1 stream"
    )
    assert claim.conditions.acceptance_length == 3.2


def test_what_a_claim_leaves_out_is_unknown() -> None:
    claim = Claim.of("c", {"number": 2.4, "unit": "x"})
    assert claim.counted_by is None
    assert claim.conditions.temperature is None


def test_a_claim_s_own_unit_says_what_it_counts() -> None:
    assert Claim.of("c", {"number": 40, "unit": "tok/s"}).counted_unit == "output_token"
    assert Claim.of("c", {"number": 40, "unit": "s"}).counted_unit == "request"
    assert Claim.of("c", {"number": 40, "unit": "x"}).counted_unit is None


def test_every_fault_is_named_at_once() -> None:
    assert faults_of(
        {
            "number": "fast",
            "units": "x",
            "unit": "furlongs",
            "denominator": {"clok": "wall", "streams": 0},
            "conditions": {"temperature": -1},
        }
    ) == [
        "number = 'fast' is not a finite number above 0",
        (
            "units is not known; did you mean unit? Allowed here: number, unit, says, source, "
            "denominator, conditions"
        ),
        "unit = 'furlongs' is not one of x, tok/s, s",
        (
            "[denominator] clok is not known; did you mean clock? Allowed here: clock, unit, "
            "prefix, streams, factor"
        ),
        "[denominator] streams = 0 is not a whole number from 1",
        "[conditions] temperature = -1 is not a finite number from 0",
    ]


def test_a_claim_without_a_number_is_none() -> None:
    assert faults_of({"says": "fast"}) == ["number is missing", "unit is missing"]


@pytest.mark.parametrize(
    ("unit", "denominator", "fault"),
    [
        ("s", {"unit": "output_token"}, "unit = 'output_token' does not fit unit = 's'"),
        ("tok/s", {"unit": "request"}, "unit = 'request' does not fit unit = 'tok/s'"),
        ("s", {"factor": "prefix"}, "factor belongs to a ratio; unit is 's'"),
        ("s", {"clock": "decode"}, "clock = 'decode' counts tokens; unit is 'request'"),
        (
            "tok/s",
            {"clock": "first_token"},
            "clock = 'first_token' counts no tokens; unit is 'output_token'",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_named(
    unit: str, denominator: dict[str, Any], fault: str
) -> None:
    assert faults_of({"number": 1, "unit": unit, "denominator": denominator}) == [
        f"[denominator] {fault}"
    ]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        Claim.read(tmp_path / "lost.toml")
    assert told.value.what == f"The claim {tmp_path / 'lost.toml'} cannot be read."
    assert told.value.next_step == (
        "A claim is a TOML file in UTF-8, with number, unit and [denominator]."
    )


@pytest.mark.parametrize("text", ["number = ", "\ufffd = ]", "number = 1\nnumber = 2"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be read"):
        Claim.read(tmp_path / "broken.toml")


def outcome(table: dict[str, Any]) -> bool:
    """Whether a table gives a claim with its number, or faults."""
    try:
        return Claim.of("c", table).number > 0
    except UsageError as error:
        return error.evidence.startswith("- ")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["clock", "unit", "streams", "temperature", "x", ""]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["number", "unit", "says", "denominator", "conditions", "y"]),
        VALUES,
        max_size=6,
    )
)
def test_any_table_gives_a_claim_or_names_its_faults(table: dict[str, Any]) -> None:
    assert outcome(table)


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_suites_claims_state_their_whole_denominator(path: Path) -> None:
    assert Claim.read(path).counted_by is not None


ONE_BOX = {  # one machine, one model, eight streams: 152 to 674 tokens per second
    "kubis": (152, {"quantisation": "fp8"}),
    "AEON-7": (159, {"quantisation": "nvfp4"}),
    "MiaAI": (182, {"draft_tokens": 1, "temperature": 1.0}),
    "eugr": (210, {"draft_tokens": 4}),
    "rikkarth": (403, {"temperature": 0.0, "draft_tokens": 5}),
    "ai-muninn": (674, {"quantisation": "fp8", "draft_tokens": 4}),
}


def published(name: str) -> Claim:
    number, conditions = ONE_BOX[name]
    table = {"number": number, "unit": "tok/s", "conditions": conditions}
    return Claim.of(name, table | {"denominator": {"clock": "wall", "streams": 8}})


@pytest.mark.parametrize("other", [name for name in ONE_BOX if name != "kubis"])
def test_published_numbers_of_one_box_are_not_ranked(other: str) -> None:
    why = why_not_ranked(published("kubis"), published(other))
    assert len(why) >= 5
    assert "prefix: unknown against unknown" in why


def test_unknown_does_not_equal_unknown() -> None:
    twin = Claim.of("c", {"number": 2.4, "unit": "x"})
    assert "clock: unknown against unknown" in why_not_ranked(twin, twin)


def test_claims_alike_in_all_that_counts_are_ranked(claim: Claims) -> None:
    conditions = {
        "content_class": "code",
        "temperature": 0.0,
        "draft_tokens": 4,
        "acceptance_length": 3.2,
        "quantisation": "fp8",
    }
    first, second = (claim(conditions=conditions, number=number) for number in (2.0, 2.4))
    assert why_not_ranked(first, second) == []


def test_a_number_by_wall_clock_is_not_ranked_with_one_by_decode(claim: Claims) -> None:
    by_wall = claim(denominator={"clock": "wall"})
    assert "clock: decode against wall" in why_not_ranked(claim(), by_wall)
