"""What a run would boot and measure, in words, for ``--llmperf-dry-run``; nothing is booted here.

How much each gate has to measure by its own history is in ``planning``; booting is in ``server``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pytest_llmperf.declaration import Declaration
from pytest_llmperf.planning import turn_s
from pytest_llmperf.profile import Profile
from pytest_llmperf.server import ownership
from pytest_llmperf.server.launch import command_of, python_of
from pytest_llmperf.server.materials import installed, locate, weight_bytes
from pytest_llmperf.spec import EngineSpec
from pytest_llmperf.units import counted

BOOT_S = 60.0
"""What is reckoned for a boot."""

TURN_S = 1.0
"""What is reckoned for a request of which no history tells."""

_GIB = 2**30
_ANY_PORT = "PORT"
_BLOCK_SIZE = "--block-size"
_UTILISATION = "--gpu-memory-utilization"
_KV_BYTES = "--kv-cache-memory-bytes"
_CPU_KV = "VLLM_CPU_KVCACHE_SPACE"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the selected tests ask for."""

    engines: Mapping[str, bool]
    """The engines of fixtures, and whether each speculates."""
    factory: int = 0
    """How many tests make engines of their own while they run."""
    gates: Mapping[str, Declaration]
    rounds: int = 1
    """Boots of each engine."""


def lines(
    of: Profile,
    wanted: Wanted,
    *,
    history: Path,
    attached: Mapping[str, str],
    against: Profile | None = None,
) -> list[str]:
    """Say what would be booted and measured, a line each.

    :raises UsageError: an engine's Python is not there, or shipped weights are damaged.
    """
    found: list[str] = []
    for name, speculates in wanted.engines.items():
        if attached:
            found += _attached(name, attached)
            continue
        found += _engine(of.engine(name, speculation=speculates))
        if against is not None:
            found += _engine(against.engine(name, speculation=speculates), " (reference)")
    if wanted.factory:
        named = ", ".join(sorted(of.engines)) or "none"
        who = f"{counted(wanted.factory, 'test')} with engine(...)"
        found.append(f"{who}: made while they run; [engines] of the profile names {named}")
    return found + list(_gates(wanted, history, boots=not attached))


def _attached(name: str, attached: Mapping[str, str]) -> list[str]:
    if name not in attached:
        return [f"engine {name}: not attached; its tests would skip"]
    return [f"engine {name}: attached at {attached[name]}; nothing is booted"]


def _engine(spec: EngineSpec, role: str = "") -> list[str]:
    placed, target, drafter = locate(spec)
    return [
        f"engine {spec.name}{role}, profile {spec.profile}",
        *(f"  warning      {each}" for each in (*spec.warnings, *_missing(spec))),
        f"  command      {_command(placed)}",
        f"  environment  {shlex.join(f'{k}={v}' for k, v in spec.environment.items()) or 'ours'}",
        f"  cache unit   {cache_unit(spec)}",
        f"  weights      {_weights(spec, target, drafter)}",
        f"  KV cache     {_kv_cache(spec)}",
        f"  memory       {_memory(spec)}",
    ]


def _missing(spec: EngineSpec) -> Iterator[str]:
    package = spec.module.partition(".")[0]
    if installed(Path(python_of(spec)), package) is None:
        yield f"{package} is not installed beside {spec.python}: a boot would fail"


def _command(spec: EngineSpec) -> str:
    """The command as it is typed; ``PORT`` and ``NONCE`` are drawn anew for each boot."""
    port = _ANY_PORT if spec.port is None else str(spec.port)
    return shlex.join(
        command_of(spec, python=python_of(spec), port=port, model=f"{spec.name}-NONCE")
    )


def _flag(spec: EngineSpec, name: str) -> object:
    return spec.subject["flags"].get(name)


def cache_unit(spec: EngineSpec) -> str:
    """The unit in which prefixes are cached, as far as the profile tells it."""
    if not spec.declared.prefix_caching:
        return "none: prefix caching is off"
    size = _flag(spec, _BLOCK_SIZE)
    unit = f"{size} tokens a block" if size else "unknown: only the server knows its block size"
    method = spec.declared.speculation
    return f"{unit}; {method} costs one block more" if method else unit


def _weights(spec: EngineSpec, target: Path | None, drafter: Path | None) -> str:
    found = [_size("target", target)]
    if spec.declared.speculation is not None:
        found.append(_size("drafter", drafter))
    return ", ".join(found)


def _size(side: str, folder: Path | None) -> str:
    size = None if folder is None else weight_bytes(folder)
    return f"{side} {_gib(size)}" if size is not None else f"{side} unknown, not on disk yet"


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / 2**20:.1f} MiB"


def _kv_cache(spec: EngineSpec) -> str:
    stated, on_cpu = _flag(spec, _KV_BYTES), spec.environment.get(_CPU_KV)
    if stated:
        return f"{stated}{' bytes' * isinstance(stated, int)} ({_KV_BYTES})"
    if on_cpu:
        return f"{on_cpu} GiB ({_CPU_KV})"
    if _flag(spec, _UTILISATION):
        return f"what weights and activations leave of {_UTILISATION}"
    return "unknown: the engine decides"


def _memory(spec: EngineSpec) -> str:
    total, free = ownership.total_bytes_of_machine(), ownership.available_bytes()
    share = _flag(spec, _UTILISATION)
    said = [f"{_gib(free)} of {_gib(total)} are available here now"]
    if isinstance(share, int | float):
        said.insert(0, f"{share:g} of the device's; {_gib(share * total)} if it is this machine's")
    if spec.min_available_bytes is not None:
        short = "; SHORT: it would not boot" if free < spec.min_available_bytes else ""
        said.append(f"{_gib(spec.min_available_bytes)} are asked for before a boot{short}")
    return "; ".join(said)


def _gates(wanted: Wanted, history: Path, *, boots: bool) -> Iterator[str]:
    whole_s = len(wanted.engines) * wanted.rounds * BOOT_S if boots else 0.0
    yield f"{counted(len(wanted.gates), 'gate')} would run"
    for gate, declared in wanted.gates.items():
        known = turn_s(history, gate)
        requests = requests_of(declared) * wanted.rounds
        spent_s = requests * (known or TURN_S)
        whole_s += spent_s
        source = "by its history" if known else f"at {TURN_S:g} s a request, not measured here yet"
        about = f"about {counted(requests, 'request')}, {spent_s / 60:.1f} min {source}"
        yield f"  {gate}: {declared.denominator.name}; {about}"
    with_boots = f", {BOOT_S:g} s for each boot in it" if boots else ""
    yield f"about {whole_s / 60:.0f} min in all{with_boots}"


def requests_of(declared: Declaration) -> int:
    """About how many requests one boot's measurement sends: warm-up, primes and turns."""
    plan = declared.plan
    planned = getattr(plan, "requests", None) or plan.turns
    each_arm = planned + plan.warmup
    warm_arms = 1 if declared.denominator.prefix == "warm" else 0
    if declared.factor not in (None, "prefix"):
        warm_arms *= 2
    primes = (each_arm + 1) // 2 * warm_arms
    return each_arm * (1 if declared.factor is None else 2) + primes
