"""A whole file of `accelerate config`: which launch it describes, and where its FSDP settings are.

Read as accelerate 1.15 does (commands/config/config_args.py, commands/launch.py, parallelism_config.py): a key that it
does not know at the top level is refused; keys that only say where and how processes start change nothing in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from zerosim.errors import InputError, nearest
from zerosim.spec.deepspeed_values import POSITIVE, RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.fsdp_schema import SCRIPT, named
from zerosim.spec.fsdp_settings import INLINE, Beside, Settings, Written

TYPE, SECTION, MESH_SECTION = "distributed_type", "fsdp_config", "parallelism_config"
_MESH_PREFIX = "parallelism_config_"
_READ = (TYPE, SECTION, MESH_SECTION, "mixed_precision", "fp16", "num_machines", "num_processes")
_STARTING = (
    "compute_environment", "debug", "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend",
    "same_network", "main_training_function", "enable_cpu_affinity", "downcast_bf16", "use_cpu", "tpu_name", "tpu_zone",
    "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "mpirun_config",
)  # fmt: skip
_LACKING = {
    "fp8_config": "computation in fp8",
    "dynamo_config": "torch.compile",
    "dynamo_backend": "torch.compile",
    "megatron_lm_config": "Megatron-LM",
}
_HANDED_ON = (  # utils/launch.py: what becomes a variable of the environment
    "version", "sharding_strategy", "reshard_after_forward", "cpu_offload", "min_num_params", "auto_wrap_policy",
    "transformer_layer_cls_to_wrap", "backward_prefetch", "state_dict_type", "forward_prefetch", "use_orig_params",
    "cpu_ram_efficient_loading", "sync_module_states", "activation_checkpointing", "activation_checkpointing_offload",
    "ignored_modules",
)  # fmt: skip
_OTHER_SECTIONS = ("deepspeed_config",)
TOP: tuple[str, ...] = (*_READ, *_STARTING, *_LACKING, *_OTHER_SECTIONS)
_INSTEAD = {
    "DEEPSPEED": "a DeepSpeed file is given to strategy.deepspeed: its deepspeed_config_file, or the same in its keys",
    "MULTI_GPU": "this is DistributedDataParallel: strategy.ddp",
    "NO": "this is one process: strategy.ddp with gpus: 1",
}
_SIZES = {  # of parallelism_config, and what a size above 1 would ask for
    "dp_replicate_size": "", "dp_shard_size": "", "tp_size": "tensor parallelism", "cp_size": "context parallelism",
    "sp_size": "sequence parallelism",
}  # fmt: skip
_WITH_SIZES = ("cp_backend", "cp_comm_strategy", "sp_backend", "sp_seq_length", "sp_seq_length_is_variable",
               "sp_attn_implementation")  # fmt: skip


def is_whole(data: Any) -> bool:
    """Whether a mapping is a whole file, not its `fsdp_config` alone."""
    marks = (TYPE, SECTION, MESH_SECTION, "compute_environment", "num_processes", "deepspeed_config")
    return isinstance(data, Mapping) and any(mark in data for mark in marks)


def in_file(data: Any, path: Sequence[str]) -> tuple[str, ...]:
    """Where a key that is to be changed stands in a file, whichever of its names is used."""
    key, *rest = path
    name = named(key)
    if not isinstance(data, Mapping) or not name or key in data:
        return tuple(path)
    whole = is_whole(data)
    if whole and (name in SCRIPT or key in TOP):
        return tuple(path)
    section = data.get(SECTION) if whole else data
    keys = [str(other) for other in section] if isinstance(section, Mapping) else []
    written = next((other for other in keys if named(other) == name), key)
    return (*((SECTION,) if whole else ()), written, *rest)


def read_whole(top: Document, settings: Settings, beside: Beside) -> None:
    """The file into the settings."""
    _type(top)
    section = top.data.get(SECTION)
    inline = top.at[:2] == INLINE
    own = {key: value for key, value in top.data.items() if key not in TOP and named(key) in SCRIPT}
    settings.read(replace(top, data=own), SCRIPT)
    if isinstance(section, Mapping):
        settings.read(top.below(SECTION), lenient=not inline)
        _tell_forgotten(top.below(SECTION), settings)
    elif section is not None:
        settings.log.problems.append(top.problem((SECTION,), shown(section), "a mapping"))
    _precision(top, settings)
    _mesh(top, settings, beside)
    _compare(top, settings, beside)
    _tell(top, settings, own)


def _type(top: Document) -> None:
    """InputError where the file is of another strategy: what else is wrong in it does not matter then."""
    given = top.data.get(TYPE)
    if given is None and top.at[:2] == INLINE and SECTION in top.data:
        return
    if given is None:
        expected = f"{TYPE}: FSDP, as accelerate writes it; an fsdp_config alone may also be given"
        raise InputError([top.problem((), f"no {TYPE}", expected)])
    if str(given).upper() != "FSDP":
        other = _INSTEAD.get("NO" if given is False else str(given).upper(), "")
        raise InputError([top.problem((TYPE,), shown(given), f"FSDP{f'; {other}' if other else ''}")])


def _tell_forgotten(section: Document, settings: Settings) -> None:
    """Keys of the plugin or of torch that the launcher does not hand on: only a script can set them."""
    forgotten = [str(key) for key in section.data if named(key) and named(key) not in _HANDED_ON]
    if forgotten:
        message = f"accelerate launch does not hand on {', '.join(forgotten)}; the answer is for a run that has it."
        settings.log.say("not-handed-on", "warning", message, "Set it in the script (FullyShardedDataParallelPlugin).")


def _precision(top: Document, settings: Settings) -> None:
    """`fp16: true` is what old files have."""
    if "mixed_precision" in top.data:
        settings.read(replace(top, data={"mixed_precision": top.data["mixed_precision"]}))
    elif "fp16" in top.data:
        settings.written["mixed_precision"] = Written(top, "fp16", "fp16" if top.data["fp16"] else "no")


def _mesh(top: Document, settings: Settings, beside: Beside) -> None:
    """`parallelism_config`: replicas of shard groups, for version 2 only."""
    if not top.data.get(MESH_SECTION):
        return
    if not isinstance(top.data[MESH_SECTION], Mapping):
        settings.log.problems.append(top.problem((MESH_SECTION,), shown(top.data[MESH_SECTION]), "a mapping"))
        return
    section = top.below(MESH_SECTION)
    sizes = _sizes(section, settings)
    if settings.get("version", 1) == 1:
        expected = "nothing with fsdp_version 1: accelerate allows it with version 2 only"
        settings.log.problems.append(top.key_problem((MESH_SECTION,), "a mapping", expected))
        return
    for name, mechanism in _SIZES.items():
        if mechanism and sizes[name] > 1:
            expected = f"1: {mechanism} is not simulated"
            settings.log.problems.append(section.problem((_MESH_PREFIX + name,), str(sizes[name]), expected))
    if settings.log.problems:
        return
    replicas, shards = sizes["dp_replicate_size"], sizes["dp_shard_size"]
    if shards == 1:
        expected = "2 or more in dp_shard_size: FSDP has nothing to shard over"
        settings.log.problems.append(section.problem((), f"dp_shard_size {shards}", expected))
    elif beside.world_size is not None and replicas * shards != beside.world_size:
        found, expected = f"{replicas} * {shards} = {replicas * shards}", f"{beside.world_size}, the GPUs"
        settings.log.problems.append(section.problem((), f"dp_replicate_size * dp_shard_size = {found}", expected))
    else:
        settings.written["mesh"] = Written(top, MESH_SECTION, (replicas, shards))


def _sizes(section: Document, settings: Settings) -> dict[str, int]:
    sizes = dict.fromkeys(_SIZES, 1)
    known = [_MESH_PREFIX + name for name in (*_SIZES, *_WITH_SIZES)]
    for key, given in section.data.items():
        name = str(key).removeprefix(_MESH_PREFIX)
        if key not in known:
            wrong = section.key_problem(
                (key,), f'unknown key "{key}"', "a key of parallelism_config", nearest(str(key), known)
            )
            settings.log.problems.append(wrong)
        elif name in _SIZES:
            try:
                sizes[name] = POSITIVE(given).value
            except RefusedError as refusal:
                settings.log.problems.append(section.problem((key,), shown(given), refusal.expected))
    return sizes


def _compare(top: Document, settings: Settings, beside: Beside) -> None:
    """The number of processes and machines beside the scenario's."""
    for key, actual, what in (
        ("num_processes", beside.world_size, "GPUs"),
        ("num_machines", beside.nodes, "nodes"),
    ):
        given = top.data.get(key)
        if given is not None and actual is not None and str(given) != str(actual):
            message = f"{key} is {shown(given)}; what is simulated is the scenario's number of {what}, {actual}."
            remedy = f"Set {what.lower()} of the scenario, or {key}."
            settings.log.say("launch-differs", "warning", message, remedy)


