"""The `zero_optimization` section: old spellings, `"auto"`, and what its values rule out (DeepSpeed 0.19).

`"auto"` in three keys is filled by Transformers from the hidden size (integrations/deepspeed.py); every other `"auto"`
is dropped by DeepSpeed's own classes and so becomes the default (runtime/config_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from zerosim.spec.deepspeed_schema import ALIASES, DEPRECATED, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, ZERO, Key
from zerosim.spec.deepspeed_section import Log, dotted, read_section, tell
from zerosim.spec.deepspeed_values import AUTO, BOOLEAN, STAGE, RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.strategy import Offload, Zero

SECTION = "zero_optimization"
_OFFLOADS: Mapping[str, Mapping[str, Key]] = {"offload_optimizer": OFFLOAD_OPTIMIZER, "offload_param": OFFLOAD_PARAM}


def read_zero(top: Document, log: Log, hidden: int | None, fp32_sums: bool = False) -> Zero:
    """The section of the file `top`; `hidden` is the model's width where Hugging Face fills in `"auto"`.

    `fp32_sums`: a bf16 model whose gradients accumulate in fp32, for which stage 1 is BF16_Optimizer.
    """
    if SECTION not in top.data:
        return Zero()
    given = top.data[SECTION]
    if isinstance(given, bool):
        return _legacy(given, log)
    if not isinstance(given, Mapping):
        log.problems.append(top.problem((SECTION,), shown(given), "a mapping such as {stage: 2}"))
        return Zero()
    section = _filled(_modern(top.below(SECTION), log), log, hidden)
    values = read_section(section, ZERO, log, ALIASES)
    zero = _zero(section, values, log)
    bf16_optimizer = fp32_sums and zero.stage == 1
    tell(section, ZERO, values, log, zero.stage, ALIASES, bf16_optimizer)
    _told(section, zero, log)
    if values.get("reduce_scatter") and not bf16_optimizer:
        _tell_reduce_scatter(zero, log)
    _ruled_out(section, values, zero, log)
    return zero


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
        elif new in _OFFLOADS:
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
    written = f"{new}: {{device: cpu}}" if new in _OFFLOADS else new
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


def _zero(section: Document, values: Mapping[str, Any], log: Log) -> Zero:
    names = {field.name for field in fields(Zero)} - {"overlap_comm", "overlap_comm_given", *_OFFLOADS}
    plain = {name: value for name, value in values.items() if name in names}
    overlap = values.get("overlap_comm")
    return Zero(
        **plain,
        overlap_comm=values.get("stage", 0) == 3 if overlap is None else overlap,
        overlap_comm_given=overlap is not None,
        offload_optimizer=_offload(section, "offload_optimizer", Offload(), log),
        offload_param=_offload(section, "offload_param", Offload(buffer_count=5), log),
    )


def _offload(section: Document, key: str, default: Offload, log: Log) -> Offload:
    if not isinstance(section.data.get(key), Mapping):
        return default
    part, table = section.below(key), _OFFLOADS[key]
    values = read_section(part, table, log)
    _tell_offload(part, table, values, log)
    names = {field.name for field in fields(Offload)}
    return replace(default, **{name: value for name, value in values.items() if name in names})


def _tell_offload(part: Document, table: Mapping[str, Key], values: Mapping[str, Any], log: Log) -> None:
    """What is said of a section that offloads nothing."""
    tell(part, table, values, log)
    beside = [key for key in values if not table[key].idle and not table[key].lacks]
    if beside and values.get("device", "none") == "none":
        log.idle(f"{dotted(part, '')[:-1]} ({', '.join(beside)})", "nothing is offloaded")


def _told(section: Document, zero: Zero, log: Log) -> None:
    for key in _OFFLOADS:
        offload: Offload = getattr(zero, key)
        if offload.device != "none" and str(zero.stage) in ZERO[key].stages:
            said = ", ".join(map(str, section.data[key]))
            message = (
                f"{dotted(section, key)} ({said}): offload to {offload.device} is not simulated; "
                "step time and memory are those of a run with all states in GPU memory."
            )
            log.say("not-modelled", "warning", message)
    if zero.offload_optimizer.device == "nvme" and zero.stage in (1, 2):
        log.say("nvme-is-cpu", "warning", f"On stage {zero.stage} DeepSpeed treats offload_optimizer to nvme as cpu.")
    if zero.stage == 3 and 0 in (zero.max_live_parameters, zero.prefetch_bucket_size):
        remedy = "Leave stage3_max_live_parameters and stage3_prefetch_bucket_size at their defaults."
        log.say("no-prefetch", "warning", "Stage 3 without prefetch: every gather waits for its module.", remedy)
    if zero.stage == 3 and zero.sub_group_size == 0:
        message = "sub_group_size: 0 makes every parameter an optimizer sub-group of its own, with its own kernels."
        log.say("sub-group-a-parameter", "warning", message, "Leave sub_group_size at its default.")


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
    if zero.offload_optimizer.ratio < 1 and zero.stage != 3:
        found = f"{zero.offload_optimizer.ratio} on stage {zero.stage}"
        log.problems.append(section.problem(("offload_optimizer", "ratio"), found, "1, or stage 3"))
    if zero.stage in (1, 2) and zero.allgather_bucket_size % 2:  # a multiple of nccl_start_alignment_factor
        log.problems.append(
            section.problem(("allgather_bucket_size",), str(zero.allgather_bucket_size), "an even number")
        )
