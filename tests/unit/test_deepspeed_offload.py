"""Offload in a DeepSpeed file: what a stage and a device make of each key, what DeepSpeed refuses, what sizes decide.

`LARGE` has 33,564,672 parameters: two tables of 4096 x 1024, two blocks of 12 x 1024^2, five norms of 2 x 1024. Two
ranks hold half each: 16,782,336 elements, of which a table is 2,097,152.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.spec.deepspeed import DeepSpeedRead, Given, read_deepspeed
from zerosim.spec.deepspeed_mapping import as_mapping
from zerosim.spec.loading import inline
from zerosim.spec.optimizers import on_host, optimizer
from zerosim.spec.strategy import Aio, DeepSpeed, Offload, Optimizer, Zero

LARGE = toy(hidden=1024, vocabulary=4096, blocks=2)
KNOWN = Given(world_size=2, parameters=LARGE.parameters)
ELEMENTS, TABLE = 16_782_336, 2_097_152


def test_the_sizes_of_the_head_of_this_file() -> None:
    assert LARGE.numel == 2 * ELEMENTS == 2 * 4096 * 1024 + 2 * 12 * 1024**2 + 5 * 2 * 1024
    assert LARGE.parameters[0].numel == 2 * TABLE


def file(stage: int, **more: Any) -> dict[str, Any]:
    """A file with AdamW; keys of offloads by `optimizer` and `param`, of the top level by `top`, the rest of ZeRO's."""
    zero = {"stage": stage, **{key: value for key, value in more.items() if key not in ("optimizer", "param", "top")}}
    for key in ("optimizer", "param"):
        if key in more:
            zero[f"offload_{key}"] = more[key]
    base = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW"},
        "zero_optimization": zero,
    }
    return {**base, **more.get("top", {})}


def read(mapping: dict[str, Any], known: Given = KNOWN) -> DeepSpeedRead:
    return read_deepspeed(inline(mapping, "ds.json"), known)


def codes(mapping: dict[str, Any], known: Given = KNOWN) -> list[str]:
    return [finding.code for finding in read(mapping, known).findings]


def idle(mapping: dict[str, Any], known: Given = KNOWN) -> set[str]:
    """The keys that are told to change nothing."""
    told = [finding for finding in read(mapping, known).findings if finding.code == "key-no-effect"]
    return {finding.message.split(" changes nothing")[0] for finding in told}


def problems(mapping: dict[str, Any], known: Given = KNOWN) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(mapping, known)
    return [str(problem) for problem in caught.value.problems]


# --- keys ------------------------------------------------------------------------------------------------------------

OPTIMIZER, PARAM = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"
SWAPPING = {"buffer_count": 12, "pipeline_read": False, "pipeline_write": False, "nvme_path": "/x", "fast_init": False}


@pytest.mark.parametrize(("stage", "device"), [(1, "cpu"), (2, "cpu"), (3, "cpu"), (1, "nvme"), (2, "nvme")])
def test_without_swapping_the_keys_of_swapping_rest(stage: int, device: str) -> None:
    mapping = file(stage, optimizer={"device": device, **SWAPPING})
    assert idle(mapping) == {f"{OPTIMIZER}.{key}" for key in SWAPPING}
    assert ("nvme-is-cpu" in codes(mapping)) is (device == "nvme")


def test_on_nvme_only_the_construction_rests() -> None:
    mapping = file(3, optimizer={"device": "nvme", **SWAPPING}, sub_group_size=4_000_000)
    assert idle(mapping) == {f"{OPTIMIZER}.fast_init"}
    assert codes(mapping) == ["key-no-effect"]


