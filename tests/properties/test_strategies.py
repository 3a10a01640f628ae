"""What holds of every program of DDP and ZeRO, whatever the knobs: who is reduced, who is gathered, what is freed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.programs import ancestors, variant
from tests.toy import toy
from zerosim.spec.model import Model
from zerosim.spec.strategy import UNLIMITED, Ddp, DeepSpeed, Optimizer, Strategy, Zero
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, REDUCE, Collective
from zerosim.strategies import base, build
from zerosim.strategies.events import POST, PRE, RUN, Event, micro_step
from zerosim.strategies.fetch import plan_fetches
from zerosim.strategies.fetch_plan import Plan
from zerosim.strategies.gathering import InFlight
from zerosim.strategies.network import compile_network
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.zero3 import Zero3

# --- programs ------------------------------------------------------------------------------------------------------

FROZEN = ((), ("emb",), ("b0", "lnf"), ("ln", "fc1"))  # parts of names of parameters that are not trained


models = st.builds(
    lambda size, frozen, tied, buffers: replace(variant(toy(*size), frozen, tied), buffers=buffers),
    st.tuples(st.sampled_from((1, 3, 8)), st.sampled_from((5, 64)), st.integers(1, 3)),  # hidden, vocabulary, blocks
    st.sampled_from(FROZEN),
    st.booleans(),
    st.sampled_from((0, 7)),
)
trainings = st.builds(
    Training,
    sequence_length=st.just(4),
    micro_batch_size=st.integers(1, 2),
    gradient_accumulation_steps=st.integers(1, 5),
    precision=st.sampled_from(("fp32", "fp16", "bf16")),
    activation_checkpointing=st.sampled_from(("none", "selective", "alternate", "operators", "full")),
    reentrant=st.booleans(),
)
zeros = st.builds(
    Zero,
    stage=st.sampled_from((0, 1, 2, 3)),
    contiguous_gradients=st.booleans(),
    reduce_scatter=st.booleans(),
    reduce_bucket_size=st.sampled_from((1, 30, 200, 1_000, 10**9)),
    use_multi_rank_bucket_allreduce=st.booleans(),
    overlap_comm=st.booleans(),
    sub_group_size=st.sampled_from((1, 100, 10**9)),
    prefetch_bucket_size=st.sampled_from((0, 1, 50, 400, 10**9)),
    param_persistence_threshold=st.sampled_from((0, 8, 100, 10**5)),
    model_persistence_threshold=st.sampled_from((0, 100, UNLIMITED)),
    max_live_parameters=st.sampled_from((0, 100, 500, 10**9)),
    max_reuse_distance=st.sampled_from((0, 1, 200, 10**9)),
    use_all_reduce_for_fetch_params=st.booleans(),
    allgather_sequential=st.booleans(),
    round_robin_gradients=st.booleans(),
)
deepspeeds = st.builds(
    DeepSpeed,
    zero=zeros,
    optimizer=st.sampled_from((Optimizer(), Optimizer("SGD", 0, 12, fused=False))),
    gradient_clipping=st.sampled_from((0.0, 1.0)),
    communication_data_type=st.sampled_from((None, "fp32", "fp16", "bf16")),
    grad_accum_dtype=st.sampled_from((None, "fp32")),
    check_grad_overflow=st.booleans(),
    synchronized_timer=st.booleans(),
    wall_clock_breakdown=st.booleans(),
)
ddps = st.builds(
    Ddp,
    bucket_cap_mb=st.sampled_from((None, 1e-5, 1e-3, 100.0)),
    gradient_as_bucket_view=st.booleans(),
    find_unused_parameters=st.booleans(),
    static_graph=st.booleans(),
    no_sync=st.booleans(),
    first_iteration=st.booleans(),
)
ranks = st.integers(1, 9)


@st.composite
def programs(draw: st.DrawFn, strategies: st.SearchStrategy[Any] | None = None) -> tuple[Any, Model, Training, int]:
    """What `build` takes. DDP keeps its weights in fp32 or in the precision of the training."""
    strategy = draw(strategies if strategies is not None else deepspeeds | ddps)
    training = draw(trainings)
    if isinstance(strategy, Ddp) and draw(st.booleans()):
        strategy = replace(strategy, parameter_dtype=training.precision)
    return strategy, draw(models), training, draw(ranks)


def at_stage(*stages: int) -> st.SearchStrategy[DeepSpeed]:
    """Gradients are accumulated in their own dtype: in fp32, stage 1 in bf16 is another optimizer without buckets."""

    def of(config: DeepSpeed, stage: Any) -> DeepSpeed:
        accumulation = config.grad_accum_dtype if stage != 1 else None
        return replace(config, zero=replace(config.zero, stage=stage), grad_accum_dtype=accumulation)

    return st.builds(of, deepspeeds, st.sampled_from(stages))


quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- every program -------------------------------------------------------------------------------------------------


@given(programs())
@quick
def test_the_program_is_clean(program: tuple[Strategy, Model, Training, int]) -> None:
    assert build(*program)[0].lint() == []


@given(programs())
@quick
def test_each_trainable_element_is_reduced_once_in_each_reduced_micro_step_and_never_else(
    program: tuple[Strategy, Model, Training, int],
) -> None:
    step = build(*program)[0]
    times: Counter[tuple[int, int, int]] = Counter()
    for op in step.ops:
        for piece in op.reduces:
            times.update((op.micro_batch, piece.parameter, element) for element in range(piece.start, piece.stop))
    model = program[1]
    assert times == {
        (micro_batch, number, element): 1
        for micro_batch in step.reductions
        for number, parameter in enumerate(model.parameters)
        if parameter.trainable
        for element in range(parameter.numel)
    }


@given(programs())
@quick
def test_memory_returns_to_the_resident_level_and_never_falls_below_what_persists(
    program: tuple[Strategy, Model, Training, int],
) -> None:
    """Persistent parameters of stage 3 are resident and yet dropped during the optimizer step."""
    step = build(*program)[0]
    resident = held = sum(step.buffers[buffer].bytes for buffer in step.resident)
    droppable = sum(step.buffers[b].bytes for b in step.resident if step.buffers[b].name == "persistent parameter")
    for op in step.ops:
        held += sum(step.buffers[buffer].bytes for buffer in op.acquires)
        held -= sum(step.buffers[buffer].bytes for buffer in op.releases)
        assert held >= resident - droppable
    assert held == pytest.approx(resident)
    assert all(buffer.bytes >= 0 for buffer in step.buffers)


@given(programs())
@quick
def test_repeated_micro_steps_equal_those_written_one_by_one(program: tuple[Strategy, Model, Training, int]) -> None:
    strategy, model, training, world_size = program
    training = replace(training, gradient_accumulation_steps=6)  # steps 3 and 4 are repeated
    repeated = build(strategy, model, training, world_size)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "STEADY", UNLIMITED)
        written = build(strategy, model, training, world_size)[0]
    assert len(repeated.ops) == len(written.ops)
    for one, other in zip(repeated.ops, written.ops, strict=True):
        assert one == other
    assert repeated == written


# --- what comes after what -------------------------------------------------------------------------------------------


@given(programs())
@quick
def test_a_gradient_is_reduced_after_the_kernels_that_make_it(program: tuple[Strategy, Model, Training, int]) -> None:
    """A tied one after the last of its modules, the embedding."""
    step, parameters = build(*program)[0], program[1].parameters
    made = {(op.micro_batch, op.name): op.number for op in step.ops}  # the last op of a name
    for op, before in zip(step.ops, ancestors(step), strict=True):
        for piece in op.reduces:
            module = parameters[piece.parameter].name.rpartition(".")[0]
            assert before[COMPUTE] >= made[op.micro_batch, f"{module} bwd"]


@given(programs())
@quick
def test_the_optimizer_comes_after_every_reduction_and_the_weights_are_shared_after_it(
    program: tuple[Strategy, Model, Training, int],
) -> None:
    step = build(*program)[0]
    updates = [op.number for op in step.ops if op.name == f"{program[0].optimizer.name} step"]
    reducing = [op.number for op in step.ops if op.reduces or op.stream == REDUCE]
    before = ancestors(step)
    for number in reducing:
        assert before[updates[0]][step.ops[number].stream] >= number
    for op in step.ops[updates[-1] :]:
        if isinstance(op.work, Collective):
            assert op.work.kind == "all_gather"
            assert before[op.number][COMPUTE] > updates[-1]


# --- buckets -------------------------------------------------------------------------------------------------------


@given(programs(at_stage(1, 2, 3)))
@quick
def test_no_bucket_of_several_parameters_exceeds_its_size(program: tuple[DeepSpeed, Model, Training, int]) -> None:
    step = build(*program)[0]
    for op in step.ops:
        if len({piece.parameter for piece in op.reduces}) > 1:
            elements = sum(piece.stop - piece.start for piece in op.reduces)
            assert elements <= program[0].zero.reduce_bucket_size


@given(programs(at_stage(1, 2, 3)))
@quick
def test_what_a_reduced_micro_step_puts_on_the_wire(program: tuple[DeepSpeed, Model, Training, int]) -> None:
    """Stages 1 and 2 reduce each element, whole or to its owner; stage 3 scatters the padded shards of all ranks."""
    config, model, _, world = program
    step = build(*program)[0]
    trained = [parameter.numel for parameter in model.parameters if parameter.trainable]
    wire = Counter[int]()
    for op in step.ops:
        if op.reduces:
            assert isinstance(op.work, Collective)
            assert op.work.dtype == (config.communication_data_type or program[2].precision)
            wire[op.micro_batch] += op.work.elements
    if config.zero.stage == 3:
        padded = sum(world * -(-numel // world) for numel in trained)
        assert all(sum(trained) <= elements <= padded for elements in wire.values())
        assert not config.zero.reduce_scatter or set(wire.values()) == {padded}
    else:
        assert set(wire.values()) == {sum(trained)}
    assert sorted(wire) == list(step.reductions)


# --- the coordinator of stage 3 ------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """A plan with what it was made for."""

    plan: Plan
    events: tuple[Event, ...]
    numels: tuple[int, ...]
    zero: Zero


def planned(zero: Zero, model: Model, training: Training) -> Planned:
    network = compile_network(model, training)
    forward, backward = micro_step(network, training)
    return Planned(plan_fetches(forward + backward, network.numels, zero), forward + backward, network.numels, zero)


plans = st.builds(planned, zeros, models, trainings)


def size(made: Planned, gathers: tuple[int, ...]) -> int:
    return sum(made.numels[parameter] for gather in gathers for parameter in made.plan.gathers[gather])


@given(plans)
@quick
def test_a_module_computes_only_with_its_parameters_there(made: Planned) -> None:
    """And nothing is gathered twice, collected before it is gathered, or dropped before it is there."""
    plan = made.plan
    visits, releases = iter(plan.visits), iter(plan.releases)
    there, flying = set(plan.persistent), set[int]()
    for event in made.events:
        if event.kind == PRE:
            visit = next(visits)
            flying |= {*visit.demanded}
            for gather in visit.collected:
                members = plan.gathers[gather]
                if gather in flying:
                    assert there.isdisjoint(members)
                    there.update(members)
                    flying.discard(gather)
            assert there.issuperset(event.node.parameters)
            assert flying.isdisjoint(visit.prefetched)
            flying |= {*visit.prefetched}
        elif event.kind == RUN:
            assert there.issuperset(event.node.parameters)
        elif event.kind == POST:
            released = set(next(releases))
            assert released <= there - plan.persistent
            there -= released
    assert (list(visits), list(releases), flying) == ([], [], set())
    assert there - plan.persistent == set(plan.leftovers)


@given(plans)
@quick
def test_each_parameter_is_gathered_at_least_once_and_at_most_once_a_visit(made: Planned) -> None:
    times = Counter(parameter for gather in made.plan.gathers for parameter in gather)
    visits = Counter(p for event in made.events if event.kind == PRE for p in event.node.parameters)
    assert set(times) == set(range(len(made.numels))) - made.plan.persistent
    assert all(1 <= times[parameter] <= visits[parameter] for parameter in times)


@given(zeros, st.integers(1, 3), trainings)
@quick
def test_gathers_of_a_micro_step_are_one_to_three_times_what_does_not_persist(
    zero: Zero, blocks: int, training: Training
) -> None:
    """Forward, recomputation, backward; a tied parameter, which is used more often, is left out."""
    made = planned(zero, toy(8, 16, blocks), training)
    once = sum(numel for number, numel in enumerate(made.numels) if number not in made.plan.persistent)
    most = 3 if training.checkpoints_blocks else 2
    assert once <= size(made, tuple(range(len(made.plan.gathers)))) <= most * once


@given(plans)
@quick
def test_prefetches_respect_the_live_and_bucket_limits(made: Planned) -> None:
    zero, largest = made.zero, max(made.numels)
    live, seen = 0, 0
    visits, releases = iter(made.plan.visits), iter(made.plan.releases)
    for event in made.events:
        if event.kind == PRE:
            visit = next(visits)
            live += size(made, visit.demanded)
            ahead = size(made, visit.prefetched)
            if visit.prefetched:
                seen += 1
                assert live < zero.max_live_parameters
                assert ahead < zero.prefetch_bucket_size + largest
                assert live + ahead < zero.max_live_parameters + largest
            live += ahead
        elif event.kind == POST:
            live -= sum(made.numels[parameter] for parameter in next(releases))
    assert live == sum(made.numels[parameter] for parameter in made.plan.leftovers)
    assert not seen or (zero.prefetch_bucket_size and zero.max_live_parameters)


@given(programs(at_stage(3)))
@quick
def test_no_prefetch_bucket_and_no_live_parameters_are_the_same(
    program: tuple[DeepSpeed, Model, Training, int],
) -> None:
    config, *rest = program
    off = [{"prefetch_bucket_size": 0}, {"max_live_parameters": 0}]
    one, other = (build(replace(config, zero=replace(config.zero, **keys)), *rest)[0] for keys in off)  # type: ignore[arg-type]  # drawn values
    assert one == other


# --- the program of stage 3 ----------------------------------------------------------------------------------------


class Use(NamedTuple):
    """A kernel, and of each gathered parameter of its module the op that makes it available and its buffer."""

    kernel: int
    arrived: int
    buffer: int


class Watched(Zero3):
    """Writes down which ops compute with which gathered parameters."""

    def __init__(self, *program: Any) -> None:
        super().__init__(*program)
        self.uses: list[Use] = []
        self.arrivals: dict[int, int] = {}

    def _land(self, gather: int, flight: InFlight) -> None:
        super()._land(gather, flight)
        members = self.plan.gathers[gather]
        number = flight.collective if len(members) == 1 else self.builder.next_op - 1
        self.arrivals.update(dict.fromkeys(members, number))

    def _run(self, event: Event) -> None:
        first = self.builder.next_op
        super()._run(event)
        for kernel in range(first, self.builder.next_op):
            for parameter in set(event.node.parameters) - self.plan.persistent:
                self.uses.append(Use(kernel, self.arrivals[parameter], self.full[parameter]))


@given(programs(at_stage(3)))
@quick
def test_kernels_wait_for_their_gathers_and_run_before_the_buffers_are_freed(
    program: tuple[DeepSpeed, Model, Training, int],
) -> None:
    config, model, training, world = program
    training = replace(training, gradient_accumulation_steps=min(training.gradient_accumulation_steps, 3))
    watched = Watched(config, model, training, Ranks(world, world))
    step = watched.write()
    before = ancestors(step)
    born = {buffer: op.number for op in step.ops for buffer in op.acquires}
    freed = {buffer: op.number for op in step.ops for buffer in op.releases}
    for use in watched.uses:
        assert before[use.kernel].get(step.ops[use.arrived].stream, -1) >= use.arrived
        assert born[use.buffer] < use.kernel <= freed[use.buffer]
    persistent = watched.plan.persistent
    assert bool(watched.uses) == (len(persistent) < len(model.parameters))
