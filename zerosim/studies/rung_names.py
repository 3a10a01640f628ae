"""What rungs and strategies are called: for people (`FSDP2 HYBRID_SHARD`), and as one word (`fsdp2-hybrid_shard`).

Measured values of a reference file are matched by these names, so that they are said here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from zerosim.spec.fully_sharded import Sharding
from zerosim.spec.strategy import Ddp, Fsdp, HierarchicalZero1, Pipeline, Schedule, Strategy

ONE_GPU, HIERARCHICAL = "one GPU", "hierarchical ZeRO-1"


def strategy_name(strategy: Strategy) -> str:
    """`ddp`, `zero2`, `zero3-offload`, `zero3-nvme`, `pipeline-1f1b`, `fsdp2-full_shard-offload`."""
    match strategy:
        case Ddp():
            return "ddp"
        case Pipeline():
            return f"pipeline-{strategy.schedule}"
        case Fsdp():
            return "-".join(word.strip("_") for word in fsdp_name(strategy).lower().split())
        case HierarchicalZero1():
            return "hierarchical-zero1"
    zero = strategy.zero
    offloads = {zero.offload_optimizer.device, zero.offload_param.device}
    below = "-nvme" if zero.stage == 3 and "nvme" in offloads else "-offload" if offloads != {"none"} else ""
    return f"zero{zero.stage}{below}"


def fsdp_name(strategy: Fsdp) -> str:
    """`FSDP FULL_SHARD`, `FSDP2 SHARD_GRAD_OP offload`: version 2 by what version 1 calls the same."""
    name: str = strategy.sharding_strategy
    if strategy.version == 2:
        kinds = ("_HYBRID_SHARD_ZERO2", "HYBRID_SHARD") if strategy.hybrid else ("SHARD_GRAD_OP", "FULL_SHARD")
        name = kinds[strategy.frees]
    return f"FSDP{'' if strategy.version == 1 else 2} {name}{' offload' if strategy.cpu_offload else ''}"


def fsdp_names() -> tuple[str, ...]:
    """All that `fsdp_name` gives."""
    of_version_1 = [Fsdp(sharding_strategy=kind) for kind in get_args(Sharding)]
    of_version_2 = [
        Fsdp(2, shard_size=size, reshard_after_forward=frees) for size in (None, 1) for frees in (True, False)
    ]
    kinds = [*of_version_1, *of_version_2]
    return tuple(fsdp_name(replace(kind, cpu_offload=offload)) for kind in kinds for offload in (False, True))


def pipeline_names() -> tuple[str, ...]:
    """All that `strategy_name` calls pipelines."""
    return tuple(strategy_name(Pipeline(1, schedule)) for schedule in get_args(Schedule))
