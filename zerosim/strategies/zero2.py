"""ZeRO stage 2: every micro-step reduces its gradients, and only those of the own partition are kept.

So accumulation multiplies the traffic: n micro-steps all-reduce the whole gradient n times.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import Step
from zerosim.strategies.partitioned import PartitionedOptimizer


class Zero2(PartitionedOptimizer):
    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        self.uniform = not self.offloaded  # the last micro-step hands the sums over to the host

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(range(self.last_micro_batch + 1))

    def gradient(self, parameter: int, buffer: int) -> None:
        self.builder.call(gradient_hooks=1)
        self.collect(parameter, buffer)

    def epilogue(self) -> None:
        self.finish_reductions()


def write(config: DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    """The step of a stage-2 run."""
    return Zero2(config, model, training, world_size).write()
