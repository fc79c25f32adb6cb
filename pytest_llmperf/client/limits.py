"""How long one request may take before it counts as failed.

Keeping to the limits is in ``exchange``.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long an exchange may take."""

    timeout_s: float
    """From the first byte sent to the last one read."""
    stall_s: float
    """Without a new event; comments are no events."""
    connect_s: float
    """To resolve, connect and secure."""
    silence_s: float | None
    """Without a single byte, comments included; ``None`` for no such limit."""
