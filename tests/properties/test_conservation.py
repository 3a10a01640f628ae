"""What holds of every whole simulation: no byte, no second and no rank is lost between the program and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.quick_host import quick_host
from zerosim.costs import Priced, price
from zerosim.costs.bounds import Wire, busy_seconds, least_seconds, wire_bytes
from zerosim.engine import play
from zerosim.resources import Demand, Supply
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate
from zerosim.spec.topology import Topology
from zerosim.step import Collective, Step
from zerosim.strategies import build
from zerosim.timeline import Timeline
from zerosim.views import breakdown, memory, phases, stalls, utilization

NEAR = 1e-9
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
MODEL = {"layers": 2, "hidden": 256, "heads": 4, "ffn": 512, "gated": True, "vocab": 1000}
MACHINES = (
    ("dgx-a100-80", 1), ("dgx-a100-80", 2), ("ethernet-10g-a100", 2), ("dgx-h100", 1), ("dgx-h100", 4), ("aws-p4d", 2),
    ("pcie-4x-rtx4090", 1), ("pcie-2x-rtx3090", 1), ("gh200", 3), ("dgx-v100-16", 1), ("dgx-v100-16", 2),
)  # fmt: skip


@cache
def described(topology: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((TOPOLOGIES / f"{topology}.yaml").read_text())
    return found


def question(
    machine: tuple[str, int] = MACHINES[0],
    stage: int | None = 3,
    overrides: tuple[dict[str, Any], ...] = (),
    training: dict[str, Any] | None = None,
    **keys: Any,
) -> Scenario:
    """A small model on a shipped machine, of which some nodes or GPUs may differ; stage None is DDP."""
    name, nodes = machine
    own = described(name)
    topology: Any = {**own, "node": {**own["node"], "count": nodes}, "overrides": overrides} if overrides else name
    zero = {"stage": stage, **keys}
    deepspeed = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}, "zero_optimization": zero}
    return from_mapping({
        "title": "small", "topology": topology, "nodes": nodes, "model": MODEL,
        "training": {"sequence_length": 128, "gradient_accumulation_steps": 2, "precision": "bf16", **(training or {})},
        "strategy": {"ddp": keys} if stage is None else {"deepspeed": deepspeed},
    })  # fmt: skip


SLOW_NIC = ({"node": 1, "nics": {"bandwidth": "25 Gbps"}},)
SLOW_GPU = ({"gpu": "0.0", "compute": 0.8},)

trainings = st.fixed_dictionaries(
    {
        "gradient_accumulation_steps": st.integers(1, 4),
        "micro_batch_size": st.integers(1, 2),
        "activation_checkpointing": st.sampled_from(("none", "full")),
    }
)
buckets = st.sampled_from((1_000, 200_000, 10**9))
machines = st.sampled_from(MACHINES)


def zero_questions(overrides: st.SearchStrategy[tuple[dict[str, Any], ...]]) -> st.SearchStrategy[Scenario]:
    return st.builds(
        question,
        machines,
        st.sampled_from((0, 1, 2, 3)),
        overrides,
        training=trainings,
        overlap_comm=st.booleans(),
        reduce_bucket_size=buckets,
        stage3_param_persistence_threshold=st.sampled_from((0, 10_000)),
        stage3_prefetch_bucket_size=buckets,
    )


ddp_questions = st.builds(question, machines, st.none(), training=trainings, bucket_cap_mb=st.sampled_from((0.1, 25)))
questions = zero_questions(st.sampled_from(((), SLOW_GPU))) | ddp_questions
quick = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- bytes ---------------------------------------------------------------------------------------------------------


def wires(timeline: Timeline, ranks: int, islands: int) -> Wire:
    """What the collectives of the step put on the wire, by the closed formula."""
    total = Wire(0.0, 0.0)
    demands = timeline.demands[timeline.classes[0].name]
    for op, demand in zip(timeline.step.ops, demands, strict=True):
        if isinstance(op.work, Collective):
            wire = wire_bytes(op.work.kind, op.work.bytes, ranks, islands, demand.algorithm)
            total = Wire(total.gpu + wire.gpu, total.island + wire.island)
    return total


def links(scenario: Scenario, wire: Wire) -> dict[str, float]:
    """Bytes on the links of each GPU or node: NVLink or the PCIe lane inside, the ports between, the lane to them."""
    ranks, nodes = scenario.world_size, len(scenario.topology.hosts)
    domain = len(scenario.topology.nvlink_domains()[0])
    inside = "nvlink" if domain > 1 else "pcie.d2h"
    found = {inside: wire.gpu} if wire.gpu else {}
    if nodes > 1:
        # Through the GPUs nearest to a port: to one port on the first of two sockets, the four there, not all eight.
        lane = wire.island * nodes / ranks * (2 if scenario.topology.name == "ethernet-10g-a100" else 1)
        kind = "c2c" if scenario.topology.name == "gh200" else "pcie"
        found |= {"nic": wire.island, f"{kind}.d2h": lane, f"{kind}.h2d": lane}
    return found


@given(questions)
@quick
def test_the_links_carry_what_the_closed_formula_says(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    seen = utilization(timeline)
    wire = wires(timeline, scenario.world_size, len(scenario.topology.hosts))
    names = [rank_class.name for rank_class in timeline.classes]
    expected = links(scenario, wire)
    assert expected
    for base, amount in expected.items():
        for resource in [f"{base}.{name}" for name in names] if len(names) > 1 else [base]:
            assert seen[resource].bytes_or_flop == pytest.approx(amount, rel=NEAR)


def test_every_class_of_a_cluster_with_a_slow_port_sends_the_same_bytes() -> None:
    scenario = question(("dgx-a100-80", 3), 2, SLOW_NIC, overlap_comm=True)
    timeline = simulate(scenario)
    wire = wires(timeline, 24, 3)
    assert [rank_class.name for rank_class in timeline.classes] == ["node 0 and 1 more", "node 1"]
    seen = utilization(timeline)
    for name in ("node 0 and 1 more", "node 1"):
        assert seen[f"nic.{name}"].bytes_or_flop == pytest.approx(wire.island, rel=NEAR)
        assert seen[f"nvlink.{name}"].bytes_or_flop == pytest.approx(wire.gpu, rel=NEAR)
    busy = {name: seen[f"nic.{name}"].busy_seconds for name in ("node 0 and 1 more", "node 1")}
    assert busy["node 1"] > busy["node 0 and 1 more"]


# --- seconds -------------------------------------------------------------------------------------------------------


@given(questions)
@quick
def test_a_step_is_no_shorter_than_its_parts_and_its_parts_sum_to_it(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    step = timeline.makespan
    assert all(use.busy_seconds <= step * (1 + NEAR) for use in utilization(timeline).values())
    assert all(0 <= use.utilization <= 1 + NEAR for use in utilization(timeline).values())
    for demands in timeline.demands.values():
        assert step >= least_seconds(demands, timeline.supply) * (1 - NEAR)
        assert step >= sum(demand.host for demand in demands) * (1 - NEAR)
    parts = breakdown(timeline)
    assert sum(phases(timeline).values()) == pytest.approx(step, rel=NEAR)
    assert parts.compute + parts.exposed_communication + parts.exposed_transfer + parts.host_compute + (
        parts.idle
    ) == pytest.approx(step, rel=NEAR)
    assert sum(stall.seconds for stall in stalls(timeline)) == pytest.approx(step - parts.compute, rel=1e-6, abs=1e-12)
    summary = timeline.summary()
    assert summary.tokens_per_second * step == pytest.approx(
        scenario.training.tokens * scenario.training.gradient_accumulation_steps * scenario.world_size
    )


# --- ranks ---------------------------------------------------------------------------------------------------------


class Singled(Topology):
    """The same machine, of which every rank is a class of its own."""

    def rank_classes(self) -> tuple[tuple[int, ...], ...]:
        return tuple((rank,) for rank in range(len(self.gpus)))


def singled(topology: Topology) -> Topology:
    return Singled(**{part.name: getattr(topology, part.name) for part in fields(topology) if part.init})


def step_of(scenario: Scenario) -> Step:
    return build(scenario.strategy, scenario.model, scenario.training, scenario.world_size)[0]


def played(step: Step, priced: Priced) -> Timeline:
    return play([step], priced.classes, priced.demands, priced.supply)


@given(questions.filter(lambda s: s.world_size <= 16))
@settings(quick, max_examples=8)
def test_a_representative_has_the_spans_of_all_its_ranks(scenario: Scenario) -> None:
    step = step_of(scenario)
    few = played(step, price([step], scenario.topology))
    every = played(step, price([step], singled(scenario.topology)))
    assert len(every.classes) == scenario.world_size
    representative = {rank: rank_class.name for rank_class in few.classes for rank in rank_class.ranks}
    for each in every.classes:
        for one, other in zip(every.spans[each.name], few.spans[representative[each.ranks[0]]], strict=True):
            assert (one.issued, one.ready, one.start, one.end) == pytest.approx(
                (other.issued, other.ready, other.start, other.end), rel=1e-6, abs=1e-12
            )


# --- overlap -------------------------------------------------------------------------------------------------------

Surgery = Callable[[Demand, bool, Supply], Demand]


def without_interference(demand: Demand, collective: bool, supply: Supply) -> Demand:
    """No host time, no SMs held, and collectives leave HBM alone."""
    uses = tuple(use for use in demand.uses if not (collective and use.resource.partition(".")[0] == "hbm"))
    return demand._replace(uses=uses, holds=(), host=0.0)


def as_long_as_alone(demand: Demand, collective: bool, supply: Supply) -> Demand:
    """Every op takes the time it takes alone, whatever else runs."""
    return Demand(latency=demand.alone(supply))


def operated(scenario: Scenario, surgery: Surgery, free: Sequence[str] = ()) -> Timeline:
    """The scenario played after its demands were changed, with some resources 1e15 times as fast."""
    step = step_of(scenario)
    classes, demands, supply, notes, *_ = price([step], scenario.topology)
    for resource in free:
        supply = supply.scaled(resource, 1e15)
    changed = {
        name: [surgery(d, isinstance(op.work, Collective), supply) for d, op in zip(each, step.ops, strict=True)]
        for name, each in demands.items()
    }
    return played(step, Priced(classes, changed, supply, notes))


def work(timeline: Timeline) -> float:
    """Seconds of all ops of the slowest class, each alone."""
    return sum(demand.alone(timeline.supply) for demand in timeline.demands[timeline.slowest.name])


def assert_overlap_helps(surgery: Surgery, stage: int, **keys: Any) -> None:
    """Stage 1 fills its buckets in another order when it overlaps; where that makes more of them it is allowed for."""
    plain, overlapped = (operated(question(stage=stage, overlap_comm=on, **keys), surgery) for on in (False, True))
    more = max(0.0, work(overlapped) - work(plain)) if stage == 1 else 0.0
    assert overlapped.makespan <= (plain.makespan + more) * (1 + NEAR)


@given(machines, st.sampled_from((1, 2, 3)), trainings, buckets, buckets, st.sampled_from((0, 10**9)), st.booleans())
@settings(quick, max_examples=20)
def test_overlap_never_hurts_where_nothing_is_shared(
    machine: tuple[str, int], stage: int, training: dict[str, Any], bucket: int, prefetch: int, live: int, whole: bool
) -> None:
    assert_overlap_helps(
        as_long_as_alone, stage, machine=machine, training=training, reduce_bucket_size=bucket,
        reduce_scatter=not whole, stage3_prefetch_bucket_size=prefetch, stage3_max_live_parameters=live,
    )  # fmt: skip


@pytest.mark.parametrize("bucket", [1_000, 200_000, 10**9])
@pytest.mark.parametrize("machine", [("dgx-a100-80", 1), ("ethernet-10g-a100", 2), ("pcie-4x-rtx4090", 1)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_overlap_never_hurts_without_interference(stage: int, machine: tuple[str, int], bucket: int) -> None:
    assert_overlap_helps(without_interference, stage, machine=machine, reduce_bucket_size=bucket)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("bucket", [50_000, 300_000])
@pytest.mark.parametrize("accumulation", [2, 4])
def test_where_communication_binds_stage_1_is_quicker_and_stage_2_smaller(
    overlap: bool, bucket: int, accumulation: int
) -> None:
    """Stage 2 reduces in every micro-step what stage 1 holds until the last."""
    with quick_host():
        first, second = (
            simulate(
                question(
                    ("ethernet-10g-a100", 2), stage, training={"gradient_accumulation_steps": accumulation},
                    overlap_comm=overlap, reduce_bucket_size=bucket,
                )
            )
            for stage in (1, 2)
        )  # fmt: skip
    assert breakdown(second).exposed_communication > 0.5 * second.makespan
    assert first.makespan <= second.makespan
    assert memory(first)["gpu"].peak >= memory(second)["gpu"].peak


# --- a free network ------------------------------------------------------------------------------------------------

NETWORK = ("nvlink", "nic", "leaf", "pcie", "uplink", "c2c", "dram")


def on_a_free_network(demand: Demand, collective: bool, supply: Supply) -> Demand:
    """Without interference, and collectives without latency."""
    calm = without_interference(demand, collective, supply)
    return calm._replace(latency=0.0) if collective else calm


def kernels(timeline: Timeline) -> Iterator[Demand]:
    for op, demand in zip(timeline.step.ops, timeline.demands[timeline.slowest.name], strict=True):
        if not isinstance(op.work, Collective):
            yield demand


@given(zero_questions(st.just(())) | ddp_questions)
@settings(quick, max_examples=20)
def test_on_a_free_network_a_step_is_compute_and_elementwise_kernels(scenario: Scenario) -> None:
    timeline = operated(scenario, on_a_free_network, NETWORK)
    step, alone = timeline.makespan, sum(demand.alone(timeline.supply) for demand in kernels(timeline))
    assert breakdown(timeline).compute == pytest.approx(step, rel=1e-6)
    assert step <= alone * (1 + 1e-6)
    lanes = {op.stream for op in timeline.step.ops if op.work is not None and not isinstance(op.work, Collective)}
    if lanes == {"compute"}:
        assert step == pytest.approx(alone, rel=1e-6)
    assert max(busy_seconds(kernels(timeline), timeline.supply).values()) <= step * (1 + 1e-6)
