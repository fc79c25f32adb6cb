"""What has to be on disk before an engine boots, and the digests of what it is made of.

How the miniature's checkpoint is built is in ``miniature.checkpoint``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_llmperf.server.build import checkpoint_folder
from pytest_llmperf.spec import MINIATURE_DRAFTER, MINIATURE_TARGET, EngineSpec

if TYPE_CHECKING:
    from pytest_llmperf.miniature.checkpoint import Checkpoint

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


def provide(spec: EngineSpec, *, tell: Callable[[str], None]) -> EngineSpec:
    """The spec with its files on disk, their paths in its arguments and their digests known.

    :raises UsageError: shipped weights are damaged, or the ballast makes no sense.
    """
    if spec.needs is None:
        return spec
    from pytest_llmperf.miniature import checkpoint  # noqa: PLC0415 - only the miniature needs it

    made = checkpoint.materialise(layers=spec.needs.layers, mlp=spec.needs.mlp, progress=tell)
    digests = {
        "model_digest": made.digest,
        "drafter_digest": f"{made.drafters} {spec.needs.drafter}" if spec.needs.drafter else None,
    }
    return msgspec.structs.replace(
        spec, arguments=_placed(spec, made), subject=spec.subject | digests
    )


def locate(spec: EngineSpec) -> tuple[EngineSpec, Path | None, Path | None]:
    """The spec with its files' paths, and the folders of target and drafter that are on disk.

    Nothing is built and nothing is fetched; a folder that is not there is ``None``.

    :raises UsageError: shipped weights are damaged.
    """
    if spec.needs is None:
        sides = (spec.subject.get("model"), spec.subject.get("drafter"))
        target, drafter = (_folder(each, spec.environment) for each in sides)
        return spec, target, drafter
    from pytest_llmperf.miniature import checkpoint  # noqa: PLC0415 - only the miniature needs it

    made = checkpoint.locate(layers=spec.needs.layers, mlp=spec.needs.mlp)
    placed = msgspec.structs.replace(spec, arguments=_placed(spec, made))
    if not made.target.is_dir():
        return placed, None, None
    return placed, made.target, _drafter(spec, made) if spec.needs.drafter else None


def _folder(side: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Path | None:
    if side is None:
        return None
    return checkpoint_folder(side["source"], side.get("revision"), environment)


def _placed(spec: EngineSpec, made: Checkpoint) -> tuple[str, ...]:
    paths = {MINIATURE_TARGET: str(made.target), MINIATURE_DRAFTER: str(_drafter(spec, made))}
    return tuple(_filled(each, paths) for each in spec.arguments)


def _drafter(spec: EngineSpec, made: Checkpoint) -> Path:
    is_weak = spec.needs is not None and spec.needs.drafter == "miniature-weak"
    return made.drafter_weak if is_weak else made.drafter


def weight_bytes(folder: Path) -> int | None:
    """Size of a checkpoint's weight files; ``None`` where the folder holds none."""
    sizes = [each.stat().st_size for kind in _WEIGHTS for each in folder.glob(kind)]
    return sum(sizes) if sizes else None


def _filled(argument: str, paths: dict[str, str]) -> str:
    for mark, path in paths.items():
        argument = argument.replace(mark, path)
    return argument


def build_digest(python: str, module: str) -> str | None:
    """A digest of the engine's installed Python files, patches by hand included.

    ``None`` where the package is not found beside that Python.
    """
    package = installed(Path(python), module.partition(".")[0])
    if package is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def installed(python: Path, name: str) -> Path | None:
    """The folder of a package that is installed beside a Python; ``None`` if it is not."""
    prefix = python.parent.parent
    found = sorted(prefix.glob(f"lib/python3*/site-packages/{name}/__init__.py"))
    return found[0].parent if found else None
