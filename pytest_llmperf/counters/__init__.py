"""The text of a server's metrics page becomes one record of counters by meaning, and two a change.

Fetching the page is in ``client``; what a change proves or contradicts is in ``proof``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_llmperf.counters.histograms import SPANS, grown, totals
from pytest_llmperf.record import Counters, Spans

if TYPE_CHECKING:
    from prometheus_client.samples import Sample as Series

COUNTERS: dict[str, tuple[str, ...]] = {
    "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "drafts": ("vllm:spec_decode_num_drafts",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens",),
    "prompt_tokens": ("vllm:prompt_tokens",),
    "generation_tokens": ("vllm:generation_tokens",),
    "requests_finished": ("vllm:request_success",),
    "preemptions": ("vllm:num_preemptions",),
}
"""What each cumulative counter has been called, newest first, with or without ``_total``."""

GAUGES: dict[str, tuple[str, ...]] = {
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
}
"""What each momentary value has been called, newest first."""

PER_POSITION = ("vllm:spec_decode_num_accepted_tokens_per_pos",)
"""Accepted tokens by place in the draft; one series for each ``position``."""

STARTED = "process_start_time_seconds"

_MODEL = "model_name"
_SAME_START_S = 1.0
_SHOWN = 120


def _spellings(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in names for suffix in ("_total", ""))


_NAMES: dict[str, tuple[str, ...]] = {
    **{meaning: _spellings(names) for meaning, names in COUNTERS.items()},
    **GAUGES,
}
_POSITIONS = _spellings(PER_POSITION)
_KNOWN = frozenset(name for names in (*_NAMES.values(), _POSITIONS) for name in names)
_TOTALS = tuple(
    f"{name}_{of}" for names in SPANS.values() for name in names for of in ("sum", "count")
)
_CREATED = frozenset(
    f"{name}_created" for names in (*COUNTERS.values(), PER_POSITION) for name in names
)


def of_an_engine(text: str) -> str:
    """The lines of a page that ``parse`` knows: a page inside the window is read in passing."""
    names = (*_KNOWN, *_TOTALS, STARTED)
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(names))


def parse(
    text: str,
    *,
    measurement_id: str,
    boot_id: str,
    when: Literal["before", "during", "after"],
    at_ns: int,
    model: str | None = None,
) -> Counters:
    """Read a metrics page in the Prometheus text format.

    Series of one meaning are summed over engines; what the page lacks is ``None``. A page that
    cannot be read or is not of this model gives a record that is not ``readable`` and says why.

    :param model: the ``model_name`` label to keep; ``None`` accepts a page with one model only.
    """
    empty = Counters(measurement_id=measurement_id, boot_id=boot_id, when=when, at_ns=at_ns)
    try:
        page = list(_series(text))
    except ValueError as error:
        shown = " ".join(str(error).split())[:_SHOWN]
        return _unreadable(empty, f"the metrics page is malformed: {shown}")
    problem = _page_problem(page, model)
    if problem is not None:
        return _unreadable(empty, problem)
    ours = [each for each in page if model is None or each.labels.get(_MODEL, model) == model]
    values, broken = _values(ours)
    spans, no_totals = totals(ours)
    return msgspec.structs.replace(
        empty,
        **values,
        accepted_per_position=_per_position(ours),
        spans=spans,
        started_at=_started(ours),
        problem="; ".join((*broken, *no_totals, *_swapped(values))) or None,
    )


def _unreadable(empty: Counters, problem: str) -> Counters:
    return msgspec.structs.replace(empty, readable=False, problem=problem)


def _series(text: str) -> Iterator[Series]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - late

    for family in text_string_to_metric_families(text):
        yield from family.samples


def _page_problem(page: Sequence[Series], model: str | None) -> str | None:
    """Why a page tells nothing of this model, or ``None``."""
    if not page:
        return "the metrics page is empty"
    known = [each for each in page if each.name in _KNOWN]
    if not known:
        return (
            "the metrics page has no metric of an engine "
            "(--disable-log-stats, or one of several API processes?)"
        )
    models = sorted({each.labels[_MODEL] for each in known if _MODEL in each.labels})
    if model is None and len(models) > 1:
        return f"the metrics page is of several models ({', '.join(models)}): which is measured?"
    if model is not None and models and model not in models:
        return f"the metrics page is of {', '.join(models)}, not of {model}"
    return None


def _values(ours: Sequence[Series]) -> tuple[dict[str, float | None], list[str]]:
    """Each meaning's sum over its series under its newest spelling, and what was no number."""
    values: dict[str, float | None] = {}
    broken = []
    for meaning, names in _NAMES.items():
        name, found = _newest(ours, names)
        total = math.fsum(found) if all(map(math.isfinite, found)) else math.nan
        if found and not (math.isfinite(total) and total >= 0):
            broken.append(f"{name} is {next(x for x in found if not 0 <= x < math.inf)}")
            found = []
        values[meaning] = total if found else None
    return values, broken


