"""A ceiling and a claim inside pytest: measured, judged, and judged again from evidence alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf import record
from pytest_llmperf.claims.ceiling import checkpoint
from pytest_llmperf.server import bandwidth

Run = Callable[..., pytest.RunResult]

CEILING = """
import pytest
from pytest_llmperf import assert_ceiling

@pytest.mark.decode_throughput(turns=8)
def test_ceiling(llmperf, gemma, questions):
    assert_ceiling(llmperf(gemma, questions), at_least={share})
"""

CLAIM = """
from pathlib import Path
import pytest
from pytest_llmperf import Claim, assert_claim

CLAIM = Claim.read(Path(__file__).with_name("claim.toml"))

@pytest.mark.decode_throughput(turns=8)
def test_claim(llmperf, gemma, questions):
    assert_claim(llmperf(gemma, questions), CLAIM)
"""

CLAIMED = """
number = {number}
unit = "tok/s"
[denominator]
clock = "decode"
prefix = "any"
streams = 1
"""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of 4 MB and a memory that gives 40 GB/s, whatever the engine is."""
    part = record.Part(name="layers", elements=1_000_000, stored="F32", bytes_each=4.0)
    network = record.Network(source="scripted", parts=(part,), kv=())

    def weights(engine: record.Engine) -> record.Weights:
        return record.Weights(boot_id=engine.boot_id, target=network)

    def probe(engine: record.Engine, measurement_id: str) -> record.Bandwidth:
        return record.Bandwidth(
            measurement_id=measurement_id,
            boot_id=engine.boot_id,
            device="cpu",
            array_bytes=100_000_000,
            cache_bytes=1_000_000,
            series=(record.Streamed(kernel="sum", threads=2, bytes_per_s=(4e10, 4.1e10) * 6),),
        )

    monkeypatch.setattr(checkpoint, "weights_of", weights)
    monkeypatch.setattr(bandwidth, "probe", probe)


@pytest.mark.parametrize(("share", "exit_status"), [(0.0001, 0), (0.99, 10)])
def test_a_share_is_judged_and_judged_again_without_a_probe(
    suite: pytest.Pytester,
    attached: Run,
    evidence: Callable[[], Path],
    known: None,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    exit_status: int,
) -> None:
    suite.makepyfile(CEILING.format(share=share))
    assert attached().ret == exit_status
    monkeypatch.setattr(bandwidth, "probe", None)
    monkeypatch.setattr(checkpoint, "weights_of", None)
    again = suite.runpytest_inprocess(
        "-p", "no:cacheprovider", f"--llmperf-replay={evidence().parent}"
    )
    assert again.ret == exit_status
    if not exit_status:
        again.stdout.fnmatch_lines(["*Assumed: a step reads every active weight once*"])


def test_an_attached_server_has_no_ceiling(suite: pytest.Pytester, attached: Run) -> None:
    suite.makepyfile(CEILING.format(share=0.3))
    result = attached()
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*How many bytes a decode step reads is not known.*"])


@pytest.mark.parametrize(("number", "exit_status"), [(1, 0), (100_000, 10)])
def test_a_claim_is_judged_by_its_own_count(
    suite: pytest.Pytester, attached: Run, number: float, exit_status: int
) -> None:
    suite.makepyfile(CLAIM)
    suite.path.joinpath("claim.toml").write_text(CLAIMED.format(number=number), encoding="utf-8")
    result = attached()
    assert result.ret == exit_status
    result.stdout.fnmatch_lines(["*claim claims at least*"])


def test_a_faulty_claim_is_told_before_anything_is_measured(
    suite: pytest.Pytester, attached: Run
) -> None:
    suite.makepyfile(CLAIM)
    suite.path.joinpath("claim.toml").write_text("numbr = 2", encoding="utf-8")
    result = attached()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*numbr is not known; did you mean number?*"])
    assert not list(suite.path.glob(".llmperf/*"))
