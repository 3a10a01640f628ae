"""What rungs and strategies are called: for people (`FSDP2 HYBRID_SHARD`), and as one word (`fsdp2-hybrid_shard`).

Measured values of a reference file are matched by these names, so that they are said here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

from zerosim.spec.fully_sharded import Sharding
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, HierarchicalZero1, Pipeline, Schedule, Strategy, Zero

ONE_GPU, DDP, HIERARCHICAL, LAYER_WISE = "one GPU", "DDP", "hierarchical ZeRO-1", "layer-wise"
MICS, ZEROPP = "MiCS", "ZeRO++"
WITHOUT_MICS, WITHOUT_HPZ = f"without {MICS}", "without hpZ"
PLACES = {  # of the optimizer and the parameters: what follows the name of the stage
    ("none", "none"): "",
    ("cpu", "none"): " + offload",
    ("cpu", "cpu"): " + offload all",
    ("nvme", "nvme"): " + NVMe",
    ("nvme", "none"): " + NVMe optimizer",
    ("nvme", "cpu"): " + NVMe optimizer, DRAM parameters",
    ("none", "cpu"): " + DRAM parameters",
    ("none", "nvme"): " + NVMe parameters",
    ("cpu", "nvme"): " + offload, NVMe parameters",
}


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


def placed_name(zero: Zero) -> str:
    """`ZeRO-2 + offload`, `ZeRO-3 + NVMe`: with where its states are. Stages 1 and 2 have host memory for the optimizer
    and nothing for parameters, as in DeepSpeed; stage 0 has neither."""
    optimizer, parameters = zero.offload_optimizer.device, zero.offload_param.device
    if zero.stage < 3:
        optimizer, parameters = "cpu" if zero.optimizer_on_host else "none", "none"
    return zero_name(zero) + PLACES[optimizer, parameters]


def rung_name(strategy: Strategy) -> str:
    """What the rung of a strategy is called; a pipeline's is `strategy_name`'s."""
    match strategy:
        case Ddp():
            return DDP
        case DeepSpeed():
            return placed_name(strategy.zero)
        case Fsdp():
            return fsdp_name(strategy)
        case HierarchicalZero1():
            return HIERARCHICAL
    return strategy_name(strategy)


def zero_names() -> tuple[str, ...]:
    """All that a ladder calls rungs of ZeRO."""
    below = [f"ZeRO-{stage}{place}" for stage in (1, 2) for place in ("", PLACES["cpu", "none"])]
    kinds = ("ZeRO-3", f"ZeRO-3 ({MICS})", f"ZeRO-3 ({ZEROPP})")
    of_stage_3 = [kind + place for kind, place in product(kinds, PLACES.values()) if MICS not in kind or not place]
    without = [
        f"{kind}{place} ({word})"
        for kind, word in (("ZeRO-3", WITHOUT_MICS), ("ZeRO-3", WITHOUT_HPZ), (f"ZeRO-3 ({ZEROPP})", WITHOUT_HPZ))
        for place in PLACES.values()
        if place
    ]
    return ("ZeRO-0", *below, *of_stage_3, *without)


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
    return WITHOUT_HPZ if asked.zero_hpz_partition_size > 1 >= played.zero_hpz_partition_size else ""


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
