"""The strategy of a row, as a scenario names it: what is sharded (its words), and who does it (its framework).

ZeRO's stages are DeepSpeed's, FSDP's sharding strategies, Megatron's distributed optimizer or InternEvo's, as the
framework has them. What cannot be built is refused with a reason, never replaced by something else.
"""

from __future__ import annotations

import re
from typing import Any

from zerosim.spec.measured_row import Row
from zerosim.studies.validation.asked import WORDS, Asked, Offloads, Plan, offloads_of, stage_of
from zerosim.studies.validation.assumptions import CannotError, Ledger, Program
from zerosim.studies.validation.row_deepspeed import deepspeed
from zerosim.studies.validation.row_fsdp import fsdp
from zerosim.studies.validation.row_machine import Machine
from zerosim.studies.validation.row_training import Chosen, Precision
from zerosim.studies.validation.words import said

_WITHOUT_DEEPSPEED = r"no ds\b|without deepspeed|baseline \(no|\btorch ddp|^pytorch|native"
_SPREAD = (
    r"\b(tp|cp|ep|sp)\s?[=:]?\s?([2-9]|[1-9]\d+)\b|"
    r"(tensor|context|sequence|expert)[-_ ](model[-_ ])?parallel(ism)?([-_ ](size|degree))?(?!\W{0,3}1\b)|ulysses"
)
_MODEL_PARALLEL = rf"{_SPREAD}|\b[23]d\b|layer-?wise"
_OTHER_WORK = (  # words of the strategy and the flags, and what is trained then
    (r"\bmoe\b|mixture[- ]of[- ]experts|\b\d+ experts|num_experts", "a mixture of experts"),
    (r"\b(q?lora|dora|adapters?|peft|prefix[- ]tuning|ia3)\b", "adapters only"),
    (r"\b(frozen|freez\w+)\b", "a part of the model only"),
)
_TINY_BUCKET_MB = 1e-6  # bucket_cap_mb=0: each gradient is reduced alone


def strategy_of(
    row: Row, program: Program, machine: Machine, precision: Precision, optimizer: Chosen, ledger: Ledger
) -> Plan:
    """The strategy, or CannotError."""
    words = " ; ".join(row.raw.get(column, "") for column in WORDS)
    if (row.tensor_parallel or 1) > 1 or said(_MODEL_PARALLEL, words) or said(_SPREAD, row.flags):
        raise CannotError("tensors, sequences or experts are spread over GPUs")
    if other := next((what for pattern, what in _OTHER_WORK if said(pattern, f"{words} ; {row.flags}")), None):
        raise CannotError(f"it trains {other}")
    if row.says(r"\bdpu\b(?! ?(off|=0|=false))|delayed param", *WORDS, "other_flags"):
        raise CannotError("the delayed parameter update, which runs the CPU's optimizer beside the next step")
    stage = stage_of(row, ledger)
    asked = Asked(row, program, machine, precision, optimizer, offloads_of(row, ledger), stage, ledger)
    if (row.pipeline_parallel or 1) > 1:
        return _pipeline(asked)
    runtime = _runtime(asked)
    _check_offloads(asked, runtime)
    return _BUILDERS[runtime](asked)


def _check_offloads(asked: Asked, runtime: str) -> None:
    """CannotError where the runtime does not put states where they are said to be; never played without."""
    optimizer, parameters = asked.offloads
    if asked.offloads == Offloads("none", "none"):
        return
    if runtime == "fsdp":
        if "none" in asked.offloads:
            asked.ledger.note("FSDP offloads parameters and optimizer states together")
        return
    if runtime != "deepspeed" or asked.stage == 0:
        raise CannotError(f"{'replicas' if asked.stage == 0 else runtime} with states offloaded")
    if parameters != "none" and asked.stage < 3:
        raise CannotError(f"ZeRO-{asked.stage} with parameters offloaded, which only ZeRO-3 does")
    if optimizer == "nvme" and asked.stage < 3:
        raise CannotError(f"ZeRO-{asked.stage} with optimizer states on drives, which only ZeRO-3 does")


