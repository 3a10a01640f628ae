"""What holds of every program of FSDP2, whatever the knobs: parameters are whole where they are used, gradients are
reduced once, memory comes back, and what is written by copying a micro-step is what would have been written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.programs import ancestors, variant
from tests.toy import toy
from zerosim.spec.fully_sharded import FloatType, Fsdp, Wrap
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Collective, Step
from zerosim.strategies import base, build
from zerosim.strategies.fsdp2_groups import resharded_to

FROZEN = ((), ("emb",), ("emb", "b0"), ("lnf", "head"), ("ln", "fc1"), ("b",))
quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))

models = st.builds(
    lambda size, frozen, tied: variant(toy(*size), frozen, tied),
    st.tuples(st.sampled_from((1, 3, 8)), st.sampled_from((5, 64)), st.integers(1, 3)),  # hidden, vocabulary, blocks
    st.sampled_from(FROZEN),
    st.booleans(),
)
trainings = st.builds(
    Training,
    sequence_length=st.just(4),
    gradient_accumulation_steps=st.integers(1, 5),
    precision=st.sampled_from(("fp32", "fp16", "bf16")),
    activation_checkpointing=st.sampled_from(("none", "alternate", "operators", "full")),
    reentrant=st.booleans(),
)
dtypes: st.SearchStrategy[FloatType | None] = st.sampled_from((None, "fp32", "fp16", "bf16"))
modules = st.sets(st.sampled_from(("emb", "b0.fc1", "b1.qkv", "b0", "lnf", "head"))).map(
    lambda names: tuple(sorted(names))
)


class Run(NamedTuple):
    config: Fsdp
    model: Model
    training: Training
    ranks: int

    def step(self, **training: Any) -> Step:
        return build(self.config, self.model, replace(self.training, **training), self.ranks)[0]


def tied_across_groups(model: Model, wrap: Wrap) -> bool:
    table = next(parameter for parameter in model.parameters if parameter.name == "emb.weight")
    users = [module.name for module in model.root.walk() if table in module.parameters]
    return len(users) > 1 and not wrap.least and any(name in users for name in wrap.modules)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    ranks = draw(st.sampled_from((1, 2, 3, 4, 8)))
    divisors = [size for size in (1, 2, 3, 4, 8) if ranks % size == 0]
    shard_size = draw(st.sampled_from((None, *divisors)))
    kept = [size for size in divisors if (shard_size or ranks) % size == 0]
    smaller = draw(st.sampled_from((True, False, *kept)))
    config = Fsdp(
        version=2,
        wrap=Wrap(draw(st.booleans()), draw(modules)),
        shard_size=shard_size,
        parameter_dtype=draw(st.sampled_from(("fp32", "bf16"))),
        param_dtype=draw(dtypes),
        reduce_dtype=draw(dtypes),
        cpu_offload=draw(st.booleans()),
        pin_memory=draw(st.booleans()),
        no_sync=draw(st.booleans()),
        gradient_clipping=draw(st.sampled_from((0.0, 1.0))),
        reshard_after_forward=smaller,
        root_reshard_after_forward=draw(st.sampled_from((False, smaller))),
        reshard_after_backward=draw(st.booleans()),
        prefetch_forward=draw(st.integers(0, 2)),
        prefetch_backward=draw(st.integers(0, 2)),
        set_is_last_backward=draw(st.booleans()),
    )
    model = draw(models)
    assume(not tied_across_groups(model, config.wrap))
    return Run(config, model, draw(trainings), ranks)


@given(runs())
@quick
def test_programs_are_sound(run: Run) -> None:
    """Buffers are freed once, gradients reduced once in every micro-batch that reduces; nothing is left at the end."""
    assert run.step().lint() == []


@given(runs())
@quick
def test_parameters_are_whole_where_a_kernel_uses_them(run: Run) -> None:
    step, index = run.step(), {parameter.name: i for i, parameter in enumerate(run.model.parameters)}
    used = {module.name: {index[p.name] for p in module.parameters} for module in run.model.root.walk()}
    whole: Counter[int] = Counter()
    for op in step.ops:
        for buffer in op.acquires:
            whole.update(step.buffers[buffer].parameters)
        name, _, kind = op.name.rpartition(" ")
        if op.stream == COMPUTE and kind in ("fwd", "recompute", "bwd"):
            assert all(whole[parameter] == 1 for parameter in used.get(name, ()))
        for buffer in op.releases:
            whole.subtract(step.buffers[buffer].parameters)


@given(runs())
@quick
def test_a_group_is_gathered_at_most_twice_in_a_micro_step_and_once_more_for_nothing(run: Run) -> None:
    """Where blocks are the groups; a module wrapped within a checkpointed block may be gathered ahead for its second
    forward, too."""
    config = replace(run.config, wrap=Wrap())
    step = build(config, run.model, run.training, run.ranks)[0]
    gathers = Counter((op.micro_batch, op.name) for op in step.ops if op.gathers)
    assert all(count <= 2 + config.set_is_last_backward for count in gathers.values())
    whole = resharded_to(config.reshard_after_forward, 8) == 0
    if whole and not config.root_reshard_after_forward:
        assert all(count <= 1 for count in gathers.values())


@given(runs())
@quick
def test_the_optimizer_comes_after_every_reduction(run: Run) -> None:
    step = run.step()
    known = ancestors(step)
    updates = [op.number for op in step.ops if " step" in op.name and op.phase == "optimizer" and op.work is not None]
    last = {op.stream: op.number for op in step.ops if isinstance(op.work, Collective) and op.phase == "backward"}
    reduced = {stream for stream in last for op in step.ops if op.stream == stream and op.reduces}
    assert updates or not reduced
    for update in updates:
        for stream in reduced:
            assert known[update][stream] >= last[stream]


@given(runs())
@quick
def test_repeated_micro_steps_equal_those_written_one_by_one(run: Run) -> None:
    repeated = run.step(gradient_accumulation_steps=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "STEADY", 10)
        written = run.step(gradient_accumulation_steps=6)
    assert repeated == written
