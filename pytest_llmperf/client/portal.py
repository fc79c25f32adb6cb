"""An event loop in a thread of its own, and callers that wait for it and may be interrupted.

What runs on the loop is in ``client``.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

_T = TypeVar("_T")

_MEANWHILE_S = 0.1

_LEAVE_S = 10.0
"""How long an interrupted caller waits for its errand to clean up."""


class Portal:
    """A loop that runs errands for blocking callers, from any thread, while it is entered."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._portal = self._open.enter_context(start_blocking_portal("asyncio"))
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def wait(
        self, errand: Callable[[], Awaitable[_T]], *, meanwhile: Callable[[], None] | None = None
    ) -> _T:
        """Run the errand on the loop and give its result.

        When the caller is interrupted the errand is cancelled and has cleaned up before the
        interrupt is passed on.

        :param meanwhile: called by the caller's thread again and again while the errand runs.
        """
        running = _Errand(errand)
        future: Future[_T] = self._portal.start_task_soon(running.run)
        try:
            while meanwhile is not None and not running.over.wait(_MEANWHILE_S):
                meanwhile()
            return future.result()
        except BaseException:
            if not running.over.is_set():
                self._portal.call(running.leave)
                running.over.wait(_LEAVE_S)
            raise


class _Errand(Generic[_T]):
    def __init__(self, start: Callable[[], Awaitable[_T]]) -> None:
        self._start = start
        self._scope: anyio.CancelScope | None = None
        self.over = threading.Event()

    async def run(self) -> Any:  # noqa: ANN401 - a cancelled scope gives nothing, to nobody
        try:
            with anyio.CancelScope() as self._scope:
                return await self._start()
        finally:
            self.over.set()

    def leave(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
