"""`offload_optimizer` and `offload_param` of a DeepSpeed file: what each key does on a stage and a device.

Stages 1 and 2 keep the optimizer in host memory whatever the device, and parameters on the GPU; stage 3 swaps. Sources:
DeepSpeed 0.19 runtime/zero/offload_config.py, stage_1_and_2.py, stage3.py (_configure_offloading,
_create_fp32_partitions, _create_param_groups_fp16_flat_cpu_memory), partition_parameters.py. What depends on the
model's size stands in `deepspeed_swap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from zerosim.spec.deepspeed_schema import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, ZERO, Key
from zerosim.spec.deepspeed_section import Log, dotted, known, read_section, tell
from zerosim.spec.document import Document
from zerosim.spec.release import Release
from zerosim.spec.strategy import Offload, Stage, Zero

OFFLOADS: Mapping[str, Mapping[str, Key]] = {"offload_optimizer": OFFLOAD_OPTIMIZER, "offload_param": OFFLOAD_PARAM}
DEFAULTS: Mapping[str, Offload] = {"offload_optimizer": Offload(), "offload_param": Offload(buffer_count=5)}

_OF_SWAPPING = {
    "offload_optimizer": ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init"),
    "offload_param": ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu"),
}
_NOT_SWAPPED = "only stage 3 with device nvme reads it"
_CONSTRUCTION = {"fast_init": "it concerns the construction of the optimizer only"}
# stage3.py, _create_param_groups_fp16_flat_cpu_memory; on nvme small parameters stay outside of it
_ALWAYS_PINNED = "stage 3 moves the parameters to a buffer of its own, which is always pinned"


def read_offload(section: Document, key: str, stage: Stage, log: Log, release: Release) -> Offload:
    """One of the two sections of `zero_optimization`; nothing is offloaded where it is not there."""
    default = DEFAULTS[key]
    if not isinstance(section.data.get(key), Mapping):
        return default
    part = section.below(key)
    values = read_section(known(part, release, log), OFFLOADS[key], log)
    names = {field.name for field in fields(Offload)}
    written = {name: value for name, value in values.items() if name in names}
    offload = replace(default, **({"pin_memory": release.pin_memory} | written))
    if offload.device == "none":  # nothing is pinned
        offload = replace(offload, pin_memory=written.get("pin_memory", default.pin_memory))
    if str(stage) in ZERO[key].stages:
        tell(part, _table(key, offload, stage), values, log, stage)
        if offload.device == "none":
            _tell_nowhere(part, key, list(values), log)
    return offload


def _table(key: str, offload: Offload, stage: Stage) -> Mapping[str, Key]:
    """The keys of the section, with why some of them rest on this stage and device."""
    table = OFFLOADS[key]
    if offload.device == "none":
        return table
    if stage == 3 and offload.device == "nvme":
        rest = dict(_CONSTRUCTION)
    else:
        rest = dict.fromkeys(_OF_SWAPPING[key], _NOT_SWAPPED)
        if key == "offload_param" and not offload.pin_memory:
            rest["pin_memory"] = _ALWAYS_PINNED
    return {name: row._replace(idle=rest.get(name, row.idle)) for name, row in table.items()}


def _tell_nowhere(part: Document, key: str, written: list[str], log: Log) -> None:
    """What is said of a section that offloads nothing."""
    beside = [name for name in written if not OFFLOADS[key][name].idle and not OFFLOADS[key][name].lacks]
    if beside:
        log.idle(f"{dotted(part, '')[:-1]} ({', '.join(beside)})", "nothing is offloaded")


def tell_offloads(section: Document, zero: Zero, log: Log) -> None:
    """What an offload means on the stage at hand."""
    optimizer, name = zero.offload_optimizer, dotted(section, "offload_optimizer")
    if optimizer.device == "none":
        return
    if zero.stage == 0:
        message = f"DeepSpeed stops on stage 0: {name} makes it take an optimizer of the CPU for parameters on the GPU."
        log.say("offload-without-stage", "warning", message, "Set stage: 1, 2 or 3.")
        return
    if zero.stage < 3 and optimizer.device == "nvme":
        log.say("nvme-is-cpu", "warning", f"On stage {zero.stage} DeepSpeed treats offload_optimizer to nvme as cpu.")
    if zero.stage < 3 and "contiguous_gradients" in section.data:
        log.idle(dotted(section, "contiguous_gradients"), f"{name} needs it and switches it on")
    if not optimizer.pin_memory:
        message = f"{name}.pin_memory: false: copies of pageable memory are slower, and the host waits for each."
        log.say("pageable-copies", "note", message, "Set pin_memory: true, the default since DeepSpeed 0.19.5.")


def tell_paths(section: Document, zero: Zero, log: Log) -> None:
    """Where the swapped files would lie (stage3.py, _configure_tensor_swapping; partitioned_param_swapper.py)."""
    for key in OFFLOADS:
        offload: Offload = getattr(zero, key)
        if zero.stage == 3 and offload.device == "nvme" and offload.nvme_path is None:
            message = f"DeepSpeed stops at {dotted(section, key)}: device nvme without nvme_path."
            log.say("no-nvme-path", "warning", message, "Set nvme_path to a folder on the drives.")


def rule_out_offloads(section: Document, zero: Zero, log: Log) -> None:
    """What DeepSpeed asserts about an offload (runtime/zero/config.py)."""
    optimizer = zero.offload_optimizer
    if optimizer.ratio < 1 and zero.stage != 3:
        found = f"{optimizer.ratio} on stage {zero.stage}"
        log.problems.append(section.problem(("offload_optimizer", "ratio"), found, "1, or stage 3"))
