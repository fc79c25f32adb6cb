"""Classes of output: which there are, and how predictable each of them is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from pytest_llmperf import PlannedRequest, Prompts, record
from pytest_llmperf.analysis.predictability import ByClass, class_of, predicted, refuse_alike
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine, some_counters


def workload(*temperatures: float, content_class: str | None = "prose") -> Prompts:
    items = tuple(
        PlannedRequest(
            prompt="",
            messages=({"role": "user", "content": "?"},),
            max_tokens=1,
            temperature=each,
            content_class=content_class,
        )
        for each in temperatures
    )
    return Prompts(name="asked", items=items)


def a_pair(repetitions: Sequence[float | None]) -> Pair:
    """A pair whose candidate accepted 30 tokens in 20 drafts."""
    start = a_measurement(turns=len(repetitions))
    turns = [
        a_request(
            request_id=f"r{n}", measurement_id="m0", arm="candidate", repetition=each, block=0
        )
        for n, each in enumerate(repetitions)
    ]
    drafts = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
    before = some_counters(**drafts)
    after = some_counters(
        when="after", at_ns=10**12, drafts=20.0, draft_tokens=60.0, accepted_tokens=30.0
    )
    records: list[record.Record] = [a_session(), an_engine(), start, before, after, *turns]
    run = Run(Evidence(records).measured("m0"))
    return Pair(run, run, of=run.denominator, factor="speculation")


def test_a_class_is_a_kind_of_content_at_a_temperature() -> None:
    assert class_of(workload(0.0, 0.0)) == "prose"
    assert class_of(workload(0.7)) == "prose at temperature 0.7"


@pytest.mark.parametrize(
    ("mixed", "seen"),
    [
        (workload(0.0, 0.7), "Content class 'prose'; temperatures 0.0, 0.7."),
        (workload(0.0, content_class=None), "Content class None; temperatures 0.0."),
    ],
)
def test_a_workload_of_no_one_class_is_refused(mixed: Prompts, seen: str) -> None:
    with pytest.raises(UsageError) as refused:
        class_of(mixed)
    assert str(refused.value) == (
        "The workload 'asked' is not of one class.\n"
        f"{seen}\n"
        "Give all of its requests one content_class and one temperature."
    )


def test_one_class_twice_or_none_at_all_is_refused() -> None:
    with pytest.raises(UsageError) as twice:
        refuse_alike(["code", "prose", "code"])
    assert str(twice.value) == (
        "There are two workloads of one class: code.\n"
        "Their classes are code, prose, code.\n"
        "Give one workload for each class."
    )
    with pytest.raises(UsageError, match="There is no workload to compare on"):
        refuse_alike([])


def test_acceptance_is_by_the_counters_of_the_class_s_own_window() -> None:
    # M6: 1 + accepted tokens / drafting steps, over the window of this class alone.
    assert predicted("code", a_pair([0.2, 0.4, 0.3])) == (
        "code: acceptance length 2.50 tokens a step, 30 % of 4-grams repeated"
    )


def test_each_class_is_shown_by_three_clocks() -> None:
    # D6: what drafting gains in decode it may lose in prefill.
    ((words, value),) = ByClass({"code": a_pair([0.1, 0.2])}).table
    assert words.endswith("; whole turn / first token / decode only")
    assert value == "1.00x / 1.00x / 1.00x"


def test_a_turn_without_a_rate_leaves_the_class_without_one() -> None:
    assert predicted("code", a_pair([0.2, None])).endswith("not measured of 4-grams repeated")


def test_floors_are_of_the_classes_that_were_measured() -> None:
    classes = ByClass({"code": a_pair([0.1]), "prose": a_pair([0.1])})
    assert classes.floors(1.2) == {"code": 1.2, "prose": 1.2}
    assert classes.floors({"prose": 1.0, "code": 1.4}) == {"code": 1.4, "prose": 1.0}
    with pytest.raises(UsageError) as apart:
        classes.floors({"prose": 1.0, "tools": 1.4})
    assert str(apart.value) == (
        "Floors and classes differ in 'code', 'tools'.\n"
        "Measured were code, prose; floors are given for prose, tools.\n"
        "Give one floor for each class, or one number for all."
    )


def test_two_temperatures_of_one_prompt_are_two_classes() -> None:
    sampled = msgspec.structs.replace(workload(0.0), items=workload(0.7).items)
    refuse_alike([class_of(workload(0.0)), class_of(sampled)])
