"""The drives of a node as one: every rank of the node reads from and writes to all of them.

They are striped (aio swaps to one directory), so their rates add up, less what striping costs. On which sockets they
hang is asked by `sockets`.

Writing goes at the drives' first rate until their caches are full, then at the rate that they keep up, at which caches
drain all the time, also between writes. So step after step, a step takes the longer of two times: its own with caches
that are empty when it begins, which is what is priced, and what it writes at the rate that is kept up (`least`). Where
the second is longer, caches are fuller after each step, and in the end full; that is told, not played.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerosim.catalog import constant
from zerosim.spec.topology import Drive


class Drives(NamedTuple):
    """Bytes/s on paper, of all drives together, and the bytes that their caches hold."""

    number: int
    read: float
    write: float
    sustained: float
    cache: float

    @classmethod
    def of(cls, figures: Sequence[Drive]) -> Drives | None:
        """All of them together; None where there is none."""
        if not figures:
            return None
        return cls(
            number=len(figures),
            read=sum(drive.read for drive in figures),
            write=sum(drive.write for drive in figures),
            sustained=sum(drive.sustained_write for drive in figures),
            cache=sum(drive.cache for drive in figures),
        )

    @property
    def striped(self) -> float:
        """The part of their rates that is reached together."""
        return constant("nvme.raid0_eff") if self.number > 1 else 1.0

    def least(self, written: float) -> float:
        """Seconds of a step that writes so many bytes, one of many."""
        return written / (self.striped * self.sustained)

    def writes(self, written: float) -> float:
        """Bytes/s of writing, on paper, in a step that writes so many bytes: the cache takes the first of them."""
        if written <= self.cache:
            return self.write
        first = self.cache / written
        return 1 / (first / self.write + (1 - first) / self.sustained)
