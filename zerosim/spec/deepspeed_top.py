"""The top level of a DeepSpeed file: keys that shape a step, keys that do not and why, keys on the wrong level.

DeepSpeed accepts unknown keys at the top level in silence (runtime/config.py reads with `get`), which hides many a
bucket size; here each gets a finding. Constants and defaults: runtime/constants.py of DeepSpeed 0.19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zerosim.errors import nearest
from zerosim.spec.deepspeed_batch import BATCH_KEYS
from zerosim.spec.deepspeed_schema import ALIASES, DATA_TYPES, DEPRECATED, THROUGHPUT, TIMERS, ZERO, Key
from zerosim.spec.deepspeed_section import Log, read_section, tell
from zerosim.spec.deepspeed_values import ANYTHING, AUTO, BOOLEAN, NUMBER, one_of, optional
from zerosim.spec.document import Document, shown
from zerosim.spec.release import Release

_LOG = "it only logs"
_SCALED_ONCE = "gradients are divided once, before or after their reduction"
_REMOVED = " (DeepSpeed 0.19.8 has removed it and refuses the section)"

VALUES: Mapping[str, Key] = {
    "gradient_clipping": Key(NUMBER, 1.0),  # or what the release says
    "communication_data_type": Key(optional(one_of("fp16", "bf16", "fp32")), None),
    "prescale_gradients": Key(BOOLEAN, False, idle=_SCALED_ONCE),
    "gradient_predivide_factor": Key(NUMBER, 1.0, lacks="a division of gradients in two steps"),
    "gradient_allreduce_op": Key(one_of("mean", "sum"), "mean", lacks="a sum of gradients that nobody divides"),
    "wall_clock_breakdown": Key(BOOLEAN, False),
    "zero_allow_untested_optimizer": Key(BOOLEAN, False),
    "zero_force_ds_cpu_optimizer": Key(BOOLEAN, True),
    "disable_allgather": Key(BOOLEAN, False, idle="DeepSpeed parses it and never reads it"),
    "sparse_gradients": Key(BOOLEAN, False, lacks="reduction of sparse embedding gradients"),
    "managed_gradient_accumulation": Key(BOOLEAN, True, lacks="a boundary that the script sets"),
    "memory_breakdown": Key(BOOLEAN, False, idle=_LOG),
    "dump_state": Key(BOOLEAN, False, idle=_LOG),
    "steps_per_print": Key(ANYTHING, None, idle=_LOG),
}

_IDLE_SECTIONS = {
    "scheduler": "a learning rate is one number a step",
    "flops_profiler": "it measures one chosen step",
    "tensorboard": _LOG,
    "wandb": _LOG,
    "csv_monitor": _LOG,
    "comet": _LOG,
    "autotuning": "it is a mode of the launcher",
    "checkpoint": "it concerns saving and loading of checkpoints only",
    "nebula": "it concerns saving and loading of checkpoints only",
    "curriculum_learning": "the batch is as long as training.sequence_length says",
    "eigenvalue": "it runs at chosen steps only",
    "dataloader_drop_last": "it concerns the last batch of an epoch",
    "use_data_before_expert_parallelism": "there are no expert groups",
    "seq_parallel_communication_data_type": "there is no sequence parallelism",
    "vocabulary_size": "the model says it",
    "inference": "the step is one of training",
    "hybrid_engine": "it concerns generation between training steps",
    "load_universal_checkpoint": "it concerns saving and loading of checkpoints only",
    "train_steps": "the number of steps does not change a step",
}
_LACKING_SECTIONS = {
    "amp": f"Apex AMP{_REMOVED}",
    "torch_autocast": "torch autocast inside the engine",
    "progressive_layer_drop": f"progressive layer dropping{_REMOVED}",
    "quantize_training": f"mixture of quantization{_REMOVED}",
    "sparse_attention": f"sparse attention{_REMOVED}",
    "comms_logger": "the device synchronisation after every collective",  # comm/comm.py, timed_op
    "data_efficiency": "random layerwise token dropping and sampling by difficulty",
    "graph_harvesting": "CUDA graphs in BF16_Optimizer",
    "compression_training": f"compression{_REMOVED}",
    "weight_quantization_config": "weight quantization",
    "elasticity": "an elastic batch size",
    "pipeline": "DeepSpeed's pipeline engine",
    "compile": "torch.compile and DeepCompile",
    "tensor_parallel": "tensor parallelism",
    "sequence_parallel_size": "sequence parallelism",
    "expert_parallel_size": "expert parallelism",
}
_OFF = frozenset({  # sections that are switched off unless they say `enabled`
    "comms_logger", "data_efficiency", "amp", "torch_autocast", "elasticity", "progressive_layer_drop",
    "quantize_training",
})  # fmt: skip
_READ_ELSEWHERE = (*BATCH_KEYS, "zero_optimization", "optimizer", "bf16", "bfloat16", "fp16", "aio",
                   "activation_checkpointing")  # fmt: skip
_OF_ACCELERATE = frozenset({
    "zero3_init_flag", "zero3_save_16bit_model", "offload_optimizer_device", "offload_param_device", "zero_stage",
    "offload_optimizer_nvme_path", "offload_param_nvme_path", "deepspeed_multinode_launcher", "deepspeed_config_file",
    "distributed_type", "mixed_precision", "num_processes", "num_machines",
})  # fmt: skip
_DTYPES = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}

KNOWN: tuple[str, ...] = (
    *_READ_ELSEWHERE, *VALUES, "timers", "data_types", *_IDLE_SECTIONS, *_LACKING_SECTIONS,
)  # fmt: skip


def read_values(top: Document, log: Log, release: Release) -> dict[str, Any]:
    """The single values of the top level, defaults filled in, with those of `timers` and `data_types`."""
    single = replace(top, data={key: value for key, value in top.data.items() if key in VALUES})
    written = read_section(single, VALUES, log, filled=("gradient_clipping",))
    if top.data.get("gradient_clipping") == AUTO:
        log.say("auto-values", "note", '"auto" by Transformers\' rule: gradient_clipping = 1.0, its max_grad_norm.')
    tell(single, VALUES, written, log)
    values = {name: row.default for name, row in VALUES.items()}
    values |= {"gradient_clipping": release.gradient_clipping} | written
    values["synchronized_timer"] = _synchronized(top, log)
    values["grad_accum_dtype"] = _grad_accum_dtype(top, log)
    return values


def _part(top: Document, key: str, log: Log) -> Document | None:
    """A section of the top level; None where it is not there or no mapping (a problem)."""
    if top.data.get(key) is None:
        return None
    if isinstance(top.data[key], Mapping):
        return top.below(key)
    log.problems.append(top.problem((key,), shown(top.data[key]), "a mapping"))
    return None


def _synchronized(top: Document, log: Log) -> bool:
    """Whether the throughput timer synchronises the device in every micro-step (utils/timer.py)."""
    timers = _part(top, "timers", log)
    if timers is None or "throughput" not in read_section(timers, TIMERS, log):
        return True
    throughput = _part(timers, "throughput", log)
    values = read_section(throughput, THROUGHPUT, log) if throughput else {}
    return bool(values.get("enabled", True) and values.get("synchronized", True))


def _grad_accum_dtype(top: Document, log: Log) -> str | None:
    section = _part(top, "data_types", log)
    dtype = read_section(section, DATA_TYPES, log).get("grad_accum_dtype") if section else None
    return _DTYPES.get(dtype, dtype) if dtype else None


def tell_sections(top: Document, log: Log) -> None:
    """A finding for each section that does not shape the step, and for each key that DeepSpeed does not know."""
    for key, given in top.data.items():
        if key in _IDLE_SECTIONS:
            log.idle(str(key), _IDLE_SECTIONS[key])
        elif key in _LACKING_SECTIONS:
            if _on(str(key), given):
                log.lacking(str(key), _LACKING_SECTIONS[key])
            else:
                refused = _LACKING_SECTIONS[key].endswith(_REMOVED)
                log.idle(str(key), "it is switched off" + (_REMOVED if refused else ""))
        elif key not in KNOWN:
            _tell_unknown(str(key), log)


def _on(key: str, given: Any) -> bool:
    """Whether a section asks for something: sizes of 1 and `enabled: false` do not."""
    if isinstance(given, Mapping):
        return given.get("enabled", key not in _OFF) not in (False, "false")
    return given not in (None, False, 0, 1)


def _did_you(name: object, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = nearest(str(name), list(known))
    return f"The nearest key is {close}." if close else ""


def _tell_unknown(key: str, log: Log) -> None:
    if key.startswith(("_", "/", "#")) or "comment" in key.lower():
        log.say("unknown-key", "note", f"{key} is taken as a comment.")
        return
    ignored = f"{key} is no key of DeepSpeed's top level, which ignores it in silence"
    if key in ZERO or key in ALIASES or key in DEPRECATED:
        log.say("misplaced-key", "warning", f"{ignored}.", f"Move it to zero_optimization.{key}.")
    elif key in _OF_ACCELERATE:
        log.say("unknown-key", "warning", f"{ignored}; it is a key of accelerate.")
    else:
        log.say("unknown-key", "warning", f"{ignored}.", _did_you(key, KNOWN))
