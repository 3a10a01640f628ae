"""DeepSpeed's BF16_Optimizer: bf16 model, stage 1, gradients accumulated in fp32 (`data_types.grad_accum_dtype`); and
stage 0 in bf16, in older releases.

Source: DeepSpeed runtime/bf16_optimizer.py. Every rank holds a whole fp32 gradient buffer (4 bytes a parameter); each
backward's gradients are added to it afterwards; at the boundary one all-reduce of all of it, cast to the communication
dtype, and one all-gather of the updated weights, both on the compute lane: nothing overlaps. The gradients are whole on
every rank, so the norm needs no collective.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, Step
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.flat import flat_layout

ADD_BYTES = 10  # read a bf16 gradient, read and write the fp32 sum


class Bf16Optimizer(DeepSpeedProgram):
    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        self.layout = flat_layout(self.network.trainable_numels, world_size)
        self.fresh: list[int] = []  # bf16 gradients of this backward

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,)

    def prepare(self) -> None:
        numel = max(sum(self.network.numels), self.layout.padded)
        buffer = self.builder.resident("parameters", "parameters", float(self.width * numel))
        self.builder.gathered(buffer, *range(len(self.network.numels)))
        self.builder.resident("fp32 gradients", "gradients", 4.0 * self.layout.padded)
        self.optimizer_residents(self.layout.share)

    def gradient(self, parameter: int, buffer: int) -> None:
        self.fresh.append(buffer)

    def epilogue(self) -> None:
        self.pass_over("accumulate gradients in fp32", self.layout.padded, ADD_BYTES, len(self.fresh))
        for buffer in self.fresh:
            self.builder.release(buffer, COMPUTE)
        self.fresh.clear()
        if self.boundary_micro_batch:
            self._reduce()

    def _reduce(self) -> None:
        build, elements, wire = self.builder, self.layout.padded, DTYPE_BYTES[self.wire]
        if wire < 4:
            cast = build.acquire("gradients in the communication dtype", "buffers", float(wire * elements))
            self.pass_over("cast gradients", elements, 4 + wire)
        pieces = tuple(self.whole(p) for p in self.layout.order)
        build.collective(
            COMPUTE, "all_reduce", elements, self.wire, DATA_PARALLEL, name="all-reduce gradients", reduces=pieces
        )
        if wire < 4:
            self.pass_over("cast gradients back", elements, 4 + wire)
            build.release(cast, COMPUTE)

    def boundary(self) -> None:
        build, elements = self.builder, self.layout.padded
        self.norm_kernels(elements, max(self.network.trainable_numels, default=0), len(self.layout.order))
        build.read(COMPUTE)  # whether it is finite; older releases assert that it is above 0
        self.optimizer_kernels(self.config.optimizer, self.layout.share)
        self.pass_over("write parameters", self.layout.share, 4 + self.width)
        self.gather_updated(self.layout)
        self.timer()


def write(config: DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    """The step of a stage-1 run in bf16 that accumulates in fp32, or of an old stage-0 run in bf16."""
    return Bf16Optimizer(config, model, training, world_size).write()
