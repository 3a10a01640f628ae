"""What holds of every program of FSDP1: what is gathered, reduced and freed, and what waits for what."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.linears import linears
from tests.programs import ancestors, levels, variant
from tests.toy import toy
from zerosim.spec.fully_sharded import HYBRIDS, Fsdp, Wrap
from zerosim.spec.model import Model
from zerosim.spec.strategy import Optimizer
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Collective, Step
from zerosim.strategies import build
from zerosim.strategies.fsdp1 import FullySharded
from zerosim.strategies.network import compile_network
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import units

FROZEN = ((), (), ("b0",), ("emb", "b0"), ("b1", "head"), ("ln", "fc1"))
WRAPS = (
    Wrap(), Wrap(blocks=False), Wrap(modules=("emb", "b0.qkv", "b1.fc2", "head")), Wrap(blocks=False, least=20),
)  # fmt: skip

toys = st.builds(
    lambda size, frozen, tied: variant(toy(*size), frozen, tied),
    st.tuples(st.sampled_from((1, 3, 8)), st.sampled_from((5, 64)), st.integers(1, 4)),  # hidden, vocabulary, blocks
    st.sampled_from(FROZEN),
    st.booleans(),
)
chains = st.builds(
    lambda widths, frozen: linears(*widths, frozen=min(frozen, len(widths) - 2)),
    st.lists(st.integers(1, 9), min_size=2, max_size=7),
    st.integers(0, 2),
)
models = st.one_of(toys, chains)
trainings = st.builds(
    Training,
    sequence_length=st.just(4),
    gradient_accumulation_steps=st.integers(1, 5),
    precision=st.sampled_from(("fp32", "fp16", "bf16")),
    activation_checkpointing=st.sampled_from(("none", "alternate", "operators", "full")),
    reentrant=st.booleans(),
)
dtypes = st.sampled_from((None, "fp32", "bf16", "fp16"))
configs = st.builds(
    Fsdp,
    wrap=st.sampled_from(WRAPS) | st.builds(Wrap, modules=st.tuples(st.sampled_from(("l0", "l1", "l2", "l3")))),
    sharding_strategy=st.sampled_from(("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", *HYBRIDS)),
    shard_size=st.just(2),
    backward_prefetch=st.sampled_from(("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")),
    forward_prefetch=st.booleans(),
    limit_all_gathers=st.booleans(),
    use_orig_params=st.just(True),
    parameter_dtype=st.sampled_from(("fp32", "bf16")),
    param_dtype=dtypes,
    reduce_dtype=dtypes,
    cpu_offload=st.booleans(),
    no_sync=st.booleans(),
    gradient_clipping=st.sampled_from((0.0, 1.0)),
    optimizer=st.sampled_from((Optimizer(), Optimizer("SGD", 0, 12, fused=False))),
)
RANKS = 4
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def written(config: Fsdp, model: Model, training: Training) -> Step:
    """A weight that two units would share is refused: only the root and blocks are units of a model with tied ones."""
    stands = [parameter.name for module in model.root.walk() for parameter in module.parameters]
    assume(len(stands) == len(set(stands)) or not (config.wrap.modules or config.wrap.least))
    return build(config, model, training, RANKS)[0]


def elements(step: Step, kind: str, micro_batch: int, phase: str = "") -> list[int]:
    return [
        op.work.elements
        for op in step.ops
        if isinstance(op.work, Collective)
        and op.work.kind == kind
        and op.micro_batch == micro_batch
        and (op.phase == phase if phase else op.phase != "optimizer")
    ]


@quick
@given(configs, models, trainings)
def test_programs_have_no_fault_and_leave_what_they_found(config: Fsdp, model: Model, training: Training) -> None:
    step = written(config, model, training)
    assert step.lint() == []
    *_, after = levels(step)
    (before,) = [+held for held in [next(iter(levels(replace(step, ops=()))))]]
    assert +after == before


@quick
@given(configs, models, trainings)
def test_every_trained_unit_is_reduced_once_where_gradients_are(config: Fsdp, model: Model, training: Training) -> None:
    step = written(config, model, training)
    program = FullySharded(config, model, training, Ranks(RANKS, RANKS))
    sizes = sorted(flat.padded if program.sharded else flat.elements for flat in program.flats.values() if flat.trains)
    kind = "reduce_scatter" if program.sharded else "all_reduce"
    for micro_batch in range(training.gradient_accumulation_steps):
        found = sorted(elements(step, kind, micro_batch))
        assert found == (sizes if micro_batch in step.reductions else [])


@quick
@given(configs, models, trainings)
def test_the_forward_gathers_each_unit_once(config: Fsdp, model: Model, training: Training) -> None:
    """Or, where it was kept from before, not at all: then each unit that is gathered is so for the first time."""
    step = written(config, model, training)
    program = FullySharded(config, model, training, Ranks(RANKS, RANKS))
    sizes = sorted(flat.padded for flat in program.flats.values()) if program.sharded else []
    frees = config.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
    for micro_batch in range(training.gradient_accumulation_steps):
        found = sorted(elements(step, "all_gather", micro_batch, "forward"))
        if frees and training.activation_checkpointing == "none" and not any(not p.trainable for p in model.parameters):
            assert found == sizes
        assert set(found) <= set(sizes)
        assert len(found) <= len(sizes)


@quick
@given(configs, models, trainings)
def test_no_kernel_runs_without_its_parameters(config: Fsdp, model: Model, training: Training) -> None:
    """A unit's last gather has ended when a kernel of one of its modules begins, and its memory is not yet free."""
    step = written(config, model, training)
    network = compile_network(model, training)
    owner: dict[str, str] = {}
    uses_own: dict[str, bool] = {}  # whether a module has parameters that are its unit's: a tied one may be another's
    for unit in units(network, config.wrap):  # root first: a unit's own modules overwrite it
        for below in unit.node.walk():
            owner[below.name] = unit.node.name
            uses_own[below.name] = not set(unit.parameters).isdisjoint(below.parameters)
    sharded = config.sharding_strategy != "NO_SHARD"
    known = ancestors(step)
    gathered: dict[str, int] = {}  # newest gather of each unit
    buffer_of: dict[str, int] = {}
    released = {buffer: op.number for op in step.ops for buffer in op.releases}
    for op in step.ops:
        if op.name.startswith("all-gather ") and op.name != "all-gather norm":
            gathers = op.name.removeprefix("all-gather ")
            gathered[gathers] = op.number
            (buffer_of[gathers],) = [b for b in op.acquires if step.buffers[b].name == "gathered unit"]
        module, _, what = op.name.rpartition(" ")
        if op.stream == COMPUTE and what in ("fwd", "bwd", "recompute") and module in owner:
            gather = gathered.get(owner[module])
            assert gather is not None or not (sharded and uses_own[module])
            if gather is not None:
                assert known[op.number].get(step.ops[gather].stream, -1) >= gather
                assert released.get(buffer_of[owner[module]], len(step.ops)) >= op.number


@quick
@given(configs, models, trainings)
def test_the_optimizer_steps_when_all_is_reduced(config: Fsdp, model: Model, training: Training) -> None:
    step = written(config, model, training)
    assume(any(op.phase == "optimizer" for op in step.ops))
    update = next(op.number for op in step.ops if op.phase == "optimizer")
    known = ancestors(step)
    for op in step.ops:
        if op.reduces:
            assert known[update].get(op.stream, -1) >= op.number or step.ops[update].work is None


@quick
@given(configs, models, trainings)
def test_what_has_no_effect_on_the_order(config: Fsdp, model: Model, training: Training) -> None:
    """The rate limiter, offloading and accumulation in place change when, not what."""

    def sequence(changed: Fsdp) -> list[Collective]:
        step = written(changed, model, training)
        return [op.work for op in step.ops if isinstance(op.work, Collective) and op.phase != "optimizer"]

    plain = sequence(config)
    assert sequence(replace(config, limit_all_gathers=not config.limit_all_gathers)) == plain
    assert sequence(replace(config, cpu_offload=not config.cpu_offload)) == plain
