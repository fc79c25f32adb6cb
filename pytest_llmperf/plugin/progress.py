"""Lines of progress for a person while something takes more than a few seconds.

On a terminal one line is rewritten; in a log a line is written when the activity changes, and
then every quarter of a minute. What is told comes from ``server`` and ``measure``.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

_LOG_EVERY_S = 15.0
_REDRAW_EVERY_S = 0.2


class Teller:
    """Takes lines of progress; an empty line clears what stands there."""

    def __init__(self, config: pytest.Config) -> None:
        # Neither plugin has a public type; a run without a terminal has no reporter.
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._activity = ""
        self._told_s = 0.0
        self._stands = False

    def __call__(self, text: str) -> None:
        """Tell one line, of the form ``activity: how far``."""
        if self._reporter is None:
            return
        if self._capture is None:
            self._tell(text)
            return
        with self._capture.global_and_fixture_disabled():
            self._tell(text)

    def _tell(self, text: str) -> None:
        if self._reporter.isatty:
            self._rewrite(text)
        elif text:
            self._log(text)

    def _rewrite(self, text: str) -> None:
        now = time.monotonic()
        if text and self._stands and now - self._told_s < _REDRAW_EVERY_S:
            return
        self._told_s = now
        if text and not self._stands:
            self._reporter.ensure_newline()
        if text or self._stands:
            width = self._reporter._tw.fullwidth - 1  # noqa: SLF001 - no public way to ask
            self._reporter.write(f"\r\x1b[K{text[:width]}", flush=True)
        self._stands = bool(text)

    def _log(self, text: str) -> None:
        activity, now = text.partition(":")[0], time.monotonic()
        if activity == self._activity and now - self._told_s < _LOG_EVERY_S:
            return
        self._activity, self._told_s = activity, now
        self._reporter.ensure_newline()
        if self._reporter._tw.width_of_current_line:  # noqa: SLF001 - dots of -q, no public way
            self._reporter.write_line("")
        self._reporter.write_line(f"llmperf: {text}", flush=True)