def test_parameters_in_host_memory_are_pinned_whatever_the_file_says() -> None:
    pools = {"buffer_count": 5, "buffer_size": 100_000_000, "max_in_cpu": 0}
    mapping = file(3, param={"device": "cpu", "pin_memory": False, **pools})
    assert idle(mapping) == {f"{PARAM}.{key}" for key in ("pin_memory", *pools)}
    assert idle(file(3, param={"device": "cpu", "pin_memory": True})) == set()
    assert idle(file(3, param={"device": "nvme", "nvme_path": "/x", "pin_memory": False, **pools})) == set()


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_parameters_leave_the_gpu_on_stage_3_only(stage: int) -> None:
    assert idle(file(stage, param={"device": "cpu", "pin_memory": False})) == {PARAM}


def test_stage_0_has_no_place_for_an_optimizer_on_the_cpu() -> None:
    assert "offload-without-stage" in codes(file(0, optimizer={"device": "cpu"}))
    assert "offload-without-stage" not in codes(file(1, optimizer={"device": "cpu"}))


def test_pageable_copies_are_told() -> None:
    for stage in (1, 2, 3):
        assert "pageable-copies" in codes(file(stage, optimizer={"device": "cpu", "pin_memory": False}))
        assert "pageable-copies" not in codes(file(stage, optimizer={"device": "cpu"}))


def test_drives_without_a_path_stop_deepspeed() -> None:
    for key in ("optimizer", "param"):
        assert "no-nvme-path" in codes(file(3, **{key: {"device": "nvme"}}))
        assert "no-nvme-path" not in codes(file(3, **{key: {"device": "nvme", "nvme_path": "/x"}}))
    assert "no-nvme-path" not in codes(file(2, optimizer={"device": "nvme"}))


def test_super_offload_and_zenflow_are_not_simulated() -> None:
    assert "not-modelled" in codes(file(3, optimizer={"device": "cpu", "super_offload": True}))
    assert "not-modelled" in codes(file(2, optimizer={"device": "cpu"}, zenflow={"topk_ratio": 0.1}))
    assert idle(file(2, optimizer={"device": "cpu", "super_offload": True})) == {f"{OPTIMIZER}.super_offload"}


def test_nothing_else_is_said_of_a_plain_offload() -> None:
    for stage in (1, 2, 3):
        assert codes(file(stage, optimizer={"device": "cpu", "pin_memory": True})) == []
    assert codes(file(3, optimizer={"device": "cpu"}, param={"device": "cpu", "pin_memory": True})) == []


def test_bf16_optimizer_is_for_states_on_the_gpu() -> None:
    """bf16, stage 1 and fp32 accumulation: with the optimizer in host memory it is ZeRO's own, which overlaps."""
    sums = {"data_types": {"grad_accum_dtype": "fp32"}}
    assert "zero_optimization.overlap_comm" in idle(file(1, overlap_comm=True, top=sums))
    assert idle(file(1, overlap_comm=True, top=sums, optimizer={"device": "cpu"})) == set()
    (problem,) = problems(file(1, top=sums, optimizer={"device": "nvme"}))
    assert f"{OPTIMIZER}.device: found nvme; expected cpu or none on stage 1" in problem


# --- optimizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"type": "AdamW"}, Optimizer("AdamW", 8, 28, True, "deepspeed")),
        ({"type": "Adam", "params": {"torch_adam": True}}, Optimizer("Adam", 8, 72, False, "torch", scratch_bytes=4)),
        ({"type": "Lion"}, Optimizer("Lion", 4, 20, True, "deepspeed")),
        ({"type": "Adagrad"}, Optimizer("Adagrad", 4, 20, True, "deepspeed")),  # p g v read, p v written
        ({"type": "SGD"}, Optimizer("SGD", 0, 12, False, "torch")),
        ({"type": "MuAdamW"}, Optimizer("MuAdamW", 8, 72, True, "torch")),
    ],
)
def test_whose_optimizer_runs_on_the_cpu(section: dict[str, Any], expected: Optimizer) -> None:
    mapping = file(2, optimizer={"device": "cpu"}, top={"optimizer": section})
    assert read(mapping).deepspeed.optimizer == expected
    assert ("torch-on-cpu" in codes(mapping)) is (expected.on_cpu == "torch")


