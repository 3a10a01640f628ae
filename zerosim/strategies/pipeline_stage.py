"""What every stage of a pipeline has, whatever the schedule: its neighbours, and what becomes of its gradients.

A stage is trained as DDP's program of one rank is (autocast, gradients accumulated where they are, optimizer); what
differs is where activations come from. Sources: torch ProcessGroupNCCL.cpp (isend and irecv run on a communicator of
the pair, made at first use, on a stream of its own, after what the current stream has; waiting blocks the stream, not
the host); gradients of replicas are summed in one coalesced call after the last backward
(torch.distributed.all_reduce_coalesced) and divided; tied embeddings as in Megatron-LM core/distributed/
finalize_model_grads.py: their gradients are summed over first and last stage afterwards.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, Pipeline
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, CollectiveKind, Group
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.ddp import DistributedDataParallel
from zerosim.strategies.pipeline_zero1 import FlatBuffers

TIED, WORLD = "tied", "world"


def between(stage: int) -> str:
    """The group of a stage and the next."""
    return f"stages {stage} and {stage + 1}"


def process_groups(stages: int, replicas: int) -> dict[str, Group]:
    """Neighbours, the two ends of each pipeline, the replicas of each stage, and everybody."""
    groups = {between(k): Group(between(k), 2, first=k, period=stages) for k in range(stages - 1)}
    if stages > 1:
        groups[TIED] = Group(TIED, 2, stride=stages - 1, period=stages)
    return {
        DATA_PARALLEL: Group(DATA_PARALLEL, replicas, stride=stages),
        **groups,
        WORLD: Group(WORLD, stages * replicas),
    }


class Stage(DistributedDataParallel):
    """One stage of a pipeline; `tied`: names of the parameters that the first and the last stage have in common."""

    def __init__(
        self, config: Pipeline, model: Model, training: Training, number: int, replicas: int, tied: frozenset[str]
    ) -> None:
        alone = Ddp(parameter_dtype=config.parameter_dtype, optimizer=config.optimizer)
        super().__init__(alone, model, training, 1)
        self.number, self.last, self.replicas = number, config.stages - 1, replicas
        self.elements = training.tokens * model.hidden  # of what passes between stages: the residual stream
        shared = [i for i, p in enumerate(model.parameters) if p.trainable and p.name in tied]
        self.tied = sum(self.network.numels[i] for i in shared)
        self.builder.groups = process_groups(config.stages, replicas)
        self.shards: FlatBuffers | None = None
        if config.zero_stage == 1 and replicas > 1:
            self.shards = FlatBuffers(alone, self.builder, self.network, shared, replicas)

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,) if self.replicas > 1 else ()

    def prepare(self) -> None:
        if self.shards is None:
            super().prepare()
        else:
            self.gradients = self.shards.prepare()

    def call(self, kind: CollectiveKind, pair: int, name: str, asynchronous: bool = False) -> int:
        """Point to point over a pair. Unless asynchronous, the compute lane waits until it is done; never the host."""
        dtype = "fp32" if self.autocast else self.dtype
        return self.builder.collective(
            COMPUTE, kind, self.elements, dtype, between(pair), name=name, asynchronous=asynchronous
        )

    # --- gradients ----------------------------------------------------------------------------------------------------

    def reduce(self) -> None:
        """Sum over replicas, then over the two ends what they have in common."""
        if self.shards is not None:
            self.shards.reduce()
        elif self.replicas > 1 and self.trainable:
            self._all_reduce(DATA_PARALLEL, self.trainable, "all-reduce gradients")
            size = 2.0 * self.master * self.trainable
            self.elementwise(COMPUTE, "divide gradients", size, len(self.gradients))
        if self.tied and self.last:
            self._all_reduce(TIED, self.tied, "all-reduce tied gradients")

    def _all_reduce(self, group: str, elements: int, name: str) -> None:
        pieces = tuple(self.whole(p) for p in sorted(self.gradients)) if group == DATA_PARALLEL else ()
        self.builder.collective(
            COMPUTE, "all_reduce", elements, self.config.parameter_dtype, group, name=name, reduces=pieces
        )

    def boundary(self) -> None:
        if self.shards is None:
            super().boundary()
            return
        if self.dtype == "fp16":
            self.shards.unscale()
            self.flag_overflow()
            self.builder.read(COMPUTE)
        self.shards.step()

    def flag_overflow(self) -> None:
        """All ranks skip the step where one of them has found an inf (Megatron-LM core/optimizer/optimizer.py)."""
        self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", WORLD, name="all-reduce found inf")
