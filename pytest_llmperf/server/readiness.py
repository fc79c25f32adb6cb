"""Wait until an engine is ready, dead or late.

Ready means three things together: the port is ours, the server lists the name that this boot
gave it, and a generation ends with sane text. Starting and ending it is in ``process``; the
questions themselves are in ``probe``.
"""

from __future__ import annotations

import queue
import shlex
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from pytest_llmperf.errors import EngineError, EngineForeign
from pytest_llmperf.record import Facts
from pytest_llmperf.server import autopsy, ownership, probe
from pytest_llmperf.server.bootlog import PROBING, BootLog, Stopwatch
from pytest_llmperf.server.process import EngineProcess
from pytest_llmperf.spec import EngineSpec

_POLL_S = 0.1
_LOOKS = 4
_QUICK_S = 3.0
_FACTS_S = 10.0
_APPETITE_EVERY_S = 1.0
_DYING_S = 5.0
_OK = 200
_KEY_WANTED = (401, 403)
_BUSY = (429, 503)


class Cancelled(Exception):
    """The boot was given up because the run is being stopped."""


class Boot(msgspec.Struct, kw_only=True):
    """One boot that is under way, with all that watching it needs."""

    spec: EngineSpec
    command: tuple[str, ...]
    process: EngineProcess
    url: str
    port: int
    model: str
    log: BootLog
    watch: Stopwatch
    clock: Callable[[], int]
    sleep: Callable[[float], object]
    cancelled: Callable[[], bool]

    @property
    def by_hand(self) -> str:
        """The command that a person may run to see the same."""
        folder = shlex.quote(str(self.log.path.parent))
        environment = [f"{name}={value}" for name, value in self.spec.environment.items()]
        return f"cd {folder} && {shlex.join(['env', *environment, *self.command])}"


def wait(boot: Boot) -> Facts:
    """Wait for the engine; what it says of itself once it is ready.

    :raises EngineDied: its process ended.
    :raises EngineLate: it made no progress for the deadline, or reached its cap.
    :raises EngineForeign: another process or another engine answers on its port.
    :raises EngineError: it answers, and not as it must.
    :raises Cancelled: the run is being stopped.
    """
    card = _wait_until_listed(boot)
    boot.watch.enter(PROBING)
    made = _generate(boot)
    _refuse_foreign(boot)
    found = probe.facts(boot.url, card, made, timeout_s=_FACTS_S)
    boot.watch.close()
    return found


