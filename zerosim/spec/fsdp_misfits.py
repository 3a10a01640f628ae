"""What of an FSDP value does not go with the precision and the number of GPUs, as it is read and as it is changed."""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.fully_sharded import HYBRIDS, Fsdp
from zerosim.spec.misfit import Misfit


def misfits(fsdp: Fsdp, precision: str, world_size: int | None, ranks_per_node: int | None) -> Iterator[Misfit]:
    """What does not go with the precision and the number of GPUs; None is what is not known."""
    if fsdp.compute_dtype not in ("fp32", precision):  # fp32 beside 16 bits is autocast
        yield Misfit("mixed_precision", fsdp.compute_dtype, f"{precision}, as training.precision")
    if fsdp.parameter_dtype not in ("fp32", fsdp.compute_dtype):
        expected = f"fp32, or {fsdp.compute_dtype} as computation has it"
        yield Misfit("parameter_dtype", fsdp.parameter_dtype, expected)
    if fsdp.version == 1 and fsdp.shard_size is not None and not fsdp.hybrid:
        yield Misfit("shard_size", str(fsdp.shard_size), f"none, or a sharding_strategy {' or '.join(HYBRIDS)}")
    if world_size is None:
        return
    shards = fsdp.shards(world_size, ranks_per_node or world_size)
    if world_size % shards:
        yield Misfit("shard_size", str(shards), f"a number that divides the {world_size} GPUs")
        return
    for name in ("reshard_after_forward", "root_reshard_after_forward"):
        value = getattr(fsdp, name)
        if not isinstance(value, bool | str) and (value < 1 or shards % value):
            yield Misfit(name, str(value), f"true, false, or a number that divides the {shards} ranks that shard")
