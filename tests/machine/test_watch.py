"""Watching: states before, during and after; a canary at each end; an error is not lost."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.fitness import Canary, MachineState, Precondition
from pytest_llmperf.machine import Load, Watch, canary, host, phases, words

NEEDED = Precondition(measurement_id="m0")


@pytest.fixture(autouse=True)
def _short_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "STEPS", 10)
    monkeypatch.setattr(canary, "COPIED_BYTES", 16)


def counting(step_ns: int = 1) -> Callable[[], int]:
    return itertools.count(0, step_ns).__next__


def test_a_window_is_watched_from_before_to_after(made_up: Path) -> None:
    lines: list[object] = []
    sampled = threading.Event()

    def add(line: object) -> None:
        lines.append(line)
        if isinstance(line, MachineState) and line.when == "during":
            sampled.set()

    watch = Watch(add, clock=counting(), ours=os.getpid(), root=made_up, every_s=0.001)
    with watch.watching(NEEDED):
        assert sampled.wait(30)
    assert lines[0] == NEEDED
    whens = [each.when for each in lines if isinstance(each, MachineState | Canary)]
    assert (whens[:2], whens[-2:]) == (["before", "before"], ["after", "after"])
    assert set(whens[2:-2]) == {"during"}


def test_a_process_of_ours_that_is_killed_keeps_what_it_took(
    written: Callable[[dict[str, str]], Path],
) -> None:
    def taken(ticks: int) -> dict[str, str]:
        fields = ["S", "10", *["0"] * 9, str(ticks), "0", *["0"] * 6, "5"]
        return {"proc/11/stat": f"11 (engine) {' '.join(fields)}\n"}

    lines: list[object] = []
    root = written(taken(0))
    watch = Watch(lines.append, clock=counting(), ours=10, root=root, every_s=3600)
    with watch.watching(NEEDED) as look:
        written(taken(5 * host.ticks()))
        look()
        (root / "proc/11/stat").unlink()
    states = [each for each in lines if isinstance(each, MachineState)]
    assert [(each.when, each.ours_s) for each in states] == [
        ("before", 0.0),
        ("during", 5.0),
        ("after", 5.0),
    ]


def test_nothing_is_sampled_once_the_window_is_over(made_up: Path) -> None:
    before = threading.active_count()
    watch = Watch(lambda _: None, clock=counting(), ours=None, root=made_up, every_s=0.001)
    with pytest.raises(KeyboardInterrupt), watch.watching(NEEDED):
        raise KeyboardInterrupt
    assert threading.active_count() == before


def test_a_sample_that_could_not_be_written_is_told_when_the_window_ends(made_up: Path) -> None:
    failed = threading.Event()

    def add(line: object) -> None:
        if isinstance(line, MachineState) and line.when == "during":
            failed.set()
            raise EvidenceError("disk full", "", "")

    watch = Watch(add, clock=counting(), ours=None, root=made_up, every_s=0.001)
    with pytest.raises(EvidenceError, match="disk full"), watch.watching(NEEDED):
        assert failed.wait(30)


def test_of_an_engine_that_is_not_ours_no_cpu_time_is_claimed(made_up: Path) -> None:
    lines: list[object] = []
    watch = Watch(lines.append, clock=counting(), ours=None, root=made_up)
    with watch.watching(NEEDED):
        pass
    states = [each for each in lines if isinstance(each, MachineState)]
    assert [each.ours_s for each in states] == [None, None]
    assert [each.others for each in states] == [None, None]


def test_a_canary_is_the_median_of_its_rounds() -> None:
    assert canary.sing("m0", "before", counting(7)) == Canary(
        measurement_id="m0", when="before", at_ns=0, loop_ns=7, copy_ns=7
    )


def state(when: str, at_s: float, **facts: object) -> MachineState:
    return MachineState(measurement_id="m0", when=when, at_ns=round(at_s * 1e9), **facts)  # type: ignore[arg-type]


def test_shares_are_of_what_our_cores_could_give() -> None:
    load = Load(
        [
            state("before", 0, cores=2, busy_s=100.0, ours_s=10.0, steal_s=1.0),
            state("after", 10, cores=2, busy_s=119.0, ours_s=26.0, steal_s=1.5),
        ]
    )
    assert (load.ours_share, load.foreign_share, load.steal_share) == pytest.approx(
        (0.8, 0.15, 0.025)
    )


def test_shares_of_a_short_window_or_of_unknown_parts_are_unknown() -> None:
    short = Load(
        [
            state("before", 0, cores=2, busy_s=0.0, ours_s=0.0),
            state("after", 1, cores=2, busy_s=1.0, ours_s=0.0),
        ]
    )
    unknown = Load(
        [state("before", 0, cores=2, busy_s=0.0), state("after", 9, cores=2, busy_s=9.0)]
    )
    assert [each.foreign_share for each in (short, unknown, Load([]))] == [None] * 3


def test_the_machine_is_shown_without_what_is_unknown() -> None:
    bare = [state("before", 0), state("after", 9)]
    full = [
        state("before", 0, cores=2, busy_s=0.0, ours_s=0.0, steal_s=0.0, mhz=(2100.0,)),
        state("after", 10, cores=2, busy_s=20.0, ours_s=19.8, steal_s=0.2, zones_c={"soc": 61.0}),
    ]
    assert words(bare) == "machine: other processes' CPU not known"
    assert (
        words(full)
        == "machine: other processes 1 % of 2 cores, stolen 1 %, 2,100 MHz, hottest 61 C"
    )


def test_before_during_and_after_are_told_apart() -> None:
    states = [state("before", 0, load=0.2), state("during", 1, load=8.0), state("after", 2)]
    assert phases(states) == (
        ("before", "load 0.2"),
        ("during", "load 8.0"),
        ("after", "not measured"),
    )
