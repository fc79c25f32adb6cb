"""Flags and methods that vLLM is known to take; what it is not known to take, with a guess."""

from __future__ import annotations

import pytest

from pytest_llmperf import flags, profile


@pytest.mark.parametrize(
    "flag",
    [
        "--max-model-len",
        "--max_model_len",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--speculative-config.method",
        "-O3",
        "--host",
    ],
)
def test_a_flag_of_vllm_is_known_in_each_of_its_spellings(flag: str) -> None:
    assert flags.unknown([flag]) == []


def test_an_unknown_flag_is_told_with_the_one_that_was_probably_meant() -> None:
    assert flags.unknown(["--max-modle-len", "--made-up"]) == [
        (
            "[engine.flags] --max-modle-len is no flag of vLLM 0.32; did you mean --max-model-len? "
            "It is passed on."
        ),
        "[engine.flags] --made-up is no flag of vLLM 0.32. It is passed on.",
    ]


def test_a_method_is_right_or_told_with_the_one_that_was_probably_meant() -> None:
    assert flags.wrong_method("mtp") is None
    assert flags.wrong_method("mpt") == (
        "a method of vLLM 0.32; did you mean mtp? Known are mtp, eagle, eagle3, dflash, dspark, "
        "draft_model, ngram, ngram_gpu, suffix, medusa, mlp_speculator, extract_hidden_states, "
        "custom_class, and names of model families"
    )
    assert str(flags.wrong_method(3)).startswith("a method of vLLM 0.32. Known are mtp")


@pytest.mark.parametrize("name", profile.shipped())
def test_no_shipped_profile_has_a_flag_that_vllm_does_not_know(name: str) -> None:
    spec = profile.load(name).engine("gemma", speculation=True)
    assert spec.warnings == ()


def test_flags_of_another_engine_are_not_judged() -> None:
    spec = profile.load("miniature").engine("gemma", speculation=True)
    assert spec.module.startswith("vllm.")
