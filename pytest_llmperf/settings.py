"""What the user asked of this run, read once and frozen.

Where each setting comes from (command line, environment, ini) is in ``plugin``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from pytest_llmperf.errors import UsageError

Mode = Literal["quick", "gate", "aa", "plan"]

FIRST_ENGINE = "gemma"
"""The engine that an attached address stands for when no name is given."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The run's settings."""

    profile: str
    profile_was_chosen: bool
    """False: the default for this machine; an attached server is then taken as it is."""
    attach: dict[str, str] = {}
    """Addresses of servers that are already up, by engine name."""
    metrics: dict[str, str] = {}
    """Where their metrics pages are, for those that have them at another address."""
    replay: Path | None = None
    evidence: Path
    """The folder this run's evidence goes to."""
    mode: Mode = "quick"
    rounds: int = 1
    """Boots of each engine, one round of the tests each; 1 in quick mode."""
    pairs: int = 5
    """Pairs of boots that the self-check of ``aa`` measures."""
    history: Path = Path(".llmperf-history")
    """The folder of past sessions."""
    record: bool = False
    """Whether this session joins the history."""
    against: str | None = None
    """The profile that gates against the past are held to, on fresh boots, instead of history."""
    creep: float | None = None
    """The share by which latest sessions may be worse than an anchor; ``None``: the profile's."""
    summary: Path | None = None
    """A file that the table is appended to as Markdown, for a CI job's summary."""
    strict: bool = False
    lock: Path | None = None
    """The file that keeps two jobs of one host apart; ``None``: the default one."""
    lock_wait_s: float = 1800.0
    """How long another job that measures on this host is waited for."""
    dry_run: bool = False
    """Say what would be booted and measured, and do nothing."""
    seed: int
    """Of the nonces that keep prompts apart; recorded, so that a run can be sent again."""

    @property
    def only_tells(self) -> bool:
        """Whether nothing is measured in this run, so that no gate is judged."""
        return self.dry_run or self.mode == "plan"


def attachments(values: Sequence[str]) -> dict[str, str]:
    """Read ``[name=]URL`` values.

    :raises UsageError: a value that is no http address, or a name given twice.
    """
    found: dict[str, str] = {}
    for value in values:
        name, equals, url = value.partition("=")
        if not equals or "/" in name:
            name, url = FIRST_ENGINE, value
        if not name:
            _address(value, "")
        if name in found:
            raise UsageError(
                f"--llmperf-attach names {name} twice: {found[name]} and {url}.",
                "One engine has one address.",
                f"Name the second one: --llmperf-attach other={url}.",
            )
        found[name] = _address(value, url)
    return found


def default_profile(nvidia: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """``spark`` where the machine has an NVIDIA GPU, else ``miniature``."""
    return "spark" if nvidia.is_dir() and any(nvidia.iterdir()) else "miniature"


def _address(value: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"--llmperf-attach={value!r} is no address.",
            f"{url!r} does not begin with http:// or https:// and a host.",
            "Write --llmperf-attach http://127.0.0.1:8000 or --llmperf-attach name=URL.",
        )
    return url.rstrip("/").removesuffix("/v1")
