"""A row's FSDP: sharding strategy, precision on the wire, prefetch, as its words and its framework say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zerosim.studies.validation.asked import SHARDINGS, WORDS, Asked, Plan
from zerosim.studies.validation.assumptions import CannotError


def fsdp(asked: Asked) -> Plan:
    row, program, precision = asked.row, asked.program, asked.precision
    if "nvme" in asked.offloads:
        raise CannotError("FSDP with states on drives")
    version = 2 if row.says(r"fsdp-?2|fully_shard|torch-?titan(?!.*fsdp1)", *WORDS, "framework") else 1
    settings: dict[str, Any] = {
        "version": version,
        "wrap": "blocks",
        "mixed_precision": _policy(asked),
        "cpu_offload": "cpu" in asked.offloads,
        "no_sync": not program.sync,
        "gradient_clipping": program.clipping,
        "optimizer": {"type": asked.optimizer.name, "fused": asked.optimizer.fused},
    }
    if precision.pure and precision.name != "fp32":
        settings["parameter_dtype"] = precision.name
    off: dict[str, Any] = {}
    hybrid = asked.says(r"hybrid|hsdp") and asked.machine.nodes > 1
    if version == 1:
        settings |= {"sharding_strategy": _sharding(asked), "use_orig_params": True,
                     "limit_all_gathers": not asked.says(r"limit_all_gathers ?[=:] ?(false|off)"),
                     "forward_prefetch": asked.says(r"forward_prefetch(?! ?[=:] ?(false|off))"),
                     "backward_prefetch": _backward_prefetch(asked)}  # fmt: skip
        off = {"backward_prefetch": "NO_PREFETCH", "forward_prefetch": False}
    else:
        settings["reshard_after_forward"] = asked.stage == 3
        if hybrid:
            settings["shard_size"] = asked.machine.per_node
    return Plan({"fsdp": settings}, {"fsdp": settings | off} if off else None)


def _policy(asked: Asked) -> Mapping[str, Any]:
    """Composer's PURE reduces in the dtype of parameters, DEFAULT in fp32; FULL is fp32 throughout."""
    precision, half = asked.precision, asked.precision.name
    if precision.autocast or half == "fp32":
        return {"param_dtype": None, "reduce_dtype": None}
    said = re.search(r"mixed_precision\s*=\s*(PURE|DEFAULT|FULL)", asked.row.flags)
    if said and said[1] == "FULL":
        return {"param_dtype": None, "reduce_dtype": None}
    reduce = {"PURE": half, "DEFAULT": "fp32"}[said[1]] if said else asked.program.reduce
    return {"param_dtype": half, "reduce_dtype": half if reduce == "param" else reduce}


def _sharding(asked: Asked) -> str:
    words = " ".join(asked.row.raw.get(column, "") for column in WORDS).upper()
    named = next((name for name in SHARDINGS if name in words), None)
    if named is None and re.search(r"HSDP|HYBRID", words):
        named = "HYBRID_SHARD"
    if named is None and asked.stage == 1:
        raise CannotError("FSDP with only the optimizer's states sharded")
    named = named or {3: "FULL_SHARD", 2: "SHARD_GRAD_OP", 0: "NO_SHARD"}[asked.stage]
    if asked.machine.nodes == 1:  # nothing to replicate over
        return named.replace("_HYBRID_SHARD_ZERO2", "SHARD_GRAD_OP").replace("HYBRID_SHARD", "FULL_SHARD")
    return named


def _backward_prefetch(asked: Asked) -> str:
    if asked.says(r"backward[ _]prefetch\W*(off|none|false|no\b)|no_prefetch"):
        return "NO_PREFETCH"
    return "BACKWARD_POST" if asked.says("backward_post") else "BACKWARD_PRE"
