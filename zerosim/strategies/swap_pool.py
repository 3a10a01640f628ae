"""Which shards on NVMe are in memory: the pool of buffers through which stage 3 reads them.

Pure, and part of the plan of a micro-step: a shard takes a buffer when its read is asked for, and gives it back when
its full parameter is released. Source: DeepSpeed 0.19.8 runtime/swap_tensor/partitioned_param_swapper.py,
runtime/zero/partition_parameters.py (_ensure_availability_of_partitioned_params).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zerosim.errors import ZerosimError


class PoolError(ZerosimError):
    """`wanted` shards have to be read, and only `free` buffers are."""

    def __init__(self, wanted: int, free: int) -> None:
        self.wanted = wanted
        self.free = free
        super().__init__(f"{wanted} shards have to be read while {free} buffers are free")


@dataclass(slots=True)
class BufferPool:
    """`swapped` parameters have their shards on NVMe; those `reading` or `there` have a buffer, others are `free`."""

    swapped: frozenset[int]
    free: int
    reading: set[int] = field(default_factory=set)
    there: set[int] = field(default_factory=set)

    def on_drive(self, parameter: int) -> bool:
        """Its shard is on NVMe and nobody has asked for it."""
        return parameter in self.swapped and parameter not in self.there and parameter not in self.reading

    def read(self, parameters: Sequence[int]) -> None:
        if len(parameters) > self.free:
            raise PoolError(len(parameters), self.free)
        self.free -= len(parameters)
        self.reading.update(parameters)

    def arrive(self) -> None:
        """The host has waited for all reads."""
        self.there |= self.reading
        self.reading.clear()

    def need(self, parameters: Iterable[int]) -> tuple[int, ...] | None:
        """What has to be read now for a gather of these; None when the host waits for no read either."""
        wanted = sorted(parameters)
        missing = tuple(p for p in wanted if self.on_drive(p))
        waits = bool(missing) or any(p in self.reading for p in wanted)
        if missing:
            self.read(missing)
        if waits:
            self.arrive()
        return missing if waits else None

    def drop(self, parameter: int) -> None:
        """The full parameter is released, and the buffer of its shard."""
        if parameter in self.there:
            self.there.discard(parameter)
            self.free += 1
