"""What one rank holds, and how its arrays are laid into the buffers of collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sharding.arithmetic import Array, State, rounding
from sharding.layouts import Chunk, room
from sharding.network import Pass
from zerosim.step import Slice


class Rank:
    """What one rank holds. Arrays are flat, one a parameter; of `shards` and `reduced` only what it owns is kept up.

    `whole`: weights for use. `gradients`: of its own tokens, not yet reduced. `states`: the optimizer's, one a piece.
    """

    def __init__(self, weights: Sequence[Array], owned: Chunk, dtype: str) -> None:
        self.shards = [rounding(dtype)(array) for array in weights]
        self.whole: dict[int, Array] = {}
        self.gradients: dict[int, Array] = {}
        self.reduced = [np.zeros_like(array) for array in weights]
        self.owned = owned
        self.states = [State.of(weights[p][start:stop]) for (p, start, stop), _ in owned]
        self.run: Pass

    def squares(self, pieces: slice) -> float:
        """Of the reduced gradients of these pieces."""
        parts = [self.reduced[p][start:stop].astype(np.float64) for (p, start, stop), _ in self.owned[pieces]]
        return sum(float((part**2).sum()) for part in parts)

    def keep(self, slices: Sequence[Slice], values: Array, dtype: str) -> None:
        """Of these slices, which lie one behind the other in `values`, add what it owns to what it has of them."""
        offset, values = 0, rounding(dtype)(values)
        for p, start, stop in slices:
            for (mine, low, high), _ in self.owned:
                low, high = max(low, start), min(high, stop)
                if mine == p and low < high:
                    added = self.reduced[p][low:high] + values[offset + low - start : offset + high - start]
                    self.reduced[p][low:high] = rounding(dtype)(added)
            offset += stop - start


def laid(arrays: Sequence[Array] | Mapping[int, Array], chunk: Chunk) -> Array:
    """The pieces one behind the other, padded with zeros."""
    buffer = np.zeros(room(chunk), np.float32)
    for (p, low, high), offset in places(chunk):
        buffer[offset : offset + high - low] = arrays[p][low:high]
    return buffer


def places(chunk: Chunk) -> list[tuple[Slice, int]]:
    """Each slice and where it begins."""
    offsets = np.cumsum([0, *(piece.room for piece in chunk)])
    return [(piece.slice, int(offset)) for piece, offset in zip(chunk, offsets, strict=False)]
