"""Every key of a DeepSpeed file is honoured or answered: nothing is parsed and then dropped in silence.

`ROWS` is a table of claims: where DeepSpeed's own step would change with a key, ours changes (`step`); where it would
not, or where the mechanism is not simulated, the finding of that code names the key. The sweep below it asks the same
of every key of the schema on every stage, so that a key which is added to a table and read by nobody fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.toy import toy, toy_training
from zerosim.errors import Finding
from zerosim.spec import deepspeed_schema as schema
from zerosim.spec import deepspeed_top as top_level
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_values import BOOLEAN, INTEGER, MAPPING, NUMBER, SHARE, SIGNED, Kind, optional
from zerosim.spec.deepspeed_zeropp import REMOVED, WITH_MICS
from zerosim.spec.loading import inline
from zerosim.spec.model import Model
from zerosim.spec.release import CURRENT, release_of
from zerosim.step import Step
from zerosim.strategies import build

File = Mapping[str, Any]
WORLD = 2
STEP, IDLE, LACKING = "step", "key-no-effect", "not-modelled"

Z = "zero_optimization"
SMALL: dict[str, Any] = {  # as small as the toy, so that every threshold has something above and below it
    "reduce_bucket_size": 20_000,
    "stage3_param_persistence_threshold": 100,
    "stage3_prefetch_bucket_size": 14_000,
    "stage3_max_live_parameters": 60_000,
    "stage3_max_reuse_distance": 0,
}


def base(stage: int, precision: str = "bf16", more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """A file of the toy's size with two micro-steps; `more` are values by dotted path."""
    file: dict[str, Any] = {"gradient_accumulation_steps": 2, "optimizer": {"type": "AdamW"}}
    file[Z] = {"stage": stage, **SMALL}
    if precision != "fp32":
        file[precision] = {"enabled": True}
    for path, value in more.items():
        put(file, path, value)
    return file


