"""ZeRO stage 1: gradients stay whole in `param.grad` through the micro-steps and are reduced at the boundary.

With `overlap_comm` the boundary's backward fills buckets as gradients become ready; without, the whole reduction runs
after that backward, in registration order, on the compute lane: all of it is exposed.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Step
from zerosim.strategies.partitioned import PartitionedOptimizer


class Zero1(PartitionedOptimizer):
    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        self.whole_gradients: dict[int, int] = {}
        if config.release.compact_sums:
            self.reduced_dtype = config.grad_accum_dtype or self.dtype

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,)

    def gradient(self, parameter: int, buffer: int) -> None:
        self.builder.call(gradient_hooks=1)
        self.allocate_bucket()  # at the first hook of the step, and kept until it is emptied
        self.hold(self.whole_gradients, parameter, buffer)
        if self.boundary_micro_batch and self.zero.overlap_comm:
            self._reduce_held(parameter)

    def epilogue(self) -> None:
        if not self.boundary_micro_batch:
            return
        for parameter in sorted(self.whole_gradients):  # registration order; empty with overlap_comm
            self._reduce_held(parameter)
        self.finish_reductions()

    def _reduce_held(self, parameter: int) -> None:
        """Into the bucket, by way of a copy where it was accumulated in a dtype wider than that of the bucket."""
        buffer = self.whole_gradients.pop(parameter)
        if self.held_width != self.reduced_width:
            wide, numel = buffer, self.network.numels[parameter]
            buffer = self.builder.acquire("gradient", "gradients", float(self.reduced_width * numel))
            self.pass_over("cast gradient", numel, self.held_width + self.reduced_width)
            self.builder.release(wide, COMPUTE)
        self.collect(parameter, buffer)


def write(config: DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    """The step of a stage-1 run."""
    return Zero1(config, model, training, world_size).write()
