"""A profile: the TOML file that says what engines are booted and which defaults hold here.

Which keys and values are allowed is in ``profile_check``; what one boot is made of is in
``spec``; booting it is in ``server``.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf.budget import Budget, look_up
from pytest_llmperf.errors import UsageError
from pytest_llmperf.fitness import Limits
from pytest_llmperf.profile_check import Table, faults
from pytest_llmperf.spec import (
    MINIATURE,
    MINIATURE_DRAFTERS,
    Drafter,
    EngineSpec,
    Model,
    Serving,
    build,
    overridden,
)

__all__ = ["EngineSpec", "Profile", "load", "shipped"]

ENGINE_PYTHON_VARIABLE = "LLMPERF_ENGINE_PYTHON"
"""Names the engine's Python where the profile does not."""

SHIPPED = Path(__file__).with_name("profiles")
"""The folder of the profiles that come with the plugin."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statistical defaults on this machine, each a share of one."""

    tolerance: float = 0.02
    """The relative change that is no regression."""
    detect: float = 0.10
    """The relative change that has to be seen."""
    alpha: float = 0.01
    """False alarms allowed for all gates of one run."""
    beta: float = 0.05
    """How often a change of ``detect`` may be missed."""
    boots: int = 3
    """Boots of each engine in gate mode; a claim about the build rests on three or more."""
    creep: float | None = None
    """The share by which a gate's last five sessions may be worse than its anchor; ``None``: told
    and not judged."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One profile with everything it inherits, checked; nothing has been booted for it."""

    name: str
    description: str = ""
    resident: int = 1
    """How many engines fit on the machine at once."""
    python: str
    model: Model = Model()
    drafter: Drafter | None = None
    serving: Serving = Serving()
    statistics: Statistics = Statistics()
    fitness: Limits = Limits()
    """Beyond these the machine is unfit to be measured on."""
    attach: dict[str, str] = {}
    """Servers that are already up, by engine name, in the order in which they take over."""
    metrics: dict[str, str] = {}
    """Where the metrics page of such a server is, if not at ``/metrics`` of its own address."""
    as_found: bool = False
    """Whether attached servers are taken as they are, with nothing promised of them."""
    budgets: dict[str, float] = {}
    """Limits by name (``cached_turn.p50``), in seconds or tokens per second."""
    engines: dict[str, Profile] = {}
    """For each engine with settings of its own, the profile as it holds for that engine."""

    @property
    def alpha(self) -> float:
        """False alarms allowed for all gates of one run."""
        return self.statistics.alpha

    @property
    def beta(self) -> float:
        """How often a change worth detecting may be missed."""
        return self.statistics.beta

    def budget(self, name: str) -> Budget:
        """The machine's limit called ``name``; one without a limit where there is none."""
        return look_up(name, self.budgets, self.name)

    def engine(
        self,
        name: str,
        *,
        speculation: bool,
        flags: Table | None = None,
        environment: Mapping[str, str | int] | None = None,
        copy: int = 0,
    ) -> EngineSpec:
        """What to boot for the engine called ``name``.

        :param speculation: ``False`` leaves out the drafter and declares none.
        :param flags: laid over the profile's flags.
        :param environment: laid over the profile's environment.
        :param copy: tells apart several boots of one configuration.
        :raises UsageError: a flag or variable is none.
        """
        mine = self.engines.get(name, self)
        return build(
            name,
            profile=self.name,
            python=mine.python,
            model=mine.model,
            drafter=mine.drafter if speculation else None,
            serving=_laid_over(name, mine.serving, flags or {}, environment or {}),
            copy=copy,
        )


