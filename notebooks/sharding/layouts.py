"""Who owns which element: the layouts by which optimizers, gradients and weights are cut over ranks.

A set of parameters that is sharded together becomes one buffer, rank after rank; the rank's chunk is a row of pieces,
each a slice of a parameter with the room that it takes. What is beyond the slice is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Zero
from zerosim.step import Slice, Step

Sharded = DeepSpeed | Ddp | Fsdp


class Piece(NamedTuple):
    """A slice of a parameter in `room` elements of a buffer."""

    slice: Slice
    room: int


Chunk = tuple[Piece, ...]


def room(chunk: Chunk) -> int:
    """Elements of a buffer that it takes."""
    return sum(piece.room for piece in chunk)


class WrongProgramError(Exception):
    """An op asks for what is not there, or nothing asks for what must be done."""


class Layout(Protocol):
    """`owned`: what the optimizer updates, by rank; `replicated`: everything on each of them. `chunks`: how parameters
    lie in a buffer that is gathered or scattered, by rank."""

    replicated: bool
    owned: tuple[Chunk, ...]

    def chunks(self, parameters: Sequence[int]) -> tuple[Chunk, ...]: ...


class Whole:
    """DDP and stage 0: every rank owns everything."""

    replicated = True

    def __init__(self, numels: Sequence[int], ranks: int) -> None:
        everything = tuple(Piece(Slice(p, 0, numel), numel) for p, numel in enumerate(numels))
        self.owned: tuple[Chunk, ...] = (everything,) * ranks

    def chunks(self, parameters: Sequence[int]) -> tuple[Chunk, ...]:
        raise WrongProgramError("nothing is sharded, so there is nothing to gather or scatter")


class Flat:
    """Stages 1 and 2, and FSDP1: the parameters of a unit one behind the other, padded to a multiple of `align` x ranks
    and cut into equal parts wherever that falls. Stages 1 and 2 have one unit: the model."""

    replicated = False

    def __init__(self, numels: Sequence[int], units: Sequence[tuple[int, ...]], ranks: int, align: int) -> None:
        self.numels, self.ranks, self.align = tuple(numels), ranks, align
        self.units = {unit: tuple(self._part(unit, rank) for rank in range(ranks)) for unit in units}
        self.owned: tuple[Chunk, ...] = tuple(
            tuple(piece for parts in self.units.values() for piece in parts[rank]) for rank in range(ranks)
        )

    def _part(self, unit: tuple[int, ...], rank: int) -> Chunk:
        share = -(-sum(self.numels[p] for p in unit) // (self.align * self.ranks)) * self.align
        first, pieces, offset = rank * share, list[Piece](), 0
        for p in unit:
            start, stop = (min(max(edge - offset, 0), self.numels[p]) for edge in (first, first + share))
            if start < stop:
                pieces.append(Piece(Slice(p, start, stop), stop - start))
            offset += self.numels[p]
        padding = share - room(tuple(pieces))
        return (*pieces, Piece(Slice(unit[0], 0, 0), padding)) if padding else tuple(pieces)

    def chunks(self, parameters: Sequence[int]) -> tuple[Chunk, ...]:
        if tuple(parameters) not in self.units:
            raise WrongProgramError("a flat buffer is gathered whole or not at all")
        return self.units[tuple(parameters)]


class PerParameter:
    """Stage 3 and FSDP2: each parameter by itself, in pieces of equal room; the last ones may hold less, or nothing.
    `row`: elements that are not parted, 1 on stage 3, a row of the tensor for FSDP2."""

    replicated = False

    def __init__(self, numels: Sequence[int], row: Sequence[int], ranks: int) -> None:
        self.numels, self.row, self.ranks = tuple(numels), tuple(row), ranks
        self.owned: tuple[Chunk, ...] = self.chunks(range(len(self.numels)))

    def chunks(self, parameters: Sequence[int]) -> tuple[Chunk, ...]:
        return tuple(tuple(self._piece(p, rank) for p in parameters) for rank in range(self.ranks))

    def _piece(self, p: int, rank: int) -> Piece:
        numel, row = self.numels[p], self.row[p]
        size = -(-(numel // row) // self.ranks) * row
        start, stop = (min(edge * size, numel) for edge in (rank, rank + 1))
        return Piece(Slice(p, start, stop), size)


def layout_of(strategy: Sharded, model: Model, step: Step, ranks: int) -> Layout:
    """The layout of the strategy. What is flat together, and in which order, is what is gathered together; in the order
    of the model where nothing is gathered, which is wrong but for a loss to show."""
    numels = [parameter.numel for parameter in model.parameters]
    units = dict.fromkeys(op.gathers for op in step.ops if op.gathers)
    match strategy:
        case Fsdp(version=1):
            return Flat(numels, tuple(units), ranks, align=1)
        case Fsdp():
            rows = [parameter.numel // parameter.shape[0] for parameter in model.parameters]
            return PerParameter(numels, rows, ranks)
        case DeepSpeed(zero=Zero(stage=3)):
            return PerParameter(numels, [1] * len(numels), ranks)
        case DeepSpeed(zero=Zero(stage=1 | 2)):
            return Flat(numels, tuple(units) or (tuple(range(len(numels))),), ranks, align=2)
        case _:
            return Whole(numels, ranks)
