"""The imagined engine's metrics page, in vLLM 0.32's names and the Prometheus text format.

What it counts is in ``make_believe``; reading such pages is in the room ``counters``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_llmperf.testing.make_believe import MakeBelieve

_Sample = tuple[dict[str, str], float]


def page(engine: MakeBelieve, *, started_at: float) -> str:
    """Render the whole page. ``started_at`` is in Unix seconds."""
    lines = [*_family("process_start_time_seconds", "gauge", [({}, started_at)])]
    lines += _cache_config(engine)
    labels = {"engine": "0", "model_name": engine.model}
    counts = engine.counts
    gauges = {"num_requests_running": counts.running, "num_requests_waiting": counts.waiting}
    for name, value in gauges.items():
        lines += _family(f"vllm:{name}", "gauge", [(labels, value)])
    for name, samples in _counters(engine, labels).items():
        lines += _family(f"vllm:{name}_total", "counter", samples)
        born = [(each, started_at) for each, _ in samples]
        lines += _family(f"vllm:{name}_created", "gauge", born)
    return "\n".join([*lines, *_histograms(engine, labels), ""])


def _histograms(engine: MakeBelieve, labels: dict[str, str]) -> Iterator[str]:
    counts = engine.counts
    number, whole_s = sum(counts.finished.values()), counts.prefill_s + counts.decode_s
    spans = {
        "request_queue_time": 0.0,
        "request_prefill_time": counts.prefill_s,
        "request_decode_time": counts.decode_s,
        "request_inference_time": whole_s,
        "e2e_request_latency": whole_s,
        "time_to_first_token": counts.prefill_s,
    }
    for name, total_s in spans.items():
        family = f"vllm:{name}_seconds"
        yield f"# TYPE {family} histogram"
        yield _line(f"{family}_bucket", {**labels, "le": "+Inf"}, number)
        yield _line(f"{family}_count", labels, number)
        yield _line(f"{family}_sum", labels, total_s)


def _counters(engine: MakeBelieve, labels: dict[str, str]) -> dict[str, list[_Sample]]:
    counts = engine.counts
    plain = {
        "prefix_cache_queries": counts.prefix_queries,
        "prefix_cache_hits": counts.prefix_hits,
        "num_preemptions": counts.preemptions,
        "prompt_tokens": counts.prompt_tokens,
        "generation_tokens": counts.generation_tokens,
    }
    if engine.behaviour.draft_tokens:
        plain |= {
            "spec_decode_num_drafts": counts.drafts,
            "spec_decode_num_draft_tokens": counts.draft_tokens,
            "spec_decode_num_accepted_tokens": sum(counts.accepted),
        }
    counters: dict[str, list[_Sample]] = {key: [(labels, value)] for key, value in plain.items()}
    counters["request_success"] = [
        ({**labels, "finished_reason": reason}, counts.finished.get(reason, 0))
        for reason in ("stop", "length", "abort", "error")
    ]
    if engine.behaviour.draft_tokens:
        counters["spec_decode_num_accepted_tokens_per_pos"] = [
            ({**labels, "position": str(place)}, value)
            for place, value in enumerate(counts.accepted)
        ]
    return counters


def _cache_config(engine: MakeBelieve) -> Iterator[str]:
    labels = {
        "block_size": str(engine.behaviour.block_size),
        "enable_prefix_caching": str(not engine.faults.cache_off),
        "engine": "0",
        "num_gpu_blocks": str(engine.behaviour.cache_blocks),
    }
    yield from _family("vllm:cache_config_info", "gauge", [(labels, 1)])


def _family(name: str, kind: str, samples: Sequence[_Sample]) -> Iterator[str]:
    yield f"# HELP {name} Of an imagined engine."
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _line(name, labels, value)


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
    return f"{name}{{{inside}}} {float(value)}" if inside else f"{name} {float(value)}"
