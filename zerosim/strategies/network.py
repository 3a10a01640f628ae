"""The network as a strategy sees it, and the order of events of one micro-step: when hooks fire, kernels are launched
and gradients become ready.

The order is PyTorch's: forward hooks around every module; in the backward, children in reverse call order, a
pre-hook where a module's output has a gradient, a post-hook where its input has one (so never for an embedding and
what contains it); a parameter's gradient is ready after the kernels of its module, a tied one's at its last module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zerosim.spec.model import Function, Model, Module
from zerosim.spec.training import Training
from zerosim.step import Attention, Matmul
from zerosim.strategies.kernels import Shape, Work, shape_of, work_of

Direction = Literal["forward", "recompute", "backward"]
PRE, RUN, GRADIENT, POST = "pre", "run", "gradient", "post"


@dataclass(slots=True, eq=False)
class Node:
    """A module or function with its work. `parameters`: registration indices of its own (direct) parameters."""

    name: str
    layer: int | None
    hooked: bool
    parameters: tuple[int, ...]
    children: tuple[Node, ...]
    work: Work
    arrivals: tuple[int, ...]  # the same in the order in which their gradients become ready
    block: bool
    input_gradient: bool
    output_gradient: bool

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Network:
    """A compiled model: the tree, the sizes of its parameters in registration order, the bytes of a block's input."""

    root: Node
    names: tuple[str, ...]
    numels: tuple[int, ...]
    trainable: tuple[bool, ...]
    shape: Shape
    block_input: float
    uses: tuple[int, ...]  # in how many modules each parameter stands

    @property
    def trainable_numels(self) -> tuple[int, ...]:
        return tuple(n if t else 0 for n, t in zip(self.numels, self.trainable, strict=True))


class Event(NamedTuple):
    """`pre`/`post` of a module's hooks, `run` its kernels, `gradient` of `parameter` ready."""

    kind: str
    node: Node
    direction: Direction
    parameter: int = -1
    saving: bool = True  # `run`: activations are kept for the backward


@dataclass(slots=True)
class _Compiler:
    """Builds nodes in call order, following the width of the tensor that flows from leaf to leaf."""

    shape: Shape
    own_linear: bool
    index: dict[str, int]
    works: dict[tuple[object, ...], Work] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    flows: int = 0  # bytes of an element of what flows now
    read: int = 0  # and of what the last linear read

    def node(self, part: Module | Function, layer: int | None) -> Node:
        if isinstance(part, Function):
            key: tuple[object, ...] = (*_sizes(part), part.heads, part.kv_heads, part.head_dim, part.causal)
            work = self._work((*key, part.fp32_softmax), part)
            return Node(part.name, layer, False, (), (), work, (), False, True, True)
        layer = part.layer if part.layer is not None else layer
        children = tuple(self.node(child, layer) for child in part.body)
        parameters = tuple(self.index[parameter.name] for parameter in part.parameters)
        for parameter in parameters:
            self.uses[parameter] = self.uses.get(parameter, 0) + 1
        shapes = tuple((parameter.shape, parameter.trainable) for parameter in part.parameters)
        silent = part.kind == "identity"  # returns tables, not activations
        return Node(
            name=part.name,
            layer=layer,
            hooked=True,
            parameters=parameters,
            children=children,
            work=self._work((*_sizes(part), part.inputs, part.shares_input, shapes), part),
            arrivals=_arrivals(part, parameters, self.own_linear),
            block=part.block,
            input_gradient=silent or not _looks_up(part, children),
            output_gradient=not silent,
        )

    def _work(self, key: tuple[object, ...], part: Module | Function) -> Work:
        reads = self._reads(part)
        work = self.works.get((*key, reads))
        if work is None:
            work = self.works[*key, reads] = work_of(part, self.shape, reads)
        return work

    def _reads(self, part: Module | Function) -> int:
        """Bytes of an element that the leaf reads; what flows on is what it writes."""
        shares = isinstance(part, Module) and part.shares_input
        reads = self.read if shares else self.flows
        if part.kind in _WIDENS:
            self.flows = self.shape.wide
        elif part.kind in _NARROWS:
            self.flows = self.shape.width
        if part.kind == "linear":
            self.read = reads
        return reads


_WIDENS = frozenset({"embedding", "add"})  # what writes the residual stream
_NARROWS = frozenset({"linear", "attention", "rotary"})  # what computes in the training's precision


def _sizes(part: Module | Function) -> tuple[object, ...]:
    return part.kind, part.outputs


def _looks_up(part: Module, children: tuple[Node, ...]) -> bool:
    """Whether a module is fed indices, which have no gradient: a table, or what calls such a module first."""
    if part.kind in ("embedding", "relative_bias"):
        return True
    first = next((child for child in children if child.output_gradient), None)
    return first is not None and not first.input_gradient


