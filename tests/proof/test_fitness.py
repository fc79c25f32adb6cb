"""An unfit machine is INVALID with its cause; a busy one that is all ours is healthy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_llmperf import proof
from pytest_llmperf.evidence import Measured
from pytest_llmperf.fitness import (
    Band,
    Canary,
    Gpu,
    Limits,
    MachineState,
    Other,
    Precondition,
)

S = 1_000_000_000
HEALTHY: dict[str, Any] = {
    "cores": 2,
    "busy_s": 0.0,
    "ours_s": 0.0,
    "steal_s": 0.0,
    "stalled_s": {"cpu": 0.0, "memory": 0.0},
    "swapped_bytes": 0,
    "throttle_events": 0,
    "mhz": (2100.0, 2100.0),
    "gpus": (),
}
FULL: dict[str, Any] = {"busy_s": 20.0, "ours_s": 20.0, "stalled_s": {"cpu": 9.0, "memory": 0.0}}


def state(when: str, at_s: float, **facts: Any) -> MachineState:  # noqa: ANN401 - any fact
    fields = {**HEALTHY, **facts}
    return MachineState(measurement_id="m0", when=when, at_ns=round(at_s * S), **fields)  # type: ignore[arg-type]


@pytest.fixture
def on(making: Any) -> Any:  # noqa: ANN401 - a function of many arguments
    """A sound measurement of ten seconds on a machine that ends as told."""

    def make(
        *,
        limits: Limits | None = None,
        bands: dict[str, Band] | None = None,
        canary_ns: int = 6_000_000,
        during: tuple[MachineState, ...] = (),
        **after: Any,  # noqa: ANN401 - any fact
    ) -> Measured:
        ends = state("before", 0), state("after", 10, **{**FULL, **after})
        sound: Measured = making.sound()
        return msgspec.structs.replace(
            sound,
            machine=(ends[0], *during, ends[1]),
            canaries=tuple(
                Canary(measurement_id="m0", when=w, at_ns=0, loop_ns=canary_ns, copy_ns=canary_ns)
                for w in ("before", "after")
            ),
            precondition=Precondition(
                measurement_id="m0", limits=limits or Limits(), bands=bands or {}
            ),
        )

    return make


def told(measured: Measured) -> list[str]:
    return [
        f"{each.kind}: {each.reason} {each.evidence}" for each in proof.contradictions(measured)
    ]


def test_cores_that_are_full_of_our_own_work_are_healthy(on: Any) -> None:  # noqa: ANN401 - see on
    assert proof.contradictions(on()) == ()
    assert "disturbed" not in {each.kind for each in proof.findings(on())}


def test_a_measurement_that_nobody_watched_is_judged_and_says_so(making: Any) -> None:  # noqa: ANN401
    assert proof.contradictions(making.sound()) == ()
    assert proof.evidence_line(making.sound()).endswith("; machine not watched")


def test_strangers_on_the_cores_make_it_invalid_and_are_named(on: Any) -> None:  # noqa: ANN401
    busy = on(ours_s=13.0, others=(Other(pid=20, name="cc1plus", cpu_s=6.5),))
    (found,) = proof.contradictions(busy)
    assert (found.kind, found.reason) == (
        "foreign_load",
        "Other processes took 35 % of the CPU while it was measured.",
    )
    assert found.evidence == (
        "7.0 of 20.0 CPU seconds (2 cores); at most 10 % is allowed."
        " Busiest: cc1plus (process 20) 6.5 s."
    )
    assert found.remedy == (
        "Stop them, or move them to another machine. Then measure again: the machine was unfit,"
        " which says nothing of the build. The limit is [fitness] foreign_cpu_share in the profile."
    )


def test_a_profile_may_allow_more(on: Any) -> None:  # noqa: ANN401
    assert told(on(ours_s=13.0, limits=Limits(foreign_cpu_share=0.5))) == []


def test_half_of_what_is_too_much_is_told(on: Any) -> None:  # noqa: ANN401
    (found,) = [each for each in proof.findings(on(ours_s=18.6)) if each.kind == "disturbed"]
    assert found.text == "The machine was disturbed: other processes took 7 % of the CPU."


def test_strangers_cannot_be_told_where_the_engine_is_not_ours(on: Any) -> None:  # noqa: ANN401
    measured = on(ours_s=None)
    assert told(measured) == []
    assert "other processes' CPU not known" in proof.evidence_line(measured)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (
            {"steal_s": 2.0},
            (
                "stolen: The hypervisor gave 10 % of the CPU to other machines. "
                "Steal time over 10 s; at most 5 % is allowed."
            ),
        ),
        (
            {"stalled_s": {"memory": 1.0}, "swapped_bytes": 2**27},
            (
                "short_of_memory: The machine was short of memory. Processes waited for memory in "
                "10 % of the time, at most 5 % is allowed; 128 MiB were swapped, at most 64 are "
                "allowed."
            ),
        ),
        (
            {"throttle_events": 3},
            (
                "throttled: The machine was throttled while it was measured. "
                "Cores were slowed down 3 times, at most 0 are allowed."
            ),
        ),
        (
            {"gpus": (Gpu(index=0, slowed_by=("power cap", "power brake")),)},
            (
                "throttled: The machine was throttled while it was measured. The GPU was slowed "
                "down in 100 % of 1 sample (power brake), at most 10 % is allowed."
            ),
        ),
        (
            {"gpus": (Gpu(index=0, errors={"power": "GPU is lost"}),)},
            (
                "gpu_error: The GPU's driver reported errors while it was measured. "
                "GPU 0, power: GPU is lost."
            ),
        ),
        (
            {"gpus": (Gpu(index=0, foreign=(7,)),)},
            (
                "shared_gpu: Another process computed on the GPU while it was measured. "
                "Not ours: process 7."
            ),
        ),
    ],
)
def test_an_unfit_machine_is_named_with_its_cause(
    on: Any,  # noqa: ANN401
    after: dict[str, Any],
    text: str,
) -> None:
    assert told(on(**after)) == [text]


def test_a_card_at_its_power_limit_is_healthy(on: Any) -> None:  # noqa: ANN401
    assert told(on(gpus=(Gpu(index=0, slowed_by=("power cap",)),))) == []


def test_a_gpu_that_nobody_looked_at_is_told(on: Any) -> None:  # noqa: ANN401
    unseen = on(gpus=None, gpu_problem="nvidia-ml-py is not installed")
    assert [each.text for each in proof.findings(unseen) if each.kind == "gpu_unseen"] == [
        "The GPU's clocks, power and heat were not seen: nvidia-ml-py is not installed."
    ]


BAND = {"canary_loop_ns": Band(sessions=6, typical=6e6, low=5e6, high=7e6)}


def test_a_canary_far_outside_its_band_makes_it_invalid(on: Any) -> None:  # noqa: ANN401
    assert told(on(bands=BAND, canary_ns=9_000_000)) == [
        (
            "sluggish: The machine is slow today: its canary took 1.50x its usual time. "
            "A fixed loop: 9.00 ms; 6 healthy sessions of this place say at most 7.00 ms."
        )
    ]


@pytest.mark.parametrize("canary_ns", [6_900_000, 7_200_000, 3_000_000])
def test_a_canary_within_its_band_or_near_it_is_healthy(on: Any, canary_ns: int) -> None:  # noqa: ANN401
    assert told(on(bands=BAND, canary_ns=canary_ns)) == []


CLOCKS = {"mhz": Band(sessions=6, typical=3000, low=2800, high=3200)}


def test_cores_far_below_their_band_make_it_invalid(on: Any) -> None:  # noqa: ANN401
    assert told(on(bands=CLOCKS)) == [
        (
            "clocked_down: The cores ran at 2,100 MHz, 70 % of what they usually do. "
            "6 healthy sessions of this place say at least 2,800 MHz."
        )
    ]


def test_cores_a_little_below_their_band_are_healthy(on: Any) -> None:  # noqa: ANN401
    assert told(on(bands=CLOCKS, mhz=(2700.0, 2700.0))) == []


def test_without_a_band_the_canary_judges_nothing(on: Any) -> None:  # noqa: ANN401
    assert told(on(canary_ns=90_000_000)) == []


def sampled(power_w: float, offset_s: float) -> tuple[MachineState, ...]:
    """States inside the turns, which start every second: prefill to 0.1 s, decode to 0.4 s."""
    gpu = Gpu(index=0, power_w=power_w, sm_mhz=2496)
    return tuple(state("during", n + offset_s, gpus=(gpu,)) for n in range(2, 9))


SPARK = Limits(sm_mhz_min=2200, prefill_power_w_min=60, decode_power_w_min=25)


def test_36_watts_are_normal_in_decode(on: Any) -> None:  # noqa: ANN401
    assert told(on(limits=SPARK, during=sampled(36.0, 0.2))) == []


def test_36_watts_are_a_fault_in_prefill(on: Any) -> None:  # noqa: ANN401
    assert told(on(limits=SPARK, during=sampled(36.0, 0.05))) == [
        (
            "underpowered: The GPU ran at 36 W in prefill, below the 60 W of a healthy one. "
            "Median of 7 samples taken in prefill only."
        )
    ]


def test_a_capped_clock_is_a_fault_in_any_phase(on: Any) -> None:  # noqa: ANN401
    slow = tuple(
        msgspec.structs.replace(each, gpus=(Gpu(index=0, sm_mhz=507, power_w=30.0),))
        for each in sampled(30.0, 0.2)
    )
    assert told(on(limits=SPARK, during=slow)) == [
        (
            "underpowered: The GPU ran at 507 MHz under load, below the 2,200 MHz of a healthy "
            "one. Median of 7 samples taken under load only."
        )
    ]


def test_too_few_samples_of_a_phase_judge_nothing(on: Any) -> None:  # noqa: ANN401
    assert told(on(limits=SPARK, during=sampled(36.0, 0.05)[:4])) == []


def test_the_machine_stands_in_the_evidence_line(on: Any) -> None:  # noqa: ANN401
    assert proof.evidence_line(on()).partition("; machine")[2] == (
        ": other processes 0 % of 2 cores, 2,100 MHz, canary 6.00 ms (no band yet)"
    )
