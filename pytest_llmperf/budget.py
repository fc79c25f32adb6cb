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
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(test)))
    except (OSError, TypeError, SyntaxError):
        return []
    return [
        call.args[0].value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "budget"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


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
