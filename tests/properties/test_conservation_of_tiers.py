"""With states outside the GPU too, no byte, no second and no rank is lost between the program and the report."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.physical import RANKS, apart
from zerosim.costs import price
from zerosim.costs.bounds import least_seconds
from zerosim.engine import play
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import Simulation, simulate
from zerosim.step import HostCompute, Transfer
from zerosim.strategies import build
from zerosim.views import breakdown, memory, phases, stalls, utilization

NEAR = 1e-9
MODEL = {"layers": 2, "hidden": 1024, "heads": 8, "ffn": 3072, "gated": False, "vocab": 4000}
PINNED, PAGEABLE = 1, 3  # times that a copy touches host memory: without, and with a staging buffer


def question(placement: tuple[int, str, str], pinned: bool, bound: bool, training: dict[str, Any]) -> Scenario:
    stage, optimizer, parameters = placement
    training = dict(training)
    section = {
        "stage": stage,
        "overlap_comm": training.pop("overlap_comm"),
        "reduce_bucket_size": training.pop("reduce_bucket_size"),
        "sub_group_size": 1_000_000,
        "offload_optimizer": {"device": optimizer, "pin_memory": pinned, "nvme_path": "/nvme"},
        "offload_param": {"device": parameters, "max_in_cpu": 0, "nvme_path": "/nvme", "buffer_count": 100},
    }
    return from_mapping({
        "title": "tiers", "topology": "dgx-a100-80", "model": MODEL,
        "training": {"sequence_length": 64, "precision": "bf16", **training},
        "launch": {"bind_cores_to_rank": bound},
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": section}},
    })  # fmt: skip


placements = st.sampled_from([
    (1, "cpu", "none"), (2, "cpu", "none"), (3, "cpu", "none"), (3, "none", "cpu"), (3, "cpu", "cpu"),
    (3, "nvme", "none"), (3, "nvme", "cpu"), (3, "nvme", "nvme"),
])  # fmt: skip
questions = st.builds(
    question,
    placements,
    st.booleans(),
    st.booleans(),
    st.fixed_dictionaries({
        "gradient_accumulation_steps": st.integers(1, 4),
        "micro_batch_size": st.integers(1, 2),
        "activation_checkpointing": st.sampled_from(("none", "full")),
        "overlap_comm": st.booleans(),
        "reduce_bucket_size": st.sampled_from((200_000, 10**8)),
    }),
)  # fmt: skip
quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def copied(played: Simulation, *ways: tuple[str, str]) -> float:
    copies = [op.work for op in played.step.ops if isinstance(op.work, Transfer)]
    return sum(copy.bytes for copy in copies if (copy.source, copy.target) in ways)


@given(questions)
@quick
def test_links_memory_and_drives_carry_what_the_program_copies(scenario: Scenario) -> None:
    """A GPU's lane its own bytes, each direction; drives those of all ranks; memory those of a socket or node."""
    played = simulate(scenario)
    assert len(played.classes) == 1
    seen = {name: use.bytes_or_flop for name, use in utilization(played).items()}
    assert seen.get("pcie.d2h", 0.0) == pytest.approx(copied(played, ("gpu", "dram")), rel=NEAR)
    assert seen.get("pcie.h2d", 0.0) == pytest.approx(copied(played, ("dram", "gpu")), rel=NEAR)
    drives = RANKS * copied(played, ("dram", "nvme"), ("nvme", "dram"))
    assert seen.get("nvme", 0.0) == pytest.approx(drives, rel=NEAR)
    touched = 0.0
    for op in played.step.ops:
        if isinstance(op.work, Transfer):
            to_gpu = "gpu" in (op.work.source, op.work.target)
            touched += op.work.bytes * (PAGEABLE if to_gpu and not op.work.pinned else PINNED)
        elif isinstance(op.work, HostCompute):
            touched += op.work.dram_bytes
    sharing = RANKS // 2 if scenario.launch.bind_cores_to_rank else RANKS
    assert seen["dram"] == pytest.approx(sharing * touched, rel=NEAR)


@given(questions)
@quick
def test_a_step_is_no_shorter_than_its_parts_and_its_parts_sum_to_it(scenario: Scenario) -> None:
    played = simulate(scenario)
    step, parts = played.makespan, breakdown(played)
    assert all(0 <= use.utilization <= 1 + NEAR for use in utilization(played).values())
    for demands in played.demands.values():
        assert step >= least_seconds(demands, played.supply) * (1 - NEAR)
    assert sum(phases(played).values()) == pytest.approx(step, rel=NEAR)
    idle = parts.exposed_communication + parts.exposed_transfer + parts.host_compute + parts.idle
    assert parts.compute + idle == pytest.approx(step, rel=NEAR)
    assert sum(stall.seconds for stall in stalls(played)) == pytest.approx(idle, rel=1e-6, abs=1e-12)


@given(questions)
@quick
def test_every_tier_is_left_as_it_was_found(scenario: Scenario) -> None:
    for tier in memory(simulate(scenario), RANKS).values():
        assert tier.busy.bytes[0] == pytest.approx(tier.busy.bytes[-1])
        assert sum(tier.parts.values()) == pytest.approx(tier.peak)


@given(questions)
@settings(quick, max_examples=8)
def test_a_representative_has_the_spans_of_all_its_ranks(scenario: Scenario) -> None:
    (step,) = build(scenario.strategy, scenario.model, scenario.training, scenario.world_size)
    found = price([step], scenario.topology, scenario.launch)
    one = play([step], found.classes, found.demands, found.supply)
    each = apart(found, [op.work for op in step.ops], scenario.launch.bind_cores_to_rank)
    every = play([step], each.classes, each.demands, each.supply)
    expected = [time for span in one.spans["all"] for time in (span.start, span.end)]
    for rank in range(RANKS):
        times = [time for span in every.spans[f"rank {rank}"] for time in (span.start, span.end)]
        assert times == pytest.approx(expected, rel=1e-6, abs=1e-12)
