"""What bears on memory and a timeline cannot know: what the scenario has chosen, and what is left in the other tiers.

Who asks for a summary says it; remedies then propose nothing that is done already, and nothing that has no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Fsdp(NamedTuple):
    """What a run of FSDP has chosen. `shards`: ranks that hold the parameters once; `frees`: whether a unit is dropped
    after its forward; `kept`: elements that are gathered at the same time then, at most; `width`: bytes of each, and
    `stored` of an element of a shard."""

    version: int
    shards: int
    across: bool = False  # they are on several nodes
    sharded: bool = True  # NO_SHARD shards nothing
    frees: bool = True
    wrapped: bool = True  # the model is more than one unit
    prefetches: bool = True  # the next unit is gathered during backward of the one before
    limited: bool = True  # no more than two units are gathered ahead
    offload: bool = False
    no_sync: bool = False
    kept: float = 0.0
    width: int = 2
    stored: int = 4
    threads: bool = False  # somebody says how many a rank computes with


class Pipeline(NamedTuple):
    """Blocks are spread over GPUs: by which schedule, how many stages; `replicas` of each, `sharded` where they share
    the optimizer's states."""

    schedule: str
    stages: int
    micro_batches: int
    replicas: int = 1
    sharded: bool = False

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations the first stage holds at the same time."""
        if self.schedule == "naive":
            return 1
        return self.micro_batches if self.schedule == "gpipe" else min(self.micro_batches, self.stages)


class Choices(NamedTuple):
    """What the scenario has chosen that bears on memory. None: not known."""

    checkpointing: bool = False
    micro_batch: int | None = None  # sequences per GPU
    stage: int | None = None  # of ZeRO; None for everything else too
    fsdp: Fsdp | None = None
    ddp: bool = False
    pipeline: Pipeline | None = None
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
