"""DeepSpeed stage 0: data parallelism without overlap. Nothing is communicated during backward.

At the boundary the gradients, in registration order, are gathered into lists of just over 5e8 elements (hard-coded:
`reduce_bucket_size` is ignored), flattened, all-reduced, scaled and copied back (DeepSpeed runtime/engine.py,
`buffered_allreduce_fallback`). The optimizer keeps fp32 masters of all parameters on every rank.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, Step
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.placement import SCALE_BYTES

LIST_ELEMENTS = 500_000_000  # engine.py: elements_per_buffer


class Zero0(DeepSpeedProgram):
    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        self.gradients: dict[int, int] = {}
        self.trainable = sum(self.network.trainable_numels)

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,)

    def prepare(self) -> None:
        buffer = self.builder.resident("parameters", "parameters", float(self.width * sum(self.network.numels)))
        self.builder.gathered(buffer, *range(len(self.network.numels)))
        if self.dtype != "fp32":
            self.optimizer_residents(self.trainable)
        else:
            states = float(self.config.optimizer.state_bytes * self.trainable)
            self.builder.resident("optimizer states", "optimizer", states)

    def gradient(self, parameter: int, buffer: int) -> None:
        self.hold(self.gradients, parameter, buffer)

    def epilogue(self) -> None:
        if self.boundary_micro_batch:
            for parameters in self._lists():
                self._all_reduce(parameters)

    def _lists(self) -> list[list[int]]:
        """Closed when the sum exceeds the limit."""
        lists: list[list[int]] = [[]]
        elements = 0
        for parameter, numel in enumerate(self.network.trainable_numels):
            if numel:
                lists[-1].append(parameter)
                elements += numel
                if elements > LIST_ELEMENTS:
                    lists.append([])
                    elements = 0
        return [parameters for parameters in lists if parameters]

    def _all_reduce(self, parameters: list[int]) -> None:
        elements = sum(self.network.numels[p] for p in parameters)
        several = len(parameters) > 1
        flat = (
            self.builder.acquire("flattened gradients", "buffers", float(DTYPE_BYTES[self.wire] * elements))
            if several
            else None
        )
        passes = self.held_width + DTYPE_BYTES[self.wire]
        if several or self.held_width != DTYPE_BYTES[self.wire]:
            self.pass_over("flatten gradients", elements, passes)
        pieces = tuple(self.whole(p) for p in parameters)
        self.builder.collective(
            COMPUTE, "all_reduce", elements, self.wire, DATA_PARALLEL, name="all-reduce gradients", reduces=pieces
        )
        self.pass_over("scale gradients", elements, 2 * DTYPE_BYTES[self.wire])
        if flat is not None:
            self.pass_over("copy gradients back", elements, passes, len(parameters))
            self.builder.release(flat, COMPUTE)

    def boundary(self) -> None:
        if self.dtype == "fp32":
            self._plain_step()
        else:
            self._master_step()
        self.timer()

    def _plain_step(self) -> None:
        """fp32 models keep the user's optimizer (engine.py, `_do_optimizer_sanity_check`): clip, step."""
        build, elements, tensors = self.builder, self.trainable, len(self.gradients)
        if self.config.gradient_clipping > 0:
            self.pass_over("gradient norm", elements, 4, tensors)
            build.collective(COMPUTE, "all_reduce", 1, "fp32", DATA_PARALLEL, name="all-reduce norm")
            self.pass_over("clip gradients", elements, 8, tensors)
        self.optimizer_kernels(self.config.optimizer, elements, tensors)
        for buffer in self.gradients.values():
            build.release(buffer, COMPUTE)
        self.gradients.clear()

    def _master_step(self) -> None:
        """FP16_Optimizer.step: fp32 copies parameter by parameter, then one flat copy: 8 bytes more at once."""
        build, elements = self.builder, self.trainable
        tensors = len(self.gradients)
        if self.dtype == "fp16":
            self._check_overflow()
        held = [*self.gradients.values()]
        self.gradients.clear()
        copies = build.acquire("fp32 gradients", "optimizer", 4.0 * elements)
        self.pass_over("cast gradients to fp32", elements, self.held_width + 4, tensors)
        flat = build.acquire("flat fp32 gradients", "optimizer", 4.0 * elements)
        self.pass_over("flatten gradients", elements, 8)
        for buffer in (copies, *held):
            build.release(buffer, COMPUTE)
        self.pass_over("gradient norm", elements, 4)
        self.pass_over("scale gradients", elements, SCALE_BYTES)
        self.optimizer_kernels(self.config.optimizer, elements, tensors)
        self.pass_over("write parameters", elements, 4 + self.width)
        build.release(flat, COMPUTE)

    def _check_overflow(self) -> None:
        """The host reads each parameter's test, and then what it found (runtime/utils.py, CheckOverflow): gradients are
        replicated, so that nobody else is asked."""
        for parameter in self.gradients:
            self.finite_test(COMPUTE, self.network.numels[parameter], self.held_width)
            self.builder.read(COMPUTE)
        self.builder.read(COMPUTE)


def write(config: DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    """The step of a stage-0 run."""
    return Zero0(config, model, training, world_size).write()
