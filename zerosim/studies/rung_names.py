"""What rungs and strategies are called: for people (`FSDP2 HYBRID_SHARD`), and as one word (`fsdp2-hybrid_shard`).

Measured values of a reference file are matched by these names, so that they are said here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from zerosim.spec.fully_sharded import Sharding
from zerosim.spec.strategy import Ddp, Fsdp, HierarchicalZero1, Pipeline, Schedule, Strategy, Zero

ONE_GPU, HIERARCHICAL = "one GPU", "hierarchical ZeRO-1"
MICS, ZEROPP = "MiCS", "ZeRO++"
WITHOUT_MICS = f"without {MICS}"


def strategy_name(strategy: Strategy) -> str:
    """`ddp`, `zero2`, `zero3-offload`, `zero3-mics`, `pipeline-1f1b`, `fsdp2-full_shard-offload`."""
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
    kind = {MICS: "-mics", ZEROPP: "-zeropp", "": ""}[_kind(zero)]
    return f"zero{zero.stage}{kind}{below}"


def zero_name(zero: Zero) -> str:
    """`ZeRO-2`, `ZeRO-3 (MiCS)`: wherever its states are."""
    kind = _kind(zero)
    return f"ZeRO-{zero.stage}{f' ({kind})' if kind else ''}"


def zero_names() -> tuple[str, ...]:
    """All that a ladder calls variants of stage 3, without and with offload."""
    of_stage_3 = (f"ZeRO-3 ({MICS})", f"ZeRO-3 ({ZEROPP})")
    return (*of_stage_3, f"ZeRO-3 ({ZEROPP}) + offload", f"ZeRO-3 + offload ({WITHOUT_MICS})")


def _kind(zero: Zero) -> str:
    """What stage 3 is more than itself; at the others these keys change nothing."""
    if zero.stage < 3:
        return ""
    if zero.mics_shard_size > 0:
        return MICS
    quantized = zero.zero_quantized_weights or zero.zero_quantized_nontrainable_weights or zero.zero_quantized_gradients
    return ZEROPP if quantized or zero.zero_hpz_partition_size > 1 else ""


def left_out(asked: Zero, played: Zero) -> str:
    """What of a stage 3 that was asked for is not played beside offloads: `without MiCS`; "" where nothing is."""
    if asked.stage < 3 or played.stage < 3:
        return ""
    if asked.mics_shard_size > 0 >= played.mics_shard_size:
        return WITHOUT_MICS
    return "without hpZ" if asked.zero_hpz_partition_size > 1 >= played.zero_hpz_partition_size else ""


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
