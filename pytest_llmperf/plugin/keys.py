"""Where this plugin keeps things on pytest's objects; one key each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmperf.declaration import Declaration
from pytest_llmperf.settings import Settings

if TYPE_CHECKING:
    from pytest_llmperf.gate import Gate  # noqa: F401 - named in a string below
    from pytest_llmperf.session import Session  # noqa: F401 - named in a string below

DECLARATION = pytest.StashKey[Declaration]()
GATE = pytest.StashKey["Gate"]()
GATES = pytest.StashKey["list[Gate]"]()
SETTINGS = pytest.StashKey[Settings]()
SESSION = pytest.StashKey["Session"]()
ORDINARY = pytest.StashKey[int]()
"""How many reports failed without a verdict: ordinary test failures and errors."""
ROUNDS = pytest.StashKey[int]()
"""Boots of each engine in this run."""
WARNINGS = pytest.StashKey[tuple[str, ...]]()
"""What was known of this run's gates before anything booted, a line each."""
LINES = pytest.StashKey[tuple[str, ...]]()
"""What the history says of this session, a line each."""
