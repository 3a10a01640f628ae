"""The network as a strategy sees it: the tree of modules, with their work, and where gradients flow in it.

Compiled once for a batch and a precision. It knows no order of a step (that is `events`) but two that only the real
model has: in which its modules are differentiated, and in which the gradients of parameters become ready. Both are
those it was seen to follow; where none were seen, reverse call order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from zerosim.spec.model import Function, Model, Module
from zerosim.spec.training import Training
from zerosim.step import Attention, Matmul
from zerosim.strategies.kernels import work_of
from zerosim.strategies.work import Shape, Work, shape_of

T = TypeVar("T")
KEPT = 8  # networks, and their FLOP: many scenarios that differ in other things are asked about in a row


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
    backward: tuple[Node, ...]  # its children in the order in which their backwards run
    block: bool
    inside: bool  # checkpointing runs its forward again, without its hooks
    input_gradient: bool  # a hook of its inputs sees the end of its backward
    output_gradient: bool
    leaf: bool = False  # stage 3 sees nothing below it: a z3 leaf module
    hooked_parameters: tuple[int, ...] = ()  # what stage 3's hooks of it gather and drop: a leaf's are all below it
    checkpointed: bool = False  # a block that runs again in the backward
    kept: bool = False  # but for this leaf of it, whose output its checkpoint keeps
    kept_weight: int | None = None  # of which autograd keeps the gathered copy, by way of its transpose

    @property
    def all_parameters(self) -> tuple[int, ...]:
        """Its own and those below it, in the order of registration."""
        return tuple(sorted({p for node in self.walk() for p in node.parameters}))

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


@dataclass(slots=True)
class _Compiler:
    """Builds nodes in call order, following the tensor that flows from leaf to leaf: its width, and whether it has a
    gradient."""

    shape: Shape
    own_linear: bool
    index: dict[str, int]
    seen: dict[int, int]  # place in the order in which gradients were seen to become ready
    leaves: frozenset[str]  # names of modules below which there are no hooks
    reached: bool  # what flows has a gradient
    works: dict[tuple[object, ...], Work] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    flows: int = 0  # bytes of an element of what flows now
    read: int = 0  # and of what the last linear read
    below_leaf: bool = False

    def node(self, part: Module | Function, layer: int | None) -> Node:
        if isinstance(part, Function):
            key: tuple[object, ...] = (*_sizes(part), part.heads, part.kv_heads, part.head_dim, part.causal)
            work = self._work((*key, part.fp32_softmax, part.dropout), part)
            reached = self.reached
            return Node(part.name, layer, False, (), (), work, (), (), False, False, reached, reached)
        layer = part.layer if part.layer is not None else layer
        entered, hooked = self.reached, not self.below_leaf
        leaf = hooked and part.name in self.leaves
        self.below_leaf |= leaf
        children = tuple(self.node(child, layer) for child in part.body)
        self.below_leaf = not hooked
        parameters = tuple(self.index[parameter.name] for parameter in part.parameters)
        for parameter in parameters:
            self.uses[parameter] = self.uses.get(parameter, 0) + 1
        shapes = tuple((parameter.shape, parameter.trainable) for parameter in part.parameters)
        silent = part.kind == "identity"  # returns tables, not activations
        self.reached |= any(parameter.trainable for parameter in part.parameters)
        below = (p for child in children for node in child.walk() for p in node.parameters) if leaf else ()
        return Node(
            name=part.name,
            layer=layer,
            hooked=hooked,
            parameters=parameters,
            children=children,
            work=self._work((*_sizes(part), part.inputs, part.shares_input, shapes), part),
            arrivals=self._seen(_arrivals(part, parameters, self.own_linear), lambda parameter: (parameter,)),
            backward=self._seen(children[::-1], lambda child: (p for node in child.walk() for p in node.parameters)),
            block=part.block,
            inside=part.checkpoint_inside,
            input_gradient=entered and not (part.by_keyword or _looks_up(part, children)),
            output_gradient=self.reached and not silent,
            leaf=leaf,
            hooked_parameters=tuple(sorted({*parameters, *below})) if leaf else parameters,
            kept_weight=parameters[0] if self._keeps_weight(part) else None,
        )

    def _keeps_weight(self, part: Module) -> bool:
        """torch's nn.Linear multiplies by weight.t(), of which it saves that view where its input has a gradient."""
        return part.kind == "linear" and bool(part.parameters) and not (part.conv1d or self.own_linear)

    def _seen(self, parts: tuple[T, ...], parameters: Callable[[T], Iterable[int]]) -> tuple[T, ...]:
        """The parts with those of which a gradient was seen in the order of their first ones, the others in place."""
        if not self.seen:
            return parts
        first = {
            place: min(seen)
            for place, part in enumerate(parts)
            if (seen := [self.seen[parameter] for parameter in parameters(part) if parameter in self.seen])
        }
        order = iter(sorted(first, key=first.__getitem__))
        return tuple(parts[next(order)] if place in first else part for place, part in enumerate(parts))

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
        if part.kind in _WIDENS or (part.kind == "gelu_written_out" and not self.shape.fused):
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


