"""The order of events of one micro-step: when hooks fire, kernels are launched and gradients become ready.

It is PyTorch's: forward hooks around every module; in the backward, children in reverse call order (unless the model
was seen to do otherwise), a pre-hook where a module's output has a gradient, a post-hook where its input has one (so
never for an embedding and what contains it, nor for what reads data); a parameter's gradient is ready after the kernels
of its module, a tied one's at its last module. What comes before the first trainable parameter has no backward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple

from zerosim.spec.training import Training
from zerosim.strategies.network import Network, Node

Direction = Literal["forward", "recompute", "backward"]
PRE, RUN, GRADIENT, POST = "pre", "run", "gradient", "post"
AGAIN, LEFT = "again", "left"


class Event(NamedTuple):
    """`pre`/`post` of a module's hooks, `run` its kernels, `gradient` of `parameter` ready; `again` and `left`: a
    checkpointed block is about to run again, the backward of a block is over."""

    kind: str
    node: Node
    direction: Direction
    parameter: int = -1
    saving: bool = True  # `run`: activations are kept for the backward


def micro_step(network: Network, training: Training) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Events of the forward and of the backward of one micro-batch, in host order."""
    forward: list[Event] = []
    _forward(forward, network.root, "forward", True)
    backward = _Backward(network, training.reentrant, list(network.uses))
    backward.node(network.root)
    return tuple(forward), tuple(backward.events)


def _forward(events: list[Event], node: Node, direction: Direction, saving: bool) -> None:
    """Adds those of a module. `saving` turns off inside a checkpointed block."""
    saving = saving and node.output_gradient and (direction == "recompute" or not node.checkpointed)
    hooked = (node.hooked or node.block) and not (direction == "recompute" and node.inside)
    if hooked:
        events.append(Event(PRE, node, direction))
    if node.work.forward:
        events.append(Event(RUN, node, direction, saving=saving))
    for child in node.children:
        _forward(events, child, direction, saving)
    if hooked:
        events.append(Event(POST, node, direction, saving=saving))


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
    reentrant: bool
    uses_left: list[int]
    events: list[Event] = field(default_factory=list)

    def node(self, node: Node, block: Node | None = None, last: Node | None = None, below_leaf: bool = False) -> None:
        """Adds those of a module."""
        add = self.events.append
        if not node.output_gradient:
            return
        if node.checkpointed:
            block, last = node, _saves(node)
            if self.reentrant:
                add(Event(AGAIN, node, "recompute"))
                _forward(self.events, node, "recompute", True)
        if node.hooked:
            add(Event(PRE, node, "backward"))
        for child in node.backward:
            self.node(child, block, last, below_leaf or node.leaf)
        if block is not None and node is last and not self.reentrant:
            self._recompute(block, node)
        if node.work.backward:
            add(Event(RUN, node, "backward"))
        self._gradients(node, below_leaf or node.leaf)
        if node.leaf:
            self._leaf_gradients(node)
        if node.hooked and node.input_gradient:
            add(Event(POST, node, "backward"))
        if node.block:
            add(Event(LEFT, node, "backward"))

    def _recompute(self, block: Node, last: Node) -> None:
        whole: list[Event] = []
        _forward(whole, block, "recompute", True)
        self.events.append(Event(AGAIN, block, "recompute"))
        self.events += takewhile(lambda event: event.node is not last or event.kind == PRE, whole)

    def _gradients(self, node: Node, withheld: bool) -> None:
        """What is ready; those of a leaf module are withheld until its backward is over."""
        for parameter in node.arrivals:
            self.uses_left[parameter] -= 1
            if self.network.trainable[parameter] and self.uses_left[parameter] == 0 and not withheld:
                self.events.append(Event(GRADIENT, node, "backward", parameter))

    def _leaf_gradients(self, leaf: Node) -> None:
        """All together, in the order of registration (stage3.py, reduce_leaf_module_grads)."""
        for parameter in leaf.all_parameters:
            if self.network.trainable[parameter] and self.uses_left[parameter] == 0:
                self.events.append(Event(GRADIENT, leaf, "backward", parameter))
