"""What PyTorch's caching allocator would reserve for a sequence of requests, and how often it would flush its cache.

Rules and constants of PyTorch's c10/cuda/CUDACachingAllocator.cpp without expandable segments: blocks are rounded to
512 bytes and cut, best fit, from segments that are kept when they fall free; each stream has its own small and large
pool; free neighbours merge. When the device has no room for a segment, the host waits for the streams that still use
what it has given back, all wholly free segments are returned (a flush: `release_cached_blocks`) and the request is
tried again. This module knows no time: requests come in host order.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MIN_BLOCK_SIZE = 512  # kMinBlockSize: every size is a multiple of it
SMALL_SIZE = 1 << 20  # kSmallSize: the largest request of the small pool
SMALL_BUFFER = 2 << 20  # kSmallBuffer: segment of the small pool
LARGE_BUFFER = 20 << 20  # kLargeBuffer: segment for requests below MIN_LARGE_ALLOC
MIN_LARGE_ALLOC = 10 << 20  # kMinLargeAlloc: from here on a segment of its own
ROUND_LARGE = 2 << 20  # kRoundLarge: whose size is a multiple of this


def rounded(size: float) -> int:
    """The block that a request takes (`round_size`)."""
    return (math.ceil(size / MIN_BLOCK_SIZE) or 1) * MIN_BLOCK_SIZE


def segment_size(size: int) -> int:
    """The segment that is reserved when no free block fits (`get_allocation_size`)."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return LARGE_BUFFER
    return math.ceil(size / ROUND_LARGE) * ROUND_LARGE


class Block(NamedTuple):
    """Bytes handed out: where, how many, and from which pool."""

    address: int
    size: int
    pool: _Pool


@dataclass(slots=True)
class _Pool:
    """The free blocks of one stream and size class, findable by size, by where they start and by where they end."""

    small: bool
    by_size: list[tuple[int, int]] = field(default_factory=list)  # (size, address), sorted
    starts: dict[int, int] = field(default_factory=dict)  # address -> size
    ends: dict[int, int] = field(default_factory=dict)  # end -> address

    def take(self, size: int) -> tuple[int, int] | None:
        """The smallest free block that is large enough, as (size, address)."""
        place = bisect_left(self.by_size, (size, -1))
        if place == len(self.by_size):
            return None
        size, address = self.by_size.pop(place)
        del self.starts[address], self.ends[address + size]
        return size, address

    def add(self, address: int, size: int) -> None:
        """A block falls free and merges with its free neighbours."""
        before = self.ends.get(address)
        if before is not None:
            size += self.remove(before)
            address = before
        if address + size in self.starts:
            size += self.remove(address + size)
        self.starts[address] = size
        self.ends[address + size] = address
        insort(self.by_size, (size, address))

    def remove(self, address: int) -> int:
        """Take out the free block at `address`; its size."""
        size = self.starts.pop(address)
        del self.ends[address + size]
        del self.by_size[bisect_left(self.by_size, (size, address))]
        return size

    def splits(self, remainder: int) -> bool:
        """Whether a remainder is cut off or stays with the block (`should_split`)."""
        return remainder >= MIN_BLOCK_SIZE if self.small else remainder > SMALL_SIZE


@dataclass(slots=True)
class CachingAllocator:
    """Reserves at most `limit` bytes while it can; counts flushes, and requests that did not fit even after one.

    `awaited`: what a flush waits for, blocks that the host has given back and a stream still uses.
    """

    limit: float = math.inf
    awaited: Callable[[], Iterable[Block]] = tuple
    reserved: int = 0
    flushes: int = 0
    failures: int = 0
    _pools: dict[tuple[str, bool], _Pool] = field(default_factory=dict)
    _segments: dict[int, int] = field(default_factory=dict)  # address -> size
    _frontier: int = 0

    def allocate(self, size: float, stream: str) -> Block:
        """A block of at least `size` bytes for `stream`."""
        wanted = rounded(size)
        small = wanted <= SMALL_SIZE
        pool = self._pools.get((stream, small)) or self._open(stream, small)
        available, address = pool.take(wanted) or self._reserve(wanted)
        if pool.splits(available - wanted):
            pool.add(address + wanted, available - wanted)
            available = wanted
        return Block(address, available, pool)

    def _open(self, stream: str, small: bool) -> _Pool:
        pool = self._pools[stream, small] = _Pool(small)
        return pool

    def free(self, block: Block) -> None:
        """The block may be reused from now on; its segment stays reserved."""
        block.pool.add(block.address, block.size)

    def flush(self) -> None:
        """Wait for the streams, then give back every segment that is wholly free (`release_cached_blocks`)."""
        self.flushes += 1
        for block in self.awaited():
            self.free(block)
        for pool in self._pools.values():
            for address, size in list(pool.starts.items()):
                if self._segments.get(address) == size:
                    pool.remove(address)
                    del self._segments[address]
                    self.reserved -= size

    def _reserve(self, wanted: int) -> tuple[int, int]:
        size = segment_size(wanted)
        if self.reserved + size > self.limit:
            self.flush()
            self.failures += self.reserved + size > self.limit
        address = self._frontier
        self._frontier += size + MIN_BLOCK_SIZE  # never a neighbour of the next segment
        self._segments[address] = size
        self.reserved += size
        return size, address