def _newest(ours: Sequence[Series], names: Sequence[str]) -> tuple[str, list[float]]:
    for name in names:
        found = [each.value for each in ours if each.name == name]
        if found:
            return name, found
    return "", []


def _per_position(ours: Sequence[Series]) -> tuple[float, ...] | None:
    """Accepted tokens for draft positions 0, 1, ...; ``None`` if a position is missing."""
    for name in _POSITIONS:
        sums: dict[str, float] = {}
        for each in ours:
            if each.name == name:
                position = each.labels.get("position", "")
                sums[position] = sums.get(position, 0.0) + each.value
        if sums:
            found = [sums.get(str(position)) for position in range(len(sums))]
            whole = tuple(x for x in found if x is not None and math.isfinite(x))
            return whole if len(whole) == len(sums) else None
    return None


def _started(ours: Sequence[Series]) -> float | None:
    """The process's start; without it the newest creation time of a counter of ours."""
    _, found = _newest(ours, (STARTED,))
    created = found or [each.value for each in ours if each.name in _CREATED]
    finite = [x for x in created if math.isfinite(x)]
    return max(finite) if finite else None


def _swapped(values: dict[str, float | None]) -> list[str]:
    """Pairs of which the part is greater than the whole."""
    pairs = (("prefix_hits", "prefix_queries"), ("accepted_tokens", "draft_tokens"))
    return [
        f"{part} {some:.0f} is more than {whole} {every:.0f} (swapped?)"
        for part, whole in pairs
        if (some := values[part]) is not None
        and (every := values[whole]) is not None
        and some > every
    ]


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the counters of one server grew over a window. ``None``: not known."""

    prefix_queries: float | None = None
    prefix_hits: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests_finished: float | None = None
    preemptions: float | None = None
    spans: Spans = Spans()
    """Seconds that the server's histograms grew by, and over how many requests."""
    restarted: str | None = None
    """What shows that the server restarted inside the window; every growth is then ``None``."""

    @property
    def acceptance(self) -> float | None:
        """Share of drafted tokens that were accepted, weighted by tokens over the window.

        Formula: accepted tokens / drafted tokens. Not the mean of the requests' shares.
        """
        return _share(self.accepted_tokens, self.draft_tokens)

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens a verifying step yields, the bonus token included.

        Formula: 1 + accepted tokens / drafting steps.
        """
        accepted = _share(self.accepted_tokens, self.drafts)
        return None if accepted is None else 1 + accepted

    @property
    def acceptance_per_position(self) -> tuple[float, ...] | None:
        """For each place in the draft the share of drafting steps in which it was accepted."""
        if self.accepted_per_position is None or not self.drafts:
            return None
        return tuple(each / self.drafts for each in self.accepted_per_position)


def difference(before: Counters | None, after: Counters | None) -> Delta:
    """The counters' growth between two readings of one server."""
    if before is None or after is None or not (before.readable and after.readable):
        return Delta()
    restarted = _restarted(before, after)
    if restarted is not None:
        return Delta(restarted=restarted)
    counts = {name: _minus(getattr(after, name), getattr(before, name)) for name in COUNTERS}
    positions = _positions_grown(before, after)
    spans = grown(before.spans, after.spans)
    return msgspec.structs.replace(Delta(), **counts, accepted_per_position=positions, spans=spans)


def _restarted(before: Counters, after: Counters) -> str | None:
    """Which counter fell, or that the server's start changed; ``None`` if neither."""
    for name in COUNTERS:
        first, last = getattr(before, name), getattr(after, name)
        if first is not None and last is not None and last < first:
            return f"{name} fell from {first:.0f} to {last:.0f}"
    first, last = before.started_at, after.started_at
    if first is not None and last is not None and abs(last - first) > _SAME_START_S:
        return f"the server's start moved from {first:.0f} to {last:.0f} (Unix seconds)"
    return None


def _positions_grown(before: Counters, after: Counters) -> tuple[float, ...] | None:
    first, last = before.accepted_per_position, after.accepted_per_position
    if first is None or last is None or len(first) != len(last):
        return None
    return tuple(later - earlier for earlier, later in zip(first, last, strict=True))


def _minus(last: float | None, first: float | None) -> float | None:
    return None if last is None or first is None else last - first


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
