"""Which kind of stage 3 a configuration asks for: plain, with quantized gradients on several nodes, or MiCS."""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import Step
from zerosim.strategies.mics import Mics
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.stage3_groups import stage3_groups
from zerosim.strategies.zero3 import Zero3
from zerosim.strategies.zeropp import QuantizedGradients


def write(config: DeepSpeed, model: Model, training: Training, ranks: Ranks) -> Step:
    """The step of a stage-3 run whose trace is complete (from the third forward on)."""
    if config.zero.mics_shard_size > 0:
        return Mics(config, model, training, ranks).write()
    levels = stage3_groups(config.zero, ranks).reduction
    if levels is not None:
        return QuantizedGradients(config, model, training, ranks, levels).write()
    return Zero3(config, model, training, ranks).write()
