"""Which modules stage 3 takes as leaves: it hooks into nothing below them, and fetches all their parameters at once.

Source: DeepSpeed 0.19.8 utils/z3_leaf_module.py (`leaf_module`, by name), runtime/zero/parameter_offload.py
(`stage3_module_granularity_threshold`: elements of a module over the modules with parameters at and below it; parents
first). Their gradients wait for the end of the module's backward, which a hook of its inputs sees: a leaf must have
an input with a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import InputError, Problem
from zerosim.spec.model import Model, Module
from zerosim.spec.strategy import NO_LEAF, Zero
from zerosim.strategies.network import Network

LARGEST_LEAF = 1_000_000_000  # elements (Z3_MAX_LEAF_SIZE)


def leaf_names(model: Model, zero: Zero) -> frozenset[str]:
    """Names of the leaf modules of a stage-3 run."""
    named, suffixes = zero.leaf_module
    if zero.stage != 3 or not (named or suffixes or zero.module_granularity_threshold):
        return frozenset()
    chosen = {
        module.name
        for module in model.root.walk()
        if module.name in named or any(module.name.endswith(suffix) for suffix in suffixes)
    }
    if zero.module_granularity_threshold > 0:
        chosen |= set(_fine(model.root, zero.module_granularity_threshold))
    return frozenset(chosen)


def unmatched(model: Model, zero: Zero) -> list[str]:
    """Names and suffixes of `leaf_module` that no module has."""
    if zero.leaf_module == NO_LEAF:
        return []
    names = [module.name for module in model.root.walk()]
    lost = [name for name in zero.leaf_module.names if name not in names]
    return lost + [end for end in zero.leaf_module.name_suffixes if not any(name.endswith(end) for name in names)]


def check_leaves(network: Network) -> None:
    """InputError where a gradient would be reduced before it is there."""
    wrong = [node for node in network.root.walk() if node.leaf and not node.input_gradient]
    if wrong:
        expected = "modules with an input, passed by position, that has a gradient: others reduce before their backward"
        found = ", ".join(node.name or "the whole model" for node in wrong)
        raise InputError([Problem("", "zero_optimization.leaf_module", found, expected)])


def _fine(module: Module, threshold: int) -> Iterator[str]:
    """The topmost modules whose granularity is at most `threshold`."""
    layers, elements = _size(module)
    if not elements:
        return
    children = _children(module)
    if children and elements <= LARGEST_LEAF and elements // layers <= threshold:
        yield module.name
        return
    for child in children:
        yield from _fine(child, threshold)


def _size(module: Module) -> tuple[int, int]:
    """Modules that have parameters, itself one, and their elements; tied ones count wherever they stand."""
    below = [_size(child) for child in _children(module)]
    elements = sum(parameter.numel for parameter in module.parameters) + sum(size for _, size in below)
    return (1 + sum(layers for layers, _ in below), elements) if elements else (0, 0)


def _children(module: Module) -> list[Module]:
    return [part for part in module.body if isinstance(part, Module)]
