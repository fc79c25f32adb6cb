"""What one boot of an engine is made of, complete and frozen: the spec a profile hands out.

How a profile is read is in ``profile``; starting a process from a spec is in ``server``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from pytest_llmperf.flags import unknown
from pytest_llmperf.record import Declared

MINIATURE = "miniature"
"""The source of a target or drafter that is the shipped miniature."""

MINIATURE_DRAFTERS = (MINIATURE, "miniature-weak")
MINIATURE_TARGET = "{miniature-target}"
"""Stands in ``arguments`` for the target's folder until the miniature is materialised."""

MINIATURE_DRAFTER = "{miniature-drafter}"
"""Stands in ``arguments`` for the drafter's folder until the miniature is materialised."""

_GIB = 2**30
_INSTRUCTION_TUNED = re.compile(r"[-_](?:it|instruct)(?=$|[-_./@:])", re.IGNORECASE)


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target: ``miniature`` with its ballast, or a hub id or local path."""

    source: str = MINIATURE
    revision: str | None = None
    instruction_tuned: bool | None = None
    """Said where the name does not: ``None`` goes by an ``-it`` or ``-instruct`` in it."""
    layers: int = 0
    mlp: int = 0


class Drafter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The speculative drafter: ``miniature``, ``miniature-weak``, a hub id or a local path."""

    source: str
    revision: str | None = None
    instruction_tuned: bool | None = None
    """As for the model."""
    method: str = "mtp"
    draft_tokens: int = 3


class Serving(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine is started and how long that may take."""

    module: str = "vllm.entrypoints.openai.api_server"
    port: int | None = None
    prefix_caching: bool = True
    tools: bool = True
    boot_deadline_s: float = 120.0
    boot_cap_s: float = 900.0
    min_available_gib: float | None = None
    flags: dict[str, Any] = {}
    environment: dict[str, str | int] = {}


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The miniature checkpoint that has to be on disk before the engine can boot."""

    layers: int = 0
    """Dead layers in front of the trained ones."""
    mlp: int = 0
    """Dead neurons added to each layer's MLP."""
    drafter: Literal["miniature", "miniature-weak"] | None = None


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what is booted, and what the profile promises of it."""

    name: str
    profile: str
    python: str
    module: str
    arguments: tuple[str, ...]
    """All but the address and the served name, which each boot adds for itself."""
    environment: dict[str, str] = {}
    declared: Declared = Declared()
    """What the profile promises, also where its flags table drops the flag that does it."""
    subject: dict[str, Any] = {}
    deadline_s: float
    """Seconds without progress after which a boot is late."""
    cap_s: float
    """Seconds after which a boot is late whatever its progress."""
    port: int | None = None
    tools: bool = True
    """Whether the request that tests readiness carries tools, as the benchmarks do."""
    min_available_bytes: int | None = None
    """Memory that must be available before a boot; ``None``: not checked."""
    needs: Needs | None = None
    warnings: tuple[str, ...] = ()
    """What a person should hear before the boot."""
    copy: int = 0
    """Tells apart two boots of one configuration, for pairs of identical engines."""

    @property
    def key(self) -> str:
        """Equal for two specs exactly when one boot can serve both."""
        parts = {
            field: getattr(self, field)
            for field in ("python", "module", "arguments", "environment", "port", "copy")
        }
        parts["declared"] = msgspec.to_builtins(self.declared)
        parts["needs"] = msgspec.to_builtins(self.needs)
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_found(self) -> EngineSpec:
        """The same with nothing declared, for a server of which no profile speaks."""
        return msgspec.structs.replace(self, declared=Declared(), subject={})


def canonical_flag(flag: str) -> str:
    """The name under which a flag, its ``--no-`` form and its underscore spelling are one."""
    name = flag.replace("_", "-")
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name


def overridden(flags: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Flags with others laid over them; a flag replaces its ``--no-`` form and the reverse."""
    replaced = {canonical_flag(flag) for flag in by}
    kept = {flag: value for flag, value in flags.items() if canonical_flag(flag) not in replaced}
    return {**kept, **by}


def build(
    name: str,
    *,
    profile: str,
    python: str,
    model: Model,
    drafter: Drafter | None,
    serving: Serving,
    copy: int = 0,
) -> EngineSpec:
    """The spec of one engine; the flags table has the last word, ``declared`` keeps the promise."""
    flags = overridden(_generated(model, drafter, serving), serving.flags)
    return EngineSpec(
        name=name,
        profile=profile,
        python=python,
        module=serving.module,
        arguments=tuple(_arguments(flags)),
        environment={key: str(value) for key, value in serving.environment.items()},
        declared=Declared(
            prefix_caching=serving.prefix_caching,
            speculation=drafter.method if drafter else None,
            draft_tokens=drafter.draft_tokens if drafter else None,
        ),
        subject=_subject(model, drafter, flags),
        deadline_s=serving.boot_deadline_s,
        cap_s=serving.boot_cap_s,
        port=serving.port,
        tools=serving.tools,
        min_available_bytes=_bytes(serving.min_available_gib),
        needs=_needs(model, drafter),
        warnings=(*_pairing_warnings(model, drafter), *_flag_warnings(serving)),
        copy=copy,
    )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * _GIB)


