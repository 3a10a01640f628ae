"""Checkpoints of every second block, and by operator, in numbers worked out by hand on the toy of three blocks.

A leaf of a block reads 16 tokens in 16 bits. Products of a block in call order: qkv (192 wide), o, fc1 (256), fc2.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.programs import levels
from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.loading import inline
from zerosim.spec.model import Model
from zerosim.spec.model_file import read_model
from zerosim.spec.optimizers import optimizer
from zerosim.spec.strategy import Ddp, DeepSpeed, Strategy, Zero
from zerosim.spec.training_file import read_training
from zerosim.step import Attention, Matmul, Step
from zerosim.strategies import build

INPUT = 2_048  # of a block
SAVED = 9 * INPUT  # by a block
OUTSIDE = 16 * 8 + 2 * INPUT
STRATEGIES: tuple[Strategy, ...] = (
    Ddp(), *(DeepSpeed(zero=Zero(stage=stage)) for stage in (0, 1, 2, 3)), Fsdp(version=1), Fsdp(version=2),
)  # fmt: skip


def step_of(kept: str, strategy: Strategy = STRATEGIES[3], model: Model | None = None, **training: Any) -> Step:
    settings = toy_training(activation_checkpointing=kept, **training)
    return build(strategy, model or toy(), settings, 2)[0]


def turn(step: Step) -> Counter[str]:
    """What is held at the end of the forward."""
    return [held for op, held in zip(step.ops, levels(step), strict=False) if op.phase == "forward"][-1]


def again(step: Step) -> list[str]:
    return [op.name for op in step.ops if op.name.endswith(" recompute")]


def flops(step: Step) -> float:
    return sum(op.work.flops for op in step.ops if isinstance(op.work, Matmul))


def test_every_second_block_is_the_second_of_three() -> None:
    step = step_of("alternate")
    assert len(again(step)) == 5
    assert turn(step)["block input"] == INPUT
    assert turn(step)["saved activation"] == 2 * SAVED + OUTSIDE


def test_by_operator_every_second_product_runs_again() -> None:
    """Of each block the norms and o; fc2 is the second of two, but its backward needs its input only."""
    step = step_of("operators")
    assert len(again(step)) == 3 * 3
    assert flops(step) - flops(step_of("none")) == 3 * 2 * 16 * 64 * 64
    assert turn(step)["kept output"] == 3 * 16 * 2 * (192 + 256)
    assert turn(step)["block input"] == 3 * INPUT
    assert turn(step)["saved activation"] == OUTSIDE


def test_a_compiled_block_keeps_no_product_that_its_backward_does_not_read() -> None:
    shape = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "gated": True, "vocab": 512}
    model = read_model(inline(shape, "llama"))
    eager, compiled = (step_of("operators", model=model, kernels=kernels) for kernels in ("eager", "fused"))
    assert turn(eager)["kept output"] - turn(compiled)["kept output"] == 2 * 16 * 2 * 64
    assert len(again(eager)) == len(again(compiled))


def test_by_operator_attention_is_kept() -> None:
    """q, v and the gate of a Llama block, fc2 of no use, and what attention makes."""
    shape = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "gated": True, "vocab": 512}
    step = step_of("operators", model=read_model(inline(shape, "llama")))
    assert not [op for op in step.ops if op.name.endswith(" recompute") and isinstance(op.work, Attention)]
    assert turn(step)["kept output"] == 2 * 16 * 2 * (64 + 32 + 128 + 64 + 64)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__.lower())
@pytest.mark.parametrize("kept", ["alternate", "operators", "full"])
def test_less_is_kept_for_more_work_and_nothing_is_left(strategy: Strategy, kept: str) -> None:
    step, plain = step_of(kept, strategy, gradient_accumulation_steps=4), step_of("none", strategy)
    once = step_of(kept, strategy)
    assert flops(once) > flops(plain)
    assert sum(turn(once).values()) <= sum(turn(plain).values())  # equal by chance: by operator under autocast
    *_, last = levels(step.check())
    assert not [name for name in ("saved activation", "kept output", "block input") if last[name]]


def test_a_reentrant_checkpoint_has_no_policy() -> None:
    said = {"sequence_length": 16, "activation_checkpointing": "operators"}
    assert read_training(inline({"training": said}, "it")).activation_checkpointing == "operators"
    for more in ({"reentrant": True}, {"checkpoint_function": "deepspeed"}):
        with pytest.raises(InputError, match="policy by op"):
            read_training(inline({"training": said | more}, "it"))


@pytest.mark.parametrize(("torch_adam", "made"), [(True, 4), (False, 0)])
def test_a_foreach_adam_makes_the_roots_of_all_second_moments_at_once(torch_adam: bool, made: int) -> None:
    strategy = Ddp(optimizer=optimizer("Adam", torch_adam))
    step = step_of("none", strategy, precision="fp32")
    held = max(level["optimizer scratch"] for level in levels(step))
    assert held == made * 213_888


@pytest.mark.parametrize(
    ("loss", "saved", "made"), [("fp32", 6, 8), ("freed", 4, 8), ("model", 4, 4), ("fused", 2, 2), ("in_place", 2, 0)]
)
def test_bytes_a_logit_in_the_backward_of_the_loss(loss: str, saved: int, made: int) -> None:
    shape = {"layers": 1, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 512}
    model = read_model(inline(shape, "gpt"))
    held = {}
    for kind in ("in_place", loss):
        step = step_of("none", model=model, cross_entropy=kind)
        held[kind] = next(h for op, h in zip(step.ops, levels(step), strict=False) if op.name == "loss bwd")
    more = held[loss]["saved activation"] - held["in_place"]["saved activation"]
    assert more == (saved - 2) * 16 * 512
    assert held[loss]["kernel scratch"] == made * 16 * 512
