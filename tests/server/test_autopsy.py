from __future__ import annotations

import pytest

from pytest_llmperf.server.autopsy import advice


@pytest.mark.parametrize(
    ("line", "beginning"),
    [
        ("OSError: [Errno 98] Address already in use", "Another server took the port"),
        ("/usr/bin/python: No module named vllm", "That Python has no vLLM"),
        ("ModuleNotFoundError: No module named 'vllm'", "That Python has no vLLM"),
        ("No package metadata was found for vllm", "This distribution has no `vllm` metadata"),
        ("api_server.py: error: unrecognized arguments: --bogus", "This version of vLLM does not"),
        (
            "api_server.py: error: argument --dtype: invalid choice: 'f'",
            "This version of vLLM does not take",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "It ran out of memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you", "It ran"),
        ("ValueError: No available memory for the cache blocks.", "It ran out of memory"),
        ("OSError: x/y is not a local folder and is not a valid model identifier", "The model or"),
        ("RuntimeError: operator torchvision::nms does not exist", "torchvision does not fit"),
        ("KeyError: 'x'", "Read the log from its first traceback."),
    ],
)
def test_known_failures_have_their_advice(line: str, beginning: str) -> None:
    assert advice(f"before\n{line}\nafter", speculation=None).startswith(beginning)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x9 and 8x8)",
        "AssertionError: shape mismatch in draft layer",
        "NotImplementedError: draft model for multimodal",
        "The size of tensor a (2816) must match the size of tensor b (5632)",
    ],
)
def test_a_drafter_that_does_not_fit_is_told_as_a_pair(line: str) -> None:
    assert advice(line, speculation="mtp") == (
        "Speculation (mtp) was asked for, so it is not booted again without it: check that drafter"
        " and target are a pair that this version serves."
    )


def test_any_crash_with_speculation_says_that_there_is_no_way_round_it() -> None:
    assert advice("KeyError", speculation="eagle") == (
        "Speculation (eagle) was asked for, so it is not booted again without it."
    )
