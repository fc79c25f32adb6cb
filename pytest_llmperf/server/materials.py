"""What has to be on disk before an engine boots, and the digests of what it is made of.

How the miniature's checkpoint is built is in ``miniature.checkpoint``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_llmperf.spec import MINIATURE_DRAFTER, MINIATURE_TARGET, EngineSpec


def provide(spec: EngineSpec, *, tell: Callable[[str], None]) -> EngineSpec:
    """The spec with its files on disk, their paths in its arguments and their digests known.

    :raises UsageError: shipped weights are damaged, or the ballast makes no sense.
    """
    if spec.needs is None:
        return spec
    from pytest_llmperf.miniature import checkpoint  # noqa: PLC0415 - only the miniature needs it

    made = checkpoint.materialise(layers=spec.needs.layers, mlp=spec.needs.mlp, progress=tell)
    drafter = made.drafter_weak if spec.needs.drafter == "miniature-weak" else made.drafter
    paths = {MINIATURE_TARGET: str(made.target), MINIATURE_DRAFTER: str(drafter)}
    digests = {
        "model_digest": made.digest,
        "drafter_digest": f"{made.digest} {spec.needs.drafter}" if spec.needs.drafter else None,
    }
    return msgspec.structs.replace(
        spec,
        arguments=tuple(_filled(each, paths) for each in spec.arguments),
        subject=spec.subject | digests,
    )


def _filled(argument: str, paths: dict[str, str]) -> str:
    for mark, path in paths.items():
        argument = argument.replace(mark, path)
    return argument


def build_digest(python: str, module: str) -> str | None:
    """A digest of the engine's installed Python files, patches by hand included.

    ``None`` where the package is not found beside that Python.
    """
    package = _package(Path(python), module.partition(".")[0])
    if package is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _package(python: Path, name: str) -> Path | None:
    prefix = python.parent.parent
    found = sorted(prefix.glob(f"lib/python3*/site-packages/{name}/__init__.py"))
    return found[0].parent if found else None
