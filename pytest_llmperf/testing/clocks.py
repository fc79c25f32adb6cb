"""A clock that moves only when it is read or told to.

What is stamped with it is the test's business.
"""

from __future__ import annotations

import threading


class TickingClock:
    """Monotonic nanoseconds that grow by ``step_ns`` with every reading; safe across threads."""

    def __init__(self, start_ns: int = 0, *, step_ns: int = 1_000_000) -> None:
        self._now_ns = start_ns
        self._step_ns = step_ns
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Give the time, then tick."""
        with self._lock:
            now_ns = self._now_ns
            self._now_ns += self._step_ns
            return now_ns

    @property
    def now_ns(self) -> int:
        """The next reading, without a tick."""
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now_ns += round(seconds * 1e9)
