"""What a test claims, as far as its code tells before it runs, and how claims share one alpha.

Whether a plan can decide a claim at all is in ``foresight``; judging it is in ``assertions``.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import CodeType

import msgspec

OF_LIMITS = (
    "assert_burst",
    "assert_ceiling",
    "assert_claim",
    "assert_ladder",
    "assert_latency",
    "assert_speedup",
    "assert_speedup_by_class",
    "assert_throughput",
)
EXACT = ("assert_failover",)
"""Assertions of what was counted or happened once: no chance is in them, they need no alpha."""

OF_THE_PAST = "assert_no_regression"

QUANTILES = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99}
"""The keywords of ``assert_latency``, and the quantile of each."""

_THROUGHPUT = "assert_throughput"
_FLOOR = "at_least_tps"


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The assertions that stand in one test's own body; one in a loop or a helper counts once."""

    of_limits: int = 1
    """Assertions that hold a number against a limit, and may be red by chance."""
    of_the_past: int = 0
    """Assertions of no regression."""
    latencies: tuple[float, ...] = ()
    """Quantiles of which a latency is asserted."""
    is_throughput: bool = False
    """Whether a median throughput is asserted."""
    budgets: dict[str, tuple[str, ...]] = {}
    """Keywords that have no limit but budgets, with the names of these; ``*`` is anything."""

    @property
    def count(self) -> int:
        """How many times the test may be red by chance."""
        return self.of_limits + self.of_the_past

    def judged_with(self, known: Iterable[str]) -> Claims:
        """The same where only these budgets are there: without what has no limit."""
        missing = {
            word
            for word, names in self.budgets.items()
            if not any(fnmatchcase(each, name) for name in names for each in known)
        }
        unjudged = {p for word, p in QUANTILES.items() if word in missing}
        return msgspec.structs.replace(
            self,
            latencies=tuple(p for p in self.latencies if p not in unjudged),
            is_throughput=self.is_throughput and _FLOOR not in missing,
        )


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the alpha of a whole run (Bonferroni over the claims of the selected tests)."""

    claim: float = 1.0
    """Of one claim."""
    past: float = 1.0
    """Of all claims against the past together, which divide it by Holm."""


def claims_of(
    code: CodeType | None, budgets: Mapping[str, tuple[str, ...]] | None = None
) -> Claims:
    """Read a test function's claims; one in which no assertion is found makes one of a limit.

    :param budgets: keywords that have no limit but budgets, with the names of these.
    """
    if code is None:
        return Claims()
    named = [str(each.argval) for each in dis.get_instructions(code)]
    past = named.count(OF_THE_PAST)
    limits = sum(named.count(each) for each in OF_LIMITS)
    is_exact = any(each in EXACT for each in named)
    words = {each for const in code.co_consts if isinstance(const, tuple) for each in const}
    return Claims(
        of_limits=limits if limits or past or is_exact else 1,
        of_the_past=past,
        latencies=tuple(p for word, p in QUANTILES.items() if word in words),
        is_throughput=_THROUGHPUT in named,
        budgets=dict(budgets or {}),
    )


def shares(of_tests: Sequence[Claims]) -> Shares:
    """Divide a run's alpha over the claims of its tests."""
    every = sum(each.count for each in of_tests)
    past = sum(each.of_the_past for each in of_tests)
    return Shares(claim=1 / max(every, 1), past=past / max(every, 1) or 1.0)
