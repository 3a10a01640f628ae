"""Layer-wise model parallelism: a program for each stage, which sends activations on and their gradients back.

The naive schedule stands here, what a loop over micro-batches does: each goes forward through all stages and back
before the next one starts, so one stage works at a time. GPipe and 1F1B, with several micro-batches in flight, are
`pipeline_flight`; what all of them have in common is `pipeline_stage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from zerosim.errors import InputError, Problem
from zerosim.spec.model import Model
from zerosim.spec.strategy import Pipeline
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Step
from zerosim.strategies.events import Event
from zerosim.strategies.pipeline_flight import Pipelined
from zerosim.strategies.pipeline_stage import Stage
from zerosim.strategies.stages import cut, shared_parameters


class InTurn(Stage):
    """A stage that works on one micro-batch at a time."""

    received: int | None = None  # the gradient of the stage's output, while it is held

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
        if event.direction == "backward":  # the last module has used it
            self._let_go()

    def _let_go(self) -> None:
        if self.received is not None:
            self.builder.release(self.received, COMPUTE)
            self.received = None

    def epilogue(self) -> None:
        self._let_go()  # of a stage without a backward, all of which is frozen
        if self.number > 0:
            self._send(self.number - 1, "gradient")
        if self.boundary_micro_batch:
            self.reduce()

    def _receive(self, pair: int, what: str) -> int:
        """The compute lane waits until it is there; the host does not."""
        buffer = self.builder.acquire(f"received {what}", "activations", self.network.block_input)
        self.call("send_recv", pair, f"receive {what}")
        return buffer

    def _send(self, pair: int, what: str) -> None:
        """Nobody waits; the memory is free once the other side has it."""
        buffer = self.builder.acquire(f"sent {what}", "activations", self.network.block_input)
        self.builder.release_after(buffer, self.call("send_recv", pair, f"send {what}", asynchronous=True))


def write(config: Pipeline, model: Model, training: Training, world_size: int) -> tuple[Step, ...]:
    """The programs of the stages, in order; rank r runs that of stage r mod `stages`."""
    models, replicas = cut(model, config.stages), world_size // config.stages
    shared = dict(shared_parameters(models))
    _check(shared, config.stages)
    tied = frozenset(shared)
    kind = InTurn if config.schedule == "naive" else Pipelined
    steps = [kind(config, part, training, k, replicas, tied).write() for k, part in enumerate(models)]
    notes = tuple(_notes(config, training, [part.layers for part in models], replicas, bool(tied)))
    return tuple(replace(step, notes=(*step.notes, *notes)) for step in steps)


def _check(shared: Mapping[str, tuple[int, ...]], stages: int) -> None:
    """InputError where stages other than the two ends have a parameter in common: only those sum its gradients."""
    wrong = [(name, where) for name, where in shared.items() if where != (0, stages - 1)]
    if wrong:
        name, where = wrong[0]
        found = f"{name} on stages {', '.join(map(str, where))}"
        raise InputError([Problem("", "stages", found, "a model whose only shared weights are on the first and last")])


def _notes(config: Pipeline, training: Training, blocks: list[int], replicas: int, tied: bool) -> Iterator[str]:
    least, most = min(blocks), max(blocks)
    each = "one block each" if most == 1 else f"{most} blocks each" if least == most else f"{least} to {most} blocks"
    yield f"Stages hold {each}, cut to equal parameters: what comes before them is on the first, the head on the last."
    if config.schedule != "naive":
        yield "A stage keeps a buffer for each activation and gradient that it receives in a step, as torch's does."
    if config.schedule == "1f1b" and training.gradient_accumulation_steps < config.stages:
        yield "torch refuses 1f1b with fewer micro-batches than stages; they go as in Megatron-LM."
    if replicas > 1 and config.zero_stage == 0:
        yield "Replicas of a stage all-reduce its gradients in one call, after its last backward."
    elif config.zero_stage == 1 and replicas > 1:
        yield "Replicas of a stage reduce-scatter its gradients after its last backward, and gather what each updated."
    elif config.zero_stage == 1:
        yield "A stage has one replica, so zero_stage 1 shards nothing."
    if tied:
        yield "The tied embedding is on the first and on the last stage, which all-reduce its gradient."
