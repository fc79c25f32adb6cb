"""What all tests share: a machine under load, or a run in the background, makes no test fail."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background deaf to Ctrl-C, and what they start inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what stays to the end out of every later collection of garbage.

    Each run of pytester's ends with a full one, and each measurement begins with one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs inside these tests measure nothing: they neither wait for the host nor hold it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMPERF_LOCK", str(tmp_path_factory.mktemp("lock") / "host.lock"))
        yield
