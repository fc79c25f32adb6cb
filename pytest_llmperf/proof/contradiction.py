"""What proof hands back: contradictions, which make a measurement INVALID, and findings.

The rules that find them are in the other rooms of ``proof``.
"""

from __future__ import annotations

import msgspec


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence says that the measurement is not of what it declares."""

    kind: str
    """One word for programs; the rest is for people."""
    reason: str
    evidence: str
    remedy: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a reader should know that does not make the measurement invalid."""

    kind: str
    text: str
