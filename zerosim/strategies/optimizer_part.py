"""Hierarchical ZeRO-1: what Megatron-core and InternEvo share.

The model is whole on every rank, gradients too; a group of few ranks shares one copy of the optimizer's states, and
other groups have theirs. Gradients are reduced in the last micro-step. With `overlap_param_gather` the new parameters
come during the next forward: in a steady step, those of the step before during the first forward of this one.
"""

from __future__ import annotations

from abc import abstractmethod

from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, HostCalls, Pass
from zerosim.strategies.base import Program
from zerosim.strategies.placement import MASTER_BYTES
from zerosim.strategies.ranks import Ranks


class PartedOptimizer(Program):
    """A program whose optimizer steps a part of the model."""

    def __init__(self, config: HierarchicalZero1, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(model, training, ranks.world)
        ranks.divides("shard_size", config.shard_size)
        self.config = config
        self.shards = ranks.shards("shard", config.shard_size)
        self.replicas = ranks.replicas("replicas", config.shard_size)
        self.trainable = [p for p, trainable in enumerate(self.network.trainable) if trainable]
        self.frozen = sum(self.network.numels) - sum(self.network.trainable_numels)

    @property
    @abstractmethod
    def part(self) -> int:
        """Elements that my optimizer steps."""

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,)

    def optimizer_residents(self) -> None:
        resident, states = self.builder.resident, self.config.optimizer.state_bytes
        resident("fp32 master parameters", "optimizer", float(MASTER_BYTES * self.part))
        if states:
            resident("optimizer states", "optimizer", float(states * self.part))

    def norm(self, elements: int, width: int) -> None:
        """Squares of my gradients, summed over the shard group; the host reads the sum."""
        if self.config.gradient_clipping > 0:
            work = Pass(float(width * elements), "reduction")
            self.builder.launch(COMPUTE, "gradient norm", work, HostCalls(kernels=1))
            self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", self.shards.name, name="all-reduce norm")
            self.builder.read(COMPUTE)

    def optimizer_step(self) -> None:
        """Scale by the clip factor, step, and cast back what is in 16 bits."""
        optimizer, build = self.config.optimizer, self.builder
        if self.config.gradient_clipping > 0:
            self.elementwise(COMPUTE, "scale gradients", 8.0 * self.part)
        kernels = optimizer.launches(1, self.part)  # of one flat part
        work = Pass(float(optimizer.traffic_bytes * self.part), "adam", kernels)
        build.launch(COMPUTE, f"{optimizer.name} step", work, HostCalls(kernels=kernels))
        self.elementwise(COMPUTE, "write parameters", float((MASTER_BYTES + self.width) * self.part))

    def overflow_check(self, elements: int, width: int) -> None:
        """fp16: is there an inf or nan among my gradients, or anybody's? The host reads it."""
        if self.dtype == "fp16":
            self.builder.launch(
                COMPUTE,
                "test gradients for inf and nan",
                Pass(float(width * elements), "reduction"),
                HostCalls(kernels=1),
            )
            self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", self.shards.name, name="all-reduce overflow flag")
            self.builder.read(COMPUTE)
