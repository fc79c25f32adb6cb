"""What an engine is built of is read from its own Python and from files at hand."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from pytest_llmperf.server.build import checkpoint_digest, folder_digest, packages


def test_the_engine_s_own_python_says_what_is_installed() -> None:
    found = packages(sys.executable, ("pytest", "no-such-package"))
    assert found == {
        "pytest": importlib.metadata.version("pytest"),
        "no-such-package": "not installed",
    }


def test_a_python_that_cannot_be_asked_leaves_it_unknown(tmp_path: Path) -> None:
    assert packages(str(tmp_path / "python")) is None


def test_a_python_that_answers_otherwise_leaves_it_unknown() -> None:
    assert packages("/bin/false") is None
    assert packages("/bin/echo") is None


def test_a_local_model_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    first = checkpoint_digest(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    assert first is not None
    assert checkpoint_digest(str(tmp_path)) == folder_digest(tmp_path) != first


def test_both_ends_of_a_large_file_count(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    size = 17 * 2**20
    weights.write_bytes(bytes(size))
    first = folder_digest(tmp_path)
    with weights.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"x")
    assert folder_digest(tmp_path) != first


def test_a_hub_model_is_the_commit_that_its_cache_points_to(tmp_path: Path) -> None:
    refs = tmp_path / "hub" / "models--google--gemma-4" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc123\n")
    where = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": ""}
    assert checkpoint_digest("google/gemma-4", environment=where) == "commit abc123"
    assert checkpoint_digest("google/gemma-4", "v2", where) is None
    (refs.parent / "snapshots" / "v2").mkdir(parents=True)
    assert checkpoint_digest("google/gemma-4", "v2", where) == "commit v2"


def test_a_model_that_is_not_at_hand_is_unknown_and_not_fetched(tmp_path: Path) -> None:
    where = {"HF_HUB_CACHE": str(tmp_path)}
    assert checkpoint_digest("google/gemma-4", environment=where) is None
