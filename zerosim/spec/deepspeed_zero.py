"""The `zero_optimization` section: old spellings, `"auto"`, and what its values rule out (DeepSpeed 0.19).

`"auto"` in three keys is filled by Transformers from the hidden size (integrations/deepspeed.py); every other `"auto"`
is dropped by DeepSpeed's own classes and so becomes the default (runtime/config_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from zerosim.spec.deepspeed_leaves import classes_of
from zerosim.spec.deepspeed_offload import OFFLOADS, read_offload, rule_out_offloads, tell_offloads, tell_paths
from zerosim.spec.deepspeed_schema import ALIASES, DEPRECATED, ZERO, Key
from zerosim.spec.deepspeed_section import Log, dotted, known, read_section, tell
from zerosim.spec.deepspeed_values import AUTO, BOOLEAN, STAGE, RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.release import Release
from zerosim.spec.strategy import Stage, Zero

SECTION = "zero_optimization"


def read_zero(
    top: Document,
    log: Log,
    hidden: int | None,
    fp32_sums: bool = False,
    clipping: float = 1.0,
    release: Release | None = None,
) -> Zero:
    """The section of the file `top`; `hidden` is the model's width where Hugging Face fills in `"auto"`.

    `fp32_sums`: a bf16 model whose gradients accumulate in fp32, for which stage 1 is BF16_Optimizer. `clipping`:
    gradient_clipping of the file.
    """
    if SECTION not in top.data:
        return Zero()
    given = top.data[SECTION]
    if isinstance(given, bool):
        return _legacy(given, log)
    if not isinstance(given, Mapping):
        log.problems.append(top.problem((SECTION,), shown(given), "a mapping such as {stage: 2}"))
        return Zero()
    release = release or Release()
    section = known(_filled(_modern(top.below(SECTION), log), log, hidden), release, log, ALIASES)
    values = read_section(section, ZERO, log, ALIASES)
    zero = _zero(section, values, log, release)
    bf16_optimizer = is_bf16_optimizer(zero, fp32_sums)
    tell(section, _table(release), values, log, zero.stage, ALIASES, bf16_optimizer)
    _told(section, zero, log)
    if zero.stage == 3:
        _tell_leaf_classes(section, log)
    if values.get("reduce_scatter") and not bf16_optimizer and not release.rooted_reduces:
        _tell_reduce_scatter(zero, log)
    _ruled_out(section, values, zero, log)
    if not values.get("compute_grad_norm", True):
        _rule_out_no_norm(section, zero, bf16_optimizer, clipping, log)
    if bf16_optimizer and zero.offload_optimizer.device == "nvme":  # DeepSpeedCPUAdam meets parameters on the GPU
        expected = "cpu or none on stage 1 with bf16 and fp32 accumulation, where DeepSpeed keeps all on the GPU"
        log.problems.append(section.problem(("offload_optimizer", "device"), "nvme", expected))
    return zero


def is_bf16_optimizer(zero: Zero, fp32_sums: bool) -> bool:
    """Whether DeepSpeed takes BF16_Optimizer (runtime/engine.py, _do_optimizer_sanity_check)."""
    return fp32_sums and zero.stage == 1 and zero.offload_optimizer.device != "cpu"


def is_old_stage0(zero: Zero, precision: str, release: Release) -> bool:
    """Whether stage 0 is BF16_Optimizer, as once it was in bf16."""
    return zero.stage == 0 and precision == "bf16" and release.stage0_bf16_optimizer


def _table(release: Release) -> Mapping[str, Key]:
    """The keys, where one that changes nothing now changed something in the release."""
    if not release.list_all_gather:
        return ZERO
    return {**ZERO, "allgather_bucket_size": ZERO["allgather_bucket_size"]._replace(idle="")}


def _legacy(on: bool, log: Log) -> Zero:
    stage = 1 if on else 0
    log.say("deprecated-key", "warning", f"{SECTION}: {shown(on)} is an old spelling of {{stage: {stage}}}.")
    return Zero(stage=1) if on else Zero()


def _modern(section: Document, log: Log) -> Document:
    """The section with deprecated keys replaced; one beside its replacement is a problem."""
    data = {key: value for key, value in section.data.items() if key not in DEPRECATED}
    for old in (key for key in section.data if key in DEPRECATED):
        new = DEPRECATED[old]
        value = log.value(section, old, BOOLEAN, False)
        beside = next((key for key in data if new and new == ALIASES.get(key, key)), "")
        if beside:
            log.problems.append(section.key_problem((old,), f"the deprecated {old} beside {beside}", f"{beside} only"))
        elif new in OFFLOADS:
            data[new] = {"device": "cpu"} if value else None
        elif new:
            data[new] = value
        _say_deprecated(section, old, log)
    return replace(section, data=data)


def _say_deprecated(section: Document, old: str, log: Log) -> None:
    new, name = DEPRECATED[old], dotted(section, old)
    if not new:
        log.idle(name, "DeepSpeed ignores it")
        return
    written = f"{new}: {{device: cpu}}" if new in OFFLOADS else new
    refused = " DeepSpeed 0.19 refuses this spelling." if old == "cpu_offload_params" else ""
    log.say("deprecated-key", "warning", f"{name} is a deprecated key.{refused}", f"Write {written}.")


def _filled(section: Document, log: Log, hidden: int | None) -> Document:
    """The section with Transformers' values for `"auto"`, which a finding names."""
    filled = {key: value for key, value in _hugging_face(section, hidden).items() if section.data.get(key) == AUTO}
    if filled:
        named = ", ".join(f"{key} = {value}" for key, value in filled.items())
        log.say("auto-values", "note", f'"auto" by Transformers\' rule for hidden size {hidden}: {named}.')
    return replace(section, data=section.data | filled)


