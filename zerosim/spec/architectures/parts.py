"""Pieces of which architectures build their trees: modules with their full names, and parameters in registration order.

A module is called in one order and registered in another (a Llama block registers its norms last and calls one first);
hooks follow the first, parameter lists and gradient buckets the second. So a `Part` is a module together with what
`named_parameters()` would yield below it, and a container is told both orders. Nothing here knows an architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerosim.spec.model import Function, FunctionKind, Model, Module, ModuleKind, Parameter


class Part(NamedTuple):
    """A module, and the parameters of it and all below it in registration order."""

    module: Module
    registered: tuple[Parameter, ...]

    @property
    def weight(self) -> Parameter:
        """The first parameter: what is tied."""
        return self.module.parameters[0]


class Scope(NamedTuple):
    """A place in the tree: makes what stands right below it, named as `named_modules()` would."""

    path: str
    layer: int | None = None

    def inside(self, name: str, layer: int | None = None) -> Scope:
        """A place further down; `layer` where a transformer block begins."""
        return Scope(self._name(name), self.layer if layer is None else layer)

    def linear(
        self, name: str, inputs: int, outputs: int, bias: bool = False, shares: bool = False, conv1d: bool = False
    ) -> Part:
        """nn.Linear, or GPT-2's Conv1D, whose weight lies the other way. `shares`: the input of the leaf before."""
        shape = (inputs, outputs) if conv1d else (outputs, inputs)
        parameters = self._parameters(name, weight=shape, bias=(outputs,) if bias else None)
        return self._leaf(name, "linear", parameters, outputs, inputs, shares, conv1d)

    def tied(self, name: str, table: Part, bias: Parameter | None = None) -> Part:
        """The output layer that uses the weight of an embedding."""
        rows, width = table.weight.shape
        parameters = (table.weight,) if bias is None else (table.weight, bias)
        return self._leaf(name, "linear", parameters, rows, width)

    def head(self, name: str, table: Part, tied: bool, bias: bool = False) -> Part:
        """The output layer over the vocabulary of `table`, with its own weight or the table's."""
        rows, width = table.weight.shape
        return self.tied(name, table) if tied else self.linear(name, width, rows, bias)

    def embedding(self, name: str, rows: int, width: int) -> Part:
        return self._leaf(name, "embedding", self._parameters(name, weight=(rows, width)), width, rows)

    def norm_rms(self, name: str, width: int, rows: int = 1) -> Part:
        """RMSNorm over `width`; `rows` of them a token (a norm per head)."""
        return self._leaf(name, "norm_rms", self._parameters(name, weight=(width,)), rows * width)

    def norm_layer(self, name: str, width: int, bias: bool = True, rows: int = 1) -> Part:
        parameters = self._parameters(name, weight=(width,), bias=(width,) if bias else None)
        return self._leaf(name, "norm_layer", parameters, rows * width)

    def activation(self, name: str, width: int, kind: str = "") -> Part:
        """`kind`: its name in transformers' ACT2FN, of which one is a formula of tensors."""
        return self._leaf(name, "gelu_written_out" if kind == "gelu_new" else "activation", (), width)

    def dropout(self, name: str, width: int, rate: float) -> Part:
        """At rate 0 torch launches nothing and saves nothing, but the module's hooks fire: stage 3 prefetches there."""
        return self._leaf(name, "dropout" if rate else "container", (), width)

    def relative_bias(self, name: str, buckets: int, heads: int) -> Part:
        """An embedding of distances, a column a head."""
        return self._leaf(name, "relative_bias", self._parameters(name, weight=(buckets, heads)), heads)

    def identity(self, name: str) -> Part:
        return self._leaf(name, "identity", (), 0)

    def container(
        self,
        registered: Sequence[Part | Parameter | None],
        calls: Sequence[Part | Function | None] | None = None,
        own: tuple[Parameter, ...] = (),
        block: bool = False,
    ) -> Part:
        """The module at this place, of the parts it registers and the calls it makes (in the same order if not given).

        Bare parameters stand among `registered`; those of `own` are used by this module itself.
        """
        below = [p for part in registered if part for p in (part.registered if isinstance(part, Part) else (part,))]
        body = registered if calls is None else calls
        called = tuple(part.module if isinstance(part, Part) else part for part in body if part)
        functions = tuple(part for part in called if not isinstance(part, Parameter))
        module = Module(self.path, "container", own, functions, layer=self.layer, block=block)
        return Part(module, tuple(below))

    def parameter(self, name: str, *shape: int) -> Parameter:
        return Parameter(self._name(name), shape)

    def add(self, width: int, name: str = "add") -> Function:
        """A residual addition."""
        return self._function(name, "add", width)

    def multiply(self, width: int, name: str = "multiply") -> Function:
        """The gate times the up projection."""
        return self._function(name, "multiply", width)

    def dropped(self, width: int, rate: float, name: str = "dropout") -> Function | None:
        """F.dropout, without a module."""
        return self._function(name, "dropout", width) if rate else None

    def loss(self, vocabulary: int) -> Function:
        return self._function("loss", "loss", vocabulary)

    def attention(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        causal: bool = True,
        fp32_softmax: bool = False,
        dropout: float = 0.0,
    ) -> Function:
        """The core of attention; `dropout`: the rate at which its probabilities are dropped."""
        sizes = (heads * head_dim, heads, kv_heads, head_dim)
        return Function(self._name("attention"), "attention", *sizes, causal, dropout > 0, fp32_softmax)

    def rotary(self, heads: int, kv_heads: int, head_dim: int) -> Function:
        """The rotation of `head_dim` of the columns of each head."""
        return Function(self._name("rotary"), "rotary", heads * head_dim, heads, kv_heads, head_dim)

    def _name(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _parameters(self, name: str, **shapes: tuple[int, ...] | None) -> tuple[Parameter, ...]:
        full = self._name(name)
        return tuple(Parameter(f"{full}.{which}", shape) for which, shape in shapes.items() if shape is not None)

    def _function(self, name: str, kind: FunctionKind, width: int) -> Function:
        return Function(self._name(name), kind, width)

    def _leaf(
        self,
        name: str,
        kind: ModuleKind,
        parameters: tuple[Parameter, ...],
        outputs: int,
        inputs: int = 0,
        shares: bool = False,
        conv1d: bool = False,
    ) -> Part:
        width = inputs or outputs
        module = Module(self._name(name), kind, parameters, (), width, outputs, shares, conv1d, self.layer)
        return Part(module, parameters)


def assembled(
    root: Part,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    max_positions: int | None = None,
    notes: tuple[str, ...] = (),
    buffers: int = 0,
) -> Model:
    """The model of a finished tree; it is named by who knows where it comes from. Tied weights are registered once."""
    parameters = tuple(dict.fromkeys(root.registered))
    return Model("", root.module, parameters, layers, hidden, heads, vocabulary, max_positions, notes, buffers)