def test_on_the_gpu_adagrad_is_torchs() -> None:
    assert read(file(2, top={"optimizer": {"type": "Adagrad"}})).deepspeed.optimizer == optimizer("Adagrad")
    assert on_host(optimizer("Adagrad")) != optimizer("Adagrad")


def test_lamb_has_no_code_for_the_cpu() -> None:
    (problem,) = problems(file(2, optimizer={"device": "cpu"}, top={"optimizer": {"type": "Lamb"}}))
    assert 'optimizer.type: found "Lamb"; expected Adam, AdamW, Lion or Adagrad where the optimizer is off' in problem


@pytest.mark.parametrize(("force", "on_cpu"), [(None, "deepspeed"), (True, "deepspeed"), (False, "torch")])
def test_an_optimizer_of_the_script(force: bool | None, on_cpu: str) -> None:
    """DeepSpeed refuses one that is not its own unless it is told to take it; accelerate exchanges torch's AdamW."""
    mapping = file(2, optimizer={"device": "cpu"}, top={"optimizer": None})
    if force is not None:
        mapping["zero_force_ds_cpu_optimizer"] = force
    assert read(mapping).deepspeed.optimizer.on_cpu == on_cpu
    assert codes(mapping) == ["optimizer-assumed"]


def test_the_force_key_is_about_the_scripts_own_offloaded_optimizer() -> None:
    key = {"zero_force_ds_cpu_optimizer": False}
    assert set(key) <= idle(file(2, optimizer={"device": "cpu"}, top=key))
    assert set(key) <= idle(file(2, top={"optimizer": None, **key}))


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read_ahead", "write_behind", "size", "needed"),
    [
        (False, False, 4_000_000, 4),
        (True, False, 4_000_000, 8),
        (False, True, 4_000_000, 8),
        (True, True, 4_000_000, 12),
        (True, True, 10_000_000, 8),  # two sub-groups: there is no third to read
        (True, True, 10**9, 4),  # one
    ],
)
def test_buffers_of_the_optimizer(read_ahead: bool, write_behind: bool, size: int, needed: int) -> None:
    pipeline = {"pipeline_read": read_ahead, "pipeline_write": write_behind}
    for count in (needed, needed - 1):
        nvme = {"device": "nvme", "nvme_path": "/x", "buffer_count": count, **pipeline}
        mapping = file(3, optimizer=nvme, sub_group_size=size)
        if count == needed:
            assert read(mapping).deepspeed.zero.offload_optimizer.buffer_count == needed
            continue
        (problem,) = problems(mapping)
        said = f"{OPTIMIZER}.buffer_count: found {count}; expected at least {needed}: 4 tensors of a sub-group of AdamW"
        assert said in problem


def test_an_optimizer_of_fewer_states_needs_fewer_buffers() -> None:
    nvme = {"device": "nvme", "nvme_path": "/x", "buffer_count": 2}
    lion = file(3, optimizer=nvme, top={"optimizer": {"type": "Lion"}})
    assert "expected at least 3: 3 tensors of a sub-group of Lion" in problems(lion)[0]
    unknown = Given()  # neither model nor ranks: one sub-group is certain
    assert "expected at least 4" in problems(file(3, optimizer={**nvme, "pipeline_read": True}), unknown)[0]
    assert "expected at least" not in str(codes(file(3, optimizer={**nvme, "buffer_count": 4}), unknown))


def test_one_sub_group_has_nothing_to_pipeline() -> None:
    nvme = {"device": "nvme", "nvme_path": "/x", "pipeline_read": True, "buffer_count": 8}
    (finding,) = read(file(3, optimizer=nvme)).findings
    assert finding.code == "pipeline-no-effect"
    assert finding.message.startswith(f"{OPTIMIZER}.pipeline_read: a rank's 16.78M parameters make 1 sub-group:")
    assert finding.remedy == "Lower sub_group_size (1B), with buffer_count: 8."
    assert codes(file(3, optimizer=nvme, sub_group_size=4_000_000)) == []


