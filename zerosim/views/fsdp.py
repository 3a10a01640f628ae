"""What would help a run of PyTorch's FSDP, in its own words: what saves memory, what saves communication.

torch's optimizer steps the shards themselves: gradients and Adam's two moments have their dtype. What is gathered has
the width of computation. Gathering once more saves memory and costs a collective, and the other way round: so the two
lists advise the opposite of each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.units import show_size
from zerosim.views.choices import Change, Fsdp, Surroundings
from zerosim.views.memory import TierMemory

TENSORS = {"parameters": 1, "gradients": 1, "optimizer": 2}  # of the size and dtype of a shard, with Adam
PARAMETERS, GRADIENTS, STATES = frozenset({"parameters"}), frozenset({"gradients"}), frozenset(TENSORS)


def on_shards(tier: TierMemory, around: Surroundings, fsdp: Fsdp, accumulation: int) -> Iterator[Change]:
    """What saves memory of the GPU, largest mechanisms first."""
    parts, shard = tier.parts, fsdp.stored * around.elements / (fsdp.shards if fsdp.sharded else 1)
    held = sum(parts[state] for state in STATES)
    if not fsdp.sharded:
        yield Change("sharding_strategy FULL_SHARD", held * (1 - 1 / around.world_size), STATES)
        return
    gathered = parts["parameters"] - (0 if fsdp.offload else shard)
    spared = gathered - fsdp.kept * fsdp.width
    if not fsdp.wrapped:
        yield Change("auto_wrap_policy TRANSFORMER_BASED_WRAP", spared, PARAMETERS)
    elif not fsdp.frees:
        how = "sharding_strategy FULL_SHARD" if fsdp.version == 1 else "reshard_after_forward true"
        yield Change(how, spared, PARAMETERS, "gathers parameters once more in backward")
    elif not fsdp.limited:
        yield Change("limit_all_gathers true", spared, PARAMETERS)
    if fsdp.no_sync and accumulation > 1:
        whole = parts["gradients"] - (0 if fsdp.offload else shard)
        yield Change("no_sync false", whole, GRADIENTS, "reduces gradients in every micro-step")
    if fsdp.shards < around.world_size:
        how = "sharding_strategy FULL_SHARD" if fsdp.version == 1 else "a mesh of one dimension"
        yield Change(how, held * (1 - fsdp.shards / around.world_size), STATES, "gathers over all nodes")
    if not fsdp.offload:
        shards = sum(min(parts[state], tensors * shard) for state, tensors in TENSORS.items())
        yield from _offloaded(shards, around, shard)
        if fsdp.shards == around.world_size:
            yield Change("twice as many GPUs", shards / 2, STATES)


def _offloaded(saved: float, around: Surroundings, shard: float) -> Iterator[Change]:
    """Shards, their gradients and the optimizer in host memory, if it has room."""
    taken = sum(TENSORS.values()) * shard * around.ranks_per_node
    if 0 < taken <= around.free.get("dram", 0.0):
        yield Change("cpu_offload true", saved, STATES, f"takes about {show_size(taken)} of DRAM per node")


def fewer_gathers(fsdp: Fsdp) -> Iterator[str]:
    """What spares or hides the gathers of parameters."""
    if not fsdp.wrapped:
        yield "auto_wrap_policy TRANSFORMER_BASED_WRAP: the gather of a block then hides behind another's compute"
    elif fsdp.frees and not fsdp.prefetches:
        yield "backward_prefetch BACKWARD_PRE, which gathers the next unit during backward of the one before"
    if fsdp.frees and fsdp.wrapped:
        how = "SHARD_GRAD_OP" if fsdp.version == 1 else "reshard_after_forward false"
        yield f"{how} spares the gathers of backward, where memory holds the parameters"
    if fsdp.across:
        how = "HYBRID_SHARD" if fsdp.version == 1 else "a mesh [replicas, ranks of a node]"
        yield f"{how} gathers within a node, where it holds the shards"


def fewer_reductions(fsdp: Fsdp, accumulation: int) -> Iterator[str]:
    """What spares the reductions of gradients."""
    if fsdp.no_sync:
        yield "more gradient_accumulation_steps: gradients are reduced once a step"
    elif accumulation > 1:
        yield "no_sync reduces gradients once a step, where memory holds them whole"
    else:
        yield "more gradient_accumulation_steps with no_sync, where memory holds the gradients whole"