def put(file: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path; both spellings of a stage-3 key are one."""
    *sections, key = path.split(".")
    for section in sections:
        file = file.setdefault(section, {})
    file.pop(f"stage3_{key}", None)
    file[key] = value


TOY = toy()
LARGE = toy(hidden=1024, vocabulary=1024)  # a rank's parts of it are large enough to be swapped: a MiB and more


def outcome(file: File, model: Model = TOY, version: str = CURRENT) -> tuple[Step, tuple[Finding, ...]]:
    known = Given(world_size=WORLD, hidden=64)
    read = read_deepspeed(inline(dict(file), "ds_config.json"), known, release_of(version))
    training = toy_training(**read.training_values)
    return build(read.deepspeed, model, training, WORLD)[0], read.findings


def step_of(file: File) -> Step:
    return outcome(file)[0]


def names(finding: Finding) -> Iterator[str]:
    """The keys that a finding is about, from the head of its message: `a.b`, `a.b (c, d)` or `x becomes …: a = 1`."""
    yield from re.findall(r"(\w+(?:\.\w+)+|\w+) = ", finding.message)
    head = re.match(r"([\w.]+)(?: \(([\w, ]+)\))?(?=[: ])", finding.message)
    if head is not None:
        yield head[1]
        yield from (f"{head[1]}.{key}" for key in (head[2] or "").split(", ") if key)


def answered(path: str, findings: tuple[Finding, ...], code: str | None = None) -> bool:
    """Whether a finding (of this code) is about the key, or about the section that it stands in."""
    sections = {Z, "bf16", "fp16", "optimizer", "timers", "data_types", "optimizer.params"}  # too wide to be an answer
    told = {name for finding in findings if code in (None, finding.code) for name in names(finding)}
    parts = path.split(".")
    above = {".".join(parts[:length]) for length in range(1, len(parts))} - sections
    return bool(told & ({path} | above))


# --- the table -------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """In `file` the key goes from `one` to `other`: the step changes, or a finding of a code says why not."""

    key: str
    one: Any
    other: Any
    file: File
    effect: str
    model: Model = TOY


def rows(key: str, one: Any, other: Any, files: list[dict[str, Any]], effect: str, model: Model = TOY) -> list[Row]:
    return [Row(key, one, other, file, effect, model) for file in files]


OVERLAP = f"{Z}.overlap_comm"
FP32_SUMS = {"data_types.grad_accum_dtype": "fp32"}
NO_CLIPPING = {"gradient_clipping": 0.0}
ALL = [base(stage) for stage in range(4)]
REDUCING = [base(stage, more={OVERLAP: True}) for stage in (1, 2, 3)]
PARTITIONED = [base(stage, more={OVERLAP: overlap}) for stage in (1, 2) for overlap in (True, False)]
THREE = [base(3)]
BF16_OPTIMIZER = [base(1, more=FP32_SUMS)]
HOST = [base(stage, more={f"{Z}.offload_optimizer.device": "cpu"}) for stage in (1, 2, 3)]
SUB_GROUPS = {f"{Z}.sub_group_size": 4_000_000}  # LARGE: 20 million elements on a rank, five sub-groups
SWAP = {f"{Z}.offload_optimizer": {"device": "nvme", "nvme_path": "/x", "buffer_count": 12}, **SUB_GROUPS}
SWAPPED = [base(3, more=SWAP)]
FETCH = {f"{Z}.offload_param": {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0, "buffer_count": 20}, **SUB_GROUPS}
FETCHED = [base(3, more=FETCH)]

ROWS: tuple[Row, ...] = (
    # batch and precision
    *rows("gradient_accumulation_steps", 1, 2, ALL, STEP),
    *rows("train_micro_batch_size_per_gpu", 1, 2, ALL, STEP),
    *rows("train_batch_size", 4, 8, ALL, STEP),
    *rows("gradient_accumulation_steps", "auto", 2, ALL, STEP),
    *rows("gradient_accumulation_steps", 2, "auto", ALL, "batch-assumed"),
    *rows("bf16.enabled", True, False, ALL, STEP),
    *rows("fp16.enabled", True, False, [base(stage, "fp32") for stage in range(4)], STEP),
    *rows("bf16.check_grad_overflow", True, False, [base(1), base(2)], STEP),
    *rows("bf16.check_grad_overflow", True, False, [base(0), base(3), *BF16_OPTIMIZER], IDLE),
    *rows("bf16.check_grad_overflow", True, False, [base(2, "fp16"), base(2, "fp32")], IDLE),
    *rows("bf16.immediate_grad_update", False, True, BF16_OPTIMIZER, LACKING),
    *rows("bf16.immediate_grad_update", False, True, [base(1), base(2)], IDLE),
    *rows("bf16.bf16_optimizer_states", False, True, ALL, LACKING),
    *rows("fp16.loss_scale", 0, 1024, [base(2, "fp16")], IDLE),
    *rows("fp16.loss_scale", 1024, 1, [base(stage, "fp16") for stage in range(4)], IDLE),
    *rows("fp16.loss_scale", 1024, 1, [base(stage, "fp16", NO_CLIPPING) for stage in (1, 2)], STEP),
    *rows("fp16.loss_scale", 1024, 1, [base(stage, "fp16", NO_CLIPPING) for stage in (0, 3)], IDLE),
    *rows("gradient_clipping", 0.0, 1.0, [base(2, "fp16", {"fp16.loss_scale": 1})], STEP),
    *rows("gradient_clipping", 0.0, 1.0, [base(3, "fp16", {"fp16.loss_scale": 1})], IDLE),
    *rows("fp16.loss_scale", 0, "auto", [base(2, "fp16")], "auto-defaults"),
    *rows("fp16.fp16_master_weights_and_grads", False, True, [base(2, "fp16")], LACKING),
    *rows("fp16.fp16_master_weights_and_grads", False, True, [base(2, "bf16")], IDLE),
    *rows("data_types.grad_accum_dtype", None, "fp32", ALL, STEP),
    *rows("data_types.grad_accum_dtype", None, "fp32", [base(stage, "fp16") for stage in range(4)], STEP),
    *rows("data_types.grad_accum_dtype", "fp32", "auto", ALL, "auto-defaults"),
    *rows("communication_data_type", None, "fp32", [*ALL, *BF16_OPTIMIZER], STEP),
    # the step as a whole
    *rows("gradient_clipping", 0.0, 1.0, [base(0, "fp32"), base(1), base(2), base(2, "fp32")], STEP),
    *rows("gradient_clipping", 0.0, 1.0, [base(0), base(3), *BF16_OPTIMIZER, base(2, "fp16"), base(3, "fp32")], IDLE),
    *rows("gradient_clipping", 0.0, "auto", ALL, "auto-values"),
    *rows("prescale_gradients", False, True, [base(0), base(1)], IDLE),
    *rows("gradient_predivide_factor", 1.0, 2.0, [base(0), base(1)], LACKING),
    *rows("gradient_allreduce_op", "mean", "sum", [base(0), base(2)], LACKING),
    *rows("wall_clock_breakdown", False, True, [*ALL, *BF16_OPTIMIZER], STEP),
    *rows("wall_clock_breakdown", True, "auto", ALL, "auto-defaults"),
    *rows("timers.throughput.synchronized", True, False, ALL, STEP),
    *rows("timers.throughput.enabled", True, False, ALL, STEP),
    *rows("managed_gradient_accumulation", True, False, ALL, LACKING),
    *rows("sparse_gradients", False, True, ALL, LACKING),
    *rows("comms_logger.enabled", False, True, ALL, LACKING),
    *rows("comms_logger.verbose", False, True, ALL, IDLE),
    *rows("data_efficiency.enabled", False, True, ALL, LACKING),
    *rows("steps_per_print", 10, 1, ALL, IDLE),
    *rows("scheduler.params.warmup_num_steps", 10, "auto", ALL, IDLE),
    *rows("scheduler.type", "WarmupLR", "OneCycle", ALL, IDLE),
    *rows("activation_checkpointing.partition_activations", False, True, ALL, IDLE),
    *rows("activation_checkpointing.cpu_checkpointing", False, True, ALL, IDLE),
    *rows("activation_checkpointing.number_checkpoints", None, "auto", ALL, IDLE),
    # optimizer
    *rows("optimizer.type", "AdamW", "Lion", [*ALL, *BF16_OPTIMIZER], STEP),
    *rows("optimizer.type", "Lion", "auto", ALL, "optimizer-assumed"),
    *rows("optimizer.params.torch_adam", False, True, ALL, STEP),
    *rows("optimizer.params.torch_adam", True, "auto", ALL, "auto-defaults"),
    *rows("optimizer.params.torch_adam", False, True, [base(0, more={"optimizer.type": "Lion"})], IDLE),
    *rows("optimizer.params.momentum", 0.0, 0.9, [base(0, more={"optimizer.type": "SGD"})], STEP),
    *rows("optimizer.params.momentum", 0.0, 0.9, ALL, IDLE),
    *rows("optimizer.params.nesterov", False, True, [base(0, more={"optimizer.type": "SGD"})], LACKING),
    *rows("optimizer.params.weight_decay", 0.0, 0.1, [base(0, more={"optimizer.params.torch_adam": True})], LACKING),
    *rows("optimizer.params.weight_decay", 0.0, 0.1, ALL, IDLE),
    *rows("optimizer.params.lr", 1e-3, "auto", ALL, IDLE),
    *rows(
        "zero_allow_untested_optimizer", True, False, [base(2, more={"optimizer.type": "SGD"})], "untested-optimizer"
    ),
    # ZeRO
    *rows(f"{Z}.stage", 1, 2, [base(0)], STEP),
    *rows(f"{Z}.contiguous_gradients", True, False, REDUCING, STEP),
    *rows(f"{Z}.contiguous_gradients", True, False, [base(1), base(2)], STEP),
    *rows(f"{Z}.reduce_scatter", True, False, REDUCING, STEP),
    *rows(f"{Z}.reduce_bucket_size", 20_000, 60_000, REDUCING, STEP),
    *rows(f"{Z}.reduce_bucket_size", 20_000, 60_000, [base(0), *BF16_OPTIMIZER], IDLE),
    *rows(f"{Z}.reduce_bucket_size", 20_000, "auto", REDUCING, STEP),  # 64 x 64 by Transformers' rule
    *rows(f"{Z}.use_multi_rank_bucket_allreduce", True, False, PARTITIONED, STEP),
    *rows(f"{Z}.overlap_comm", False, True, [base(1), base(2), base(3)], STEP),
    *rows(f"{Z}.overlap_comm", False, True, [base(0), *BF16_OPTIMIZER], IDLE),
    *rows(f"{Z}.overlap_comm", None, True, [base(2)], STEP),
    *rows(f"{Z}.overlap_comm", None, False, THREE, STEP),
    *rows(f"{Z}.overlap_comm", True, "auto", [base(2)], "auto-defaults"),
    *rows(f"{Z}.round_robin_gradients", False, True, PARTITIONED, STEP),
    *rows(f"{Z}.allgather_partitions", True, False, ALL, IDLE),
    *rows(f"{Z}.allgather_bucket_size", 500_000_000, 1000, ALL, IDLE),
    *rows(f"{Z}.sub_group_size", 1_000_000_000, 1000, THREE, STEP),
    *rows(f"{Z}.sub_group_size", 1000, "auto", THREE, "auto-defaults"),
    *rows(f"{Z}.stage3_prefetch_bucket_size", 14_000, 0, THREE, STEP),
    *rows(f"{Z}.stage3_param_persistence_threshold", 100, 0, THREE, STEP),
    *rows(f"{Z}.stage3_model_persistence_threshold", 1_000_000, 0, THREE, STEP),
    *rows(f"{Z}.stage3_max_live_parameters", 60_000, 1_000_000, THREE, STEP),
    *rows(f"{Z}.stage3_max_reuse_distance", 0, 1_000_000, THREE, STEP),
    *rows(f"{Z}.stage3_use_all_reduce_for_fetch_params", False, True, THREE, STEP),
    *rows(f"{Z}.stage3_allgather_sequential", False, True, THREE, STEP),
    *rows(f"{Z}.stage3_max_live_parameters", 60_000, 1_000_000, [base(2)], IDLE),
    *rows(f"{Z}.memory_efficient_linear", True, False, THREE, STEP),
    *rows(f"{Z}.zero_hpz_partition_size", 1, 2, THREE, STEP),
    *rows(f"{Z}.zero_quantized_weights", False, True, THREE, STEP),
    *rows(f"{Z}.zero_quantized_gradients", False, True, THREE, STEP),
    *rows(f"{Z}.leaf_module", None, {"names": ["b1"]}, THREE, STEP),
    *rows(f"{Z}.leaf_module.classes", [], ["B"], THREE, LACKING),
    *rows(f"{Z}.stage3_module_granularity_threshold", 0, 8000, THREE, STEP),
    *rows(f"{Z}.compute_grad_norm", True, False, [base(stage, more=NO_CLIPPING) for stage in (1, 2)], STEP),
    *rows(f"{Z}.zenflow", None, {}, [base(2)], LACKING),
    # offload
    *rows(f"{Z}.offload_optimizer.device", "none", "cpu", [base(1), base(2), base(3)], STEP),
    *rows(f"{Z}.offload_optimizer.device", "cpu", "nvme", THREE, STEP, LARGE),
    *rows(f"{Z}.offload_optimizer.device", "cpu", "nvme", [base(1), base(2)], "nvme-is-cpu"),
    *rows(f"{Z}.offload_optimizer.device", "none", "cpu", [base(0)], IDLE),
    *rows(f"{Z}.offload_optimizer.device", "none", "cpu", [base(0)], "offload-without-stage"),
    *rows(f"{Z}.offload_optimizer.device", "none", "auto", [base(2)], "auto-defaults"),
    *rows(f"{Z}.offload_optimizer.pin_memory", True, False, [base(2)], IDLE),
    *rows(f"{Z}.offload_optimizer.pin_memory", True, False, HOST, STEP),
    *rows(f"{Z}.offload_optimizer.pin_memory", True, False, HOST, "pageable-copies"),
    *rows(f"{Z}.offload_optimizer.buffer_count", 4, 12, HOST, IDLE),
    *rows(f"{Z}.offload_optimizer.pipeline_read", False, True, HOST, IDLE),
    *rows(
        f"{Z}.offload_optimizer.ratio",
        1.0,
        0.5,
        [base(3, more={f"{Z}.offload_optimizer.device": "cpu", **SUB_GROUPS})],
        STEP,
        LARGE,
    ),
    *rows(f"{Z}.contiguous_gradients", True, False, HOST[:2], IDLE),
    *rows("optimizer.type", "AdamW", "SGD", HOST, STEP),
    *rows("optimizer.type", "AdamW", "SGD", HOST, "torch-on-cpu"),
    *rows("optimizer.params.torch_adam", False, True, HOST, STEP),
    *rows("zero_force_ds_cpu_optimizer", True, False, [*ALL, *HOST], IDLE),
    *rows("zero_force_ds_cpu_optimizer", True, False, [{**file, "optimizer": None} for file in HOST], STEP),
    # swapping
    *rows(f"{Z}.offload_optimizer.buffer_count", 12, 16, SWAPPED, STEP, LARGE),
    *rows(f"{Z}.offload_optimizer.pipeline_read", False, True, SWAPPED, STEP, LARGE),
    *rows(f"{Z}.offload_optimizer.pipeline_write", False, True, SWAPPED, STEP, LARGE),
    *rows(f"{Z}.offload_optimizer.pin_memory", True, False, SWAPPED, STEP, LARGE),
    *rows(f"{Z}.offload_optimizer.fast_init", False, True, SWAPPED, IDLE, LARGE),
    *rows(f"{Z}.offload_optimizer.nvme_path", "/x", None, SWAPPED, "no-nvme-path", LARGE),
    *rows(f"{Z}.sub_group_size", 4_000_000, 8_000_000, SWAPPED, STEP, LARGE),
    *rows(f"{Z}.offload_param.device", "none", "cpu", THREE, STEP),
    *rows(f"{Z}.offload_param.device", "none", "cpu", [base(2)], IDLE),
    *rows(f"{Z}.offload_param.device", "cpu", "nvme", FETCHED, STEP, LARGE),
    *rows(f"{Z}.offload_param.pin_memory", True, False, [base(3, more={f"{Z}.offload_param.device": "cpu"})], IDLE),
    *rows(f"{Z}.offload_param.pin_memory", True, False, FETCHED, STEP, LARGE),  # shards that are too small to swap
    *rows(f"{Z}.offload_param.buffer_count", 20, 30, FETCHED, STEP, LARGE),
    *rows(f"{Z}.offload_param.buffer_size", 100_000_000, 200_000_000, FETCHED, STEP, LARGE),
    *rows(f"{Z}.offload_param.max_in_cpu", 0, 8_000_000, FETCHED, STEP, LARGE),
    *rows("aio.queue_depth", 8, 32, ALL, IDLE),
    *rows("aio.thread_count", 1, 8, [*ALL, *SWAPPED], IDLE),
    *rows("aio.queue_depth", 8, 32, [*SWAPPED, *FETCHED], STEP, LARGE),
    *rows("aio.queue_depth", 8, 32, [base(3, more={**SWAP, "aio.overlap_events": False})], STEP, LARGE),
    *rows("aio.overlap_events", True, False, [*SWAPPED, *FETCHED], STEP, LARGE),
    *rows("aio.block_size", 1_048_576, 2**25, SWAPPED, STEP, LARGE),  # a sub-group has 16 MB of each state
    *rows("aio.intra_op_parallelism", 1, 8, SWAPPED, STEP, LARGE),
    *rows("aio.single_submit", False, True, [*SWAPPED, *FETCHED], IDLE, LARGE),
    *rows("aio.use_gds", False, True, SWAPPED, IDLE, LARGE),
    *rows("aio.use_gds", False, True, FETCHED, STEP, LARGE),
)


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.key}-{row.one}-{row.other}-stage{row.file[Z]['stage']}-{row.effect}"
)
def test_a_key_changes_the_step_or_is_answered(row: Row) -> None:
    one, other = deepcopy(dict(row.file)), deepcopy(dict(row.file))
    put(one, row.key, row.one)
    put(other, row.key, row.other)
    (before, _), (after, findings) = outcome(one, row.model), outcome(other, row.model)
    if row.effect == STEP:
        assert before != after
        assert not answered(row.key, findings, IDLE)
        assert not answered(row.key, findings, LACKING)
    else:
        spoken = [finding for finding in findings if finding.code == row.effect]
        assert spoken
        assert row.effect not in (IDLE, LACKING, "auto-defaults") or answered(row.key, findings, row.effect)
    if row.effect == IDLE:
        assert before == after  # what is said to change nothing changes nothing


# --- the sweep -------------------------------------------------------------------------------------------------------

_EXAMPLES: Mapping[str, tuple[Any, ...]] = {  # values of a kind, some of which matter at the toy's size
    BOOLEAN.name: (True, False),
    optional(BOOLEAN).name: (True, False),
    INTEGER.name: (0, 1000, 20_000, 60_000, 1_000_000),
    SIGNED.name: (2,),
    SHARE.name: (0.5,),
    NUMBER.name: (0.0, 0.5),
    optional(MAPPING).name: ({},),
}
_OTHERWISE: Mapping[str, tuple[Any, ...]] = {  # keys whose values have to be certain words
    "communication_data_type": ("fp32", "fp16"),
    "data_types.grad_accum_dtype": ("fp32", "bf16"),
    "gradient_allreduce_op": ("sum",),
    "aio.thread_count": (1,),
    "steps_per_print": (1,),
    f"{Z}.leaf_module": ({"name_suffixes": "2"},),
    f"{Z}.module_granularity_threshold": (8000,),  # finer than a block of the toy, not than the whole of it
    f"{Z}.offload_optimizer.device": ("cpu", "nvme"),
    f"{Z}.offload_param.device": ("cpu", "nvme"),
    f"{Z}.offload_optimizer.nvme_path": ("/local",),
    f"{Z}.offload_param.nvme_path": ("/local",),
}
_QUIET = {  # keys that only say whether something else is an error, or to which all sizes of the toy are equal
    f"{Z}.parameter_alignment",
    "zero_allow_untested_optimizer",
    f"{Z}.legacy_stage1",
}
_TABLES: Mapping[str, Mapping[str, schema.Key]] = {
    "": top_level.VALUES,
    f"{Z}.": {name: row for name, row in schema.ZERO.items() if name not in ("offload_optimizer", "offload_param")},
    f"{Z}.offload_optimizer.": schema.OFFLOAD_OPTIMIZER,
    f"{Z}.offload_param.": schema.OFFLOAD_PARAM,
    "bf16.": schema.BF16,
    "fp16.": schema.FP16,
    "aio.": schema.AIO,
    "activation_checkpointing.": schema.ACTIVATION_CHECKPOINTING,
    "timers.throughput.": schema.THROUGHPUT,
    "data_types.": schema.DATA_TYPES,
}
_KEYS = {f"{place}{name}": row for place, table in _TABLES.items() for name, row in table.items()}


def examples(path: str, kind: Kind) -> tuple[Any, ...]:
    return _OTHERWISE.get(path) or _EXAMPLES.get(kind.name, (1, 3))


def variants(path: str, stage: int, precision: str) -> Iterator[dict[str, Any]]:
    """The files in which the key has its default and each of its examples."""
    for value in (_KEYS[path].default, *examples(path, _KEYS[path].kind)):
        file = base(stage, precision, {OVERLAP: True} if path != OVERLAP else {})
        if stage >= 2 and path in ("prescale_gradients", "gradient_predivide_factor"):
            file[Z]["reduce_scatter"] = False  # else DeepSpeed refuses them
        if path.endswith("compute_grad_norm"):
            file["gradient_clipping"] = 0  # else DeepSpeed refuses false
        if path.endswith("offload_optimizer.ratio") and stage < 3:
            value = 1.0
        put(file, path, value)
        yield file


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("path", sorted(_KEYS.keys() - _QUIET))
def test_no_key_of_the_schema_is_dropped_in_silence(path: str, stage: int, precision: str) -> None:
    if path in ("bf16.enabled", "fp16.enabled") and precision != "fp32":
        pytest.skip("both at once is an error; alone it is a row of the table")
    if path == "gradient_allreduce_op" and stage == 3:
        pytest.skip("stage 3 takes one value only")
    first: Step | None = None
    for number, file in enumerate(variants(path, stage, precision)):
        step, findings = outcome(file, version=WITH_MICS if path.rpartition(".")[2] in REMOVED else CURRENT)
        if answered(path, findings):
            return
        if first is not None and number and step != first:
            return
        first = first or step
    pytest.fail(f"{path} on stage {stage} in {precision}: neither a change of the step nor a finding")


@pytest.mark.parametrize("section", sorted(top_level.KNOWN))
def test_every_section_of_the_top_level_is_answered_or_read(section: str) -> None:
    """Sections that no table describes: their presence alone is told."""
    described = {path.partition(".")[0] for path in _KEYS} | {
        Z,
        "optimizer",
        "bfloat16",
        "zero_allow_untested_optimizer",
    }
    if section in described or (section.startswith(("train_", "gradient_accumulation")) and section != "train_steps"):
        return
    _, findings = outcome({**base(2), section: {"enabled": True, "any": 1}})
    assert answered(section, findings)


def test_auto_everywhere_is_answered() -> None:
    """`"auto"` in every key that DeepSpeed's classes or Transformers take it in: each is told what it became."""
    for path in sorted(_KEYS):
        if path in ("bf16.enabled", "fp16.enabled"):
            continue  # takes the value of `training`, or is told
        if path.rpartition(".")[2] in REMOVED:
            continue  # is refused whatever its value is
        file = base(3)
        put(file, path, "auto")
        _, findings = outcome(file)
        told = answered(path, findings) or path.rpartition(".")[2] in " ".join(finding.message for finding in findings)
        assert told, path


def test_checkpoints_in_host_memory_change_the_step_of_a_model_that_calls_deepspeeds_function() -> None:
    file = {**base(2), "activation_checkpointing": {"cpu_checkpointing": True}}
    steps = []
    for function in ("torch", "deepspeed"):
        known = Given(WORLD, 64, checkpoint_function=function, activation_checkpointing="full")
        read = read_deepspeed(inline(file, "ds_config.json"), known)
        assert answered("activation_checkpointing.cpu_checkpointing", read.findings, IDLE) is (function == "torch")
        training = toy_training(**read.training_values, activation_checkpointing="full", reentrant=True)
        steps.append(build(read.deepspeed, TOY, training, WORLD)[0])
    assert steps[0] != steps[1]
