"""Which framework's hierarchical ZeRO-1 is played."""

from __future__ import annotations

from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import Step
from zerosim.strategies.internevo import InternEvo
from zerosim.strategies.megatron import Megatron
from zerosim.strategies.ranks import Ranks


def write(config: HierarchicalZero1, model: Model, training: Training, ranks: Ranks) -> Step:
    """The step in steady state."""
    program = Megatron if config.framework == "megatron" else InternEvo
    return program(config, model, training, ranks).write()
