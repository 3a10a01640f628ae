"""A small network of transformer blocks without attention, its forward and its backward, written out.

The model is zerosim's own, so that the same object is trained here and simulated there. It knows no rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sharding.arithmetic import Array
from zerosim.spec.model import Function, Model, Module, Parameter
from zerosim.spec.training import Training

Ids = npt.NDArray[np.int64]
EPSILON = np.float32(1e-5)  # of a norm


def small_network(vocabulary: int = 13, hidden: int = 6, wide: int = 10, blocks: int = 2) -> Model:
    """An embedding, blocks of norm, linear, activation, linear and residual, a norm, a head. 477 parameters, and no
    size that 4 ranks could share without padding."""
    body: list[Module | Function] = [
        Module("embedding", "embedding", (Parameter("embedding.weight", (vocabulary, hidden)),), outputs=hidden)
    ]
    for index in range(blocks):
        name = f"block{index}"
        parts = (
            _with_bias(f"{name}.norm", "norm_layer", (hidden,), hidden),
            _with_bias(f"{name}.up", "linear", (wide, hidden), wide),
            Module(f"{name}.activation", "activation", outputs=wide),
            _with_bias(f"{name}.down", "linear", (hidden, wide), hidden),
            Function(f"{name}.residual", "add", hidden),
        )
        body.append(Module(name, "container", body=parts, layer=index, block=True))
    body.append(_with_bias("norm", "norm_layer", (hidden,), hidden))
    body.append(_with_bias("head", "linear", (vocabulary, hidden), vocabulary))
    root = Module("network", "container", body=(*body, Function("loss", "loss", vocabulary)))
    parameters = tuple(parameter for module in root.walk() for parameter in module.parameters)
    return Model("small network", root, parameters, blocks, hidden, heads=1, vocabulary=vocabulary)


def _with_bias(name: str, kind: Any, shape: tuple[int, ...], outputs: int) -> Module:
    parameters = (Parameter(f"{name}.weight", shape), Parameter(f"{name}.bias", (outputs,)))
    return Module(name, kind, parameters, inputs=shape[-1], outputs=outputs)


def first_weights(model: Model, seed: int = 0) -> list[Array]:
    """Flat, one array a parameter: biases 0, norms 1, the rest random."""
    random = np.random.default_rng(seed)
    weights = []
    for parameter in model.parameters:
        if len(parameter.shape) > 1:
            weights.append(random.normal(0, 0.3, parameter.numel).astype(np.float32))
        else:
            weights.append(np.full(parameter.numel, parameter.name.endswith("norm.weight"), np.float32))
    return weights


def some_text(model: Model, training: Training, ranks: int, steps: int, seed: int = 1) -> Ids:
    """Random tokens; what follows each is a function of it, so that there is something to learn."""
    random = np.random.default_rng(seed)
    shape = (steps, training.gradient_accumulation_steps, ranks, training.tokens)
    tokens = random.integers(0, model.vocabulary, shape)
    return np.stack([tokens, (3 * tokens + 1) % model.vocabulary], axis=-1)


# --- the layers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """A layer, with the places of its weights in the order of the model. `opens`: a residual starts before it."""

    name: str
    kind: str
    parameters: tuple[int, ...]
    opens: bool


def leaves(model: Model) -> dict[str, Leaf]:
    """The layers by name, in the order in which they are called."""
    index = {parameter.name: place for place, parameter in enumerate(model.parameters)}

    def below(module: Module) -> Iterator[Leaf]:
        residual = any(part.kind == "add" for part in module.body)
        for place, part in enumerate(module.body):
            if isinstance(part, Module) and part.body:
                yield from below(part)
            else:
                owned = part.parameters if isinstance(part, Module) else ()
                numbers = tuple(index[parameter.name] for parameter in owned)
                yield Leaf(part.name, part.kind, numbers, residual and place == 0)

    return {leaf.name: leaf for leaf in below(model.root)}


@dataclass(slots=True)
class Pass:
    """One forward and backward over some tokens. `flow` is what passes from layer to layer: activations, then their
    gradients, scaled by `scale`."""

    tokens: Ids
    scale: float = 1.0
    flow: Array = field(init=False)
    loss: float = 0.0
    saved: dict[str, Any] = field(default_factory=dict)
    skipped: Array = field(init=False)

    def forward(self, leaf: Leaf, weights: Sequence[Array]) -> None:
        if leaf.opens:
            self.skipped = self.flow
        match leaf.kind:
            case "embedding":
                self.flow = weights[0][self.tokens[:, 0]]
            case "linear":
                self.saved[leaf.name] = self.flow
                self.flow = self.flow @ weights[0].T + weights[1]
            case "norm_layer":
                centred = self.flow - self.flow.mean(-1, keepdims=True)
                spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
                self.saved[leaf.name] = centred / spread, spread
                self.flow = centred / spread * weights[0] + weights[1]
            case "activation":
                self.flow = self.saved[leaf.name] = np.tanh(self.flow)
            case "add":
                self.flow = self.flow + self.skipped
            case "loss":
                exponents = np.exp(self.flow - self.flow.max(-1, keepdims=True))
                shares = exponents / exponents.sum(-1, keepdims=True)
                self.saved[leaf.name] = shares
                self.loss = -float(np.log(shares[np.arange(len(shares)), self.tokens[:, 1]]).mean())

    def backward(self, leaf: Leaf, weights: Sequence[Array]) -> list[Array]:
        """The gradients of the layer's weights."""
        up, gradients = self.flow, list[Array]()
        match leaf.kind:
            case "embedding":
                gradients = [np.zeros_like(weights[0])]
                np.add.at(gradients[0], self.tokens[:, 0], up)
            case "linear":
                gradients = [up.T @ self.saved[leaf.name], up.sum(0)]
                self.flow = up @ weights[0]
            case "norm_layer":
                normal, spread = self.saved[leaf.name]
                gradients = [(up * normal).sum(0), up.sum(0)]
                scaled = up * weights[0]
                along = (scaled * normal).mean(-1, keepdims=True)
                self.flow = (scaled - scaled.mean(-1, keepdims=True) - normal * along) / spread
            case "activation":
                self.flow = up * (1 - self.saved[leaf.name] ** 2)
            case "add":
                self.skipped = up
            case "loss":
                self.flow = self.saved[leaf.name].copy()
                self.flow[np.arange(len(self.flow)), self.tokens[:, 1]] -= 1
                self.flow *= np.float32(self.scale / len(self.flow))
        if leaf.opens:
            self.flow = self.flow + self.skipped
        return gradients