def _runtime(asked: Asked) -> str:
    """Who shards and reduces."""
    row, program = asked.row, asked.program
    if row.says(r"fsdp|hsdp|full_shard|hybrid_shard|shard_grad_op|no_shard|fully[- _]?shard", *WORDS, "framework"):
        return "fsdp"
    if asked.stage == 0 and asked.says(_WITHOUT_DEEPSPEED) and program.kernels == "eager":
        return "ddp"
    if row.says(r"deepspeed|\bds\b|\bz[0-3]\b|zero\+\+|\bmics\b", *WORDS) or program.runtime == "deepspeed":
        return "ddp" if asked.stage == 0 and not row.says(r"deepspeed|\bds\b", *WORDS, "framework") else "deepspeed"
    if program.runtime == "fsdp" and asked.stage == 0:
        return "ddp"
    if asked.stage > {"ddp": 0, "megatron": 1}.get(program.runtime, 3):
        asked.ledger.note(f"ZeRO-{asked.stage} as DeepSpeed does it")
        return "deepspeed"
    return program.runtime


# --- who does it ---


def _ddp(asked: Asked) -> Plan:
    row, optimizer = asked.row, asked.optimizer
    settings: dict[str, Any] = {"optimizer": {"type": optimizer.name, "fused": optimizer.fused}}
    if hit := re.search(r"bucket_cap_mb\s*=\s*(\d+(?:\.\d+)?)", row.flags):
        settings["bucket_cap_mb"] = float(hit[1]) or _TINY_BUCKET_MB
    if asked.precision.pure:
        settings["parameter_dtype"] = asked.precision.name
    return Plan({"ddp": settings})


def _megatron(asked: Asked) -> Plan:
    """Megatron-LM's own: one contiguous buffer, all-reduced after the backward pass; sharded over all at stage 1."""
    half = asked.precision.name
    if half == "fp32":
        return _ddp(asked)
    settings: dict[str, Any] = {
        "framework": "megatron",
        "shard_size": asked.machine.gpus if asked.stage else 1,
        "grad_reduce_in_fp32": half == "bf16",  # megatron/arguments.py: accumulate_allreduce_grads_in_fp32 with bf16
        "overlap_grad_reduce": asked.says(r"overlap[- _]grad"),
        "overlap_param_gather": asked.says(r"overlap[- _]param"),
        "gradient_clipping": asked.program.clipping,
        "optimizer": asked.optimizer.name,
    }
    return Plan({"hierarchical_zero1": settings})


def _internevo(asked: Asked) -> Plan:
    if asked.stage != 1:
        raise CannotError(f"InternEvo with ZeRO-{asked.stage}")
    words = f"{asked.row.strategy_raw} {asked.row.strategy}"
    over = re.search(r"zero1\s*=\s*(-?\d+)|over (\d+) ranks", words)
    size = int(over[1] or over[2]) if over else 0
    size = size if size > 0 else asked.machine.gpus
    if not over:
        asked.ledger.note("optimizer states sharded over all ranks")
    bucket = re.search(r"bucket_size\s*=\s*(\d+) ?MiB", asked.row.flags)
    settings: dict[str, Any] = {
        "framework": "internevo",
        "shard_size": min(size, asked.machine.gpus),
        "overlap_param_gather": asked.says(r"overlap_sync_(grad/)?param"),
        "gradient_clipping": asked.program.clipping,
        "optimizer": asked.optimizer.name,
    }
    if bucket:  # core/.../hybrid_zero_optim.py counts elements
        settings["bucket_size"] = int(bucket[1]) * 2**20
    return Plan({"hierarchical_zero1": settings})


def _pipeline(asked: Asked) -> Plan:
    stages = asked.row.pipeline_parallel or 1
    if asked.stage > 1 or asked.offloads != Offloads("none", "none"):
        raise CannotError(f"a pipeline with ZeRO-{asked.stage} or with offload")
    words = f"{asked.row.strategy_raw} {asked.row.flags}".lower()
    if re.search(r"interleav|zero.bubble|\bzb|dualpipe|virtual", words):
        raise CannotError("an interleaved pipeline")
    settings: dict[str, Any] = {
        "stages": stages,
        "schedule": "gpipe" if "gpipe" in words else "1f1b",
        "zero_stage": asked.stage,
        "optimizer": {"type": asked.optimizer.name, "fused": asked.optimizer.fused},
    }
    if asked.precision.name != "fp32" and not asked.precision.autocast:
        settings["parameter_dtype"] = asked.precision.name
    return Plan({"pipeline": settings})


_BUILDERS = {"ddp": _ddp, "megatron": _megatron, "internevo": _internevo, "fsdp": fsdp, "deepspeed": deepspeed}