@pytest.mark.parametrize(
    ("ratio", "size", "told"),
    [(0.3, 10**9, True), (0.3, 4_000_000, False), (0.9, 4_000_000, True), (1.0, 10**9, False)],
)
def test_a_ratio_counts_whole_sub_groups(ratio: float, size: int, told: bool) -> None:
    """Four sub-groups: int(0.7 x 4) = 2 stay on the GPU, int(0.1 x 4) = 0."""
    mapping = file(3, optimizer={"device": "cpu", "ratio": ratio}, sub_group_size=size)
    assert ("ratio-no-effect" in codes(mapping)) is told


def test_a_ratio_on_nvme_only_changes_who_steps() -> None:
    nvme = {"device": "nvme", "nvme_path": "/x", "ratio": 0.5}
    assert codes(file(3, optimizer=nvme, sub_group_size=4_000_000)) == ["ratio-on-cpu"]
    assert codes(file(3, optimizer=nvme)) == ["ratio-no-effect"]


@pytest.mark.parametrize("name", ["Lion", "Adagrad"])
def test_only_deepspeeds_adam_shares_the_step_with_the_gpu(name: str) -> None:
    mapping = file(3, optimizer={"device": "cpu", "ratio": 0.5}, top={"optimizer": {"type": name}})
    assert f"{OPTIMIZER}.ratio: found 0.5 with {name}; expected 1, or DeepSpeed's own Adam" in problems(mapping)[0]


def test_a_parameter_has_to_fit_its_buffer() -> None:
    nvme = {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0, "buffer_size": TABLE}
    assert codes(file(3, param=nvme)) == []
    (problem,) = problems(file(3, param={**nvme, "buffer_size": TABLE - 1}))
    said = f"{PARAM}.buffer_size: found {TABLE - 1}; expected at least {TABLE}, what a rank holds of "
    assert said in problem
    # with fast_init the masters of a whole sub-group pass through them
    optimizer_ = {"device": "nvme", "nvme_path": "/x", "fast_init": True}
    (problem,) = problems(file(3, param=nvme, optimizer=optimizer_))
    assert f"expected at least {ELEMENTS}, the largest sub-group, with fast_init" in problem


@pytest.mark.parametrize(("kept", "told"), [(ELEMENTS, True), (ELEMENTS - 1, False)])
def test_a_small_model_stays_in_host_memory(kept: int, told: bool) -> None:
    mapping = file(3, param={"device": "nvme", "nvme_path": "/x", "max_in_cpu": kept})
    assert ("parameters-stay-in-cpu" in codes(mapping)) is told


def test_tensors_below_a_mebibyte_are_not_swapped() -> None:
    """Of the toy's 213,888 parameters a rank has 106,944: 418 KiB in fp32."""
    known = Given(world_size=2, parameters=toy().parameters)
    nvme = {"device": "nvme", "nvme_path": "/x", "buffer_count": 1}
    for key in ("optimizer", "param"):
        assert "too-small-to-swap" in codes(file(3, **{key: nvme}), known)
    blocks = {"aio": {"block_size": 2**30}}
    assert "too-small-to-swap" in codes(file(3, optimizer=nvme, top=blocks))


# --- aio and checkpoints ---------------------------------------------------------------------------------------------

EVERY = {
    "block_size": 2**21, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": True, "overlap_events": False,
    "use_gds": True,
}  # fmt: skip


def test_the_aio_section() -> None:
    plain = file(2, top={"aio": EVERY | {"thread_count": 8}})
    assert asdict(read(plain).deepspeed.aio) == EVERY
    assert idle(plain) == {f"aio.{key}" for key in (*EVERY, "thread_count")}
    nvme = {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0}
    assert idle(file(3, param=nvme, top={"aio": EVERY})) == {"aio.single_submit"}
    del nvme["max_in_cpu"]
    assert idle(file(3, optimizer=nvme, top={"aio": EVERY})) == {"aio.single_submit", "aio.use_gds"}
    assert idle(file(3, optimizer=nvme, top={"aio": {"queue_depth": 32}})) == set()


