from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature import checkpoint
from pytest_llmperf.miniature.__main__ import main
from pytest_llmperf.miniature.checkpoint import (
    WEIGHTS,
    Checkpoint,
    default_cache,
    materialise,
)
from pytest_llmperf.miniature.digests import check_digests, write_digests

Build = Callable[..., Checkpoint]


@pytest.fixture
def build(toy_weights: Path, tmp_path: Path, hear: Callable[[str], None]) -> Build:
    def built(layers: int = 0, mlp: int = 0, **changes: Path) -> Checkpoint:
        places = {"cache_dir": tmp_path / "cache", "weights": toy_weights} | changes
        return materialise(layers=layers, mlp=mlp, progress=hear, **places)

    return built


class TestACheckpoint:
    def test_is_three_folders_that_an_engine_takes_by_path(self, build: Build) -> None:
        built = build()
        assert [f.name for f in (built.target, built.drafter, built.drafter_weak)] == [
            "target",
            "drafter",
            "drafter-weak",
        ]
        for folder in (built.target, built.drafter, built.drafter_weak):
            assert {path.name for path in folder.iterdir()} == {
                "chat_template.jinja",
                "config.json",
                "model.safetensors",
                "tokenizer.json",
            }

    def test_carries_the_ballast_in_its_target_alone(self, build: Build) -> None:
        built = build(layers=2, mlp=5)
        read = [
            json.loads((folder / "config.json").read_text())
            for folder in (built.target, built.drafter, built.drafter_weak)
        ]
        assert [c["num_hidden_layers"] for c in read] == [4, 2, 2]
        assert [c["intermediate_size"] for c in read] == [8, 3, 3]

    def test_is_readable_by_everyone(self, build: Build) -> None:
        assert build().target.parent.stat().st_mode & 0o777 == 0o755

    def test_tells_each_step_while_it_is_built(self, build: Build, heard: list[str]) -> None:
        folder = build(layers=2).target.parent
        assert heard == [
            "miniature: checking the shipped weights",
            f"miniature: building {folder} with 2 dead layers, 0 dead neurons",
            "miniature: built, 0 MB",
        ]


class TestACheckpointIsKnown:
    def test_by_its_ballast(self, build: Build) -> None:
        digests = {build(), build(layers=1), build(mlp=1), build(layers=1, mlp=1)}
        assert len({each.digest for each in digests}) == len(digests) == 4

    def test_by_the_weights_it_was_made_of(self, build: Build, toy_weights: Path) -> None:
        before = build()
        (toy_weights / "tokenizer" / "tokenizer.json").write_text("{ }")
        write_digests(toy_weights)
        after = build()
        assert before.digest != after.digest
        assert before.target != after.target

    def test_by_the_way_it_was_made(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        before = build()
        monkeypatch.setattr(checkpoint, "CHAT_TEMPLATE", Path(__file__))
        assert build().digest != before.digest


class TestABuiltCheckpoint:
    def test_is_used_again(self, build: Build, heard: list[str]) -> None:
        first = build(layers=1)
        inode = (first.target / "model.safetensors").stat().st_ino
        assert build(layers=1) == first
        assert (first.target / "model.safetensors").stat().st_ino == inode
        assert heard[-1] == f"miniature: using {first.target.parent}"

    def test_is_built_anew_when_it_was_damaged(self, build: Build, heard: list[str]) -> None:
        first = build()
        whole = (first.target / "model.safetensors").read_bytes()
        (first.target / "model.safetensors").write_bytes(b"torn")
        assert build() == first
        assert (first.target / "model.safetensors").read_bytes() == whole
        assert any("discarding a damaged copy" in line for line in heard)

    def test_may_have_been_discarded_by_another_process_meanwhile(
        self, build: Build, tmp_path: Path
    ) -> None:
        checkpoint._discard(build().target.parent)
        checkpoint._discard(build().target.parent)
        checkpoint._discard(tmp_path / "cache" / "gone")
        assert not list((tmp_path / "cache").iterdir())

    def test_leaves_nothing_else_in_the_cache(self, build: Build, tmp_path: Path) -> None:
        build()
        build(layers=1)
        assert len(list((tmp_path / "cache").iterdir())) == 2

    def test_may_be_asked_for_by_many_at_once(
        self, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        everyone_has_built, settle = Barrier(4), checkpoint._settle

        def settle_together(fresh: Path, folder: Path) -> None:
            everyone_has_built.wait(timeout=20)
            settle(fresh, folder)

        monkeypatch.setattr(checkpoint, "_settle", settle_together)
        with ThreadPoolExecutor(4) as pool:
            built = [f.result() for f in [pool.submit(build, layers=1) for _ in range(4)]]
        assert len(set(built)) == 1
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [
            built[0].target.parent.name
        ]
        check_digests(built[0].target.parent)

    def test_is_never_half_there_when_building_fails(
        self, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(checkpoint, "_settle", fail)
        with pytest.raises(OSError, match="disk full"):
            build()
        assert not list((tmp_path / "cache").iterdir())

    def test_cannot_stand_where_it_may_not_be_written(self, build: Build, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="file"):
            build(cache_dir=tmp_path / "file")


def test_damaged_weights_are_refused_before_anything_is_built(
    build: Build, toy_weights: Path, tmp_path: Path
) -> None:
    (toy_weights / "drafter" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(UsageError, match=r"drafter/model\.safetensors: sha256 is"):
        build()
    assert not (tmp_path / "cache").exists()


class TestTheCache:
    def test_follows_the_desktop_convention(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_cache() == tmp_path / "pytest-llmperf"

    def test_is_in_the_home_folder_otherwise(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_cache() == tmp_path / ".cache" / "pytest-llmperf"


class TestTheShippedWeights:
    def test_are_the_ones_that_were_digested(self) -> None:
        check_digests(WEIGHTS)

    def test_stay_small(self) -> None:
        sizes = [path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()]
        assert sum(sizes) < 7_000_000

    def test_are_laid_out_and_announced_by_the_command(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["--layers", "16", "--cache", str(tmp_path)])
        (folder,) = tmp_path.iterdir()
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "miniature: checking the shipped weights"
        assert lines[-4:-1] == [
            f"target: {folder}/target",
            f"drafter: {folder}/drafter",
            f"drafter_weak: {folder}/drafter-weak",
        ]
        assert lines[-1].startswith("digest: ")


def test_ballast_changes_the_model_and_not_its_drafters(tmp_path: Path) -> None:
    light, heavy = (checkpoint.locate(layers=layers, cache_dir=tmp_path) for layers in (16, 24))
    assert light.digest != heavy.digest
    assert light.drafters == heavy.drafters
