"""Carrying out a failover in a live run: two engines that are up together, one of which must fail.

What happens to requests is in ``failover``, what it comes to in ``handover``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from signal import Signals

from pytest_llmperf import record
from pytest_llmperf.bench import Side
from pytest_llmperf.errors import InvalidMeasurement, NotAttached
from pytest_llmperf.failover.drill import Drill, Orders, Station, Victim
from pytest_llmperf.markers import Failover
from pytest_llmperf.measure import Surroundings, Target
from pytest_llmperf.measure.work import collector_at_rest
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.workload import Conversations, Workload, nonce


def check_room(sides: Sequence[Side], *, resident: int, attached: Mapping[str, str]) -> None:
    """See that the servers can be up together, and that the first is ours to make fail.

    :raises InvalidMeasurement: they can not.
    """
    engines = [side.lease.name for side in sides]
    if attached:
        raise InvalidMeasurement(
            f"The server {engines[0]} is attached and cannot be made to fail.",
            f"Its processes at {attached.get(engines[0], 'its address')} belong to somebody else.",
            "Let the profile boot the servers: run without --llmperf-attach.",
        )
    if resident < len(engines):
        raise InvalidMeasurement(
            f"There is no second server to take over: {len(engines)} are needed and the profile "
            f"lets {resident} be resident.",
            f"The order is {', '.join(engines)}.",
            "Use a profile with resident = 2 on a machine where two fit.",
        )


def not_beside(name: str, attached: Mapping[str, str]) -> NotAttached:
    """Say that a failover of an attached and a booted server is none that can be made."""
    listed = ", ".join(f"{each}={url}" for each, url in attached.items())
    return NotAttached(
        f"There is no failover between attached servers and {name}, which is not attached.",
        f"Attached are: {listed}. Beside them nothing is booted, and none of them can be made to "
        "fail.",
        "Let the profile boot all servers of the test: run it without --llmperf-attach, with a "
        "profile that has resident = 2 and no [attach].",
    )


def hand_over(
    start: record.Measurement,
    plan: Failover,
    targets: Sequence[Target],
    workload: Workload,
    around: Surroundings,
) -> str:
    """Make the first server fail under load; leave records and give the measurement's id."""
    around.add(start)
    orders = Orders(
        measurement_id=start.measurement_id,
        streams=plan.streams,
        requests=plan.turns,
        warmup=plan.warmup,
        fault=plan.fault,
        stall_s=plan.stall_s,
        planned=_requests(workload, around.seed),
    )
    stations = [_station(each) for each in targets]
    reason: str | None = "interrupted"
    try:
        with around.watching(start.measurement_id) as look, collector_at_rest():
            reason = Drill(
                orders,
                stations,
                _SeenAlive(targets[0].running, look),
                add=around.add,
                clock=around.clock,
                tell=around.tell,
            ).run()
    finally:
        end = record.MeasurementEnd(
            measurement_id=start.measurement_id, completed=reason is None, reason=reason
        )
        around.add(end)
    return start.measurement_id


class _SeenAlive:
    """A server whose CPU time is read for the last time before it is killed."""

    def __init__(self, server: Victim, look: Callable[[], None]) -> None:
        self._server = server
        self._look = look

    def signal(self, number: Signals) -> tuple[int, ...]:
        """Send it to all processes; give their ids."""
        if number is Signals.SIGKILL:
            self._look()
        return self._server.signal(number)


def _station(target: Target) -> Station:
    facts = target.running.engine.facts
    return Station(
        arm=target.arm,
        url=target.running.url,
        model=target.running.model,
        token_ids=bool(facts.token_ids),
        metrics=facts.metrics is not False,
    )


def _requests(workload: Workload, seed: int) -> Callable[[int], PlannedRequest]:
    """The workload's requests one after another, without end."""
    if not isinstance(workload, Conversations):
        return workload.plain
    histories, branches = len(workload.histories), len(workload.branches) - 1

    def turn(index: int) -> PlannedRequest:
        life = nonce(seed, "failover", index)
        return workload.turn(index % histories, 1 + index % branches, life)

    return turn
