"""The network of a recording, as a `Model`: its modules in the order in which they were called.

Only collectives are asked of such a model, so widths and heads stay 0: which collectives are issued does not depend on
the work of a module. What the markers show counts before what a class is known for: which modules are called, whose
output has a gradient, which gradient is ready when, what is called again where blocks are checkpointed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from zerosim.spec.model import Model, Module, ModuleKind, Parameter
from zerosim.spec.recording_events import BACKWARD, CALLED, READY, RETURNED, Event, first_pass

ROOT = "<root>"
_KINDS: tuple[tuple[str, ModuleKind], ...] = (  # by what the name of a class ends with
    ("Embedding", "embedding"),
    ("Linear", "linear"),
    ("Conv1D", "linear"),
    ("LayerNorm", "norm_layer"),
    ("RMSNorm", "norm_rms"),
)
Shape = list[Annotated[int, Field(ge=0)]]
_BY_KEYWORD = frozenset({"LlamaAttention"})  # LlamaDecoderLayer.forward: self.self_attn(hidden_states=...)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class NamedParameter(_Part):
    """`tied`: further names of the same tensor."""

    name: str
    shape: Shape
    tied: list[str] = []
    frozen: bool = False


class NamedModule(_Part):
    """`params` are its own ones; these and `children` by their last names."""

    name: str
    cls: str
    params: list[str] = []
    children: list[str] = []


class NamedBuffer(_Part):
    shape: Shape


class Network(_Part):
    """`model` of a recording."""

    params: list[NamedParameter]
    modules: list[NamedModule]
    buffers: list[NamedBuffer] = []


def network_of(network: Network, events: Sequence[Event]) -> Model:
    """The model of which `events` are a step."""
    parameters: dict[str, Parameter] = {}
    for each in network.params:
        parameter = Parameter(each.name, tuple(each.shape), not each.frozen)
        parameters |= dict.fromkeys((each.name, *each.tied), parameter)
    registered = tuple(dict.fromkeys(parameters.values()))
    known = {parameter.name for parameter in registered}
    ready = [event.mod for event in first_pass(events, "backward") if event.m == READY and event.mod in known]
    blocks = blocks_of(network)
    reader = _Reader(
        modules={module.name: module for module in network.modules},
        parameters=parameters,
        blocks=blocks,
        backward=_named(events, BACKWARD),
        again=_named(events, CALLED),
    )
    return Model(
        name="recorded",
        root=reader.root(events),
        parameters=registered,
        layers=len(blocks),
        hidden=0,
        heads=0,
        vocabulary=0,
        buffers=sum(math.prod(buffer.shape) for buffer in network.buffers),
        gradients=tuple(dict.fromkeys(ready)),
    )


def _named(events: Sequence[Event], marker: str) -> frozenset[str]:
    """The modules of one kind of marker in the first backward."""
    return frozenset(event.mod for event in first_pass(events, "backward") if event.m == marker)


def blocks_of(network: Network) -> tuple[str, ...]:
    """The members of lists of modules, which are what is checkpointed and wrapped; not of lists within those."""
    found: list[str] = []
    for module in network.modules:
        if module.cls == "ModuleList" and not any(module.name.startswith(f"{block}.") for block in found):
            found += [f"{module.name}.{child}" for child in module.children]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Reader:
    """`backward`: modules whose output was seen to have a gradient; `again`: those called again in the backward."""

    modules: Mapping[str, NamedModule]
    parameters: Mapping[str, Parameter]
    blocks: tuple[str, ...]
    backward: frozenset[str]
    again: frozenset[str]

    def root(self, events: Sequence[Event]) -> Module:
        """Modules nested as the forward of the first micro-batch calls them."""
        under_way: list[list[Module]] = [[]]
        for event in first_pass(events, "forward"):
            if event.m == CALLED:
                under_way.append([])
            elif event.m == RETURNED and len(under_way) > 1:
                body = under_way.pop()
                under_way[-1].append(self._called(event.mod, tuple(body)))
        called = [module for level in under_way for module in level]
        return called[0] if len(called) == 1 else Module(ROOT, "container", self._own(ROOT), tuple(called))

    def _called(self, name: str, body: tuple[Module, ...]) -> Module:
        cls = self.modules[name].cls if name in self.modules else ""
        own, block = self._own(name), name in self.blocks
        inside = any(below.startswith(f"{name}.") for below in self.again)
        return Module(
            name,
            self._kind(name, cls, own, body),
            own,
            body,
            outputs=1,  # any: only whether something is saved matters
            conv1d=cls == "Conv1D",
            block=block,
            by_keyword=cls in _BY_KEYWORD,
            checkpoint_inside=block and inside and name not in self.again,
        )

    def _kind(self, name: str, cls: str, own: tuple[Parameter, ...], body: tuple[Module, ...]) -> ModuleKind:
        """A leaf whose output has no gradient, while others have one, returns tables."""
        if own:
            return next((kind for end, kind in _KINDS if cls.endswith(end)), "container")
        if cls.startswith("Dropout") and name in self.again:
            return "dropout"  # it saves its mask, which a rerun is for; one that drops nothing saves nothing
        return "identity" if self.backward and not body and name not in self.backward else "container"

    def _own(self, name: str) -> tuple[Parameter, ...]:
        named = self.modules[name].params if name in self.modules else []
        prefix = "" if name == ROOT else f"{name}."
        return tuple(self.parameters[prefix + each] for each in named if prefix + each in self.parameters)


def called_whole(events: Sequence[Event]) -> bool:
    """Whether all that is called again in the backward also returns: torch's reentrant checkpoint. The other one stops
    in the last module, whose forward is not needed."""
    markers = [event for event in first_pass(events, "backward") if event.m in (CALLED, RETURNED)]
    called = sum(event.m == CALLED for event in markers)
    return called > 0 and 2 * called == len(markers)