def test_bytes_in_flight() -> None:
    assert (Aio().in_flight, Aio().in_turn) == (8 * 2**20, False)
    small = Aio(block_size=4096, queue_depth=2, intra_op_parallelism=3)
    assert (small.in_flight, small.in_turn) == (24_576, False)
    assert replace(small, queue_depth=1).in_turn  # a queue of one waits for it, with overlap_events as without
    assert replace(small, overlap_events=False).in_turn


def test_a_queue_of_nothing_reads_nothing() -> None:
    nvme = {"device": "nvme", "nvme_path": "/x"}
    told = problems(file(3, optimizer=nvme, top={"aio": {"queue_depth": 0}}))
    assert told == ["ds.json: aio.queue_depth: found 0; expected an integer, 1 or more"]


def test_what_pin_memory_is_about_on_nvme() -> None:
    """Of LARGE the five norms and the biases of either block are outside, unless all is kept in host memory."""
    nvme = {"device": "nvme", "nvme_path": "/x", "pin_memory": False}
    name = "zero_optimization.offload_param.pin_memory"
    assert idle(file(3, param=nvme)) == {name}  # max_in_cpu: 1e9 elements
    assert "pin-small-shards" not in codes(file(3, param=nvme))
    left = file(3, param={**nvme, "max_in_cpu": 0})
    assert idle(left) == set()
    told = next(finding for finding in read(left).findings if finding.code == "pin-small-shards")
    small = [row.numel // 2 for row in LARGE.parameters if row.numel < 2**20]  # 2 bytes an element, two ranks
    assert f"about the {len(small)} shards that are too small to swap, {2 * sum(small) / 1e3:.4g} kB" in told.message
    assert "pin-small-shards" not in codes(file(3, param={"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0}))


@pytest.mark.parametrize(("mapping", "expected"), [
    (file(2, compute_grad_norm=False), "true, or gradient_clipping: 0 at the top of the file (it is 1)"),
    (file(1, compute_grad_norm=False, top={"gradient_clipping": 0.5}),
     "true, or gradient_clipping: 0 at the top of the file (it is 0.5)"),
    (file(2, compute_grad_norm=False, optimizer={"device": "cpu"}, top={"gradient_clipping": 0}),
     "true where the optimizer is offloaded (device: cpu)"),
    (file(1, compute_grad_norm=False,
          top={"gradient_clipping": 0, "data_types": {"grad_accum_dtype": "fp32"}}),
     "true on stage 1 with bf16 and fp32 accumulation"),
    (file(3, compute_grad_norm=False, top={"gradient_clipping": 0}), "true on stage 3"),
])  # fmt: skip
def test_a_step_without_the_norm_is_refused_where_deepspeed_does(mapping: dict[str, Any], expected: str) -> None:
    assert problems(mapping) == [f"ds.json: zero_optimization.compute_grad_norm: found false; expected {expected}"]


def test_a_step_without_the_norm_is_taken_without_clipping() -> None:
    told = read(file(2, compute_grad_norm=False, top={"gradient_clipping": 0}))
    assert not told.deepspeed.zero.compute_grad_norm
    assert not {"not-modelled", "key-no-effect"} & {
        finding.code for finding in told.findings if "norm" in finding.message
    }


def test_values_of_aio_are_checked_where_drives_are_asked() -> None:
    wrong = {"aio": {"block_size": "1 MB", "bloc_size": 1}}
    told = read(file(2, top=wrong))
    assert told.deepspeed.aio == Aio()
    assert "The nearest key is block_size." in [finding.remedy for finding in told.findings]
    nvme = {"device": "nvme", "nvme_path": "/x"}
    assert (
        'aio.block_size: found "1 MB"; expected an integer, 1 or more'
        in problems(file(3, optimizer=nvme, top=wrong))[0]
    )
    assert "aio: found 3; expected a mapping" in problems(file(2, top={"aio": 3}))[0]


CHECKPOINTS = {"activation_checkpointing": {"cpu_checkpointing": True}}


def test_checkpoints_in_host_memory_are_for_who_calls_deepspeeds_function() -> None:
    called = replace(KNOWN, checkpoint_function="deepspeed", activation_checkpointing="full")
    mapping = file(2, top=CHECKPOINTS)
    assert read(mapping).deepspeed.cpu_checkpointing is False
    assert idle(mapping) == {"activation_checkpointing.cpu_checkpointing"}
    assert "training.checkpoint_function" in read(mapping).findings[0].message
    assert read(mapping, called).deepspeed.cpu_checkpointing is True
    assert codes(mapping, called) == []
    assert idle(mapping, replace(called, activation_checkpointing="none")) == {
        "activation_checkpointing.cpu_checkpointing"
    }


def test_other_keys_of_deepspeeds_checkpoints() -> None:
    called = replace(KNOWN, checkpoint_function="deepspeed", activation_checkpointing="full")
    for key in ("partition_activations", "synchronize_checkpoint_boundary", "profile"):
        assert codes(file(2, top={"activation_checkpointing": {key: True}}), called) == ["not-modelled"]
        assert codes(file(2, top={"activation_checkpointing": {key: False}}), called) == []
    one_buffer = {"activation_checkpointing": {"contiguous_memory_optimization": True}}
    said = problems(file(2, top=one_buffer), called)
    assert any("partition_activations: found nothing; expected true with contiguous" in problem for problem in said)
    assert any("number_checkpoints: found nothing; expected a number with contiguous" in problem for problem in said)


# --- back to a file --------------------------------------------------------------------------------------------------

_DEVICES = st.sampled_from(["cpu", "nvme"])
_OPTIMIZERS = st.builds(
    Offload,
    device=_DEVICES,
    nvme_path=st.none() | st.just("/x"),
    buffer_count=st.integers(12, 40),
    pin_memory=st.booleans(),
    pipeline_read=st.booleans(),
    pipeline_write=st.booleans(),
    fast_init=st.booleans(),
    ratio=st.sampled_from([0.0, 0.5, 1.0]),
)
_PARAMETERS = st.builds(
    Offload,
    device=_DEVICES,
    nvme_path=st.none() | st.just("/x"),
    buffer_count=st.integers(1, 40),
    buffer_size=st.integers(ELEMENTS, 10**9),
    max_in_cpu=st.integers(0, 10**10),
    pin_memory=st.booleans(),
)
_AIOS = st.builds(
    Aio,
    block_size=st.integers(1, 2**24),
    queue_depth=st.integers(1, 64),
    intra_op_parallelism=st.integers(1, 8),
    single_submit=st.booleans(),
    overlap_events=st.booleans(),
    use_gds=st.booleans(),
)


@given(_OPTIMIZERS, _PARAMETERS, _AIOS, st.integers(1, 3), st.booleans())
def test_an_offload_written_out_reads_back(
    states: Offload, parameters: Offload, aio: Aio, stage: int, checkpoints: bool
) -> None:
    if stage < 3:
        states = replace(states, ratio=1.0)
    overlap = stage == 3
    zero = Zero(stage=stage, overlap_comm=overlap, offload_optimizer=states, offload_param=parameters)  # type: ignore[arg-type]  # a row of the test
    deepspeed = DeepSpeed(zero=zero, aio=aio, cpu_checkpointing=checkpoints)
    called = replace(KNOWN, checkpoint_function="deepspeed" if checkpoints else "torch")
    assert read(as_mapping(deepspeed, "bf16"), called).deepspeed == deepspeed


def test_the_training_of_a_scenario_says_whose_checkpoint_is_called() -> None:
    assert asdict(toy_training())["checkpoint_function"] == "torch"
