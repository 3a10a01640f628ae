"""Whether a machine has the tiers that a configuration offloads to. It knows no rates and no sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from zerosim.spec.strategy import DeepSpeed, Fsdp, Strategy

if TYPE_CHECKING:  # networkx is loaded when a topology is
    from zerosim.spec.topology import Topology

_KEYS = "strategy.deepspeed.zero_optimization"
_Tier = Literal["dram", "nvme"]
_CALLED: dict[_Tier, str] = {"dram": "sockets with DRAM", "nvme": "NVMe drives"}


class Lacking(NamedTuple):
    """What the machine has not, and what would do, as an error says it."""

    found: str
    expected: str


def lacking_tier(strategy: Strategy, topology: Topology) -> Lacking | None:
    """The first tier that something is offloaded to and that a node does not have."""
    for tier, key in _wanted(strategy):
        bare = [host for host in topology.hosts if not topology.devices(tier, host)]
        if bare:
            where = "" if len(bare) == len(topology.hosts) else f" on node {bare[0]}"
            expected = f"a topology whose nodes have {_CALLED[tier]}, where {key}"
            return Lacking(f"{topology.name} without {_CALLED[tier]}{where}", expected)
    return None


def _wanted(strategy: Strategy) -> Iterator[tuple[_Tier, str]]:
    """Tiers, and the key that asks for each."""
    if isinstance(strategy, Fsdp) and strategy.cpu_offload:
        yield "dram", "strategy.fsdp.cpu_offload is true"
    if not isinstance(strategy, DeepSpeed):
        return
    zero = strategy.zero
    for name, offload, stages in (
        ("offload_optimizer", zero.offload_optimizer, (1, 2, 3)),
        ("offload_param", zero.offload_param, (3,)),
    ):
        if offload.device == "none" or zero.stage not in stages:
            continue
        said = f"{_KEYS}.{name}.device is {offload.device}"
        yield "dram", said
        if offload.device == "nvme" and zero.stage == 3:
            yield "nvme", said
    if strategy.cpu_checkpointing:
        yield "dram", "strategy.deepspeed.activation_checkpointing.cpu_checkpointing is true"
