"""FSDP's units: which parameters are gathered and reduced together.

A unit is a wrapped module with the parameters that are in no wrapped module below it (torch/distributed/fsdp/
_wrap_utils.py, _init_utils.py; fully_shard's _get_managed_states). The root is always one, if only for its hooks. The
modules that share a tied parameter are in one unit: with two, version 2 stops (_validate_no_duplicate_params), and in
version 1 the second module is left with a view of what has been freed, or without use_orig_params with a copy of its
own, no longer tied (torch 2.13, as run).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zerosim.errors import InputError, Problem
from zerosim.spec.fully_sharded import Wrap
from zerosim.strategies.network import Network, Node


@dataclass(frozen=True, slots=True)
class Unit:
    """`parameters`: registration indices, in the order of registration. `number`: its place in the forward, root 0."""

    number: int
    node: Node
    parameters: tuple[int, ...]

    @property
    def root(self) -> bool:
        return self.number == 0


def units(network: Network, wrap: Wrap) -> tuple[Unit, ...]:
    """The root's unit, then the others in the order in which the forward reaches them. InputError where two share a
    parameter."""
    wrapped = [network.root, *_wrapped(network, wrap)]
    owner: dict[int, Node] = {}
    inside = set(wrapped)
    shared: dict[str, None] = {}
    for node in wrapped:
        for part in _own(node, inside):
            for parameter in part.parameters:
                first = owner.setdefault(parameter, node)
                if first is not node:
                    shared[f"{network.names[parameter]} in {first.name or 'root'} and in {node.name}"] = None
    if shared:
        raise InputError([Problem("", "wrap", found, "tied parameters in one unit") for found in shared])
    return tuple(
        Unit(number, node, tuple(sorted(p for p, held in owner.items() if held is node)))
        for number, node in enumerate(wrapped)
    )


def _own(node: Node, wrapped: set[Node]) -> Iterator[Node]:
    """The modules of a unit: those below its own that no other unit wraps."""
    yield node
    for child in node.children:
        if child not in wrapped:
            yield from _own(child, wrapped)


def _wrapped(network: Network, wrap: Wrap) -> list[Node]:
    """Below the root, in call order."""
    below = [node for child in network.root.children for node in child.walk() if node.hooked]
    if wrap.least:
        chosen = _by_size(network, wrap.least)
        return [node for node in below if node in chosen]
    return [node for node in below if (wrap.blocks and node.block) or node.name in wrap.modules]


def _by_size(network: Network, least: int) -> set[Node]:
    """torch/distributed/fsdp/wrap.py, _recursive_wrap: children first; a module whose parameters that no child has
    wrapped are at least `least` is wrapped. Its exclusions, ModuleList and ModuleDict, are never called: not nodes."""
    chosen: set[Node] = set()

    def left(node: Node) -> set[int]:
        """Parameters that remain for the modules above; a tied one counts once in a module."""
        remaining = set(node.parameters).union(*(left(child) for child in node.children))
        if node is network.root or not node.hooked or sum(network.numels[p] for p in remaining) < least:
            return remaining
        chosen.add(node)
        return set()

    left(network.root)
    return chosen
