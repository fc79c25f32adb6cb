"""A named limit of one machine, which may not be there.

Budgets stand in profiles, since they belong to a machine; a suite asks for them by name.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

_CLOSE = 0.8
_NUMBER = re.compile(r"\d+")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``limit`` in the unit of the gate that asks (seconds, or tokens per second), or ``None``."""

    name: str
    limit: float | None
    profile: str
    near: str | None = None
    """A budget that the profile has, whose name is almost this one."""

    @property
    def missing(self) -> str:
        """Why a gate on this budget is not judged."""
        guess = f"; it has {self.near}" if self.near else ""
        return f"no budget {self.name} on this machine (profile {self.profile}{guess})"


def look_up(name: str, limits: Mapping[str, float], profile: str) -> Budget:
    """The limit called ``name``; without one, whichever the profile has that is spelt alike."""
    near = None if name in limits else near_miss(name, limits)
    return Budget(name=name, limit=limits.get(name), profile=profile, near=near)


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The budget that a name was probably meant to be; ``None`` if none is spelt alike."""
    # p50 and p95, or two prompt lengths, are alike to the letter and mean different things.
    alike = [each for each in known if _NUMBER.findall(each) == _NUMBER.findall(name)]
    close = difflib.get_close_matches(name, alike, n=1, cutoff=_CLOSE)
    return close[0] if close else None


def asked_for(test: Callable[..., Any]) -> list[str]:
    """The names that a test's own text gives to ``budget(...)``; none where it has no source."""
    return [name for each in _calls(test) if (name := _name_of(each)) is not None]


def by_keyword(test: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """The keywords whose value in a test's own text is ``budget(...)`` wherever they stand.

    :returns: their names; what an f-string fills in is a ``*``.
    """
    found: dict[str, list[str | None]] = {}
    for call in _calls(test):
        for each in call.keywords:
            if each.arg is not None:
                found.setdefault(each.arg, []).append(_pattern_of(each.value))
    named = {keyword: [name for name in names if name] for keyword, names in found.items()}
    return {keyword: tuple(named[keyword]) for keyword in found if all(found[keyword])}


def _calls(test: Callable[..., Any]) -> list[ast.Call]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(test)))
    except (OSError, TypeError, SyntaxError):
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.Call)]


def _name_of(value: ast.expr) -> str | None:
    """The name in ``budget("name")``; ``None`` of anything else."""
    match value:
        case ast.Call(func=ast.Name(id="budget"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case _:
            return None


def _pattern_of(value: ast.expr) -> str | None:
    """The same, also of ``budget(f"name_{part}")``, as ``name_*``."""
    match value:
        case ast.Call(func=ast.Name(id="budget"), args=[ast.JoinedStr(values=parts), *_]):
            fixed = (str(each.value) if isinstance(each, ast.Constant) else "*" for each in parts)
            return "".join(fixed)
        case _:
            return _name_of(value)


def misspelt(asked: Iterable[str], known: Mapping[str, float]) -> list[str]:
    """A line for each name without a limit that is almost one which no test asks for."""
    names = dict.fromkeys(asked)
    unused = [name for name in known if name not in names]
    near = {name: near_miss(name, unused) for name in names if name not in known}
    return [
        f"the profile has a budget {there}, which no test asks for, and none called {name}"
        for name, there in near.items()
        if there is not None
    ]
