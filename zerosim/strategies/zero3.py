"""ZeRO stage 3: parameters, gradients and optimizer live in shards, on the GPU, in host memory or on NVMe.

Source: DeepSpeed runtime/zero/stage3.py. With `overlap_comm` three lanes: compute, the all-gather lane
(stage3_parameters) and the reduction lane (stage3_gradients); without it one. Gathers and reduce-scatters share one
communicator and go out in host order, so a large reduce-scatter delays the gathers behind it. Here is the step: the
optimizer goes sub-group by sub-group, in one loop of the host, wherever their states are; only reads and writes of NVMe
may overlap it.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.optimizers import optimizer as optimizer_called
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, HOST_STREAM, HostCalls, HostCompute, Pass
from zerosim.strategies.placement import MASTER_BYTES, SCALE_BYTES, HostOptimizer
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.stage3_gradients import ReducedGradients
from zerosim.strategies.stage3_layout import SubGroup
from zerosim.strategies.stage3_slices import GpuSlices, HostSlices
from zerosim.strategies.swap_optimizer import OptimizerSwapper

# abs, equality, any, or of isinf; inequality, any, or of isnan (aten/src/ATen/native/TensorCompare.cpp). Gradients are
# read twice, their abs is written and read, two arrays of booleans are, too: (4 x width + 4) bytes an element.
OVERFLOW_KERNELS = 7
NORM_SUM = 24  # bytes a tensor: its norm squared and added, a scalar of fp64 read twice and written


class Zero3(ReducedGradients):
    """One step; `uniform` where the boundary's micro-step hands nothing over."""

    uniform = True

    def __init__(self, config: DeepSpeed, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        self.swapper = OptimizerSwapper(self.builder, config, self.layout)
        self.offloaded = self.layout.placement.optimizer != "gpu"
        self.uniform = not self.offloaded
        self.slices = HostSlices(self, self.swapper) if self.offloaded else GpuSlices(self)
        # What Twin-Flow steps with on the GPU, and in host memory where its sub-groups are swapped (`backup_optimizer`)
        self.twin = optimizer_called("AdamW", torch_adam=True)
        if self.swapper.groups or self.layout.swapped:
            self.notes.append("copies between the GPU and swap buffers are pageable: CUDA does not know that memory")

    def prepare(self) -> None:
        super().prepare()
        groups = self.layout.groups
        on_gpu = sum(group.elements for group in groups if group.optimizer == "gpu")
        if on_gpu:
            self.optimizer_residents(on_gpu)
        for group in groups:
            if group.optimizer == "dram":
                self._host_residents(group.elements)
        if self.layout.placement.optimizer == "nvme":
            self.swapper.residents()

    def _host_residents(self, elements: int) -> None:
        """Pageable: only gradients are pinned (stage3.py, _create_fp32_partitions)."""
        resident, states = self.builder.resident, self.config.optimizer.state_bytes
        resident("fp32 master parameters", "optimizer", float(MASTER_BYTES * elements), "dram")
        if states:
            resident("optimizer states", "optimizer", float(states * elements), "dram")

    # --- the step ----------------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        self.release_persistent()
        if self.dtype == "fp16":
            self._check_overflow()
        for group in self.layout.groups:
            self._norm(group)
        if not self.offloaded and self.release.reads_norm:
            self.builder.read(COMPUTE)  # runtime/utils.py, is_invalid_grad_norm
        for group in self.layout.groups:
            self._step(group)
        self.gather_persistent()
        self.builder.synchronize()
        self.timer()

    def _check_overflow(self) -> None:
        """Over the partition of the gradients, wherever it is."""
        share, width, build = self.layout.share, self.held_width, self.builder
        moved, scratch = float((4 * width + 4) * share), float((width + 1) * share)
        held = build.acquire("overflow check", "optimizer", scratch, "dram" if self.offloaded else "gpu")
        if self.offloaded:
            build.host_compute("overflow check", HostCompute("stream", share, moved))
            build.release(held, HOST_STREAM)
        else:
            work = Pass(moved, "reduction", OVERFLOW_KERNELS)
            build.launch(self.lane, "overflow check", work, HostCalls(kernels=work.kernels))
            build.release(held, self.lane)
            build.wait(COMPUTE, self.lane)
        self.overflow_flag()

    def _norm(self, group: SubGroup) -> None:
        """On the GPU in fp64. Offloaded, the host sums what was taken during the backward, in fp32, and reads it twice:
        its own and everyone's."""
        tensors = len(group.parameters)
        if self.offloaded:
            work = Pass(float(NORM_SUM * tensors), "reduction", 2 * tensors)
            self.builder.launch(COMPUTE, "sum of gradient norms", work, HostCalls(kernels=work.kernels))
            self.builder.read(COMPUTE)
        else:
            largest = max((shard.elements for shard in self.layout.shards), default=0)
            self.norm_kernels(group.elements, largest, tensors)
        norm = "fp32" if self.offloaded else "fp64"
        self.builder.collective(COMPUTE, "all_reduce", 1, norm, self.group, name="all-reduce norm")
        if self.offloaded:
            self.builder.read(COMPUTE)

    def _step(self, group: SubGroup) -> None:
        in_place = group.optimizer == self.layout.placement.parameters == "gpu"
        if group.optimizer == "nvme":
            self.swapper.swap_in(group)
        if not self.offloaded:
            self.update(group.elements, write=in_place)
        elif group.optimizer == "gpu":
            self._step_twin(group, in_place)
        else:
            optimizer = self.twin if group.twin else self.config.optimizer
            HostOptimizer(self.builder, optimizer, self.width).update(group.elements, cast=False)
        if not in_place:
            self.store.renew(group)
        if group.optimizer == "nvme":
            self.swapper.swap_out(group)

    def _step_twin(self, group: SubGroup, in_place: bool) -> None:
        """A sub-group that Twin-Flow leaves on the GPU; its gradient is there in fp32."""
        self.pass_over("scale gradients", group.elements, SCALE_BYTES)
        self.optimizer_kernels(self.twin, group.elements)
        if in_place:
            self.pass_over("write parameters", group.elements, MASTER_BYTES + self.width)
