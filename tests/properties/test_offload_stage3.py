"""What always holds of stage 3 with states in host memory and on NVMe, whatever the configuration.

The toy is wide enough for its larger shards to be swapped, and its norms are not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.programs import ancestors, variant
from tests.toy import toy, toy_training
from zerosim.spec.model import Model
from zerosim.spec.strategy import UNLIMITED, Aio, DeepSpeed, Offload, Optimizer, Zero
from zerosim.spec.training import Training
from zerosim.step import READ, WRITE, Collective, HostCompute, Step, Transfer
from zerosim.strategies import base, build
from zerosim.strategies.events import POST, PRE, Event, micro_step
from zerosim.strategies.fetch import plan_fetches
from zerosim.strategies.gathering import InFlight
from zerosim.strategies.network import compile_network
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.swap_pool import PoolError
from zerosim.strategies.zero3 import Zero3

HIDDEN, VOCABULARY = 1024, 1500
ENOUGH = 64  # buffers

models = st.builds(
    variant,
    st.builds(toy, st.just(HIDDEN), st.just(VOCABULARY), st.integers(1, 2)),
    st.sampled_from(((), ("emb",), ("ln",), ("b0", "lnf"))),
    st.booleans(),
)
trainings = st.builds(
    toy_training,
    gradient_accumulation_steps=st.integers(1, 3),
    precision=st.sampled_from(("fp32", "fp16", "bf16")),
    activation_checkpointing=st.sampled_from(("none", "alternate", "operators", "full")),
    reentrant=st.booleans(),
)
optimizer_offloads = st.builds(
    Offload,
    device=st.sampled_from(("none", "cpu", "nvme")),
    buffer_count=st.just(ENOUGH),
    pin_memory=st.booleans(),
    pipeline_read=st.booleans(),
    pipeline_write=st.booleans(),
    ratio=st.sampled_from((1.0, 1.0, 0.5, 0.0)),
)
parameter_offloads = st.builds(
    Offload,
    device=st.sampled_from(("none", "cpu", "nvme")),
    buffer_count=st.just(ENOUGH),
    buffer_size=st.just(10**7),
    max_in_cpu=st.sampled_from((0, 2_000_000, 10**9)),
    pin_memory=st.booleans(),
)
zeros = st.builds(
    Zero,
    stage=st.just(3),
    overlap_comm=st.booleans(),
    reduce_scatter=st.booleans(),
    contiguous_gradients=st.booleans(),
    reduce_bucket_size=st.sampled_from((1, 10**6, 10**9)),
    sub_group_size=st.sampled_from((1, 10**6, 10**9)),
    prefetch_bucket_size=st.sampled_from((0, 10**6, 10**7)),
    param_persistence_threshold=st.sampled_from((0, 10**4, 2 * 10**6)),
    max_live_parameters=st.sampled_from((10**6, 10**9)),
    max_reuse_distance=st.sampled_from((0, 10**7, 10**9)),
    use_all_reduce_for_fetch_params=st.booleans(),
    allgather_sequential=st.booleans(),
    offload_optimizer=optimizer_offloads,
    offload_param=parameter_offloads,
)
configs = st.builds(
    DeepSpeed,
    zero=zeros,
    optimizer=st.sampled_from((Optimizer(), Optimizer("SGD", 0, 12, fused=False, on_cpu="torch"))),
    grad_accum_dtype=st.sampled_from((None, "fp32")),
    communication_data_type=st.sampled_from((None, "fp32")),
    synchronized_timer=st.booleans(),
    aio=st.builds(
        Aio, overlap_events=st.booleans(), use_gds=st.booleans(), intra_op_parallelism=st.sampled_from((1, 3))
    ),
)
ranks = st.integers(1, 3)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(configs, models, trainings, ranks)
@quick
def test_the_program_is_clean_and_memory_of_each_tier_returns(
    config: DeepSpeed, model: Model, training: Training, world: int
) -> None:
    step = build(config, model, training, world)[0]
    assert step.lint() == []
    before = held = Counter[str]()
    for buffer in step.resident:
        before[step.buffers[buffer].tier] += int(step.buffers[buffer].bytes)
    held = before.copy()
    for op in step.ops:
        for buffer in op.acquires:
            held[step.buffers[buffer].tier] += int(step.buffers[buffer].bytes)
        for buffer in op.releases:
            held[step.buffers[buffer].tier] -= int(step.buffers[buffer].bytes)
    assert held == before


@given(configs, models, trainings, ranks)
@quick
def test_repeated_micro_steps_equal_those_written_one_by_one(
    config: DeepSpeed, model: Model, training: Training, world: int
) -> None:
    training = replace(training, gradient_accumulation_steps=6)
    repeated = build(config, model, training, world)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "STEADY", UNLIMITED)
        assert build(config, model, training, world)[0] == repeated


# --- bytes -----------------------------------------------------------------------------------------------------------


def moved(step: Step, source: str, target: str, name: str = "") -> float:
    works = (op.work for op in step.ops if name in op.name)
    return sum(w.bytes for w in works if isinstance(w, Transfer) and w[1:3] == (source, target))


@given(configs, models, trainings, ranks)
@quick
def test_gradients_go_down_once_a_micro_step_and_in_fp32_at_the_boundary(
    config: DeepSpeed, model: Model, training: Training, world: int
) -> None:
    zero = replace(config.zero, offload_optimizer=replace(config.zero.offload_optimizer, ratio=1.0))
    assume(zero.offload_optimizer.device != "none")
    program = Zero3(replace(config, zero=zero), model, training, Ranks(world, world))
    step, share, n = program.write(), program.layout.share, training.gradient_accumulation_steps
    assert moved(step, "gpu", "dram") == share * (program.held_width * n + 4)
    assert moved(step, "dram", "gpu", "read gradient back") == share * program.held_width * n
    up = share * program.width if program.layout.placement.parameters == "gpu" else 0
    assert moved(step, "dram", "gpu", "copy parameters") == up


@given(configs, models, trainings, ranks)
@quick
def test_each_gather_brings_its_shards_up_once(config: DeepSpeed, model: Model, training: Training, world: int) -> None:
    program = Zero3(config, model, training, Ranks(world, world))
    step, shards = program.write(), program.layout.shards
    gathered = [p for gather in program.plan.gathers for p in gather] * training.gradient_accumulation_steps
    times = Counter([*gathered, *program.persistent])
    up = sum(times[p] * shard.elements for p, shard in enumerate(shards) if not program.store.on_gpu(p))
    assert moved(step, "dram", "gpu", "copy shard") == program.width * up
    assert sum(op.work.elements for op in step.ops if isinstance(op.work, Collective) and _gathers(op.name)) == (
        0 if world == 1 else sum(times[p] * world * shard.elements for p, shard in enumerate(shards))
    )


def _gathers(name: str) -> bool:
    return name.startswith("all-gather")


# --- what comes after what -------------------------------------------------------------------------------------------


class Watched(Zero3):
    """Writes down which ops compute with which gathered parameters."""

    def __init__(self, *program: Any) -> None:
        super().__init__(*program)
        self.uses: list[tuple[int, int, int]] = []  # kernel, op with which its parameter was there, buffer
        self.arrivals: dict[int, int] = {}

    def _land(self, gather: int, flight: InFlight) -> None:
        super()._land(gather, flight)
        members = self.plan.gathers[gather]
        whole = self.alone or len(members) == 1
        self.arrivals.update(dict.fromkeys(members, flight.collective if whole else self.builder.next_op - 1))

    def _run(self, event: Event) -> None:
        first = self.builder.next_op
        super()._run(event)
        for kernel in range(first, self.builder.next_op):
            for parameter in set(event.node.parameters) - self.plan.persistent:
                self.uses.append((kernel, self.arrivals[parameter], self.full[parameter]))


@given(configs, models, trainings, ranks)
@quick
def test_kernels_wait_for_their_parameters_and_run_before_these_are_freed(
    config: DeepSpeed, model: Model, training: Training, world: int
) -> None:
    assume(world > 1 or not config.aio.use_gds)  # then a parameter is used in the buffer that it was read into
    watched = Watched(config, model, training, Ranks(world, world))
    step = watched.write()
    before = ancestors(step)
    born = {buffer: op.number for op in step.ops for buffer in op.acquires}
    freed = {buffer: op.number for op in step.ops for buffer in op.releases}
    for kernel, arrived, buffer in watched.uses:
        assert before[kernel].get(step.ops[arrived].stream, -1) >= arrived
        assert born[buffer] <= kernel <= freed[buffer]


@given(configs, models, trainings, ranks)
@quick
def test_a_shard_is_read_before_it_comes_up(config: DeepSpeed, model: Model, training: Training, world: int) -> None:
    nvme = replace(config.zero.offload_param, device="nvme", max_in_cpu=0)
    program = Zero3(
        replace(config, zero=replace(config.zero, offload_param=nvme)), model, training, Ranks(world, world)
    )
    step = program.write()
    before = ancestors(step)
    read: dict[str, int] = {}
    swapped = {program.network.names[p] for p in program.layout.swapped}
    for op in step.ops:
        if op.stream == READ and op.name.removeprefix("read ") in swapped:
            read[op.name.removeprefix("read ")] = op.number
        elif op.name.startswith("copy shard ") and (name := op.name.split()[2]) in swapped:
            assert before[op.number][READ] >= read.pop(name)  # each read is used once
    assert program.store.direct or not read


@given(configs, models, trainings, ranks)
@quick
def test_a_sub_group_is_updated_between_its_reads_and_its_writes(
    config: DeepSpeed, model: Model, training: Training, world: int
) -> None:
    nvme = replace(config.zero.offload_optimizer, device="nvme")
    program = Zero3(
        replace(config, zero=replace(config.zero, offload_optimizer=nvme)), model, training, Ranks(world, world)
    )
    step = program.write()
    before = ancestors(step)
    steps = [op.number for op in step.ops if isinstance(op.work, HostCompute) and op.name.endswith("step on the CPU")]
    assert len(steps) == sum(group.optimizer != "gpu" for group in program.layout.groups)
    hosted = [group for group in program.layout.groups if group.optimizer != "gpu"]
    for number, group in zip(steps, hosted, strict=True):
        mine = [op for op in step.ops if op.name.endswith(f"sub-group {group.number}")]
        reads = [op.number for op in mine if op.stream == READ]
        writes = [op.number for op in mine if op.stream == WRITE]
        assert bool(reads) == bool(writes) == (group.optimizer == "nvme")
        assert all(before[number][READ] >= read for read in reads)
        assert all(before[write]["host"] >= number for write in writes)
    last = max((op.number for op in step.ops if op.stream == WRITE), default=None)
    if last is not None:  # nothing is left under way when the next step begins
        assert any(last in op.host_waits for op in step.ops[last:])


# --- the pool of buffers for parameters ------------------------------------------------------------------------------


@given(zeros, models, trainings, st.integers(1, 12))
@quick
def test_shards_are_read_once_into_the_buffers_that_there_are(
    zero: Zero, model: Model, training: Training, count: int
) -> None:
    zero = replace(zero, offload_param=replace(zero.offload_param, buffer_count=count))
    network = compile_network(model, training)
    events = [event for part in micro_step(network, training) for event in part]
    swapped = frozenset(p for p, numel in enumerate(network.numels) if numel > HIDDEN)
    try:
        plan = plan_fetches(events, network.numels, zero, swapped)
    except PoolError:
        assume(False)
    held, waiting = set(plan.persistent & swapped), set[int]()
    visits, releases = iter(plan.visits), iter(plan.releases)

    def gather(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            missing = plan.reads.get(number)
            if missing is not None:
                assert held.isdisjoint(missing)
                held.update(missing)
                waiting.clear()
            assert held >= swapped.intersection(plan.gathers[number])
            assert waiting.isdisjoint(plan.gathers[number])
            assert len(held) <= count

    for event in events:
        if event.kind == PRE:
            visit = next(visits)
            gather(visit.demanded)
            gather(visit.prefetched)
            assert held.isdisjoint(visit.read_ahead)
            assert not visit.read_ahead or zero.prefetch_bucket_size
            held.update(visit.read_ahead)
            waiting.update(visit.read_ahead)
            assert len(held) <= count
        elif event.kind == POST:
            held.difference_update(next(releases))
    assert held == swapped.intersection({*plan.persistent, *plan.leftovers})
    assert not waiting


@given(zeros, models, trainings)
@quick
def test_nothing_on_nvme_is_the_plan_without(zero: Zero, model: Model, training: Training) -> None:
    network = compile_network(model, training)
    events = [event for part in micro_step(network, training) for event in part]
    plan = plan_fetches(events, network.numels, zero)
    assert (plan.reads, plan.read_twice) == ({}, frozenset())
    assert not any(visit.read_ahead for visit in plan.visits)
