"""The keys of DeepSpeed's sections as a table: kind of value, default, who reads it, and why it may change nothing.

Names and defaults are those of DeepSpeed 0.19 (runtime/zero/config.py, runtime/zero/offload_config.py,
runtime/precision_config.py, runtime/swap_tensor/aio_config.py, utils/config.py). A key is named as DeepSpeed's own
classes name it; `ALIASES` has the `stage3_` spellings. Rule: a key that shapes the step has neither `idle` nor
`lacks`. Adding a key is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.spec.deepspeed_leaves import LEAF_MODULE
from zerosim.spec.deepspeed_values import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    LARGEST,
    MAPPING,
    NUMBER,
    POSITIVE,
    SHARE,
    SIGNED,
    STAGE,
    TEXT,
    Kind,
    one_of,
    optional,
)


class Key(NamedTuple):
    """A key. `stages` read it; `idle` says why it changes nothing; `lacks` is the mechanism it would switch on."""

    kind: Kind
    default: Any
    stages: str = "0123"
    idle: str = ""
    lacks: str = ""


_CHECKPOINT = "it concerns saving and loading of checkpoints only"
_LOG = "it only logs"

# What runtime/bf16_optimizer.py, which is stage 1 with bf16 and fp32 accumulation, reads of all this.
OF_BF16_OPTIMIZER = frozenset({
    "stage", "offload_optimizer", "enabled", "immediate_grad_update", "bf16_master_weights_and_grads",
    "bf16_optimizer_states",
})  # fmt: skip

ZERO: Mapping[str, Key] = {
    "stage": Key(STAGE, 0),
    "contiguous_gradients": Key(BOOLEAN, True, "123"),
    "reduce_scatter": Key(BOOLEAN, True, "123"),
    "reduce_bucket_size": Key(INTEGER, 500_000_000, "123"),
    "use_multi_rank_bucket_allreduce": Key(BOOLEAN, True, "12"),
    "allgather_partitions": Key(BOOLEAN, True, "12", "DeepSpeed parses it and never reads it"),
    "allgather_bucket_size": Key(
        INTEGER, 500_000_000, "12", "torch gathers each flat group with one all_gather_into_tensor, whatever its size"
    ),
    "overlap_comm": Key(optional(BOOLEAN), None, "123"),
    "compute_grad_norm": Key(BOOLEAN, True, "12"),
    "load_from_fp32_weights": Key(BOOLEAN, True, "123", _CHECKPOINT),
    "elastic_checkpoint": Key(BOOLEAN, False, "123", _CHECKPOINT),
    "offload_param": Key(optional(MAPPING), None, "3"),
    "offload_optimizer": Key(optional(MAPPING), None, "123"),
    "zenflow": Key(optional(MAPPING), None, "123", lacks="ZenFlow"),
    "sub_group_size": Key(INTEGER, 1_000_000_000, "3"),
    "prefetch_bucket_size": Key(INTEGER, 50_000_000, "3"),
    "param_persistence_threshold": Key(INTEGER, 100_000, "3"),
    "model_persistence_threshold": Key(INTEGER, LARGEST, "3"),
    "max_live_parameters": Key(INTEGER, 1_000_000_000, "3"),
    "max_reuse_distance": Key(INTEGER, 1_000_000_000, "3"),
    "gather_16bit_weights_on_model_save": Key(BOOLEAN, False, "3", _CHECKPOINT),
    "module_granularity_threshold": Key(INTEGER, 0, "3"),
    "use_all_reduce_for_fetch_params": Key(BOOLEAN, False, "3"),
    "allgather_sequential": Key(BOOLEAN, False, "3"),
    "ignore_unused_parameters": Key(BOOLEAN, True, "123", "every parameter of the model is used"),
    "legacy_stage1": Key(BOOLEAN, False, idle="false is the only value that DeepSpeed still takes"),
    "round_robin_gradients": Key(BOOLEAN, False, "12"),
    "parameter_alignment": Key(BOOLEAN, False, "12"),
    "zero_hpz_partition_size": Key(INTEGER, 1, "3"),
    "zero_quantized_weights": Key(BOOLEAN, False, "3"),
    "zero_quantized_nontrainable_weights": Key(BOOLEAN, False, "3"),
    "zero_quantized_gradients": Key(BOOLEAN, False, "3"),
    "zeropp_loco_param": Key(optional(MAPPING), None, "3", lacks="LoCo error feedback"),
    "mics_shard_size": Key(SIGNED, -1, "3"),
    "mics_hierarchical_params_gather": Key(BOOLEAN, False, "3"),
    "memory_efficient_linear": Key(BOOLEAN, True, "3"),
    "pipeline_loading_checkpoint": Key(BOOLEAN, False, "3", _CHECKPOINT),
    "override_module_apply": Key(BOOLEAN, True, "3", "it concerns the construction of the model only"),
    "log_trace_cache_warnings": Key(BOOLEAN, False, "3", _LOG),
    "enable_sanity_checks": Key(BOOLEAN, False, "3", lacks="an integer all-reduce that checks every reduction"),
    "save_muon_momentum_buffer_in_memory": Key(BOOLEAN, False, "3", lacks="the momentum buffers of Muon"),
    "leaf_module": Key(LEAF_MODULE, None, "3"),
}  # fmt: skip

ALIASES: Mapping[str, str] = {
    f"stage3_{name}": name
    for name in (
        "prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold", "max_live_parameters",
        "max_reuse_distance", "gather_16bit_weights_on_model_save", "module_granularity_threshold",
        "use_all_reduce_for_fetch_params", "allgather_sequential",
    )
}  # fmt: skip

DEPRECATED: Mapping[str, str] = {  # old key: its replacement; "" where nothing replaces it
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "cpu_offload_params": "offload_param",
    "cpu_offload_use_pin_memory": "",
    "stage3_gather_fp16_weights_on_model_save": "gather_16bit_weights_on_model_save",
}

_DEVICE = one_of("none", "cpu", "nvme")

# Why keys of an offload change nothing depends on the device and the stage: deepspeed_offload.
OFFLOAD_OPTIMIZER: Mapping[str, Key] = {
    "device": Key(_DEVICE, "none"),
    "nvme_path": Key(optional(TEXT), None),
    "buffer_count": Key(INTEGER, 4),
    "pin_memory": Key(BOOLEAN, True),  # since 0.19.5; false before
    "pipeline_read": Key(BOOLEAN, False),
    "pipeline_write": Key(BOOLEAN, False),
    "fast_init": Key(BOOLEAN, False),
    "ratio": Key(SHARE, 1.0),
    "super_offload": Key(BOOLEAN, False, "3", lacks="SuperOffload"),
    "cpuadam_cores_perc": Key(SHARE, 0.8, idle="only SuperOffload reads it"),
}

OFFLOAD_PARAM: Mapping[str, Key] = {
    "device": Key(_DEVICE, "none"),
    "nvme_path": Key(optional(TEXT), None),
    "buffer_count": Key(INTEGER, 5),
    "buffer_size": Key(INTEGER, 100_000_000),
    "max_in_cpu": Key(INTEGER, 1_000_000_000),
    "pin_memory": Key(BOOLEAN, True),
}

_SCALE = "loss scaling multiplies one scalar; the step is taken to be one without overflow"

_LOW_PRECISION_STATES = "master weights or optimizer states of 16 bits"

FP16: Mapping[str, Key] = {
    "enabled": Key(BOOLEAN, False),
    "auto_cast": Key(BOOLEAN, False, idle="it casts the inputs of the model, which are token numbers"),
    "loss_scale": Key(NUMBER, 0.0, idle=_SCALE),
    "initial_scale_power": Key(INTEGER, 16, idle=_SCALE),
    "loss_scale_window": Key(INTEGER, 1000, idle=_SCALE),
    "hysteresis": Key(INTEGER, 2, idle=_SCALE),
    "consecutive_hysteresis": Key(BOOLEAN, False, idle=_SCALE),
    "min_loss_scale": Key(INTEGER, 1, idle=_SCALE),
    "fp16_master_weights_and_grads": Key(BOOLEAN, False, lacks=_LOW_PRECISION_STATES),
}

BF16: Mapping[str, Key] = {
    "enabled": Key(BOOLEAN, False),
    "immediate_grad_update": Key(BOOLEAN, False, "1", lacks="adding each gradient to its fp32 sum in the hook"),
    "check_grad_overflow": Key(BOOLEAN, True, "12"),  # true by 0.19.3
    "bf16_master_weights_and_grads": Key(BOOLEAN, False, lacks=_LOW_PRECISION_STATES),
    "bf16_optimizer_states": Key(BOOLEAN, False, lacks=_LOW_PRECISION_STATES),
}

AIO: Mapping[str, Key] = {
    "block_size": Key(POSITIVE, 1_048_576),
    "queue_depth": Key(POSITIVE, 8),
    "intra_op_parallelism": Key(POSITIVE, 1),
    "single_submit": Key(BOOLEAN, False),
    "overlap_events": Key(BOOLEAN, True),
    "use_gds": Key(BOOLEAN, False),
    "thread_count": Key(ANYTHING, None, idle="DeepSpeed reads intra_op_parallelism instead"),
}

ACTIVATION_CHECKPOINTING: Mapping[str, Key] = {
    "partition_activations": Key(BOOLEAN, False, lacks="the partition of activations over model-parallel ranks"),
    "number_checkpoints": Key(optional(POSITIVE), None, idle="only contiguous_memory_optimization reads it"),
    "contiguous_memory_optimization": Key(BOOLEAN, False, lacks="one buffer for all checkpointed activations"),
    "cpu_checkpointing": Key(BOOLEAN, False),
    "synchronize_checkpoint_boundary": Key(BOOLEAN, False, lacks="a device synchronisation around each checkpoint"),
    "profile": Key(BOOLEAN, False, lacks="the device synchronisation of a timer around each checkpoint"),
}

THROUGHPUT: Mapping[str, Key] = {"enabled": Key(BOOLEAN, True), "synchronized": Key(BOOLEAN, True)}
TIMERS: Mapping[str, Key] = {"throughput": Key(MAPPING, {})}

_DTYPES = one_of("fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "float", "half")
DATA_TYPES: Mapping[str, Key] = {"grad_accum_dtype": Key(optional(_DTYPES), None)}

OPTIMIZER: Mapping[str, Key] = {
    "type": Key(TEXT, None),
    "params": Key(optional(MAPPING), None),
    "legacy_fusion": Key(BOOLEAN, False, idle="it chooses an old wrapper of the same optimizer"),
}
