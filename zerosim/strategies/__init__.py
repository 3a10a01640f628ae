"""How a training step is spread over ranks, written as the programs their hosts issue. One file a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, HierarchicalZero1, Pipeline, Strategy
from zerosim.spec.training import Training
from zerosim.step import Step
from zerosim.strategies import bf16_optimizer, ddp, fsdp1, fsdp2, hierarchical, pipeline, stage3, zero0, zero1, zero2
from zerosim.strategies.network import model_flops
from zerosim.strategies.ranks import Ranks

__all__ = ["build", "model_flops"]

_STAGES: Mapping[int, Callable[[DeepSpeed, Model, Training, int], Step]] = {
    0: zero0.write,
    1: zero1.write,
    2: zero2.write,
}


def build(
    strategy: Strategy, model: Model, training: Training, world_size: int, ranks_per_node: int | None = None
) -> tuple[Step, ...]:
    """The programs of one step in steady state (not the first iteration): rank r runs number r mod their count.

    One program where all ranks do the same. `ranks_per_node`: what groups within a node are made of; None: one node.
    `Step.lint` finds nothing in them.
    """
    if isinstance(strategy, Pipeline):
        return pipeline.write(strategy, model, training, world_size)
    return (_same_for_all(strategy, model, training, Ranks(world_size, ranks_per_node or world_size)),)


def _same_for_all(
    strategy: Ddp | DeepSpeed | Fsdp | HierarchicalZero1, model: Model, training: Training, ranks: Ranks
) -> Step:
    match strategy:
        case Ddp():
            return ddp.write(strategy, model, training, ranks.world)
        case Fsdp():
            write = fsdp1.write if strategy.version == 1 else fsdp2.write
            return write(strategy, model, training, ranks)
        case HierarchicalZero1():
            return hierarchical.write(strategy, model, training, ranks)
        case DeepSpeed() if _is_bf16_optimizer(strategy, training):
            return bf16_optimizer.write(strategy, model, training, ranks.world)
        case DeepSpeed() if strategy.zero.stage == 3:
            return stage3.write(strategy, model, training, ranks)
        case DeepSpeed():
            return _STAGES[strategy.zero.stage](strategy, model, training, ranks.world)


def _is_bf16_optimizer(config: DeepSpeed, training: Training) -> bool:
    """DeepSpeed runtime/engine.py: bf16, stage 1, fp32 accumulation, states on the GPU; in older releases stage 0."""
    summed = config.grad_accum_dtype == "fp32" and config.zero.offload_optimizer.device == "none"
    old_stage0 = config.zero.stage == 0 and config.release.stage0_bf16_optimizer
    return training.precision == "bf16" and (old_stage0 or (config.zero.stage == 1 and summed))
