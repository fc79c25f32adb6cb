"""From a checkpoint's facts to the bytes that a decode step reads, in plain arithmetic.

Where the facts come from is in ``checkpoint``; what share of the bandwidth they make is in
``reached``.
"""

from __future__ import annotations

from pytest_llmperf import record

_KEY_AND_VALUE = 2


def weight_bytes(network: record.Network) -> float:
    """Bytes of weights that one token's step reads.

    Formula: sum of elements x share x bytes each. Embeddings count as a row, a head whole.
    """
    return sum(each.elements * each.share * each.bytes_each for each in network.parts)


def kv_bytes(network: record.Network, context: float) -> float:
    """Bytes of keys and values that a step reads with so many tokens before it.

    Formula: sum over layers of heads x width x 2 x min(context, window) x bytes each.
    """
    return sum(
        each.layers
        * each.heads
        * each.width
        * _KEY_AND_VALUE
        * (context if each.window is None else min(context, each.window))
        * each.bytes_each
        for each in network.kv
    )


def step_bytes(network: record.Network, context: float) -> float:
    """All that a step of one stream reads: weights, keys and values."""
    return weight_bytes(network) + kv_bytes(network, context)


def context_of(request: record.Request) -> float | None:
    """Tokens before the middle of an answer; ``None`` where the usage does not say.

    Formula: prompt tokens + output tokens / 2, the mean over a decode that grows it by one a step.
    """
    prompt, output = request.usage.prompt_tokens, request.usage.completion_tokens
    return None if prompt is None or output is None else prompt + output / 2
