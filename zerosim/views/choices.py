"""What bears on memory and a timeline cannot know: what the scenario has chosen, and what is left in the other tiers.

Who asks for a summary says it; remedies then propose nothing that is done already, and nothing that has no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Choices(NamedTuple):
    """What the scenario has chosen that bears on memory. None: not known."""

    checkpointing: bool = False
    micro_batch: int | None = None  # sequences per GPU
    stage: int | None = None  # of ZeRO; None for DDP and pipelines too
    ddp: bool = False
    pipeline: bool = False  # blocks are spread over GPUs
    bucket_view: bool = False  # DDP's gradients live in its buckets
    offloaded: frozenset[str] = frozenset()  # states that are not on the GPU: optimizer, parameters
    on_nvme: frozenset[str] = frozenset()  # those of them that are on drives
    pinned: frozenset[str] = frozenset()  # those of them whose host memory is page-locked
    accumulation: int = 1  # micro-steps of a step
    pipelined: bool = False  # drives are read and written while the CPU computes
    bound_cores: bool = False  # each rank has its own cores


class Surroundings(NamedTuple):
    """Where a tier stands. `elements`: the model's trainable parameters, 0 if unknown; `free`: bytes left by tier of a
    node, for the tiers that the machine has."""

    elements: int
    world_size: int
    ranks_per_node: int
    free: Mapping[str, float]

    @property
    def share(self) -> float:
        """Elements of one rank, where a state is partitioned over all."""
        return self.elements / self.world_size


@dataclass(frozen=True, slots=True)
class Change:
    """Something the user can do, and the bytes it saves at the peak. `costs`: what it takes elsewhere, in words."""

    what: str
    saves: float
    acts_on: frozenset[str]  # parts; two changes of one part do not add up
    costs: str = ""
