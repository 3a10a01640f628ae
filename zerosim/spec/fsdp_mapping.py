"""FSDP's value back to settings that read as it: torch's names, everything said, nothing of the other version."""

from __future__ import annotations

from typing import Any

from zerosim.spec.ddp import optimizer_mapping
from zerosim.spec.fsdp_schema import OF_VERSION
from zerosim.spec.fully_sharded import Fsdp, Wrap

_ALWAYS = ("version", "parameter_dtype", "cpu_offload", "no_sync", "gradient_clipping")


def fsdp_mapping(fsdp: Fsdp) -> dict[str, Any]:
    """The settings as `read_fsdp` reads them."""
    mapping: dict[str, Any] = {name: getattr(fsdp, name) for name in (*_ALWAYS, *OF_VERSION[fsdp.version])}
    policy = {"param_dtype": fsdp.param_dtype, "reduce_dtype": fsdp.reduce_dtype}
    mapping["mixed_precision"] = {name: dtype for name, dtype in policy.items() if dtype is not None}
    mapping["wrap"] = _wrap_mapping(fsdp.wrap)
    mapping["optimizer"] = optimizer_mapping(fsdp.optimizer)
    if fsdp.shard_size is not None:
        mapping["shard_size"] = fsdp.shard_size
    return mapping


def _wrap_mapping(wrap: Wrap) -> Any:
    if wrap == Wrap():
        return "blocks"
    if wrap == Wrap(blocks=False):
        return "none"
    return {"blocks": wrap.blocks, "modules": list(wrap.modules), "min_num_params": wrap.least}
