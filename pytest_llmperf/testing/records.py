"""Records with exact, known values, to be overridden field by field.

The records themselves are defined in ``record``.
"""

from __future__ import annotations

from typing import Any

from pytest_llmperf import record
from pytest_llmperf.denominator import SINGLE_STREAM

START_NS = 1_000_000_000
"""When the requests made here are sent, unless told otherwise."""

AFTERWARDS_NS = 1_000_000
"""From the last token to the end of the stream."""


def a_request(
    *,
    first_s: float = 0.1,
    tokens: int = 16,
    gap_s: float = 0.02,
    cached: int | None = 0,
    prompt_tokens: int = 100,
    tokens_per_chunk: int = 1,
    start_ns: int = START_NS,
    **overrides: Any,  # noqa: ANN401 - any field of the record
) -> record.Request:
    """A completed request whose stamps follow from its arguments.

    The first token comes ``first_s`` after sending, a chunk of ``tokens_per_chunk`` every
    ``gap_s`` (the last one may be smaller), and the headers and the role chunk at half of
    ``first_s``.
    """
    sizes = [tokens_per_chunk] * (tokens // tokens_per_chunk)
    sizes += [tokens % tokens_per_chunk] * (tokens % tokens_per_chunk > 0)
    first_ns = start_ns + round(first_s * 1e9)
    chunks = tuple(
        record.Chunk(at_ns=first_ns + place * round(gap_s * 1e9), tokens=size)
        for place, size in enumerate(sizes)
    )
    fields: dict[str, Any] = {
        "request_id": "r0",
        "prompt": "p0",
        "url": "http://127.0.0.1:1",
        "http_status": 200,
        "finish_reason": "length",
        "stamps": _stamps(start_ns, first_ns, chunks),
        "usage": record.Usage(
            prompt_tokens=prompt_tokens, completion_tokens=tokens, cached_tokens=cached
        ),
        "tokens_from": "usage",
        "chunks": chunks,
        "max_tokens": tokens,
        "temperature": 0.0,
        "answered_by": record.Answerer(model="scripted", response_id="chatcmpl-0"),
    }
    return record.Request(**fields | overrides)


def _stamps(start_ns: int, first_ns: int, chunks: tuple[record.Chunk, ...]) -> record.Stamps:
    head_ns = start_ns + (first_ns - start_ns) // 2
    token_ns = chunks[0].at_ns if chunks else None
    last_ns = chunks[-1].at_ns if chunks else None
    return record.Stamps(
        due_ns=start_ns,
        sent_ns=start_ns,
        first_byte_ns=head_ns,
        first_event_ns=head_ns,
        first_token_ns=token_ns,
        first_visible_ns=token_ns,
        first_answer_ns=token_ns,
        last_token_ns=last_ns,
        closed_ns=(last_ns or first_ns) + AFTERWARDS_NS,
    )


def a_session(**overrides: Any) -> record.Session:  # noqa: ANN401 - any field of the record
    """The first record of a run."""
    fields: dict[str, Any] = {
        "session_id": "s0",
        "started_at": "2026-01-01T00:00:00Z",
        "plugin_version": "0",
    }
    return record.Session(**fields | overrides)


def an_engine(**overrides: Any) -> record.Engine:  # noqa: ANN401 - any field of the record
    """An engine that is up, with prefix caching and no drafter."""
    fields: dict[str, Any] = {
        "boot_id": "b0",
        "name": "gemma",
        "url": "http://127.0.0.1:1",
        "served_model": "scripted",
        "declared": record.Declared(prefix_caching=True),
        "facts": record.Facts(block_size=16, metrics=True, tokenize=True, token_ids=True),
    }
    return record.Engine(**fields | overrides)


def a_measurement(**overrides: Any) -> record.Measurement:  # noqa: ANN401 - any field of the record
    """The start of a measurement with one arm."""
    arm = record.Arm(
        name="candidate",
        boot_id="b0",
        engine="gemma",
        denominator=SINGLE_STREAM,
        declared=record.Declared(prefix_caching=True),
    )
    fields: dict[str, Any] = {
        "measurement_id": "m0",
        "gate": "test_gate.py::test_gate",
        "arms": (arm,),
        "workload": "w0",
        "workload_digest": "0",
        "turns": 8,
    }
    return record.Measurement(**fields | overrides)


def some_counters(**overrides: Any) -> record.Counters:  # noqa: ANN401 - any field of the record
    """Counters of an idle engine before anything was sent."""
    fields: dict[str, Any] = {
        "measurement_id": "m0",
        "boot_id": "b0",
        "when": "before",
        "at_ns": START_NS,
        "prefix_queries": 0.0,
        "prefix_hits": 0.0,
        "prompt_tokens": 0.0,
        "generation_tokens": 0.0,
        "requests_finished": 0.0,
        "requests_running": 0.0,
        "requests_waiting": 0.0,
        "preemptions": 0.0,
    }
    return record.Counters(**fields | overrides)
