from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature import train


def test_a_python_without_torch_is_told_what_to_use_instead() -> None:
    with pytest.raises(UsageError) as raised:
        train._needed("no_such_torch")
    assert str(raised.value) == (
        "Training the miniature needs no_such_torch, which this Python cannot import.\n"
        f"{sys.executable}: No module named 'no_such_torch'\n"
        "Run it with the Python of an engine's environment, which has torch and transformers."
    )


class TestTheLearningRate:
    def test_warms_up_to_its_peak(self) -> None:
        assert train._rate(0.001) < train._rate(0.02) < train._rate(0.04) <= train.PEAK_RATE

    def test_falls_to_a_tenth_at_the_end(self) -> None:
        assert train._rate(1.0) == pytest.approx(train.PEAK_RATE / 10)
        rates = [train._rate(step / 100) for step in range(5, 101)]
        assert rates == sorted(rates, reverse=True)


class TestTheSchedule:
    @pytest.mark.parametrize(
        "phases", [train.TARGET_PHASES, train.DRAFTER_PHASES, train.WEAK_PHASES]
    )
    def test_can_be_shortened_but_never_to_nothing(self, phases: tuple[train.Phase, ...]) -> None:
        assert train._scaled(phases, 1.0) == list(phases)
        assert train._scaled(phases, 0.0) == [replace(phase, steps=1) for phase in phases]

    def test_ends_with_whole_router_conversations(self) -> None:
        for phases in (train.TARGET_PHASES, train.DRAFTER_PHASES):
            assert phases[-1].kind.__name__ == "router_chat"
            assert phases[-1].columns >= 3000


class TestProgress:
    def test_is_told_when_a_phase_ends_however_short_it_was(self) -> None:
        phase = replace(train.WEAK_PHASES[0], steps=2)
        clock = train._Clock(phase)
        assert not clock.is_due(1)
        assert clock.is_due(2)

    def test_names_the_phase_and_the_time_it_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 100.0
        monkeypatch.setattr("pytest_llmperf.miniature.train.time.monotonic", lambda: now)
        clock = train._Clock(replace(train.WEAK_PHASES[0], steps=30))
        now = 120.0
        assert clock.is_due(10)
        assert clock.reading(10) == "short_chat for 20 s, 40 s left"
        assert not clock.is_due(11)
