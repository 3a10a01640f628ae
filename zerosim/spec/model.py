"""A model as a tree of modules in call order, with its parameters in registration order.

This is what the frameworks see: hooks sit on modules, parameters are registered in an order, gradients become ready in
another. Numbers of a module (widths, heads) are its shape; what a forward or backward costs is said elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

ModuleKind = Literal[
    "container",  # calls its body; owns at most bare parameters (e.g. a position table)
    "embedding",  # table of outputs columns, looked up per token
    "relative_bias",  # table of outputs columns, looked up per pair of positions
    "linear",  # inputs -> outputs
    "norm_rms",  # RMSNorm over `outputs`
    "norm_layer",  # LayerNorm over `outputs`
    "activation",  # element-wise non-linearity over `outputs`
    "gelu_written_out",  # one of many tensor operations (NewGELUActivation of transformers, NewGELU of minGPT)
    "dropout",  # over `outputs`
    "identity",  # a module with hooks and no work (rotary tables, pooling of nothing)
]
FunctionKind = Literal[
    "attention",  # the core: scores, softmax, values; heads, kv_heads, head_dim
    "rotary",  # rotation of queries and keys; heads, kv_heads, head_dim
    "add",  # residual addition over `outputs`
    "multiply",  # gate times up over `outputs`
    "dropout",  # F.dropout over `outputs`: where a model drops without a module
    "loss",  # cross-entropy over a vocabulary of `outputs`
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor of weights. Tied weights are one Parameter that stands in two modules."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Function:
    """Work between modules: it has no hooks and no parameters."""

    name: str
    kind: FunctionKind
    outputs: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    causal: bool = True
    dropout: bool = False  # of attention probabilities
    fp32_softmax: bool = False  # eager attention takes its softmax in fp32 and keeps it beside the 16-bit copy


@dataclass(frozen=True, slots=True)
class Module:
    """A module with hooks. `body` is called in order; a module without body is a leaf."""

    name: str
    kind: ModuleKind
    parameters: tuple[Parameter, ...] = ()
    body: tuple[Module | Function, ...] = ()
    inputs: int = 0
    outputs: int = 0
    shares_input: bool = False  # its input tensor is the same as the previous leaf's (k and v beside q, up beside gate)
    conv1d: bool = False  # a linear that is GPT-2's Conv1D: addmm called outright, its weight lies the other way
    layer: int | None = None  # index of the transformer block it belongs to
    block: bool = False  # a transformer block: the unit of activation checkpointing and of wrapping
    by_keyword: bool = False  # its input is passed by keyword, where hooks of inputs do not look for it
    checkpoint_inside: bool = False  # checkpointing wraps its forward alone, not the call with its hooks

    def walk(self) -> Iterator[Module]:
        """This module and all below it, in call order."""
        yield self
        for part in self.body:
            if isinstance(part, Module):
                yield from part.walk()


@dataclass(frozen=True, slots=True)
class Model:
    """A network. `parameters` in registration order (what `named_parameters()` yields; tied ones once).

    `gradients`: parameters in the order in which their gradients were seen to become ready; empty where it follows from
    the order of calls. `input_gradient`: what the first module reads has a gradient, as in a later stage of a pipeline.
    """

    name: str
    root: Module
    parameters: tuple[Parameter, ...]
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    max_positions: int | None = None  # the longest sequence of learnt positions; None where positions are not learnt
    notes: tuple[str, ...] = ()  # what was assumed about the shape, one sentence each
    buffers: int = 0  # elements of registered fp32 buffers, also those that are not saved (rotary inv_freq)
    gradients: tuple[str, ...] = ()
    input_gradient: bool = False

    @property
    def numel(self) -> int:
        """Parameters, tied ones counted once."""
        return sum(parameter.numel for parameter in self.parameters)
