"""The tree of modules behind a list of parameters: names become nesting, shapes become work.

A module whose parts are all numbered is a list of them, which nobody calls: it is no node. A matrix of any rank is
taken as a linear over tokens (2 FLOP a parameter and token), several matrices of one module as one of their size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zerosim.spec.model import Function, Module, ModuleKind, Parameter

Kind = Literal["linear", "conv1d", "embedding", "norm", "norm_rms", "norm_layer", "bare"]
Chain = tuple[str, ...]  # names of nested modules, from below the root down to the one that is called

_TABLE = re.compile(r"(^|[._])(\w*emb(ed(ding)?s?)?(_tokens|_positions)?|w[tp]e|\w*embeddings?)$", re.IGNORECASE)
_PROJECTION = re.compile(
    r"(^|\.)((to_)?[qkv](_proj|_lin)?|query|key|value|w?qkv(_proj)?|c_attn|query_key_value|in_proj_weight)$",
    re.IGNORECASE,
)
_MATRIX = 2  # dimensions


class Own(NamedTuple):
    """A module's own parameters, and what it is said to be."""

    parameters: tuple[Parameter, ...] = ()
    kind: Kind | None = None


class Attention(NamedTuple):
    """`head_dim` None: the width of the model / heads."""

    heads: int
    kv_heads: int
    head_dim: int | None


def below(module: str, other: str) -> bool:
    """Whether `module` is `other` or within it."""
    return other == "" or module == other or module.startswith(f"{other}.")


def prefixes(name: str) -> list[str]:
    """The names of the modules that hold `name`, from below the root down to itself."""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


