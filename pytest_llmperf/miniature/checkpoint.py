"""Lays the miniature's shipped weights out as folders that an engine can load, heavier if asked.

It checks, assembles and caches files; what the weights compute and who loads them is not decided
here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature import ballast
from pytest_llmperf.miniature.digests import check_digests, file_digest, write_digests
from pytest_llmperf.miniature.transcript import CHAT_TEMPLATE

__all__ = ["WEIGHTS", "Checkpoint", "default_cache", "locate", "materialise"]

WEIGHTS = Path(__file__).with_name("weights")
"""The shipped weights: one folder per network, one with the tokenizer that all share."""

_NETWORKS = ("target", "drafter", "drafter-weak")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Checkpoint:
    """Folders of one ballast that an engine takes by path, and the digest of what they hold.

    ``target`` is the model, ``drafter`` its MTP drafter, and ``drafter_weak`` a drafter that was
    hardly trained: a ready-made acceptance regression.
    """

    target: Path
    drafter: Path
    drafter_weak: Path
    digest: str
    drafters: str
    """Digest of the drafters, which no ballast changes."""


def default_cache() -> Path:
    """Return ``$XDG_CACHE_HOME/pytest-llmperf``, or the same under ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "pytest-llmperf"


def materialise(
    *,
    layers: int = 0,
    mlp: int = 0,
    cache_dir: Path | None = None,
    weights: Path = WEIGHTS,
    progress: Progress,
) -> Checkpoint:
    """Return the checkpoint with *layers* dead layers and *mlp* dead neurons, built when missing.

    What was built before is checked and used again. A new one is built beside and moved into
    place in one step, so any number of processes may ask for it at once.

    :param cache_dir: folder of the built ones; :func:`default_cache` when not given.
    :param progress: told each step in one line.
    :raises UsageError: when shipped weights are damaged or the ballast makes no sense.
    """
    progress("miniature: checking the shipped weights")
    found = locate(layers=layers, mlp=mlp, cache_dir=cache_dir, weights=weights)
    folder = found.target.parent
    if _is_whole(folder, progress):
        progress(f"miniature: using {folder}")
    else:
        progress(f"miniature: building {folder} with {layers} dead layers, {mlp} dead neurons")
        _build(folder, weights, layers, mlp)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        progress(f"miniature: built, {size / 1e6:.0f} MB")
    return found


def locate(
    *, layers: int = 0, mlp: int = 0, cache_dir: Path | None = None, weights: Path = WEIGHTS
) -> Checkpoint:
    """Return where a checkpoint is, or would be once it is built; nothing is built here.

    :raises UsageError: when shipped weights are damaged.
    """
    shipped = check_digests(weights)
    digest = _recipe_digest(shipped, layers, mlp)
    cache = cache_dir or default_cache()
    folder = cache / f"miniature-{layers}-layers-{mlp}-neurons-{digest[:12]}"
    target, drafter, drafter_weak = (folder / name for name in _NETWORKS)
    return Checkpoint(target, drafter, drafter_weak, digest, _recipe_digest(shipped, 0, 0))


def _recipe_digest(shipped: str, layers: int, mlp: int) -> str:
    """Return one digest of all that a built checkpoint depends on."""
    recipe = (shipped, file_digest(CHAT_TEMPLATE), file_digest(Path(ballast.__file__)))
    return hashlib.sha256(f"{recipe} {layers} {mlp}".encode()).hexdigest()


def _is_whole(folder: Path, progress: Progress) -> bool:
    """Say whether *folder* is built and undamaged; a damaged one is moved out of the way."""
    if not folder.is_dir():
        return False
    try:
        check_digests(folder)
    except UsageError as error:
        progress(f"miniature: discarding a damaged copy. {error.what}")
        _discard(folder)
        return False
    return True


def _discard(folder: Path) -> None:
    """Remove *folder* in one step as others see it; another process may have done so already."""
    away = tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True)
    with away, suppress(FileNotFoundError):
        folder.rename(Path(away.name) / folder.name)


def _build(folder: Path, weights: Path, layers: int, mlp: int) -> None:
    """Assemble the three networks in a temporary folder, then rename it to *folder*."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name in _NETWORKS:
            shutil.copytree(weights / name, fresh / name)
            shutil.copytree(weights / "tokenizer", fresh / name, dirs_exist_ok=True)
            shutil.copy(CHAT_TEMPLATE, fresh / name)
        ballast.add_ballast(weights / "target", fresh / "target", layers=layers, mlp=mlp)
        write_digests(fresh)
        _settle(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _settle(fresh: Path, folder: Path) -> None:
    """Rename *fresh* to *folder*, unless another process was faster: then theirs is as good."""
    fresh.chmod(0o755)
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