@lru_cache(KEPT)
def compile_network(
    model: Model,
    training: Training,
    own_linear: bool = False,
    autocast: bool = False,
    leaves: frozenset[str] = frozenset(),
) -> Network:
    """The model at this batch and precision, which nobody changes. Equal modules share one Work.

    `leaves`: names of z3 leaf modules.
    `own_linear`: nn.Linear is DeepSpeed's (stage 3, `memory_efficient_linear`; runtime/zero/linear.py).
    `autocast`: fp32 weights, matrix products in the training's precision.
    """
    shape = shape_of(training, autocast)
    index = {parameter.name: i for i, parameter in enumerate(model.parameters)}
    compiler = _Compiler(shape, own_linear, index, _once(model, index), leaves, model.input_gradient)
    compiler.flows = compiler.read = shape.wide
    root = compiler.node(model.root, None)
    _checkpoint(root, training)
    return Network(
        root=root,
        names=tuple(parameter.name for parameter in model.parameters),
        numels=tuple(parameter.numel for parameter in model.parameters),
        trainable=tuple(parameter.trainable for parameter in model.parameters),
        shape=shape,
        block_input=float(shape.tokens * model.hidden * shape.wide),
        uses=tuple(compiler.uses.get(i, 0) for i in range(len(model.parameters))),
    )


def _checkpoint(root: Node, training: Training) -> None:
    """Which blocks run again, and which of their leaves do not. Source: torchtitan, models/llama3/infra/parallelize.py
    (apply_ac): by layer, the second block of two runs again; by op, the second aten.mm of two does, the others and
    attention do not. What the last product of a block makes is of no use to its backward, but is kept, too; not in a
    compiled block, which keeps only what its backward reads (torch._functorch.partitioners)."""
    if not training.checkpoints_blocks:
        return
    blocks = [node for node in root.walk() if node.block]
    for block in blocks[1::2] if training.activation_checkpointing == "alternate" else blocks:
        block.checkpointed = True
        if training.activation_checkpointing == "operators":
            products = [leaf for leaf in block.walk() if leaf.parameters and _runs(leaf, Matmul)]
            fused = training.kernels == "fused"
            kept = (products[:-1] if fused else products)[::2]
            for leaf in [*kept, *(leaf for leaf in block.walk() if _runs(leaf, Attention))]:
                leaf.kept = leaf.output_gradient  # what is frozen has no backward that would take it


def _runs(leaf: Node, kind: type[Attention] | type[Matmul]) -> bool:
    return any(isinstance(kernel.work, kind) for kernel in leaf.work.forward)


def _once(model: Model, index: Mapping[str, int]) -> dict[int, int]:
    """Places of gradients in the order in which they were seen, but for tied ones, which stand in several modules."""
    if not model.gradients:
        return {}
    uses = Counter(parameter.name for module in model.root.walk() for parameter in module.parameters)
    return {index[name]: place for place, name in enumerate(model.gradients) if uses[name] == 1}


@lru_cache(KEPT)
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
