"""Does a published claim hold here, and if our number is another, which difference explains it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmperf import Claim, assert_claim

CLAIMS = Path(__file__).parent / "claims"
DRAFTER_ON_CODE = Claim.read(CLAIMS / "drafter-on-code.toml")
HEADLINE = Claim.read(CLAIMS / "headline.toml")


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=12)
def test_the_drafter_s_claim_on_code_holds(llmperf, gemma, gemma_autoregressive, code):
    pair = llmperf.compare(gemma, gemma_autoregressive, code)
    assert_claim(pair, DRAFTER_ON_CODE)


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=12)
def test_a_headline_is_explained_to_who_waits(llmperf, gemma, gemma_autoregressive, cold_router):
    """Counted as the headline counts it holds; a caller also waits for the prefill."""
    pair = llmperf.compare(gemma, gemma_autoregressive, cold_router)
    assert_claim(pair, HEADLINE)
