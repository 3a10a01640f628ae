"""How stage 3 puts a gather on the wire: my shards into place, the collective, and the parameters out of what arrives.

Source: DeepSpeed 0.19.8 runtime/zero/partition_parameters.py (`_all_gather_coalesced`, `_all_gather_sequential`). One
parameter arrives in its place; several arrive rank by rank and are concatenated anew. By an all-reduce
(`use_all_reduce_for_fetch_params`) several arrive in their places too. All of it runs on the gather lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zerosim.step import DTYPE_BYTES, Group, HostCalls, Pass
from zerosim.strategies.builder import Builder

Full = Callable[[int], int]  # takes memory for a whole parameter
Landed = dict[int, int]  # the buffer of each parameter


class Shards(Protocol):
    """Shards of a kind, spread over `group`."""

    group: Group

    def elements(self, parameters: Sequence[int]) -> int: ...

    def on_gpu(self, parameter: int) -> bool: ...

    def bring_up(self, parameters: Sequence[int], lane: str, in_place: bool = False) -> list[int]: ...


class Members(NamedTuple):
    """What is gathered, from which shards, and how the gather is called."""

    parameters: tuple[int, ...]
    shards: Shards
    name: str

    @property
    def own(self) -> int:
        """Elements of my shards."""
        return self.shards.elements(self.parameters)

    @property
    def whole(self) -> int:
        """Elements of what arrives, padding included."""
        return self.own * self.shards.group.size

    @property
    def several(self) -> bool:
        return len(self.parameters) > 1


class InFlight(NamedTuple):
    """A gather on its way: its last collective, the buffer it lands in, and beside it the scales of what is in int8."""

    collective: int
    buffer: int
    scales: int | None = None
    blocks: int = 0


class Gathers(ABC):
    """A way to gather a model in `dtype`, parameters of `numels` elements, on `lane`."""

    def __init__(self, builder: Builder, dtype: str, numels: Sequence[int], lane: str) -> None:
        self.builder = builder
        self.lane = lane
        self.dtype = dtype
        self.width = DTYPE_BYTES[dtype]
        self.numels = numels

    @abstractmethod
    def start(self, members: Members) -> InFlight:
        """Put my shards into place and start the collective."""

    @abstractmethod
    def land(self, flight: InFlight, members: Members, full: Full) -> Landed:
        """Make the parameters of what has arrived."""

    def elements(self, members: Members) -> int:
        return sum(self.numels[p] for p in members.parameters)

    def stream(self, name: str, size: float, kernels: int = 1) -> int:
        return self.builder.launch(self.lane, name, Pass(float(size), "stream", kernels), HostCalls(kernels=kernels))

    def free(self, buffers: Sequence[int], op: int) -> None:
        for buffer in buffers:
            self.builder.release_after(buffer, op)


class FullWidth(Gathers):
    """In the model's dtype. `sums`: shards by which several parameters are summed up instead."""

    def __init__(self, builder: Builder, dtype: str, numels: Sequence[int], lane: str, sums: Shards | None) -> None:
        super().__init__(builder, dtype, numels, lane)
        self.sums = sums

    def start(self, members: Members) -> InFlight:
        build, shards, several = self.builder, members.shards, members.several
        name, category = ("gathered bucket", "buffers") if several else ("gathered parameter", "parameters")
        buffer = build.acquire(name, category, float(self.width * members.whole))
        summed = self._summed(members)
        brought = shards.bring_up(members.parameters, self.lane, in_place=summed)
        here = [p for p in members.parameters if shards.on_gpu(p) or not summed] if several else []
        if here:
            moved = 2 * self.width * shards.elements(here)
            self.free(brought, self.stream("copy shards to bucket", moved, len(here)))
        collective = build.collective(
            self.lane, "all_reduce" if summed else "all_gather", members.whole, self.dtype, shards.group.name,
            name=members.name, asynchronous=True, gathers=members.parameters,
        )  # fmt: skip
        if not here:
            self.free(brought, collective)
        return InFlight(collective, buffer)

    def land(self, flight: InFlight, members: Members, full: Full) -> Landed:
        if not members.several:
            (parameter,) = members.parameters
            return {parameter: self.builder.gathered(flight.buffer, parameter)}
        landed = {parameter: full(parameter) for parameter in members.parameters}
        if self._summed(members):
            self.builder.launch(self.lane, "parameters are views", None)
        else:
            moved = 2 * self.width * self.elements(members)
            self.stream("assemble parameters", moved, len(members.parameters))
        self.builder.release(flight.buffer, self.lane)
        return landed

    def _summed(self, members: Members) -> bool:
        return members.several and members.shards is self.sums