def _tell(top: Document, settings: Settings, own: Mapping[str, Any]) -> None:
    """Keys of the top level that do not shape the step."""
    starting = [key for key in top.data if key in _STARTING]
    if starting:
        verbs = ("changes", "it says") if len(starting) == 1 else ("change", "they say")
        message = f"{', '.join(starting)} {verbs[0]} nothing in a step: {verbs[1]} how processes are started."
        settings.log.say("key-no-effect", "note", message)
    if top.data.get("use_cpu") in (True, "true", 1):
        settings.log.problems.append(top.problem(("use_cpu",), "true", "false: a step runs on GPUs"))
    for key, mechanism in _LACKING.items():
        if top.data.get(key) not in (None, {}, "NO", "no", False):
            settings.log.lacking(key, mechanism)
    for key in _OTHER_SECTIONS:
        if top.data.get(key):
            settings.log.idle(key, f"{TYPE} is FSDP")
    for key in top.data:
        if key not in TOP and key not in own:
            settings.log.problems.append(_unknown(top, str(key)))


def _unknown(top: Document, key: str) -> Any:
    if named(key):
        return top.key_problem((key,), key, f"this key in {SECTION}", f"{SECTION}.{key}")
    expected = "a key of an accelerate file, which refuses others"
    return top.key_problem((key,), f'unknown key "{key}"', expected, nearest(key, [*TOP, *SCRIPT]))
