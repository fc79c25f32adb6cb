"""Which keys a profile may hold and what each may be; every fault of a file in one list.

What the keys mean once they are right is in ``profile``.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pytest_llmperf.flags import wrong_method
from pytest_llmperf.spec import canonical_flag
from pytest_llmperf.units import real

Table = Mapping[str, Any]
_Path = tuple[str, ...]
_Expect = Callable[[object], str | None]
"""Gives what was expected where a value is wrong, ``None`` where it is right."""

RESERVED_FLAGS: dict[str, str] = {
    "--model": "say [model] source instead",
    "--port": "say [engine] port instead",
    "--served-model-name": "each boot makes its own, to know its engine again",
    "--uds": "the engine is asked over TCP",
}
"""Flags that a profile may not set, each with what to do instead."""


def faults(table: Table) -> list[str]:
    """Everything that is wrong with one profile's table, in the order of the file."""
    return list(_walk(table, _TOP, ()))


def _walk(table: Table, known: Mapping[str, Any], path: _Path) -> Iterator[str]:
    for key, value in table.items():
        if key not in known:
            yield _unknown(path, key, known)
        elif isinstance(known[key], Mapping):
            yield from _section(value, known[key], (*path, key))
        elif (expected := known[key](value)) is not None:
            yield f"{_where((*path, key))} = {value!r} is not {expected}"


def _section(value: object, known: Mapping[str, Any], path: _Path) -> Iterator[str]:
    if path[-1] == "drafter" and value is False:
        return
    if not isinstance(value, Mapping):
        yield f"{_where(path)} = {value!r} is not a table"
    elif path[-1] in _FREE:
        yield from _FREE[path[-1]](value, path)
    else:
        yield from _walk(value, known, path)


def _unknown(path: _Path, key: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    guess = f"; did you mean {near[0]}?" if near else "."
    where = f"[{'.'.join(path)}]" if path else "the top level"
    return f"{_where((*path, key))} is not known{guess} Allowed in {where}: {_listed(known)}"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))


def _where(path: _Path) -> str:
    return f"[{'.'.join(path[:-1])}] {path[-1]}" if path[:-1] else path[-1]


def _text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else "a text"


def _switch(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _number(value: object) -> float:
    """The value as a number; NaN, which fits no range, for anything else."""
    number = real(value)
    return float("nan") if number is None else number


def _positive(value: object) -> str | None:
    return None if 0 < _number(value) < float("inf") else "a number above 0"


def _fraction(value: object) -> str | None:
    return None if 0 < _number(value) < 1 else "a number between 0 and 1"


def _whole(low: int, high: float = float("inf")) -> _Expect:
    words = f"a whole number from {low}" + (f" to {high}" if high < float("inf") else "")

    def expect(value: object) -> str | None:
        fine = isinstance(value, int) and low <= _number(value) <= high
        return None if fine else words

    return expect


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, int, float))


def _flag(value: object) -> str | None:
    fine = _is_scalar(value) or isinstance(value, Mapping)
    if isinstance(value, list):
        fine = all(_is_scalar(each) and not isinstance(each, bool) for each in value)
    return None if fine else "a text, a number, true, false, a list of these, or a table"


def _of_flag(flag: str, value: object) -> str | None:
    if flag == "--gpu-memory-utilization":
        return None if 0 < _number(value) <= 1 else "a share of the memory, above 0 and at most 1"
    return _flag(value)


def _flags(table: Table, path: _Path) -> Iterator[str]:
    seen: dict[str, str] = {}
    for flag, value in table.items():
        first = seen.setdefault(canonical_flag(flag), flag)
        if not flag.startswith("-"):
            yield f"{_where((*path, flag))} is not a flag; did you mean --{flag.replace('_', '-')}?"
        elif (instead := RESERVED_FLAGS.get(canonical_flag(flag))) is not None:
            yield f"{_where((*path, flag))} may not be set here: {instead}"
        elif first != flag:
            yield f"{_where((*path, flag))} says the same flag as {first}"
        elif (expected := _of_flag(canonical_flag(flag), value)) is not None:
            yield f"{_where((*path, flag))} = {value!r} is not {expected}"


def _environment(table: Table, path: _Path) -> Iterator[str]:
    for name, value in table.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            yield f"{_where((*path, name))} = {value!r} is not a text or a whole number"
        elif not name or "=" in name or "\0" in f"{name}{value}":
            yield f"{_where((*path, name))} is not the name of an environment variable"


def _budgets(table: Table, path: _Path) -> Iterator[str]:
    yield from _each_budget(table, path)
    names = Counter(_budget_names(table, ""))
    yield from (f"[budgets] {name} is given twice" for name, n in names.items() if n > 1)


def _budget_names(table: Table, above: str) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _budget_names(value, f"{above}{name}.")
        else:
            yield above + name


def _each_budget(table: Table, path: _Path) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _each_budget(value, (*path, name))
        elif (expected := _positive(value)) is not None:
            yield f"{_where((*path, name))} = {value!r} is not {expected}"


def _attached(table: Table, path: _Path) -> Iterator[str]:
    for name, value in table.items():
        here = (*path, name)
        if not isinstance(value, Mapping):
            yield from _no_address(value, here)
            continue
        if "url" not in value:
            yield f"{_where(here)} has no url"
        for key, address in value.items():
            if key in {"url", "metrics"}:
                yield from _no_address(address, (*here, key))
            else:
                yield f"{_where((*here, key))} is not known; a server has a url and metrics"


def _no_address(value: object, path: _Path) -> Iterator[str]:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        yield f"{_where(path)} = {value!r} is not an address as http://host:port"


def _engines(table: Table, path: _Path) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _walk(value, _ONE_ENGINE, (*path, name))
        else:
            yield f"{_where((*path, name))} = {value!r} is not a table"


_FREE: dict[str, Callable[[Table, _Path], Iterator[str]]] = {
    "flags": _flags,
    "environment": _environment,
    "budgets": _budgets,
    "attach": _attached,
    "engines": _engines,
}
"""Sections whose keys are the user's own, each with what may stand in it."""

_ONE_ENGINE: dict[str, Any] = {
    "python": _text,
    "model": {
        "source": _text,
        "revision": _text,
        "instruction_tuned": _switch,
        "layers": _whole(0),
        "mlp": _whole(0),
    },
    "drafter": {
        "source": _text,
        "revision": _text,
        "instruction_tuned": _switch,
        "method": wrong_method,
        "draft_tokens": _whole(1),
    },
    "engine": {
        "module": _text,
        "port": _whole(1, 65535),
        "prefix_caching": _switch,
        "tools": _switch,
        "boot_deadline_s": _positive,
        "boot_cap_s": _positive,
        "min_available_gib": _positive,
        "flags": {},
        "environment": {},
    },
}
_TOP: dict[str, Any] = {
    "description": _text,
    "extends": _text,
    "resident": _whole(1, 2),
    "as_found": _switch,
    "attach": {},
    **_ONE_ENGINE,
    "statistics": {
        "tolerance": _fraction,
        "detect": _fraction,
        "alpha": _fraction,
        "beta": _fraction,
        "boots": _whole(1, 20),
    },
    "fitness": {
        "foreign_cpu_share": _fraction,
        "steal_share": _fraction,
        "memory_stall_share": _fraction,
        "swapped_mib": _positive,
        "cpu_throttle_events": _whole(0),
        "gpu_throttled_share": _fraction,
        "canary_slowdown": _positive,
        "sm_mhz_min": _positive,
        "prefill_power_w_min": _positive,
        "decode_power_w_min": _positive,
    },
    "budgets": {},
    "engines": {},
}
