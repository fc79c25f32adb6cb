"""The closing table as people see it, as programs read it, and as a job's summary.

The whole text of each golden report is in ``golden/``; to see it as a reader does, open the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.assumption import Comparison
from pytest_llmperf.denominator import CACHED_TURN, DECODE_THROUGHPUT, SINGLE_STREAM
from pytest_llmperf.report import Row, as_json, markdown, render, strip, total
from pytest_llmperf.verdict import Objection, claim_text, judge, undecided, unjudged

GOLDEN = Path(__file__).parent / "golden"

ROUTER = (
    "perf_suites/test_cached_turn.py::test_router_turn_comes_back_while_the_user_still_looks[tools]"
)
PAYS = "perf_suites/test_speculation.py::test_speculation_pays"


def compared(**changed: Any) -> Comparison:  # noqa: ANN401 - fields of several types
    """A p50 of 30 turns that passes 0.250 s, but for what is changed."""
    found = Comparison(
        relation="at most",
        boundary=0.25,
        estimate=0.1824,
        low=0.1711,
        high=0.1962,
        confidence=0.94,
        replicate="turn",
        n=30,
        alpha=0.01,
        beta=0.05,
        p_regress=1.0,
        p_pass=0.0002,
        detectable=0.0714,
        needed=59,
        assumption="turns are independent",
    )
    return msgspec.structs.replace(found, **changed)


def ratio(estimate: float, low: float, high: float, **changed: Any) -> Comparison:  # noqa: ANN401 - fields of several types
    """A speed-up over twelve blocks against a floor of 1.4."""
    return compared(
        relation="at least",
        boundary=1.4,
        estimate=estimate,
        low=low,
        high=high,
        replicate="block",
        n=12,
        **changed,
    )


def row(
    gate: str,
    comparison: Comparison,
    what: str,
    *objections: Objection,
    unit: str = "s",
    scope: str = "this boot only",
    **more: Any,  # noqa: ANN401 - fields of several types
) -> Row:
    claim = claim_text(what, comparison.relation, comparison.boundary, unit)
    verdict = judge(comparison, objections, claim=claim, scope=scope, unit=unit)
    return Row(gate=gate, verdict=verdict, **({"denominator": CACHED_TURN} | more))


CACHED: dict[str, Any] = {
    "evidence": "30 of 30 turns cached, 2,176 of 2,240 tokens",
    "beside": (
        ("wait before anything appears, per request", "41.2 ms"),
        ("decode only, prefill removed, output tokens per second", "86.2 tok/s"),
    ),
}
SPECULATION: dict[str, Any] = {
    "unit": "x",
    "scope": "this pair of boots only",
    "denominator": SINGLE_STREAM,
    "arms": "gemma against gemma_autoregressive",
    "evidence": "812 drafts, 71 % accepted | against 0 drafts",
    "beside": (
        ("wait before anything appears", "0.984x"),
        ("decode only, prefill removed", "2.41x"),
    ),
}
DATED = Objection(
    kind="not_cached",
    reason="no turn found its prefix in the cache",
    evidence="0 of 30 turns cached; the prompts differ from their 3rd token on",
    remedy="move today's date behind the system prompt, or into the user's message",
)
ROWS = [
    row(ROUTER, compared(), "p50 of cached_turn", **CACHED),
    row(
        ROUTER,
        compared(
            estimate=0.2114,
            low=0.1943,
            high=None,
            p_pass=0.21,
            detectable=0.0886,
            warnings=("p95 of 30 turns can never be PASS: that takes at least 59",),
        ),
        "p95 of cached_turn",
        **CACHED,
    ),
    row(
        f"{PAYS}[tool_calls]",
        ratio(1.624, 1.503, 1.741),
        "speed-up of single_stream by speculation",
        **SPECULATION,
    ),
    row(
        f"{PAYS}[prose]",
        ratio(1.214, 1.162, 1.269, p_regress=0.00004, p_pass=1.0),
        "speed-up of single_stream by speculation",
        **SPECULATION,
    ),
    row(
        "perf_suites/test_decode.py::test_decoding_keeps_its_rate",
        compared(relation="at least", boundary=80.0),
        "p50 of decode_throughput",
        DATED,
        unit="tok/s",
        denominator=DECODE_THROUGHPUT,
        evidence="0 of 30 turns cached",
        beside=CACHED["beside"],
    ),
    Row(
        gate="perf_suites/test_budget.py::test_a_budget_of_this_machine",
        verdict=unjudged(
            "no budget named cached_turn.p50 on this machine",
            claim="p50 of cached_turn",
            scope="this boot only",
        ),
        denominator=CACHED_TURN,
        estimate=0.2101,
        evidence=CACHED["evidence"],
    ),
    Row(
        gate="perf_suites/test_upgrade.py::test_two_engines",
        verdict=undecided(
            "the two engines were not up together",
            claim="speed-up of single_stream at least 1.40x",
            scope="this pair of boots only",
            would_decide="a profile with resident = 2",
        ),
        denominator=SINGLE_STREAM,
    ),
]
"""One row of every sort: two claims of one gate, all four words, and none."""

REPORTS = {
    "report-80.txt": lambda: render(ROWS, width=80, exit_status=10),
    "report-100.txt": lambda: render(ROWS, width=100, exit_status=10),
    "report-120-ascii.txt": lambda: render(ROWS, width=120, ascii=True, exit_status=10),
    "report-80-colour.txt": lambda: render(ROWS, width=80, colour=True, exit_status=10),
    "report.md": lambda: markdown(ROWS, 10).rstrip("\n"),
    "report.json": lambda: as_json(ROWS, 10),
}


def without_colour(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name", REPORTS)
def test_the_whole_text_is_the_golden_one(name: str) -> None:
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert REPORTS[name]() + "\n" == golden


@pytest.mark.parametrize("width", [20, 64, 79, 80, 100, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_the_page_or_ends_in_space(width: int, ascii_only: bool) -> None:
    for line in render(ROWS, width=width, ascii=ascii_only).split("\n"):
        assert len(line) <= max(width, 64)
        assert line == line.rstrip()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_colour_changes_no_character_of_the_text(width: int) -> None:
    coloured = render(ROWS, width=width, colour=True)
    assert "\x1b[" in coloured
    assert without_colour(coloured) == render(ROWS, width=width)


def test_without_colour_there_is_no_escape() -> None:
    assert "\x1b" not in render(ROWS, width=80)


def test_ascii_is_ascii_whatever_the_gate_is_called() -> None:
    odd = msgspec.structs.replace(ROWS[0], gate="test_überall.py::test_µ[日本]")
    render([odd], width=80, ascii=True).encode("ascii")


def test_an_invalid_row_shows_no_number_and_none_beside() -> None:
    text = render([ROWS[4]], width=100)
    assert "0.182" not in text
    assert "86.2" not in text
    assert "86.2" not in markdown([ROWS[4]])


def test_what_stands_beside_two_claims_of_one_gate_stands_once() -> None:
    assert render(ROWS[:2], width=100).count("86.2 tok/s") == 1


def test_a_log_tail_keeps_its_lines() -> None:
    died = Objection("died", "the engine exited with 1", "line one\nline two", "")
    text = render([row("t.py::test", compared(), "p50", died)], width=80)
    assert "evidence   line one\n" + " " * 25 + "line two\n" in text
    assert "remedy" not in text


def test_a_warning_stands_under_a_pass() -> None:
    warned = compared(warnings=("all replicates are equal",))
    assert "note       all replicates are equal" in render(
        [row("t.py::test", warned, "p50")], width=80
    )


def test_the_total_counts_words_and_leaves_out_a_status_it_does_not_know() -> None:
    assert total(ROWS) == "2 PASS, 1 REGRESS, 2 INCONCLUSIVE, 1 INVALID, 1 not judged"
    assert total(ROWS[:1], 0) == "1 PASS, 0 REGRESS, 0 INCONCLUSIVE, 0 INVALID; exit status 0"


def test_json_holds_every_number_and_the_denominator_in_words() -> None:
    content = json.loads(as_json(ROWS, 10))
    assert content["total"] == {
        "PASS": 2,
        "REGRESS": 1,
        "INCONCLUSIVE": 2,
        "INVALID": 1,
        "not judged": 1,
    }
    first = content["rows"][0]
    assert first["verdict"]["comparison"]["estimate"] == 0.1824
    assert first["denominator"]["words"] == CACHED_TURN.words
    assert first["denominator"]["formula"] == "t_last_token - t_sent"
    assert content["rows"][1]["verdict"]["comparison"]["high"] is None


def test_markdown_keeps_one_line_a_row_and_escapes_its_bars() -> None:
    piped = msgspec.structs.replace(ROWS[0], gate="t.py::test[a|b]")
    lines = markdown([piped]).split("\n")
    assert lines[2].startswith("| PASS | `t.py::test[a\\|b]` | 0.182 s [0.171, 0.196]<br>p50 of")
    assert len(lines) == 6


class TestTheStrip:
    @pytest.mark.parametrize(
        ("comparison", "picture"),
        [
            (compared(low=0.17, estimate=0.18, high=0.19), "──[━●━]───────────│──"),
            (compared(low=0.26, estimate=0.28, high=0.33), "──│─[━━━●━━━━━━━━━]──"),
            (compared(low=0.2, estimate=0.24, high=0.3), "──[━━━━━●━│━━━━━━━]──"),
            (compared(low=0.2, estimate=0.22, high=None), "──[━━━━━●━━━━━━━━━│━>"),
            (compared(low=None, estimate=0.22, high=None), "<━●━━━━━━━━━━━━━━━│━>"),
            (compared(low=0.25, estimate=0.25, high=0.25), ""),
        ],
    )
    def test_shows_the_interval_against_the_boundary(
        self, comparison: Comparison, picture: str
    ) -> None:
        assert strip(comparison, 21) == picture

    @given(
        st.floats(0.1, 9), st.floats(0, 3), st.floats(0, 3), st.floats(0.1, 9), st.integers(12, 60)
    )
    def test_is_as_wide_as_asked_and_shows_estimate(
        self, estimate: float, down: float, up: float, boundary: float, width: int
    ) -> None:
        low, high = max(estimate - down, 0.01), estimate + up
        drawn = strip(compared(estimate=estimate, low=low, high=high, boundary=boundary), width)
        assert (len(drawn), drawn.count("●")) in ((width, 1), (0, 0))


NAMES = st.text(st.sampled_from("abc_:/[]-.é "), min_size=1, max_size=300).map(str.strip)


@settings(max_examples=60, deadline=None)
@given(NAMES.filter(bool), st.integers(64, 120))
def test_long_names_are_wrapped_and_never_cut(name: str, width: int) -> None:
    named = msgspec.structs.replace(ROWS[0], gate=name)
    lines = render([named], width=width).split("\n")[2:]
    end = next(i for i, line in enumerate(lines) if line.startswith("PASS          0.182 s"))
    assert "".join(lines[:end]).replace(" ", "") == name.replace(" ", "")


def test_a_bound_from_below_is_printed_as_one() -> None:
    verdict = undecided("x", claim="p99", scope="this burst only")
    row = Row(gate="g", verdict=verdict, denominator=CACHED_TURN, estimate=60.0, is_bound=True)
    assert row.number == "> 60.0 s"


def test_a_picture_is_printed_as_it_is_and_in_ascii_where_it_must() -> None:
    verdict = undecided("x", claim="c", scope="s")
    row = Row(gate="g", verdict=verdict, denominator=CACHED_TURN, picture=("▁  █ knee",))
    assert "▁  █ knee" in render([row], width=80)
    assert "_  # knee" in render([row], width=80, ascii=True)


def test_no_picture_is_drawn_of_what_is_invalid() -> None:
    objection = Objection("k", "r", "e", "m")
    verdict = judge(None, [objection], claim="c", scope="s", unit="s")
    row = Row(gate="g", verdict=verdict, denominator=CACHED_TURN, picture=("▁  █",))
    assert "█" not in render([row], width=80)
