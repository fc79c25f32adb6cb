"""Reading declarations off pytest's items: markers, rounds, and the gate that an item belongs to.

What a marker's keywords mean is in ``declaration``; the hooks that call this are in ``plugin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_llmperf import budget, declaration, markers
from pytest_llmperf.asserted import claims_of
from pytest_llmperf.plugin.fixtures import ENGINE_FIXTURES
from pytest_llmperf.plugin.keys import DECLARATION, GATE, GATES, ROUNDS

USES = frozenset({"llmperf", "engine", *ENGINE_FIXTURES})
"""An item uses this plugin when it asks for one of these fixtures; no other is looked at."""


def is_ours(item: pytest.Item) -> bool:
    """Whether a test asks for one of our fixtures."""
    return bool(USES.intersection(getattr(item, "fixturenames", ())))


def forgotten(item: pytest.Item) -> Iterable[str]:
    """Name a test that declares as ours do and asks for none of our fixtures.

    One whose markers do not read as ours uses the words for something else, and may.
    """
    declared, problems = declaration.declare(_ours(item))
    if declared is not None and not problems:
        yield f"{item.nodeid}: {_without_bench(declared)}"


def declare(item: pytest.Item) -> Iterable[str]:
    """Stash an item's declaration; yield each problem with the item's name before it."""
    declared, problems = declaration.declare(_ours(item))
    problems = [*_misspelt(item), *_twice(item), *problems]
    has_bench = "llmperf" in getattr(item, "fixturenames", ())
    if declared is None and not problems and has_bench:
        names = ", ".join(markers.MARKERS)
        problems = [f"measures with llmperf and declares no denominator. Mark it with {names}."]
    if declared is not None and not has_bench:
        problems = [*problems, _without_bench(declared)]
    if declared is not None:
        from pytest_llmperf.gate import Gate  # noqa: PLC0415 - only where gates are declared

        key = _gate_key(item)
        gates = item.config.stash[GATES]
        gate = next((each for each in gates if each.node_id == key), None)
        if gate is None:
            gate = Gate(key, declared.speedup or declared.denominator)
            gate.planned_rounds = item.config.stash[ROUNDS]
            test = getattr(item, "function", None)
            budgets = {} if test is None else budget.by_keyword(test)
            gate.claims = claims_of(getattr(test, "__code__", None), budgets)
            gates.append(gate)
        item.stash[DECLARATION] = declared
        item.stash[GATE] = gate
        if "benchmark" in getattr(item, "fixturenames", ()):
            from pytest_llmperf import benchmark_view  # noqa: PLC0415 - only where it is asked for

            benchmark_view.prepare(item, key)
    return [f"{item.nodeid}: {problem}" for problem in problems]


def _ours(item: pytest.Item) -> list[tuple[str, tuple[Any, ...], Mapping[str, Any]]]:
    return [
        (mark.name, mark.args, mark.kwargs)
        for mark in item.iter_markers()
        if mark.name in markers.MARKERS
    ]


def _without_bench(declared: declaration.Declaration) -> str:
    return (
        f"is marked {declared.denominator.name} and does not ask for the llmperf fixture, so it "
        "can assert nothing of what it declares. Take llmperf as an argument, or take the marker "
        "away."
    )


def round_of(item: pytest.Item) -> int:
    """Which boot of each engine an item measures, from 0."""
    callspec = getattr(item, "callspec", None)
    return 0 if callspec is None else int(callspec.params.get("llmperf_round", 0))


def _gate_key(item: pytest.Item) -> str:
    """Give the node id without the round: the same gate on every boot."""
    base, bracket, rest = item.nodeid.partition("[")
    if not bracket or "llmperf_round" not in item.callspec.params:  # type: ignore[attr-defined]
        return item.nodeid
    others = [part for part in re.split(r"(?:^|-)boot\d+(?=-|$)", rest[:-1], maxsplit=1) if part]
    return f"{base}[{''.join(others).lstrip('-')}]" if others else base


def _twice(item: pytest.Item) -> list[str]:
    """Markers of ours that stand twice on one test; one on its class or module is overridden."""
    seen: dict[tuple[str, int], list[pytest.Mark]] = {}
    for node, mark in item.iter_markers_with_node():
        if mark.name in markers.MARKERS:
            seen.setdefault((mark.name, id(node)), []).append(mark)
    return [
        f"{name} stands {len(marks)} times on one test: "
        f"{' and '.join(_written(mark) for mark in marks)}. Keep one of them."
        for (name, _), marks in seen.items()
        if len(marks) > 1
    ]


def _written(mark: pytest.Mark) -> str:
    said = ", ".join(f"{key}={value!r}" for key, value in mark.kwargs.items())
    return f"{mark.name}({said})"


def _misspelt(item: pytest.Item) -> list[str]:
    """Markers that nobody registered and that look like one of ours."""
    registered = {line.split(":")[0].split("(")[0] for line in item.config.getini("markers")}
    unknown = {mark.name for mark in item.iter_markers()} - registered
    near = {name: declaration.near_miss(name) for name in sorted(unknown)}
    return [
        f"marker {name} is not known. Did you mean {ours}?" for name, ours in near.items() if ours
    ]