class _Progress:
    """When the boot last moved on: its log grew, or it took in more memory or bytes."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._seen = (-1, -1)
        self._appetite = 0
        self._looked = self._moved = boot.clock()

    def still_s(self) -> float:
        """Seconds since the last sign of progress."""
        now = self._boot.clock()
        if (now - self._looked) / 1e9 >= _APPETITE_EVERY_S:
            self._looked = now
            members = self._boot.process.members()
            self._appetite = max(self._appetite, ownership.appetite(members))
        seen = (self._boot.log.read_bytes, self._appetite)
        if seen != self._seen:
            self._seen, self._moved = seen, now
        return (now - self._moved) / 1e9


def _wait_until_listed(boot: Boot) -> dict[str, Any]:
    progress = _Progress(boot)
    answered = "nothing listens on its port yet"
    while True:
        _look(boot)
        if _refuse_foreign(boot):
            answer = probe.ask(boot.url, "/v1/models", timeout_s=_QUICK_S)
            card = _our_card(boot, answer)
            if card is not None:
                return card
            answered = f"/v1/models says {answer.status}: {answer.said(200)}"
        still_s = progress.still_s()
        if still_s >= boot.spec.deadline_s:
            raise _late(boot, f"no progress for {still_s:.1f} s; {answered}.")
        boot.sleep(_POLL_S)


def _look(boot: Boot) -> None:
    """Take in the log, tell of it, and see whether the engine lives and may still be waited for."""
    for phase in boot.log.new_phases():
        boot.watch.enter(phase, boot.log.last_line)
    _check(boot)


def _check(boot: Boot) -> None:
    boot.watch.tick(boot.log.last_line)
    if boot.cancelled():
        raise Cancelled
    if not boot.process.is_alive():
        raise autopsy.died(boot.spec, how=boot.process.how_it_ended, **_where(boot))
    if boot.watch.boot_s >= boot.spec.cap_s:
        raise _late(boot, f"its cap of {boot.spec.cap_s:g} s is reached.")


def _where(boot: Boot) -> dict[str, Any]:
    return {
        "boot_s": boot.watch.boot_s,
        "phase": boot.watch.phase,
        "log": boot.log,
        "by_hand": boot.by_hand,
    }


def _late(boot: Boot, why: str) -> EngineError:
    return autopsy.late(boot.spec, why=why, **_where(boot))


def _refuse_foreign(boot: Boot) -> bool:
    """Whether our own engine listens on the port; anyone else there is an error."""
    if not ownership.accepts(boot.port):
        return False
    strangers: set[int | None] = set()
    for _ in range(_LOOKS):
        holders = ownership.listeners(boot.port)
        strangers = holders - boot.process.members()
        if not strangers:
            return bool(holders)
        # One that began to listen, or ended, while the table was read has no owner in it.
        boot.sleep(_POLL_S)
    raise EngineForeign(
        f"Port {boot.port} of engine {boot.spec.name} is held by another process.",
        f"It is {ownership.describe(strangers) or 'a process that we cannot see'}; our engine"
        f" is process {boot.process.pid}.",
        "Stop that process, or leave [engine] port out to be given a free one. To measure"
        " that server, attach to it.",
    )


def _our_card(boot: Boot, answer: probe.Answer) -> dict[str, Any] | None:
    if answer.status in _KEY_WANTED:
        raise EngineError(
            f"Engine {boot.spec.name} is up and wants a key ({answer.status}).",
            f"{boot.url}/v1/models says: {answer.said(500)}",
            "Take --api-key out of [engine.flags] and VLLM_API_KEY out of the environment.",
        )
    cards = probe.models(answer) if answer.status == _OK else []
    ours = [card for card in cards if card["id"] == boot.model]
    if cards and not ours:
        raise EngineForeign(
            f"Another engine answers where {boot.spec.name} should: it does not list {boot.model}.",
            f"{boot.url}/v1/models lists {', '.join(card['id'] for card in cards)}.",
            "Stop that server, or leave [engine] port out to be given a free one.",
        )
    return ours[0] if ours else None


def _generate(boot: Boot) -> probe.Generation:
    """One short generation of the benchmarks' kind, bounded whatever the server does."""
    request = probe.chat(boot.model, tools=boot.spec.tools)
    start = boot.clock()
    answers: queue.SimpleQueue[probe.Answer] = queue.SimpleQueue()

    def ask() -> None:
        timeout_s = boot.spec.deadline_s + _QUICK_S
        path = "/v1/chat/completions"
        answers.put(probe.ask(boot.url, path, payload=request, timeout_s=timeout_s))

    # A server that sends a byte now and then outlives any timeout of the socket's.
    threading.Thread(target=ask, name=f"probe {boot.spec.name}", daemon=True).start()
    while answers.empty():
        boot.log.new_phases()
        _check(boot)
        waited_s = (boot.clock() - start) / 1e9
        if waited_s >= boot.spec.deadline_s:
            raise _late(
                boot,
                f"it lists its model, and a generation of a few tokens did not end within"
                f" {waited_s:.1f} s.",
            )
        boot.sleep(_POLL_S)
    return _judged(boot, answers.get())


def _judged(boot: Boot, answer: probe.Answer) -> probe.Generation:
    if answer.status is None or answer.status >= 500:  # noqa: PLR2004 - HTTP's server errors
        _wait_for_death(boot)
    if answer.status != _OK:
        raise refused(boot.spec.name, boot.url, answer)
    made = probe.generation(answer.body)
    wrong = probe.what_is_wrong(made)
    if wrong is not None:
        raise insane(boot.spec.name, wrong, made)
    return made


def _wait_for_death(boot: Boot) -> None:
    """A server error is often the first sign of a death that the log explains."""
    start = boot.clock()
    while (boot.clock() - start) / 1e9 < _DYING_S:
        _look(boot)
        boot.sleep(_POLL_S)


def flags_to_add(refusal: str) -> str:
    """The flags whose lack a refusal's text speaks of, as a sentence; empty where it is another."""
    if "tool" not in refusal.lower():
        return ""
    return (
        "Set --enable-auto-tool-choice and --tool-call-parser (gemma4 for Gemma 4) on the"
        " server, or [engine] tools = false in the profile for a model without tools. "
    )


def refused(name: str, url: str, answer: probe.Answer) -> EngineError:
    """The error for a chat that was not answered with a stream."""
    hint = "" if answer.status is None else flags_to_add(answer.body)
    if answer.status in _BUSY:
        hint = "Measure when it has room: a quiet server is part of what is measured. "
    elif answer.status is None:
        hint = "Look whether it hangs: its log, and its load. "
    status = f"HTTP {answer.status}" if answer.status is not None else "no answer"
    return EngineError(
        f"Engine {name} does not take a chat of the benchmarks' kind: {status}.",
        f"{url}/v1/chat/completions says: {answer.said(1000)}",
        f"{hint}The request is not repeated; it would be refused in the benchmark as well.",
    )


def insane(name: str, wrong: str, made: probe.Generation) -> EngineError:
    """The error for a generation that no working engine gives."""
    return EngineError(
        f"Engine {name} generates nothing sane: {wrong}.",
        f"Its answer to a fixed question: {made.text[:300]!r}.",
        "Garbage can be quick, so nothing is timed. Check quantisation, kernels (for NVFP4 on"
        " GB10 the marlin backends), chat template and model.",
    )
