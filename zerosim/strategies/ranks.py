"""How many ranks there are, and how many of them are on a node: what process groups are made of.

Ranks are numbered node by node, as launchers number them; a node's are consecutive.
"""

from __future__ import annotations

from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.step import Group


class Ranks(NamedTuple):
    """`per_node` is `world` where all are on one node, or it does not matter."""

    world: int
    per_node: int

    def shards(self, name: str, size: int) -> Group:
        """Consecutive ranks."""
        return Group(name, size)

    def replicas(self, name: str, size: int) -> Group:
        """Ranks of equal place in groups of `size` consecutive ones."""
        return Group(name, self.world // size, stride=size)

    def divides(self, key: str, size: int) -> None:
        """InputError where groups of `size` ranks do not fill the world."""
        if size < 1 or self.world % size:
            raise InputError([Problem("", key, str(size), f"a number that divides the {self.world} GPUs")])
