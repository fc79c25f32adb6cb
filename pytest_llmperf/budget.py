"""A named limit of one machine, which may not be there.

Budgets stand in profiles, since they belong to a machine; a suite asks for them by name.
"""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``limit`` in the unit of the gate that asks (seconds, or tokens per second), or ``None``."""

    name: str
    limit: float | None
    profile: str

    @property
    def missing(self) -> str:
        """Why a gate on this budget is not judged."""
        return f"no budget {self.name} on this machine (profile {self.profile})"
