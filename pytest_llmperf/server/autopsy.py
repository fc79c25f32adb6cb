"""Boots that failed, in words: what the log says, what is known of it, and what to do.

That a boot has failed is noticed in ``readiness``.
"""

from __future__ import annotations

import re

from pytest_llmperf.errors import EngineDied, EngineLate
from pytest_llmperf.server.bootlog import BootLog
from pytest_llmperf.spec import EngineSpec

_TAIL_LINES = 25
_READ_LINES = 400

_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"address already in use",
        (
            "Another server took the port while this one loaded: leave [engine] port out of the"
            " profile to be given a free one."
        ),
    ),
    (
        r"No module named '?vllm",
        (
            "That Python has no vLLM: name the engine's own in the profile (python) or in"
            " LLMPERF_ENGINE_PYTHON, or measure a server that is up with --llmperf-attach URL."
        ),
    ),
    (
        r"No package metadata was found for vllm",
        (
            "This distribution has no `vllm` metadata: run it as the module"
            " vllm.entrypoints.openai.api_server."
        ),
    ),
    (
        r"unrecognized arguments?: (?P<what>.+)|(?:argument|error:.*) .*: invalid",
        "This version of vLLM does not take a flag of the profile: change [engine.flags].",
    ),
    (
        (
            r"out of memory|OutOfMemoryError|can(?:no|')t allocate memory|std::bad_alloc"
            r"|less than desired GPU memory utilization|No available memory for the cache blocks"
            r"|larger than the available KV cache memory"
        ),
        (
            "It ran out of memory: lower --gpu-memory-utilization, --max-model-len or"
            " --max-num-seqs, or stop what else holds the memory."
        ),
    ),
    (
        r"Synthetic acceptance not supported",
        "This acceptance method does not run on a CPU: take rejection_sample_method out.",
    ),
    (
        r"torchvision::nms does not exist",
        "torchvision does not fit torch: install the engine from its lock file with --no-deps.",
    ),
    (
        (
            r"(?:is not a local folder and is not a valid model identifier"
            r"|Repository Not Found|RepositoryNotFoundError|LocalEntryNotFoundError"
            r"|couldn't connect to|Can't load the configuration of|does not appear to have a file)"
        ),
        (
            "The model or drafter could not be found: check [model] and [drafter] source, and"
            " whether the hub may be reached (HF_HUB_OFFLINE)."
        ),
    ),
)

_SPECULATIVE = re.compile(
    r"shapes? .*cannot be multiplied|size mismatch|shape mismatch|NotImplementedError"
    r"|AssertionError|The size of tensor|must match the",
    re.IGNORECASE,
)


def advice(log: str, *, speculation: str | None) -> str:
    """What a log's end suggests to do; a general hint where nothing is recognised."""
    found = [words for pattern, words in _KNOWN if re.search(pattern, log, re.IGNORECASE)]
    if speculation is not None:
        found.append(_about_speculation(log, speculation))
    return " ".join(found) or "Read the log from its first traceback."


def _about_speculation(log: str, method: str) -> str:
    never = f"Speculation ({method}) was asked for, so it is not booted again without it"
    if _SPECULATIVE.search(log):
        return f"{never}: check that drafter and target are a pair that this version serves."
    return f"{never}."


def died(
    spec: EngineSpec, *, how: str, boot_s: float, phase: str, log: BootLog, by_hand: str
) -> EngineDied:
    """The error for an engine whose process ended before it was ready."""
    known = advice(log.tail(_READ_LINES), speculation=spec.declared.speculation)
    return EngineDied(
        f"Engine {spec.name} {how} after {boot_s:.1f} s ({phase}), before it was ready.",
        _last_lines(log),
        f"{known}\nBy hand: {by_hand}",
    )


def late(
    spec: EngineSpec, *, why: str, boot_s: float, phase: str, log: BootLog, by_hand: str
) -> EngineLate:
    """The error for an engine that was not ready in time."""
    return EngineLate(
        f"Engine {spec.name} was not ready after {boot_s:.1f} s ({phase}): {why}",
        _last_lines(log),
        "If it only needs longer, raise [engine] boot_deadline_s (seconds without progress) or"
        f" boot_cap_s (seconds in all) in the profile.\nBy hand: {by_hand}",
    )


def _last_lines(log: BootLog) -> str:
    tail = log.tail(_TAIL_LINES)
    return f"Last lines of {log.path}:\n{tail}" if tail else f"{log.path} is empty."