def _hugging_face(section: Document, hidden: int | None) -> dict[str, int]:
    """Transformers, HfTrainerDeepSpeedConfig.trainer_config_finalize; the last two on stage 3 only."""
    if hidden is None:
        return {}
    stage3 = {
        "stage3_prefetch_bucket_size": int(0.9 * hidden * hidden),
        "stage3_param_persistence_threshold": 10 * hidden,
    }
    return {"reduce_bucket_size": hidden * hidden} | (stage3 if _stage(section) == 3 else {})


def _stage(section: Document) -> int:
    try:
        return int(STAGE(section.data.get("stage", 0)).value)
    except RefusedError:
        return 0


def _zero(section: Document, values: Mapping[str, Any], log: Log, release: Release) -> Zero:
    names = {field.name for field in fields(Zero)} - {"overlap_comm", "overlap_comm_given", *OFFLOADS}
    plain = {name: value for name, value in values.items() if name in names}
    overlap = values.get("overlap_comm")
    stage: Stage = values.get("stage", 0)
    return Zero(
        **plain,
        overlap_comm=stage == 3 if overlap is None else overlap,
        overlap_comm_given=overlap is not None,
        offload_optimizer=read_offload(section, "offload_optimizer", stage, log, release),
        offload_param=read_offload(section, "offload_param", stage, log, release),
    )


def _told(section: Document, zero: Zero, log: Log) -> None:
    tell_offloads(section, zero, log)
    tell_paths(section, zero, log)
    if zero.stage == 3 and 0 in (zero.max_live_parameters, zero.prefetch_bucket_size):
        remedy = "Leave stage3_max_live_parameters and stage3_prefetch_bucket_size at their defaults."
        log.say("no-prefetch", "warning", "Stage 3 without prefetch: every gather waits for its module.", remedy)
    if zero.stage == 3 and zero.sub_group_size == 0:
        message = "sub_group_size: 0 makes every parameter an optimizer sub-group of its own, with its own kernels."
        log.say("sub-group-a-parameter", "warning", message, "Leave sub_group_size at its default.")


def _tell_leaf_classes(section: Document, log: Log) -> None:
    classes = classes_of(section.data.get("leaf_module"))
    if classes:
        what = f"a leaf module that is found by its class ({', '.join(classes)}) and not by its name"
        log.lacking(f"{dotted(section, 'leaf_module')}.classes", what)


def _tell_reduce_scatter(zero: Zero, log: Log) -> None:
    if zero.stage in (1, 2) and zero.use_multi_rank_bucket_allreduce:
        message = (
            f"reduce_scatter: true on stage {zero.stage} sends each bucket as one all-reduce, not a reduce-scatter."
        )
        log.say("reduce-scatter-is-all-reduce", "note", message)


def _ruled_out(section: Document, values: Mapping[str, Any], zero: Zero, log: Log) -> None:
    """What DeepSpeed asserts about values taken together."""
    if values.get("legacy_stage1"):
        log.problems.append(section.problem(("legacy_stage1",), "true", "false; DeepSpeed has removed it"))
    rule_out_offloads(section, zero, log)
    if zero.stage in (1, 2) and zero.allgather_bucket_size % 2:  # a multiple of nccl_start_alignment_factor
        log.problems.append(
            section.problem(("allgather_bucket_size",), str(zero.allgather_bucket_size), "an even number")
        )


def _rule_out_no_norm(section: Document, zero: Zero, bf16_optimizer: bool, clipping: float, log: Log) -> None:
    """`compute_grad_norm: false` (runtime/zero/config.py, stage_1_and_2.py, engine.py)."""
    device, wanted = zero.offload_optimizer.device, ""
    if zero.stage not in (1, 2):
        wanted = f"true on stage {zero.stage}"
    elif bf16_optimizer:
        wanted = "true on stage 1 with bf16 and fp32 accumulation"
    elif device != "none":
        wanted = f"true where the optimizer is offloaded (device: {device})"
    elif clipping > 0:
        wanted = f"true, or gradient_clipping: 0 at the top of the file (it is {clipping:g})"
    if wanted:
        log.problems.append(section.problem(("compute_grad_norm",), "false", wanted))
