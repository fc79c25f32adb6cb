"""Waiting until a server has nothing left to do, so that one measurement does not load the next.

How the running requests are counted is injected; reading a metrics page is in ``counters``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_llmperf.errors import EngineError, EngineLate


def settle(
    running: Callable[[], float | None],
    *,
    within_s: float = 30.0,
    every_s: float = 0.1,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], object] = time.sleep,
) -> float:
    """Wait until no request runs; give the seconds waited.

    After a client has left, an engine may go on generating for it for a while.

    :param running: requests running now by the server's own count; ``None`` if it is not known.
    :raises EngineError: if the count is not known.
    :raises EngineLate: if requests still run after ``within_s``.
    """
    start_ns = clock()
    while True:
        count = running()
        waited_s = (clock() - start_ns) / 1e9
        if count is None:
            raise EngineError(
                "Whether the engine is idle is not known.",
                "It does not say how many requests run.",
                "Let its metrics page be read (it must not be started with --disable-log-stats).",
            )
        if count == 0:
            return waited_s
        if waited_s >= within_s:
            raise EngineLate(
                f"The engine still runs {count:g} requests after {within_s:g} s.",
                "Our own requests are over, so these are abandoned or somebody else's.",
                "Find who else uses the engine, or allow it more time.",
            )
        sleep(every_s)
