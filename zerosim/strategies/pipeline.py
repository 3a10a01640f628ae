"""Layer-wise model parallelism: a program for each stage, which sends activations on and their gradients back.

The schedule is naive, what a loop over micro-batches does: each goes forward through all stages and back before the
next one starts, so one stage works at a time. A stage is trained as DDP's program of one rank is (autocast, gradients
accumulated where they are, optimizer); what differs is where activations come from. Sources: torch ProcessGroupNCCL.cpp
(isend and irecv run on a communicator of the pair, on a stream of its own, after what the current stream has; waiting
blocks the stream, not the host); gradients of replicas are summed in one coalesced call after the last backward
(torch.distributed.all_reduce_coalesced) and divided; tied embeddings as in Megatron-LM core/distributed/
finalize_model_grads.py: their gradients are summed over first and last stage afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, Pipeline
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Group, Step
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.ddp import DistributedDataParallel
from zerosim.strategies.network import Event
from zerosim.strategies.stages import cut, shared_parameters

TIED = "tied"


def between(stage: int) -> str:
    """The group of a stage and the next."""
    return f"stages {stage} and {stage + 1}"


def process_groups(stages: int, replicas: int) -> dict[str, Group]:
    """Neighbours, the two ends of each pipeline, and the replicas of each stage."""
    groups = {between(k): Group(between(k), 2, first=k, period=stages) for k in range(stages - 1)}
    if stages > 1:
        groups[TIED] = Group(TIED, 2, stride=stages - 1, period=stages)
    return {DATA_PARALLEL: Group(DATA_PARALLEL, replicas, stride=stages), **groups}


class Stage(DistributedDataParallel):
    """One stage of a pipeline; `tied`: names of the parameters that the first and the last stage have in common."""

    def __init__(
        self, config: Pipeline, model: Model, training: Training, number: int, replicas: int, tied: frozenset[str]
    ) -> None:
        alone = Ddp(parameter_dtype=config.parameter_dtype, optimizer=config.optimizer)
        super().__init__(alone, model, training, 1)
        self.number, self.last, self.replicas = number, config.stages - 1, replicas
        self.elements = training.tokens * model.hidden  # of what passes between stages: the residual stream
        self.tied = sum(p.numel for p in model.parameters if p.trainable and p.name in tied)
        self.builder.groups = process_groups(config.stages, replicas)
        self.received: int | None = None  # the gradient of the stage's output, while it is held

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,) if self.replicas > 1 else ()

    # --- activations --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.number > 0:
            received = self._receive(self.number - 1, "activation")
            self.builder.release_after(received, self.builder.next_op)  # saved, or a block's input, from then on

    def turn(self) -> None:
        super().turn()
        if self.number < self.last:
            self._send(self.number, "activation")
            self.builder.phase = "backward"
            self.received = self._receive(self.number, "gradient")

    def after(self, event: Event) -> None:
        super().after(event)
        if event.direction == "backward" and self.received is not None:  # the last module has used it
            self.builder.release(self.received, COMPUTE)
            self.received = None

    def epilogue(self) -> None:
        if self.number > 0:
            self._send(self.number - 1, "gradient")
        if self.boundary_micro_batch:
            self._reduce()

    def _receive(self, pair: int, what: str) -> int:
        """The compute lane waits until it is there; the host does not."""
        buffer = self.builder.acquire(f"received {what}", "activations", self.network.block_input)
        self._transmit(pair, f"receive {what}", asynchronous=False)
        return buffer

    def _send(self, pair: int, what: str) -> None:
        """Nobody waits; the memory is free once the other side has it."""
        buffer = self.builder.acquire(f"sent {what}", "activations", self.network.block_input)
        self.builder.release_after(buffer, self._transmit(pair, f"send {what}", asynchronous=True))

    def _transmit(self, pair: int, name: str, asynchronous: bool) -> int:
        dtype = "fp32" if self.autocast else self.dtype
        return self.builder.collective(
            COMPUTE, "send_recv", self.elements, dtype, between(pair), name=name, asynchronous=asynchronous
        )

    # --- gradients ----------------------------------------------------------------------------------------------------

    def _reduce(self) -> None:
        """Sum over replicas, then over the two ends what they have in common."""
        if self.replicas > 1 and self.trainable:
            self._all_reduce(DATA_PARALLEL, self.trainable, "all-reduce gradients")
            size = 2.0 * self.master * self.trainable
            self.elementwise(COMPUTE, "divide gradients", size, len(self.gradients))
        if self.tied:
            self._all_reduce(TIED, self.tied, "all-reduce tied gradients")

    def _all_reduce(self, group: str, elements: int, name: str) -> None:
        pieces = tuple(self.whole(p) for p in sorted(self.gradients)) if group == DATA_PARALLEL else ()
        self.builder.collective(
            COMPUTE, "all_reduce", elements, self.config.parameter_dtype, group, name=name, reduces=pieces
        )


def write(config: Pipeline, model: Model, training: Training, world_size: int) -> tuple[Step, ...]:
    """The programs of the stages, in order; rank r runs that of stage r mod `stages`."""
    models, replicas = cut(model, config.stages), world_size // config.stages
    tied = frozenset(name for name, _ in shared_parameters(models))
    steps = [Stage(config, part, training, k, replicas, tied).write() for k, part in enumerate(models)]
    notes = tuple(_notes([part.layers for part in models], replicas, bool(tied)))
    return tuple(replace(step, notes=(*step.notes, *notes)) for step in steps)


def _notes(blocks: list[int], replicas: int, tied: bool) -> Iterator[str]:
    least, most = min(blocks), max(blocks)
    each = "one block each" if most == 1 else f"{most} blocks each" if least == most else f"{least} to {most} blocks"
    yield f"Stages hold {each}, cut to equal parameters: what comes before them is on the first, the head on the last."
    if replicas > 1:
        yield "Replicas of a stage all-reduce its gradients in one call, after its last backward."
    if tied:
        yield "The tied embedding is on the first and on the last stage, which all-reduce its gradient."
