"""How much of the measured bandwidth decoding without a drafter reaches, and why it may not say.

Counting bytes is in ``traffic``; asserting a share is in the package's own module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from statistics import fmean, median

import msgspec

from pytest_llmperf import record, sample
from pytest_llmperf.claims.ceiling.traffic import context_of, kv_bytes, step_bytes, weight_bytes
from pytest_llmperf.counters import difference
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.units import quantity


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One boot's ceiling: what its memory gives, and what a step of one stream reads."""

    bandwidth: record.Streamed
    """The kernel that read fastest, by the median of its passes."""
    weights: float
    """Bytes of the target that a step reads."""
    kv: float
    """Bytes of keys and values, the mean over turns."""

    @property
    def bytes_per_s(self) -> float:
        """What the memory gives, sustained."""
        return median(self.bandwidth.bytes_per_s)

    @property
    def step_bytes(self) -> float:
        """What a step reads."""
        return self.weights + self.kv

    @property
    def tps(self) -> float:
        """The ceiling in tokens per second, at one token for each read of the weights."""
        return self.bytes_per_s / self.step_bytes


def limit_of(boot: Measured) -> Limit:
    """The ceiling of a boot without ``contradictions``."""
    assert boot.bandwidth is not None  # noqa: S101 - a contradiction says so before
    target = _target(boot)
    contexts = [context for turn in boot.turns if (context := context_of(turn)) is not None]
    return Limit(
        bandwidth=best(boot.bandwidth.series),
        weights=weight_bytes(target),
        kv=fmean(kv_bytes(target, each) for each in contexts),
    )


def best(series: Sequence[record.Streamed]) -> record.Streamed:
    """The series whose median pass was fastest."""
    return max(series, key=lambda each: median(each.bytes_per_s))


def log_shares(boot: Measured) -> list[float]:
    """Per block the log of the share of the bandwidth that decoding reached.

    Formula: log(mean over the block's turns of tok/s x bytes a step) - log(bandwidth), where every
    block has passes of the probe of its own, so that the scatter of both is in the shares.
    """
    assert boot.bandwidth is not None  # noqa: S101 - a contradiction says so before
    reached = list(_log_rates(boot))
    passes = best(boot.bandwidth.series).bytes_per_s
    count = min(len(reached), len(passes))
    return [
        fmean(reached[index::count]) - fmean(map(log, passes[index::count]))
        for index in range(count)
    ]


def tokens_per_read(boot: Measured) -> float | None:
    """Tokens that one reading of the target's weights gives: the acceptance length."""
    return difference(boot.before, boot.after).acceptance_length


def drafted_step_bytes(boot: Measured) -> float | None:
    """Bytes of a verifying step with its drafts; ``None`` where the drafter's are not known."""
    drafts = boot.arm.declared.draft_tokens
    if boot.weights is None or boot.weights.drafter is None or not drafts:
        return None
    contexts = [context for turn in boot.turns if (context := context_of(turn)) is not None]
    if not contexts or boot.weights.target is None:
        return None
    context = fmean(contexts)
    drafting = drafts * step_bytes(boot.weights.drafter, context)
    return step_bytes(boot.weights.target, context) + drafting


def contradictions(boot: Measured) -> tuple[Contradiction, ...]:
    """Why this boot has no ceiling; empty where it has one."""
    found = (
        _bytes_unknown(boot),
        _bandwidth_unknown(boot),
        _contexts_unknown(boot),
        _weights_in_cache(boot),
    )
    return tuple(each for each in found if each is not None)


def _target(boot: Measured) -> record.Network:
    assert boot.weights is not None  # noqa: S101 - a contradiction says so before
    assert boot.weights.target is not None  # noqa: S101 - likewise
    return boot.weights.target


def _log_rates(boot: Measured) -> Iterator[float]:
    """Per block the log of the bytes a second that its turns read."""
    blocks: dict[int | None, list[float]] = {}
    for turn in boot.turns:
        tps = sample.value(turn, DECODE_THROUGHPUT, boot.arm.declared.draft_tokens)
        context = context_of(turn)
        if tps is not None and context is not None:
            rate = log(tps * step_bytes(_target(boot), context))
            blocks.setdefault(turn.block, []).append(rate)
    return (fmean(rates) for rates in blocks.values())


def _bytes_unknown(boot: Measured) -> Contradiction | None:
    known = boot.weights
    if known is not None and known.target is not None and known.problem is None:
        return None
    return Contradiction(
        kind="bytes_unknown",
        reason="How many bytes a decode step reads is not known.",
        evidence=(known.problem if known else None) or "No record of the checkpoint was made.",
        remedy="Measure an engine that is booted here, from a checkpoint of safetensors files.",
    )


def _bandwidth_unknown(boot: Measured) -> Contradiction | None:
    known = boot.bandwidth
    if known is not None and known.series and known.problem is None:
        return None
    return Contradiction(
        kind="bandwidth_unknown",
        reason="The memory's bandwidth was not measured.",
        evidence=(known.problem if known else None) or "No probe was made beside the turns.",
        remedy="Run the probe where the engine runs; NumPy or torch beside it is all it needs.",
    )


def _contexts_unknown(boot: Measured) -> Contradiction | None:
    if any(context_of(each) is not None for each in boot.turns):
        return None
    return Contradiction(
        kind="context_unknown",
        reason="How many tokens stood before each step is not known.",
        evidence="No turn's usage gives both prompt and output tokens.",
        remedy="Measure a server that reports usage in its streams.",
    )


def _weights_in_cache(boot: Measured) -> Contradiction | None:
    """Weights that stay in the cache are not read from memory, whose bandwidth then bounds nothing.

    Sharing a large cache with other machines, a step may still find part of them there.
    """
    cache = boot.bandwidth.cache_bytes if boot.bandwidth else None
    if cache is None or boot.weights is None or boot.weights.target is None:
        return None
    weights = weight_bytes(boot.weights.target)
    if weights > cache:
        return None
    return Contradiction(
        kind="weights_in_cache",
        reason="The weights fit in the last-level cache: memory bandwidth is no limit to them.",
        evidence=f"A step reads {megabytes(weights)} of weights; the cache holds "
        f"{megabytes(cache)}.",
        remedy="Measure a checkpoint larger than the cache, as the profile miniature-heavy is.",
    )


def megabytes(size: float) -> str:
    """Bytes as ``446 MB``, a million bytes each."""
    return quantity(size / 1e6, "MB")


def gigabytes(rate: float) -> str:
    """Bytes per second as ``22.3 GB/s``."""
    return quantity(rate / 1e9, "GB/s")
