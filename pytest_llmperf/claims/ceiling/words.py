"""What stands beside a share of the ceiling: its parts, its assumptions, and what a drafter buys.

Numbers come from ``reached`` and ``traffic``; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from pytest_llmperf.claims.ceiling.reached import (
    Limit,
    best,
    drafted_step_bytes,
    gigabytes,
    limit_of,
    megabytes,
    tokens_per_read,
)
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.evidence import Measured
from pytest_llmperf.record import Streamed
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.units import counted, percent, quantity, rate

Line = tuple[str, str]

_NEAR_CACHE = 4
"""Weights of fewer caches than this may partly be served from there."""


def beside(plain: Run, drafting: Run | None, pair: Pair | None) -> tuple[Line, ...]:
    """(Its words, the value) of each number that the share is made of."""
    limit = limit_of(plain.measured)
    lines = [
        (
            f"the ceiling: {_bandwidth(limit)} over {megabytes(limit.step_bytes)} a token",
            rate(limit.tps),
        ),
        ("decode without drafter", rate(_typical(plain))),
        (_passes(limit.bandwidth, plain.measured), gigabytes(limit.bytes_per_s)),
        *_own_threads(plain.measured, limit),
    ]
    if drafting is not None and pair is not None:
        lines += _drafter(drafting, pair, limit)
    return tuple(lines)


def findings(plain: Run) -> tuple[str, ...]:
    """The answer in a sentence, and what was assumed for it."""
    return (_answer(plain), *_assumptions(plain.measured))


def _answer(plain: Run) -> str:
    limit, tps = limit_of(plain.measured), _typical(plain)
    share = tps / limit.tps
    return (
        f"The hardware's limit is {rate(limit.tps)} without a drafter, this configuration gives "
        f"{rate(tps)}: {percent(max(0.0, 1 - share))} of the limit is lost to kernels, threads and "
        "what happens between steps."
    )


def _assumptions(boot: Measured) -> Iterator[str]:
    limit = limit_of(boot)
    assert boot.weights is not None  # noqa: S101 - a contradiction says so before
    assert boot.weights.target is not None  # noqa: S101 - likewise
    parts = ", ".join(
        f"{each.name} {megabytes(each.elements * each.share * each.bytes_each)}"
        f" ({each.stored} at {each.bytes_each:g} bytes)"
        for each in boot.weights.target.parts
    )
    yield (
        f"Assumed: a step reads every active weight once ({parts}) and {megabytes(limit.kv)} of "
        "keys and values; embeddings count as a row, activations not at all. The bandwidth is that "
        "of right after the turns."
    )
    cache = boot.bandwidth.cache_bytes if boot.bandwidth else None
    if cache and limit.weights < _NEAR_CACHE * cache:
        yield (
            f"The weights are {limit.weights / cache:.1f} times the last-level cache of "
            f"{megabytes(cache)}: what it serves of them makes the share look better."
        )


def _bandwidth(limit: Limit) -> str:
    return gigabytes(limit.bytes_per_s)


def _passes(series: Streamed, boot: Measured) -> str:
    assert boot.bandwidth is not None  # noqa: S101 - a contradiction says so before
    low, high = min(series.bytes_per_s), max(series.bytes_per_s)
    size = megabytes(boot.bandwidth.array_bytes or 0)
    return (
        f"bandwidth measured: {_named(series)}, {len(series.bytes_per_s)} passes over {size}, "
        f"from {gigabytes(low)} to {gigabytes(high)}"
    )


def _named(series: Streamed) -> str:
    threads = "" if series.threads is None else f" with {counted(series.threads, 'thread')}"
    return f"{series.kernel}{threads}"


def _own_threads(boot: Measured, limit: Limit) -> Iterator[Line]:
    """What the memory gives to as many threads as the engine has, where these are fewer."""
    assert boot.bandwidth is not None  # noqa: S101 - a contradiction says so before
    wanted = boot.bandwidth.engine_threads
    own = [each for each in boot.bandwidth.series if each.threads == wanted]
    if own and wanted != limit.bandwidth.threads:
        found = best(own)
        yield f"bandwidth by the engine's {_named(found)}", gigabytes(median(found.bytes_per_s))


def _drafter(drafting: Run, pair: Pair, limit: Limit) -> Iterator[Line]:
    """What the drafter buys beyond one token for each read of the weights."""
    length = tokens_per_read(drafting.measured)
    if length is not None:
        yield "tokens for each read of the weights, with the drafter", f"{length:.2f}"
    yield "decode, with the drafter against without", quantity(pair.ratio(DECODE_THROUGHPUT), "x")
    tps = _typical(drafting)
    yield (
        "decode with the drafter, of the ceiling of one token a read",
        quantity(tps / limit.tps, "x"),
    )
    size = drafted_step_bytes(drafting.measured)
    if size is not None and length is not None:
        yield (
            f"its own ceiling, {megabytes(size)} a step with its drafts",
            rate(limit.bytes_per_s * length / size),
        )


def _typical(run: Run) -> float:
    return median(run.values[-1])
