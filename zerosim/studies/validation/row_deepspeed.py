"""A row's DeepSpeed configuration: stage, buckets, offload, ZeRO++ and MiCS, as its words say them.

What the words do not say is DeepSpeed's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zerosim.studies.validation.asked import Asked, Plan

_NVME = "/local_nvme"
_LAST_WITH_MICS = {"deepspeed": "0.14.5"}


def deepspeed(asked: Asked) -> Plan:
    zero = _zero(asked)
    if asked.offloads.optimizer != "none":
        zero["offload_optimizer"] = _tier(asked.offloads.optimizer)
    if asked.offloads.parameters != "none":
        zero["offload_param"] = _tier(asked.offloads.parameters)
    settings: dict[str, Any] = {"zero_optimization": zero, "gradient_clipping": asked.program.clipping}
    half = asked.precision.name
    if half != "fp32":
        settings[half] = {"enabled": True}
        if asked.precision.pure:
            settings[half] |= {f"{half}_master_weights_and_grads": True}
            settings[half] |= {"bf16_optimizer_states": True} if half == "bf16" else {}
    settings["optimizer"] = {"type": asked.optimizer.name}
    if asked.says(r"(py)?torch('s)? (cpu[- ]?)?adam") and asked.optimizer.name in ("Adam", "AdamW"):
        settings["optimizer"]["params"] = {"torch_adam": True}
    if asked.optimizer.name in ("SGD", "Lamb"):
        settings["zero_allow_untested_optimizer"] = True
    other = settings | {"zero_optimization": zero | _apart(asked.stage)}
    versions = _LAST_WITH_MICS if "mics_shard_size" in zero else None
    return Plan({"deepspeed": settings}, {"deepspeed": other}, versions)


def _zero(asked: Asked) -> dict[str, Any]:
    """The section, as far as the words of the strategy say it."""
    zero: dict[str, Any] = {"stage": asked.stage}
    raw = f"{asked.row.strategy_raw} {asked.row.flags}"
    if hit := re.search(r"reduce_bucket(?:_size)?\W{1,3}(\d+(?:\.\d+)?(?:e\d+)?)", raw):
        zero["reduce_bucket_size"] = int(float(hit[1]))
    if hit := re.search(r"allgather_bucket(?:_size)?\W{1,3}(\d+(?:\.\d+)?(?:e\d+)?)", raw):
        zero["allgather_bucket_size"] = int(float(hit[1]))
    if asked.says(r"overlap_comm(?!\W{0,3}(false|off))"):
        zero["overlap_comm"] = True
    if asked.says(r"overlap_comm\W{0,3}(false|off)|no overlap|overlap off"):
        zero |= {"overlap_comm": False}
    if asked.stage == 3:
        zero |= _plus_plus(asked)
    return zero


def _plus_plus(asked: Asked) -> Mapping[str, Any]:
    """ZeRO++ (Wang 2023): its three parts, or those that are named; and MiCS."""
    parts = {name: asked.says(name) for name in ("hpz", "qwz", "qgz")}
    if not any(parts.values()) and asked.says(r"zero ?\+\+") and not asked.says("baseline"):
        parts = dict.fromkeys(parts, True)
    chosen: dict[str, Any] = {}
    if parts["hpz"] and asked.machine.nodes > 1:
        chosen["zero_hpz_partition_size"] = asked.machine.per_node
    if parts["qwz"]:
        chosen["zero_quantized_weights"] = True
    if parts["qgz"]:
        chosen["zero_quantized_gradients"] = True
    if asked.says(r"\bmics\b") or re.search(r"\bmics\b", asked.row.framework, re.IGNORECASE):
        hit = re.search(r"(?:group|shard|mics)\D{0,12}(\d+)", asked.row.strategy_raw, re.IGNORECASE)
        size = int(hit[1]) if hit else asked.machine.per_node
        if not hit:
            asked.ledger.note(f"MiCS groups of {size}, those of a node")
        chosen["mics_shard_size"] = size
    return chosen


def _apart(stage: int) -> dict[str, Any]:
    """No overlap and no prefetch."""
    return {"overlap_comm": False, **({"prefetch_bucket_size": 0} if stage == 3 else {})}


def _tier(device: str) -> Mapping[str, Any]:
    return {"device": device, **({"nvme_path": _NVME} if device == "nvme" else {})}
