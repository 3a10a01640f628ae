"""Models given as an ordered list of their parameters, as `named_parameters()` yields them: any network can be played.

`{name: my-net, parameters: [{name: layers.0.weight, shape: [64, 64]}, ...]}`. The order is that of registration; unless
`calls` says otherwise modules are called in it, too. What a module does is guessed from the shapes and names of its
parameters where `kind` does not say it, what a block is from numbered lists of modules; what was taken stands in the
model's notes. How the list becomes a tree is in `model_tree`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.model import Model, Parameter
from zerosim.spec.model_tree import Attention, Kind, Own, Tree, below, prefixes

MOST_PARAMETERS = 20_000  # tensors


class Listed(Schema):
    """A tensor. `tied`: further names of it. Recordings say `numel` and `frozen` beside shape and trainable."""

    name: str = Field(min_length=1)
    shape: list[Whole]
    module: str | None = None
    kind: Kind | None = None
    block: str | None = None
    trainable: bool = True
    tied: tuple[str, ...] = ()
    frozen: bool = False
    numel: Whole | None = None

    @property
    def owner(self) -> str:
        """The module that holds it; the root is called ""."""
        return _module(self.name) if self.module is None else self.module

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, tuple(self.shape), self.trainable and not self.frozen)


class ParameterList(Schema):
    """`heads` (`kv_heads`, `head_dim`) say that there is attention. `hidden`: width of what flows between blocks."""

    name: str | None = None
    parameters: list[Listed] = Field(min_length=1, max_length=MOST_PARAMETERS)
    calls: tuple[str, ...] = ()
    hidden: Whole | None = Field(None, ge=1)
    vocab: Whole | None = Field(None, ge=1)
    heads: Whole | None = Field(None, ge=1)
    kv_heads: Whole | None = Field(None, ge=1)
    head_dim: Whole | None = Field(None, ge=1)
    buffers: Whole = Field(0, ge=0)


def nearly_list(data: Mapping[str, object]) -> bool:
    """Whether a model of this form was meant: `parameters` is a list, however it is spelled."""
    return any(isinstance(value, list) and nearest(str(key), ("parameters",)) for key, value in data.items())


def from_list(document: Document) -> Model:
    """The model of a list, or an InputError with all its problems."""
    given = validated(document, ParameterList)
    problems = list(_problems(document, given))
    if problems:
        raise InputError(problems)
    tree = Tree(_owned(given), given.calls or _registered(given), _blocks(given), _attention(given), given.hidden)
    root, hidden = tree.root(), tree.width
    parameters = tuple(each.parameter for each in given.parameters)
    return Model(
        name=given.name or "",
        root=root,
        parameters=parameters,
        layers=max(1, len(tree.blocks)),
        hidden=hidden,
        heads=given.heads or 0,
        vocabulary=given.vocab or tree.rows,
        notes=tuple(_notes(given, tree, hidden)),
        buffers=given.buffers,
    )


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _owned(given: ParameterList) -> dict[str, Own]:
    """The parameters of each module, under every name they have, and what it is said to be."""
    owned: dict[str, Own] = {}
    for each in given.parameters:
        parameter = each.parameter
        for module in (each.owner, *map(_module, each.tied)):
            own = owned.get(module, Own())
            said = each.kind if module == each.owner else None  # of several parameters of a module one may say it
            owned[module] = Own((*own.parameters, parameter), said or own.kind)
    return owned


def _registered(given: ParameterList) -> list[str]:
    """Modules as they are registered, one that has tensors of its own before what it holds; those of further names of
    tied parameters come last, as an output layer does."""
    owners = [each.owner for each in given.parameters]
    own = set(owners)
    named = [holder for owner in owners for holder in _holders(owner) if holder in own]
    return list(dict.fromkeys([*named, *(_module(name) for each in given.parameters for name in each.tied)]))


def _holders(module: str) -> list[str]:
    """The modules that it lies in, from the outside, and itself; the root, which has no name, before them."""
    parts = module.split(".") if module else []
    return [".".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _blocks(given: ParameterList) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.block for each in given.parameters if each.block is not None))


def _attention(given: ParameterList) -> Attention | None:
    if given.heads is None:
        return None
    return Attention(given.heads, given.kv_heads or given.heads, given.head_dim)


# --- what can be wrong -----------------------------------------------------------------------------------------------


def _problems(document: Document, given: ParameterList) -> Iterator[Problem]:
    names = Counter(name for each in given.parameters for name in (each.name, *each.tied))
    kinds: dict[str, Kind] = {}
    for index, each in enumerate(given.parameters):
        place = ("parameters", index)
        if any(size < 1 for size in each.shape):
            yield document.problem((*place, "shape"), str(each.shape), "sizes from 1")
        elif each.numel not in (None, each.parameter.numel):
            yield document.problem((*place, "numel"), str(each.numel), f"{each.parameter.numel}, as shape says")
        if names[each.name] > 1:
            yield document.problem((*place, "name"), f'"{each.name}" again', "each name once")
        if each.block is not None and not below(each.owner, each.block):
            expected = f'a module that holds this parameter, such as "{each.owner}"'
            yield document.problem((*place, "block"), shown(each.block), expected)
        if each.kind is not None and kinds.setdefault(each.owner, each.kind) != each.kind:
            yield document.problem(
                (*place, "kind"), f'"{each.kind}"', f'"{kinds[each.owner]}", as before in its module'
            )
    yield from _wrong_calls(document, given)
    yield from _wrong_heads(document, given)


def _wrong_calls(document: Document, given: ParameterList) -> Iterator[Problem]:
    known = _registered(given)
    callable_ = {prefix for module in known for prefix in prefixes(module)}
    for index, called in enumerate(given.calls):
        if called not in callable_:
            expected = "a module that has parameters, or one that holds such modules"
            yield document.problem(("calls", index), shown(called), expected, nearest(called, known))
    missing = [m for m in known if m and given.calls and not callable_.intersection(prefixes(m), given.calls)]
    if missing:
        expected = f"every module that has parameters, also {', '.join(map(shown, missing[:3]))}"
        yield document.problem(("calls",), f"{len(given.calls)} calls", expected)


def _wrong_heads(document: Document, given: ParameterList) -> Iterator[Problem]:
    if given.heads is None:
        for key in ("kv_heads", "head_dim"):
            if getattr(given, key) is not None:
                yield document.problem((key,), str(getattr(given, key)), "heads beside it")
    elif given.heads % (given.kv_heads or 1):
        yield document.problem(("kv_heads",), str(given.kv_heads), f"a divisor of heads ({given.heads})")


# --- what was taken --------------------------------------------------------------------------------------------------


def _notes(given: ParameterList, tree: Tree, hidden: int) -> Iterator[str]:
    if not given.calls:
        yield "modules are called in the order of their parameters"
    if tree.blocks and not _blocks(given):
        yield f"blocks, from the names of modules: {_range(tree.blocks)}"
    if given.hidden is None:
        yield f"hidden not given: {hidden}, the width of the first table or matrix"
    yield (
        "work: 2 FLOP a parameter and token for matrices, a pass over memory for norms and embeddings; "
        f"{_counted(tree)}; nothing for activations, residual additions and the loss"
    )
    if tree.tables:
        yield f"taken as embeddings: {', '.join(tree.tables)}"


def _counted(tree: Tree) -> str:
    if tree.attention is None:
        return "nothing for attention (heads not given)"
    if not tree.attended:
        return "nothing for attention (no module has projections called q, k, v, qkv or the like)"
    return f"attention of {tree.attention.heads} heads in {len(tree.attended)} modules"


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)})"
