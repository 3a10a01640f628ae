"""MiCS: stage 3 within groups of few ranks, which hold a whole copy of everything, and a sum over these copies.

Source: DeepSpeed 0.14.5 runtime/zero/mics.py, mics_utils.py (it was removed afterwards); Zhang et al. 2022, "MiCS".
Gathers, reduce-scatters and the norm stay in the group; at the boundary each bucket's slices are summed over the
replicas. Parameters are gathered one by one, into their places, in one batch of NCCL calls: nothing is copied out. A
hierarchical gather goes across nodes first, then in the node, piece by piece, with a copy in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES
from zerosim.strategies.builder import Builder
from zerosim.strategies.gathering import Full, Gathers, InFlight, Landed, Members
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.stage3_groups import Levels
from zerosim.strategies.zero3 import Zero3

_BATCHES = "the gathers of a batch, which NCCL starts as one, are priced one after another"


class BatchedGathers(Gathers):
    """A collective for each parameter; `levels` for a hierarchical one."""

    def __init__(self, builder: Builder, dtype: str, numels: Sequence[int], lane: str, levels: Levels | None) -> None:
        super().__init__(builder, dtype, numels, lane)
        self.levels = levels
        self.landing: dict[int, Landed] = {}  # by the last collective of a gather

    def start(self, members: Members) -> InFlight:
        landing = {p: self._place(members, p) for p in members.parameters}
        if self.levels is None:
            collectives = [self._flat(members, p) for p in members.parameters]
        else:
            collectives = self._hierarchical(members, self.levels)
        self.landing[collectives[-1]] = landing
        return InFlight(collectives[-1], landing[members.parameters[0]])

    def _place(self, members: Members, parameter: int) -> int:
        """Padded, and the parameter is a view of it."""
        size = float(self.width * self._whole(members, parameter))
        return self.builder.acquire("gathered parameter", "parameters", size)

    @staticmethod
    def _whole(members: Members, parameter: int) -> int:
        return members.shards.group.size * members.shards.elements([parameter])

    def _flat(self, members: Members, parameter: int) -> int:
        return self.builder.collective(
            self.lane, "all_gather", self._whole(members, parameter), self.dtype, members.shards.group.name,
            name=members.name, asynchronous=True, gathers=(parameter,),
        )  # fmt: skip

    def _hierarchical(self, members: Members, levels: Levels) -> list[int]:
        """Across nodes each rank collects the shards of its place there; it clones them and spreads them out; then each
        node's piece is completed in the node."""
        local, across = levels
        for parameter in members.parameters:
            elements = across.size * members.shards.elements([parameter])
            name = f"{members.name} across nodes"
            self.builder.collective(self.lane, "all_gather", elements, self.dtype, across.name, name=name)
        collectives = []
        for parameter in members.parameters:
            shard = members.shards.elements([parameter])
            clone = self.builder.acquire("shards of a place", "buffers", float(self.width * across.size * shard))
            self.free([clone], self.stream("spread out shards", 4 * self.width * across.size * shard, 2))
            for piece in range(across.size):
                gathers = (parameter,) if piece == across.size - 1 else ()
                collectives.append(
                    self.builder.collective(
                        self.lane, "all_gather", local.size * shard, self.dtype, local.name,
                        name=f"{members.name} in the node", asynchronous=True, gathers=gathers,
                    )
                )  # fmt: skip
        return collectives

    def land(self, flight: InFlight, members: Members, full: Full) -> Landed:
        """Nothing is left to do."""
        self.builder.launch(self.lane, "parameters are views", None)
        landed = self.landing.pop(flight.collective)
        return {p: self.builder.gathered(buffer, p) for p, buffer in landed.items()}


class Mics(Zero3):
    """Sharded over `mics_shard_size` ranks."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        self.full_width = BatchedGathers(
            self.builder, self.dtype, self.network.numels, self.gather_lane, self.groups.gathers
        )
        self.notes.append(_BATCHES)

    def replicate(self, members: Sequence[int]) -> None:
        """At the boundary: divide my slices, and sum them over the replicas in one all-reduce of all of them."""
        replicas = self.groups.replicas
        if replicas is None or not self.boundary_micro_batch:
            return
        elements, held = self.layout.elements(members), self.config.grad_accum_dtype or self.dtype
        self.pass_over("divide by replicas", elements, 2 * DTYPE_BYTES[held], len(members), self.lane)
        self.builder.collective(
            self.lane, "all_reduce", elements, held, replicas.name, name="all-reduce my gradients over replicas"
        )