def _needs(model: Model, drafter: Drafter | None) -> Needs | None:
    if model.source != MINIATURE:
        return None
    return msgspec.convert(
        {"layers": model.layers, "mlp": model.mlp, "drafter": drafter and drafter.source}, Needs
    )


def _generated(model: Model, drafter: Drafter | None, serving: Serving) -> dict[str, Any]:
    """The flags that model, drafter and prefix caching stand for."""
    flags: dict[str, Any] = {
        "--model": MINIATURE_TARGET if model.source == MINIATURE else model.source
    }
    if model.revision:
        flags["--revision"] = model.revision
    flags[f"--{'' if serving.prefix_caching else 'no-'}enable-prefix-caching"] = True
    if drafter:
        flags["--speculative-config"] = _speculative_config(drafter)
    return flags


def _speculative_config(drafter: Drafter) -> dict[str, Any]:
    miniature = drafter.source in MINIATURE_DRAFTERS
    config = {
        "method": drafter.method,
        "model": MINIATURE_DRAFTER if miniature else drafter.source,
        "num_speculative_tokens": drafter.draft_tokens,
    }
    return config | ({"revision": drafter.revision} if drafter.revision else {})


def _arguments(flags: Mapping[str, Any]) -> list[str]:
    arguments: list[str] = []
    for flag, value in flags.items():
        if value is True:
            arguments.append(flag)
        elif value is not False:
            for each in value if isinstance(value, list) else [value]:
                arguments += [flag, json.dumps(each) if isinstance(each, Mapping) else str(each)]
    return arguments


def _subject(model: Model, drafter: Drafter | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What is judged, by name; digests are filled in once the files are at hand."""
    kept = {flag: value for flag, value in flags.items() if value is not False}
    return {
        "model": msgspec.to_builtins(model),
        "model_digest": None,
        "drafter": msgspec.to_builtins(drafter),
        "drafter_digest": None,
        "flags": {flag: kept[flag] for flag in sorted(kept)},
    }


def _flag_warnings(serving: Serving) -> list[str]:
    """Flags that vLLM is not known to take; what another engine takes is not known here."""
    return unknown(serving.flags) if serving.module.startswith("vllm.") else []


def _is_tuned(side: Model | Drafter) -> bool:
    if side.instruction_tuned is not None:
        return side.instruction_tuned
    return _INSTRUCTION_TUNED.search(side.source) is not None


def _pairing_warnings(model: Model, drafter: Drafter | None) -> list[str]:
    """An instruction-tuned side beside a base side runs, slowly: few drafts are accepted."""
    if drafter is None:
        return []
    tuned = {"target": _is_tuned(model), "drafter": _is_tuned(drafter)}
    if tuned["target"] == tuned["drafter"]:
        return []
    odd, other = ("target", "drafter") if tuned["target"] else ("drafter", "target")
    warning = (
        f"Only the {odd} is instruction-tuned (target {model.source}, drafter {drafter.source}):"
        f" few drafts of such a pair are accepted. Choose a {other} of the same tuning."
    )
    return [warning]
