"""The layout of ZeRO stages 1 and 2: one flat buffer, cut into equal partitions that ignore parameter borders.

Source: DeepSpeed runtime/zero/stage_1_and_2.py. The flat order is registration order, or the interleaved order of
`round_robin_gradients`; the buffer is padded to a multiple of `nccl_start_alignment` (2 elements) x ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zerosim.step import Slice

NCCL_START_ALIGNMENT = 2  # elements; stage_1_and_2.py: 4-byte alignment of fp16 for NCCL


def padded(elements: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-elements // unit) * unit


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """Offsets of the trainable parameters in the flat buffer; partition r is elements [r·share, (r+1)·share)."""

    offsets: dict[int, int]
    numels: tuple[int, ...]
    order: tuple[int, ...]
    padded: int
    ranks: int

    @property
    def share(self) -> int:
        return self.padded // self.ranks

    def owner_runs(self, parameters: Sequence[int]) -> list[OwnerRun]:
        """The bucket of these parameters cut at partition borders, neighbours of equal owner merged."""
        runs: list[OwnerRun] = []
        for parameter in parameters:
            start, offset = 0, self.offsets[parameter]
            numel = self.numels[parameter]
            while start < numel:
                owner = (offset + start) // self.share
                stop = min(numel, (owner + 1) * self.share - offset)
                piece = Slice(parameter, start, stop)
                if runs and runs[-1].owner == owner:
                    runs[-1] = OwnerRun(owner, (*runs[-1].pieces, piece))
                else:
                    runs.append(OwnerRun(owner, (piece,)))
                start = stop
        return runs

    def in_partition(self, parameter: int, rank: int) -> int:
        """Elements of the parameter that lie in the partition of `rank`."""
        start = self.offsets[parameter]
        stop = start + self.numels[parameter]
        return max(0, min(stop, (rank + 1) * self.share) - max(start, rank * self.share))

    def touched(self, rank: int) -> int:
        """Elements of all parameters that intersect the partition of `rank`, whole (q' of the partition's q)."""
        return sum(self.numels[p] for p in self.order if self.in_partition(p, rank))

    def largest_slice(self, rank: int) -> int:
        return max((self.in_partition(p, rank) for p in self.order), default=0)


@dataclass(frozen=True, slots=True)
class OwnerRun:
    """Consecutive pieces of a bucket that belong to one rank's partition."""

    owner: int
    pieces: tuple[Slice, ...]

    @property
    def elements(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


def flat_layout(
    trainable_numels: Sequence[int], ranks: int, round_robin: bool = False, alignment: int = 1
) -> FlatLayout:
    """Layout of the parameters whose count is not 0 over `ranks` partitions; each begins at a multiple of `alignment`
    elements."""
    order = [p for p, numel in enumerate(trainable_numels) if numel]
    if round_robin:
        order = [p for start in range(ranks) for p in order[start::ranks]]
    offsets, total = {}, 0
    for parameter in order:
        total += -total % alignment
        offsets[parameter] = total
        total += trainable_numels[parameter]
    unit = NCCL_START_ALIGNMENT * ranks
    return FlatLayout(offsets, tuple(trainable_numels), tuple(order), max(unit, padded(total, unit)), ranks)