@dataclass(slots=True)
class Tree:
    """Builds the modules. `calls`: in order; one that only holds others stands for these, in order of registration.

    `hidden`: the width, where it is given. `tables` and `attended`: modules that were taken as embeddings, and those
    that got the core of attention.
    """

    owned: Mapping[str, Own]
    calls: Sequence[str]
    blocks: tuple[str, ...]
    attention: Attention | None = None
    hidden: int | None = None
    lists: frozenset[str] = frozenset()
    numbers: dict[str, int] = field(default_factory=dict)  # of blocks
    tables: list[str] = field(default_factory=list)
    attended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        holders = {holder for name in self.owned for holder in prefixes(name)[:-1]}
        called = {holder for name in self.owned for holder, part in _steps(name) if not part.isdecimal()}
        self.lists = frozenset(holders - called - self.owned.keys())
        self.blocks = self.blocks or self._numbered() or self._uppermost()
        self.numbers = {name: number for number, name in enumerate(self.blocks)}

    def root(self) -> Module:
        chains = [self._chain(name) for call in self.calls for name in self._meant(call) if name]
        return self._module("", 0, chains)

    @property
    def width(self) -> int:
        """What is given, else columns of the first table, of the first matrix, or the size of the first vector."""
        shapes = [parameter.shape for own in self.owned.values() for parameter in own.parameters]
        shapes.sort(key=lambda shape: min(len(shape), _MATRIX), reverse=True)
        first = next(iter(self._tables()), shapes[0])
        return self.hidden or (first[min(1, len(first) - 1)] if first else 1)

    @property
    def rows(self) -> int:
        """Of the first table."""
        return next((shape[0] for shape in self._tables()), 0)

    def _tables(self) -> Iterator[tuple[int, ...]]:
        kinds = ((own, self._kind(name, own)) for name, own in self.owned.items())
        return (parameter.shape for own, kind in kinds if kind == "embedding" for parameter in own.parameters)

    # --- names -------------------------------------------------------------------------------------------------------

    def _meant(self, call: str) -> list[str]:
        return [call] if call in self.owned else [name for name in self.owned if below(name, call)]

    def _chain(self, name: str) -> Chain:
        """The modules that are called on the way to `name`."""
        return tuple(each for each in prefixes(name) if each not in self.lists or each in self.numbers)

    def _numbered(self) -> tuple[str, ...]:
        """The members of the outermost numbered lists; of those of one member only where there are no others."""
        lists: dict[str, dict[str, None]] = {}
        for name in self.owned:
            first = next(((holder, part) for holder, part in _steps(name) if part.isdecimal()), None)
            if first is not None:
                lists.setdefault(first[0], {})[".".join(first).lstrip(".")] = None
        several = [members for members in lists.values() if len(members) > 1]
        return tuple(member for members in several or lists.values() for member in members)

    def _uppermost(self) -> tuple[str, ...]:
        """Where nothing is numbered: the modules of the root, or of the first that has several."""
        chains = [self._chain(name) for name in self.owned if name]
        depth = 0
        while len({chain[: depth + 1] for chain in chains}) == 1 and len(chains) > 1:
            depth += 1
        return tuple(dict.fromkeys(chain[min(depth, len(chain) - 1)] for chain in chains))

    # --- modules -----------------------------------------------------------------------------------------------------

    def _module(self, name: str, depth: int, chains: Sequence[Chain]) -> Module:
        own = self.owned.get(name, Own())
        body: list[Module | Function] = [
            self._module(members[0][depth], depth + 1, members) for members in _runs(chains, depth)
        ]
        self._attend(name, own, body)
        kind = self._kind(name, own)
        if kind == "embedding":
            self.tables.append(name)
        inputs, outputs = _sizes(kind, own.parameters)
        layer = self.numbers.get(name)
        linear = kind in ("linear", "conv1d")
        meant: ModuleKind = "linear" if linear else _MEANT.get(kind, "container")
        return Module(
            name,
            meant,
            own.parameters,
            tuple(body),
            inputs,
            outputs,
            conv1d=kind == "conv1d",
            layer=layer,
            block=layer is not None,
        )

    def _attend(self, name: str, own: Own, body: list[Module | Function]) -> None:
        """The core of attention follows the last projection."""
        if self.attention is None:
            return
        places = [place + 1 for place, part in enumerate(body) if _PROJECTION.search(part.name)]
        if any(_PROJECTION.search(parameter.name) for parameter in own.parameters):
            places.insert(0, 0)
        if places:
            heads, kv_heads, head_dim = self.attention
            core = Function(
                f"{name}.attention",
                "attention",
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim or max(1, self.width // heads),
            )
            body.insert(places[-1], core)
            self.attended.append(name)

    def _kind(self, name: str, own: Own) -> Kind:
        matrices = [parameter for parameter in own.parameters if len(parameter.shape) >= _MATRIX]
        if own.kind is not None and own.kind != "norm":
            return own.kind
        if len(own.parameters) == 1 and len(own.parameters[0].shape) == _MATRIX and _TABLE.search(name):
            return "embedding"
        if matrices:
            return "linear" if name else "bare"
        vectors = {parameter.shape for parameter in own.parameters if len(parameter.shape) == 1}
        whole = len(vectors) == 1 and len(own.parameters) <= _MATRIX and name
        if not whole and own.kind != "norm":
            return "bare"
        return "norm_rms" if len(own.parameters) == 1 else "norm_layer"


_MEANT: Mapping[Kind, ModuleKind] = {"embedding": "embedding", "norm_rms": "norm_rms", "norm_layer": "norm_layer"}


def _steps(name: str) -> Iterator[tuple[str, str]]:
    """Each module on the way to `name`, from the root, and the part that leads on from it."""
    parts = name.split(".")
    return ((".".join(parts[:n]), part) for n, part in enumerate(parts))


def _runs(chains: Sequence[Chain], depth: int) -> list[list[Chain]]:
    """The calls at a depth: each has what follows within it; a module called again begins another."""
    runs: list[list[Chain]] = []
    for chain in chains:
        if len(chain) <= depth:
            continue
        begins = not runs or runs[-1][-1][depth] != chain[depth] or len(chain) == depth + 1
        if begins:
            runs.append([chain])
        else:
            runs[-1].append(chain)
    return runs


def _sizes(kind: Kind, own: Sequence[Parameter]) -> tuple[int, int]:
    """Inputs and outputs. Of matrices as many inputs as their elements need: 2 FLOP each and token."""
    if kind in ("linear", "conv1d"):
        matrices = [parameter for parameter in own if len(parameter.shape) >= _MATRIX]
        outputs = matrices[0].shape[1 if kind == "conv1d" else 0] if matrices else 1
        return sum(parameter.numel for parameter in matrices) // outputs, outputs
    if kind == "embedding":
        return 0, own[0].shape[-1]
    return (0, own[0].numel) if kind in _MEANT else (0, 0)
