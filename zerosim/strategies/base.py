"""The walk of a step that every strategy shares: micro-steps, activations, gradients; strategies hook into it.

The common frame of a step: for each micro-batch forward, backward, epilogue; then the boundary. A strategy knows no
link and no rate. What it adds is in its hooks: `before`, `after` (a module), `gradient`, `epilogue`, `boundary`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from zerosim.spec.model import Model
from zerosim.spec.optimizer_value import Optimizer
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, Group, HostCalls, Pass, Slice, Step
from zerosim.strategies.activations import Activations
from zerosim.strategies.builder import Builder
from zerosim.strategies.events import AGAIN, GRADIENT, LEFT, POST, PRE, RUN, Event, micro_step
from zerosim.strategies.network import Node, compile_network
from zerosim.strategies.work import Kernel

DATA_PARALLEL = "dp"
STEADY = 2  # micro-steps 1 and 2 are equal: the first whose past is a micro-step like itself is 2, and 3 repeats it


class Program(ABC):
    """One strategy writing one step."""

    uniform = False  # the boundary's micro-step issues what those before it issue
    repeats = True  # micro-steps after STEADY may be written as copies

    def __init__(
        self,
        model: Model,
        training: Training,
        world_size: int,
        own_linear: bool = False,
        autocast: bool = False,
        leaves: frozenset[str] = frozenset(),
    ) -> None:
        self.training = training
        self.world_size = world_size
        self.network = compile_network(model, training, own_linear, autocast, leaves)
        self.dtype = training.precision
        self.width = DTYPE_BYTES[self.dtype]  # bytes of an element of the compute dtype
        self.builder = Builder({DATA_PARALLEL: Group(DATA_PARALLEL, world_size)})
        self.activations = Activations(self.builder, self.network)
        self.last_micro_batch = training.gradient_accumulation_steps - 1
        self.micro_batch = 0
        self.checkpointed = training.checkpoints_blocks
        self.forward_events, self.backward_events = micro_step(self.network, training)
        self.notes: list[str] = []

    # --- what a strategy says ----------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Resident buffers."""

    @abstractmethod
    def gradient(self, parameter: int, buffer: int) -> None:
        """The gradient of `parameter` is in `buffer` once the compute lane gets here."""

    @abstractmethod
    def boundary(self) -> None:
        """The optimizer step."""

    @property
    @abstractmethod
    def reductions(self) -> tuple[int, ...]:
        """The micro-batches in which every gradient is reduced."""

    def begin(self) -> None:
        """The start of a micro-step's forward."""

    def before(self, event: Event) -> None:
        """The pre-hook of a module, or nothing."""

    def after(self, event: Event) -> None:
        """The post-hook of a module, or nothing."""

    def turn(self) -> None:
        """Between the forward and the backward of a micro-step."""

    def epilogue(self) -> None:
        """After the backward of a micro-step."""

    def end(self) -> None:
        """After the epilogue of a micro-step."""

    def repeated(self, by: int) -> None:
        """The micro-step before was written again, its ops `by` later: so are those a strategy remembers."""

    # --- the walk ----------------------------------------------------------------------------------------------------

    def write(self) -> Step:
        """The whole step."""
        self.prepare()
        self.micro_steps()
        self.builder.phase = "optimizer"
        self.boundary()
        return self.builder.finish(
            parameters=self.network.trainable_numels,
            reductions=self.reductions,
            micro_batches=self.training.gradient_accumulation_steps,
            notes=self.notes,
        )

    def micro_steps(self) -> None:
        """Forward and backward of every micro-batch, in the order in which the host issues them: one after another."""
        starts: list[int] = []
        for micro_batch in range(self.training.gradient_accumulation_steps):
            self.micro_batch = self.builder.micro_batch = micro_batch
            starts.append(self.builder.next_op)
            if micro_batch > STEADY and self.repeats and (self.uniform or not self.boundary_micro_batch):
                self.builder.repeat(starts[-2], starts[-1], micro_batch)
                self.repeated(starts[-1] - starts[-2])
            else:
                self._micro_step()

    def _micro_step(self) -> None:
        self.builder.phase = "forward"
        self.begin()
        self._play(self.forward_events)
        self.turn()
        self.builder.phase = "backward"
        self._play(self.backward_events)
        self.epilogue()
        self.end()

    def _play(self, events: tuple[Event, ...]) -> None:
        self._gradients: dict[int, int] = {}
        for event in events:
            kind = event.kind
            if kind == RUN:
                self._run(event)
            elif kind == PRE:
                if event.node.checkpointed:
                    self._enter(event)
                if event.node.hooked:
                    self.before(event)
            elif kind == POST:
                if event.node.hooked:
                    self.after(event)
                if event.node.checkpointed:
                    self._leave(event)
            elif kind == GRADIENT:
                self.gradient(event.parameter, self._gradients.pop(event.parameter))
            elif kind == AGAIN:
                self.activations.recompute(event.node)
            elif kind == LEFT:
                self.activations.leave(event.node)
        self.activations.rest()

    def _enter(self, event: Event) -> None:
        if self._keeps_input(event):
            self.activations.enter(event.node)

    def _leave(self, event: Event) -> None:
        if self._keeps_input(event):
            self.activations.leave_forward(event.node)

    @staticmethod
    def _keeps_input(event: Event) -> bool:
        """Whether this is the forward of a block that will have a backward."""
        return event.node.output_gradient and event.direction == "forward"

    def _run(self, event: Event) -> None:
        node, work = event.node, event.node.work
        if event.direction == "backward":
            self.activations.backward(node)
            second = self._new_gradients(node)
            self._kernels(node, work.backward, "bwd", work.backward_extra)
            for parameter, buffer in second:
                held = self._gradients[parameter]
                self.accumulate(held, buffer, self.network.numels[parameter], self.gradient_width)
            self.activations.done(node)
        else:
            self.activations.forward(node, event.saving)
            if event.direction == "forward":
                self._kernels(node, work.forward, "fwd", work.forward_extra)
            elif not node.kept:
                self._kernels(node, work.forward, "recompute", work.forward_extra)
            else:  # but for casts, which are ops of their own
                self.activations.taken(node)
                self._kernels(node, tuple(k for k in work.forward if isinstance(k.work, Pass)), "recompute", ())

    def _kernels(self, node: Node, kernels: tuple[Kernel, ...], label: str, extra: tuple[float, ...]) -> None:
        scratch = [self.builder.acquire("kernel scratch", "activations", size) for size in extra if size]
        for kernel in kernels:
            host = HostCalls(model_kernels=kernel.launches)
            self.builder.launch(COMPUTE, f"{node.name} {label}", kernel.work, host, node.layer)
        for buffer in scratch:
            self.builder.release(buffer, COMPUTE)

    def _new_gradients(self, node: Node) -> list[tuple[int, int]]:
        """A buffer for each gradient the node makes; the second ones of tied parameters are returned."""
        second = []
        for parameter in node.parameters:
            if self.network.trainable[parameter]:
                size = self.network.numels[parameter] * self.gradient_width
                buffer = self.builder.acquire("gradient", "gradients", size)
                if self._gradients.setdefault(parameter, buffer) != buffer:
                    second.append((parameter, buffer))
        return second

    # --- what several strategies need --------------------------------------------------------------------------------

    @property
    def gradient_width(self) -> int:
        """Bytes of an element of a gradient as backward produces it."""
        return self.width

    @property
    def boundary_micro_batch(self) -> bool:
        return self.micro_batch == self.last_micro_batch

    def whole(self, parameter: int) -> Slice:
        return Slice(parameter, 0, self.network.numels[parameter])

    def elementwise(self, lane: str, name: str, size: float, kernels: int = 1) -> int:
        """A streaming kernel (or several) over `size` bytes of HBM traffic."""
        return self.builder.launch(lane, name, Pass(size, "stream", kernels), HostCalls(kernels=kernels))

    @contextmanager
    def optimizer_scratch(self, optimizer: Optimizer, size: float) -> Iterator[None]:
        """What a step on the GPU makes beside parameters of `size` bytes."""
        made = size * optimizer.scratch_bytes / 4
        scratch = self.builder.acquire("optimizer scratch", "optimizer", made) if made else None
        yield
        if scratch is not None:
            self.builder.release(scratch, COMPUTE)

    def accumulate(self, held: int, new: int, elements: int, width: int) -> None:
        """held += new: read both, write one; the new one is freed."""
        self.elementwise(COMPUTE, "accumulate gradient", 3.0 * width * elements)
        self.builder.release(new, COMPUTE)
