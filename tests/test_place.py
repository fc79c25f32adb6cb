"""A machine without a GPU is known to have none; what cannot be read is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmperf import place


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "driver" / "nvidia"
    folder.parent.mkdir()
    monkeypatch.setattr(place, "_DRIVER", folder)
    return folder


def gpu() -> tuple[object, object]:
    facts = place.facts()
    return facts["gpu"], facts["gpu_driver"]


def test_without_a_driver_it_is_known_that_there_is_no_gpu(driver: Path) -> None:
    assert gpu() == ("none", "none")


def test_a_gpu_is_named_with_its_driver(driver: Path) -> None:
    card = driver / "gpus" / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t NVIDIA GB10\nIRQ: 1\n")
    (driver / "version").write_text("NVRM version: 580.95\nGCC\n")
    assert gpu() == ("NVIDIA GB10", "NVRM version: 580.95")


def test_a_driver_that_tells_nothing_leaves_the_gpu_unknown(driver: Path) -> None:
    driver.mkdir()
    assert gpu() == (None, None)


def test_a_system_that_tells_of_no_drivers_leaves_the_gpu_unknown(driver: Path) -> None:
    driver.parent.rmdir()
    assert gpu() == (None, None)