def _arrivals(part: Module, parameters: tuple[int, ...], own_linear: bool) -> tuple[int, ...]:
    """Weight before bias, but for addmm(bias, x, weight), whose gradients autograd accumulates in the order of its
    arguments: nn.Linear, unless it is stage 3's own function of (x, weight, bias), and Conv1D always."""
    by_addmm = part.kind == "linear" and (part.conv1d or not own_linear)
    return parameters[::-1] if by_addmm else parameters


def compile_network(model: Model, training: Training, own_linear: bool = False, autocast: bool = False) -> Network:
    """The model at this batch and precision. Equal modules share one Work.

    `own_linear`: nn.Linear is DeepSpeed's (stage 3, `memory_efficient_linear`; runtime/zero/linear.py).
    `autocast`: fp32 weights, matrix products in the training's precision.
    """
    shape = shape_of(training, autocast)
    compiler = _Compiler(shape, own_linear, {parameter.name: i for i, parameter in enumerate(model.parameters)})
    compiler.flows = compiler.read = shape.wide
    root = compiler.node(model.root, None)
    return Network(
        root=root,
        names=tuple(parameter.name for parameter in model.parameters),
        numels=tuple(parameter.numel for parameter in model.parameters),
        trainable=tuple(parameter.trainable for parameter in model.parameters),
        shape=shape,
        block_input=float(shape.tokens * model.hidden * shape.wide),
        uses=tuple(compiler.uses.get(i, 0) for i in range(len(model.parameters))),
    )


# --- the order of events -------------------------------------------------------------------------------------------


def micro_step(network: Network, training: Training) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Events of the forward and of the backward of one micro-batch, in host order."""
    checkpoint = training.activation_checkpointing == "full"
    forward = tuple(_forward(network.root, "forward", True, checkpoint))
    backward = _Backward(network, checkpoint, training.reentrant, list(network.uses))
    return forward, tuple(backward.node(network.root))


def _forward(node: Node, direction: Direction, saving: bool, checkpoint: bool) -> Iterator[Event]:
    """`saving` turns off inside a block when blocks are checkpointed."""
    saving = saving and not (checkpoint and node.block)
    if node.hooked:
        yield Event(PRE, node, direction)
    if node.work.forward:
        yield Event(RUN, node, direction, saving=saving)
    for child in node.children:
        yield from _forward(child, direction, saving, checkpoint)
    if node.hooked:
        yield Event(POST, node, direction)


def _saves(node: Node) -> Node | None:
    """The last leaf of a block, in call order, that needs something saved: its backward is the first to ask for it."""
    return next((leaf for leaf in reversed([*node.walk()]) if leaf.work.saved > 0 or leaf.parameters), None)


@dataclass(slots=True)
class _Backward:
    """Walks the tree backward, recomputing checkpointed blocks where torch does.

    Non-reentrant (torch/utils/checkpoint.py): the block's forward runs again when the first saved tensor is asked for,
    i.e. after the pre-hook of its last leaf, and stops early inside that leaf: its kernels, its post-hook and those
    of the containers it ends do not run. Reentrant: the whole forward, with all hooks, before the block's pre-hook.
    """

    network: Network
    checkpoint: bool
    reentrant: bool
    uses_left: list[int]

    def node(self, node: Node, block: Node | None = None, last: Node | None = None) -> Iterator[Event]:
        if self.checkpoint and node.block:
            block, last = node, _saves(node)
            if self.reentrant:
                yield from _forward(node, "recompute", True, False)
        if node.hooked and node.output_gradient:
            yield Event(PRE, node, "backward")
        for child in reversed(node.children):
            yield from self.node(child, block, last)
        if block is not None and node is last and not self.reentrant:
            yield from self._recompute(block, node)
        if node.work.backward:
            yield Event(RUN, node, "backward")
        yield from self._gradients(node)
        if node.hooked and node.output_gradient and node.input_gradient:
            yield Event(POST, node, "backward")

    def _recompute(self, block: Node, last: Node) -> Iterator[Event]:
        for event in _forward(block, "recompute", True, False):
            if event.node is last and event.kind != PRE:
                return
            yield event

    def _gradients(self, node: Node) -> Iterator[Event]:
        for parameter in node.arrivals:
            self.uses_left[parameter] -= 1
            if self.network.trainable[parameter] and self.uses_left[parameter] == 0:
                yield Event(GRADIENT, node, "backward", parameter)


def model_flops(model: Model, training: Training) -> float:
    """Model FLOP of one micro-batch: three times the forward (backward twice), no recomputation.

    The convention of MFU (Chowdhery et al. 2022, PaLM, appendix B): every score counts, causal or not.
    """
    return 3 * sum(
        _counted(kernel.work) for node in compile_network(model, training).root.walk() for kernel in node.work.forward
    )


def _counted(work: object) -> float:
    if isinstance(work, Attention):
        return work._replace(causal=False, backward=False).flops
    return work.flops if isinstance(work, Matmul) else 0.0
