"""How a training step is spread over ranks, written as the programs their hosts issue. One file a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed, Pipeline, Strategy
from zerosim.spec.training import Training
from zerosim.step import Step
from zerosim.strategies import bf16_optimizer, ddp, pipeline, zero0, zero1, zero2, zero3
from zerosim.strategies.network import model_flops

__all__ = ["build", "model_flops"]

_STAGES: Mapping[int, Callable[[DeepSpeed, Model, Training, int], Step]] = {
    0: zero0.write,
    1: zero1.write,
    2: zero2.write,
    3: zero3.write,
}


def build(strategy: Strategy, model: Model, training: Training, world_size: int) -> tuple[Step, ...]:
    """The programs of one step in steady state (not the first iteration): rank r runs number r mod their count.

    One program where all ranks do the same. `Step.lint` finds nothing in them.
    """
    if isinstance(strategy, Pipeline):
        return pipeline.write(strategy, model, training, world_size)
    return (_same_for_all(strategy, model, training, world_size),)


def _same_for_all(strategy: Ddp | DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    if isinstance(strategy, Ddp):
        return ddp.write(strategy, model, training, world_size)
    if _is_bf16_optimizer(strategy, training):
        return bf16_optimizer.write(strategy, model, training, world_size)
    return _STAGES[strategy.zero.stage](strategy, model, training, world_size)


def _is_bf16_optimizer(config: DeepSpeed, training: Training) -> bool:
    """DeepSpeed runtime/engine.py: bf16, stage 1, fp32 accumulation, states on the GPU."""
    return (
        config.zero.stage == 1
        and training.precision == "bf16"
        and config.grad_accum_dtype == "fp32"
        and config.zero.offload_optimizer.device == "none"
    )