def shipped() -> list[str]:
    """The names of the profiles that come with the plugin, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(which: str | Path) -> Profile:
    """Read a profile by shipped name or by path, with all it extends.

    :raises UsageError: it is not there, is no TOML, or holds anything unknown or wrong; every
        fault of every file involved is in the one message.
    """
    chain = _chain(_find(which, None))
    found = [f"{path}: {each}" for path, table in chain for each in faults(table)]
    if not found:
        merged = _merged(chain)
        found = [f"{chain[0][0]}: {each}" for each in _contradictions(merged)]
    if found:
        raise UsageError(
            f"The profile {str(which)!r} has {len(found)} fault{'s' * (len(found) > 1)}.",
            "\n".join(f"- {each}" for each in found),
            "Nothing was booted. Correct the profile and run again.",
        )
    return _profile(chain[0][0].stem, merged)


def _find(which: str | Path, beside: Path | None) -> Path:
    """The file meant by a name or path; a path is relative to the file that extends it."""
    text = str(which)
    if text in shipped():
        return SHIPPED / f"{text}.toml"
    path = (beside.parent if beside else Path()) / Path(text).expanduser()
    if path.is_file():
        return path.resolve()
    near = difflib.get_close_matches(text, shipped(), n=1, cutoff=0.6)
    raise UsageError(
        f"There is no profile {text!r}" + (f" ({beside} extends it)." if beside else "."),
        f"No file {path}, and the shipped profiles are: {', '.join(shipped())}.",
        (f"Did you mean {near[0]!r}? " if near else "") + "Nothing was booted.",
    )


def _chain(path: Path) -> list[tuple[Path, Table]]:
    """The file and what it extends, nearest first."""
    chain: list[tuple[Path, Table]] = []
    while True:
        if path in [seen for seen, _ in chain]:
            circle = " extends ".join(str(each) for each in [*(p for p, _ in chain), path])
            raise UsageError(
                f"The profile {chain[0][0].stem!r} extends itself.",
                circle,
                "Nothing was booted. Take out one `extends`.",
            )
        table = _read(path)
        chain.append((path, table))
        parent = table.get("extends")
        if not isinstance(parent, str):
            return chain
        path = _find(parent, path)


def _laid_over(name: str, serving: Serving, flags: Table, environment: Table) -> Serving:
    wrong = faults({"engine": {"flags": flags, "environment": environment}})
    if wrong:
        raise UsageError(
            f"The engine {name!r} is asked for with {len(wrong)} fault{'s' * (len(wrong) > 1)}.",
            "\n".join(f"- {each}" for each in wrong),
            "Nothing was booted for it. Correct the call.",
        )
    return msgspec.structs.replace(
        serving,
        flags=overridden(serving.flags, flags),
        environment={**serving.environment, **environment},
    )


def _read(path: Path) -> Table:
    try:
        return _anchored(tomllib.loads(path.read_text(encoding="utf-8-sig")), path.parent)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"The profile {path} cannot be read.",
            str(error),
            "Nothing was booted. A profile is a TOML file in UTF-8.",
        ) from error


def _anchored(table: Table, folder: Path) -> dict[str, Any]:
    """The table with its local paths made absolute, so that they keep their meaning."""
    anchored = dict(table)
    for key, value in table.items():
        if isinstance(value, dict) and key not in ("flags", "environment", "budgets"):
            anchored[key] = _anchored(value, folder)
        elif isinstance(value, str) and _is_local(key, value):
            anchored[key] = os.path.normpath(folder / Path(value).expanduser())
    return anchored


def _is_local(key: str, value: str) -> bool:
    """A source with one slash may be a hub id, so a local one says where it starts."""
    return (key == "python" and "/" in value) or (
        key == "source" and value.startswith(("./", "../", "~/"))
    )


def _merged(chain: list[tuple[Path, Table]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for _, table in reversed(chain):
        merged = _merge(merged, table)
    merged.pop("extends", None)
    return merged


def _merge(below: Table, above: Table) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        beneath = merged.get(key)
        if key == "flags" and isinstance(beneath, Mapping):
            merged[key] = overridden(beneath, value)
        elif isinstance(value, Mapping) and isinstance(beneath, Mapping):
            merged[key] = _merge(beneath, value)
        else:
            merged[key] = value
    return merged


def _flat(table: Table, path: str = "") -> dict[str, float]:
    flat: dict[str, float] = {}
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        flat |= _flat(value, name) if isinstance(value, Mapping) else {name: float(value)}
    return flat


def _effective(table: Table) -> list[tuple[str, dict[str, Any]]]:
    """The table as it holds in general and for each engine with settings of its own."""
    whole = {key: value for key, value in table.items() if key != "engines"}
    own = table.get("engines", {}).items()
    return [("", whole), *((f"[engines.{name}] ", _merge(whole, each)) for name, each in own)]


def _contradictions(table: Table) -> list[str]:
    """What is wrong between keys that are each right by themselves."""
    return [where + each for where, whole in _effective(table) for each in _conflicts(whole)]


def _conflicts(table: Table) -> list[str]:
    model = table.get("model", {})
    drafter = table.get("drafter") or {}
    miniature = model.get("source", MINIATURE) == MINIATURE
    serving = Serving(**table.get("engine", {}))
    found = [
        f"[model] {key} is ballast for the miniature; source is {model['source']!r}"
        for key in ("layers", "mlp")
        if model.get(key) and not miniature
    ]
    if table.get("drafter") and "source" not in drafter:
        found.append("[drafter] has no source")
    elif drafter and (drafter["source"] in MINIATURE_DRAFTERS) != miniature:
        found.append(
            f"[drafter] source = {drafter['source']!r} does not fit"
            f" [model] source = {model.get('source', MINIATURE)!r}"
        )
    statistics = Statistics(**table.get("statistics", {}))
    if statistics.detect <= statistics.tolerance:
        found.append(
            f"[statistics] detect = {statistics.detect:g} is not above"
            f" tolerance = {statistics.tolerance:g}"
        )
    if serving.boot_cap_s < serving.boot_deadline_s:
        found.append(
            f"[engine] boot_cap_s = {serving.boot_cap_s:g} is below"
            f" boot_deadline_s = {serving.boot_deadline_s:g}"
        )
    return found


def _profile(name: str, table: Table) -> Profile:
    general, *own = _effective(table)
    engines = dict(zip(table.get("engines", {}), (each for _, each in own), strict=True))
    return _plain_profile(
        name,
        general[1],
        {engine: _plain_profile(name, each, {}) for engine, each in engines.items()},
    )


def _plain_profile(name: str, table: Table, engines: dict[str, Profile]) -> Profile:
    drafter, attached = table.get("drafter") or None, table.get("attach", {})
    return Profile(
        name=name,
        description=table.get("description", ""),
        resident=table.get("resident", 1),
        python=table.get("python") or os.environ.get(ENGINE_PYTHON_VARIABLE) or sys.executable,
        model=Model(**table.get("model", {})),
        drafter=Drafter(**drafter) if drafter else None,
        serving=Serving(**table.get("engine", {})),
        statistics=Statistics(**table.get("statistics", {})),
        fitness=Limits(**table.get("fitness", {})),
        attach={each: _stated(server, "url") for each, server in attached.items()},
        metrics={
            each: page for each, server in attached.items() if (page := _stated(server, "metrics"))
        },
        as_found=table.get("as_found", False),
        budgets=_flat(table.get("budgets", {})),
        engines=engines,
    )


def _stated(server: str | Mapping[str, str], key: str) -> str:
    """What a profile says of one attached server, whose address may stand alone; empty: nothing."""
    if isinstance(server, Mapping):
        return server.get(key, "")
    return server if key == "url" else ""
