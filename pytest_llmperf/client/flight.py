"""One request while it is under way, for a caller who must act before it is over.

What comes of it is its record, made by ``client``; giving it up and sending it elsewhere is in the
room ``failover``.
"""

from __future__ import annotations

from collections.abc import Callable


class Flight:
    """How far a request has come.

    :param on_stall: called once, at the first stall. With it a stalled request is not broken off:
        it is listened to until it ends, until its whole time is up, or until it is cancelled.
    """

    def __init__(self, on_stall: Callable[[], None] | None = None) -> None:
        self.on_stall = on_stall
        self.reads = 0
        """Reads of the answer's body so far; the first one mostly bears no token."""
        self.is_over = False
