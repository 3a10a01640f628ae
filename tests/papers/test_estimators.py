"""DeepSpeed's own estimators of model states beside what the programs hold.

Source of the formulas: DeepSpeed 0.19.8, estimate_zero2_model_states_mem_needs in runtime/zero/stage_1_and_2.py and
estimate_zero3_model_states_mem_needs in runtime/zero/stage3.py; of the printed gigabytes: what they say of T5-3B. P
parameters, `largest` of them in the largest layer, on `local` GPUs of each of `nodes`.

What they count is what the programs hold, but for these differences, each of which is a line of a test:
- GPU, stages 2 and 3: not the 16-bit copy in which gradients are made flat (2 bytes of a partition, for a moment);
  stage 3: nor the 16-bit gradient partition (2 bytes, always). Both count the fp32 gradients, which are there only
  while the optimizer runs, and on stage 3 only for one sub-group.
- GPU, stage 3: 4 bytes of the largest layer, for its gathered weights and their gradients. That is right where one
  layer is gathered at a time; a prefetch holds more, up to `max_live_parameters`.
- DRAM: not the 16-bit weights on their way up (stage 2) nor the 16-bit gradients (stage 3), 2 bytes each. The factor
  1.5 is for buffers; it stands for the powers of two to which pinned memory is rounded, by less than 2.
- DRAM, `max(4 x GPUs, ...)`: the fp32 model that each process makes before it is sharded, which is no part of a step.
  zero2 takes all GPUs there, not those of a node, and does not divide 16 P by the nodes.
- Neither: buckets, activations, the norm's scratch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.linears import CPU, CPU_PARAMETERS, NUMEL, config, resident, square
from tests.programs import levels
from tests.toy import toy_training
from zerosim.spec.strategy import DeepSpeed, Stage
from zerosim.step import Step
from zerosim.strategies import build
from zerosim.studies.ledger import ledger, model_states

GIB = 2**30
FACTOR = 1.5
GPUS = 4


def zero2(parameters: float, local: int, nodes: int, offload: bool, factor: float = FACTOR) -> tuple[float, float]:
    """Bytes of a node's DRAM and of a GPU."""
    gpus = local * nodes
    if offload:
        return parameters * max(4 * gpus, 16) * factor, 2 * parameters
    return parameters * 4 * local * factor, 2 * parameters + 18 * parameters / gpus


def zero3(
    parameters: float, largest: float, local: int, nodes: int, offload: str, init: bool, factor: float = FACTOR
) -> tuple[float, float]:
    """`offload`: "none", "optimizer" or "all"; `init`: the model is made under zero.Init."""
    gpus, layer = local * nodes, 4 * largest
    if offload == "none":
        return (largest if init else parameters) * 4 * local * factor, layer + 18 * parameters / gpus
    each = 18 if offload == "all" else 16
    dram = parameters * (each / nodes if init else max(4 * local, each / nodes)) * factor
    return dram, layer + (0 if offload == "all" else 2 * parameters / gpus)


# --- the formulas are the tool's -----------------------------------------------------------------------------------

T5_3B, LARGEST = 2851e6, 32e6  # as the tool says them, rounded to millions


@pytest.mark.parametrize(("offload", "dram", "gpu"), [(True, 127.45, 5.31), (False, 127.45, 11.28)])
def test_zero2_of_t5_3b_on_eight_gpus(offload: bool, dram: float, gpu: float) -> None:
    assert [size / GIB for size in zero2(T5_3B, 8, 1, offload)] == pytest.approx([dram, gpu], abs=0.03)


@pytest.mark.parametrize(
    ("offload", "init", "dram", "gpu"),
    [
        ("all", True, 71.69, 0.12),
        ("all", False, 127.45, 0.12),
        ("optimizer", True, 63.72, 0.78),
        ("optimizer", False, 127.45, 0.78),
        ("none", True, 1.43, 6.09),
        ("none", False, 127.45, 6.09),
    ],
)
def test_zero3_of_t5_3b_on_eight_gpus(offload: str, init: bool, dram: float, gpu: float) -> None:
    found = zero3(T5_3B, LARGEST, 8, 1, offload, init)
    assert [size / GIB for size in found] == pytest.approx([dram, gpu], abs=0.03)


# --- programs ------------------------------------------------------------------------------------------------------

LINEARS = 8
P = LINEARS * NUMEL  # 2²³ parameters; 4 ranks own two linears each
Q = P // GPUS


def program(stage: Stage, sub_group_size: int = P, linears: int = LINEARS, **keys: Any) -> Step:
    """Eight linears on four ranks; on stage 3 each is gathered where it is used."""
    deepspeed: DeepSpeed = config(sub_group_size=sub_group_size, **keys)
    deepspeed = replace(deepspeed, zero=replace(deepspeed.zero, stage=stage))
    return build(deepspeed, square(linears), toy_training(), GPUS)[0].check()


def gpu_states(step: Step, phase: str, last: str | None = None) -> list[Counter[str]]:
    """What is held in the ops of a phase, by name, but for what the estimators leave out; `last`: only in ops of this
    name."""
    left_out = ("activation", "block", "bucket", "norm", "on its way", "interleaved", "flattened")
    tiers = {buffer.name: buffer.tier for buffer in step.buffers}
    found = []
    for op, held in zip(step.ops, levels(step), strict=False):
        if op.phase == phase and (last is None or op.name == last):
            gpu = {n: size for n, size in held.items() if tiers[n] == "gpu" and not any(x in n for x in left_out)}
            found.append(Counter(gpu))
    return found


def dram(step: Step) -> Counter[str]:
    return resident(step, "dram")


def peak(held: list[Counter[str]]) -> int:
    return max(each.total() for each in held)


# --- stage 2 -------------------------------------------------------------------------------------------------------


def test_zero2_on_the_gpu() -> None:
    """2 P + 18 P / G is what is held while the gradients are cast, without the flat 16-bit copy beside them."""
    step = program(2)
    estimate = zero2(P, GPUS, 1, offload=False)[1]
    flat = 2 * Q
    assert peak(gpu_states(step, "optimizer")) == estimate + flat
    assert max(held["flat gradients"] for held in gpu_states(step, "optimizer")) == flat


def test_zero2_counts_16_bit_gradients_that_are_gone_when_the_optimizer_runs() -> None:
    step = program(2)
    (running,) = gpu_states(step, "optimizer", "AdamW step")
    assert running.total() == zero2(P, GPUS, 1, offload=False)[1] - 2 * Q


def test_zero2_is_the_ledger_of_zerosim_with_fp32_gradients() -> None:
    assert zero2(P, GPUS, 1, offload=False)[1] == model_states(2, P, GPUS) + 4 * Q


def test_zero2_with_offload_on_the_gpu() -> None:
    """2 P, nothing else, from the start of the step to its end; gradients of whole tensors pass through."""
    step = program(2, where=CPU)
    for phase in ("forward", "optimizer"):
        assert peak(gpu_states(step, phase)) == zero2(P, GPUS, 1, offload=True)[1]
    assert peak(gpu_states(step, "backward")) <= 2 * P + 2 * 2 * NUMEL + 4 * NUMEL  # two of them, one cast to fp32


def test_zero2_with_offload_in_host_memory() -> None:
    """16 P on a node of four GPUs (master, gradients, two moments in fp32) and the weights on their way up: 18 P; and
    of each rank the buffer of one tensor that DeepSpeed allocates and does not use."""
    held = dram(program(2, where=CPU))
    estimate = zero2(P, GPUS, 1, offload=True, factor=1.0)[0]
    assert estimate == 16 * P
    unused = held.pop("gradient on its way")
    assert unused == 2 * NUMEL
    assert GPUS * held.total() == estimate + GPUS * held["parameters on their way to the GPU"] == 18 * P


@pytest.mark.parametrize(("linears", "enough"), [(7, True), (8, True), (9, False), (11, True)])
def test_the_factor_of_zero2_stands_for_what_pinned_memory_is_rounded_up(linears: int, enough: bool) -> None:
    """Of 18 bytes 10 are pinned and may nearly double: 28 where it is worst, and 24 are estimated. Of 8 linears a
    partition is a power of two; of 7 and 11 little is lost; of 9 it is just above one: 16 + 16 + 8 MiB for 9 + 9 + 4.5.
    """
    step = program(2, linears=linears, where=CPU)
    taken = sum(step.buffers[b].taken for b in step.resident if step.buffers[b].tier == "dram")
    unused = 2 * NUMEL  # the tensor's buffer, a power of two
    assert (GPUS * (taken - unused) <= zero2(linears * NUMEL, GPUS, 1, offload=True)[0]) is enough


# --- stage 3 -------------------------------------------------------------------------------------------------------


def test_zero3_on_the_gpu_while_the_optimizer_runs() -> None:
    """18 P / G, and the 16-bit gradient partition, which the estimator leaves out; one sub-group."""
    step = program(3)
    estimate = zero3(P, 0, GPUS, 1, "none", init=True)[1]
    (running,) = gpu_states(step, "optimizer", "AdamW step")
    assert running["gradient partition"] == 2 * Q
    assert running.total() == estimate + 2 * Q
    assert peak(gpu_states(step, "optimizer")) == estimate + 2 * Q + running["flat gradients"] + 2 * Q


def test_smaller_sub_groups_keep_below_the_estimate() -> None:
    """fp32 gradients of an eighth of the partition at a time."""
    step = program(3, sub_group_size=1)
    running = gpu_states(step, "optimizer", "AdamW step")
    assert len(running) == LINEARS
    assert {held.total() for held in running} == {16 * Q + 4 * Q // LINEARS}
    assert peak(running) < zero3(P, 0, GPUS, 1, "none", init=True)[1]


def test_the_largest_layer_is_its_gathered_weights_and_its_gradients() -> None:
    """L = 4 x largest above the states at rest: in each backward of a linear, where one at a time is gathered."""
    step = program(3)
    at_rest = gpu_states(step, "optimizer")[0].total()
    above = [held.total() - at_rest for held in gpu_states(step, "backward")]
    assert max(above) == zero3(0, NUMEL, GPUS, 1, "none", init=True)[1] == 4 * NUMEL


def test_a_prefetch_holds_more_than_the_estimator_says() -> None:
    """Half of the model is gathered at once and stays so: four linears, and in the backward the gradient of one."""
    step = program(3, prefetch_bucket_size=4 * NUMEL, max_live_parameters=4 * NUMEL)
    at_rest = gpu_states(step, "optimizer")[0].total()
    estimate = zero3(0, NUMEL, GPUS, 1, "none", init=True)[1]
    assert peak(gpu_states(step, "forward")) - at_rest == 2 * 4 * NUMEL == 2 * estimate
    assert peak(gpu_states(step, "backward")) - at_rest == 2 * (4 + 1) * NUMEL


def test_zero3_with_the_optimizer_offloaded() -> None:
    """2 P / G on the GPU at rest; in host memory 16 P and 16-bit gradients: 18 P."""
    step = program(3, where=CPU)
    estimate = zero3(P, NUMEL, GPUS, 1, "optimizer", init=True, factor=1.0)
    held = dram(step)
    assert GPUS * held.total() == estimate[0] + GPUS * held["gradient partition"] == 18 * P
    at_rest = gpu_states(step, "forward")[0]
    assert at_rest["parameter shards"] == estimate[1] - 4 * NUMEL
    above = [each.total() - at_rest["parameter shards"] for each in gpu_states(step, "forward")]
    assert max(above) == 2 * NUMEL  # the gathered weight; its gradient comes in the backward


def test_zero3_with_everything_offloaded() -> None:
    """Nothing on the GPU but a layer; in host memory 18 P and 16-bit gradients: 20 P."""
    step = program(3, where=CPU, parameters=CPU_PARAMETERS)
    estimate = zero3(P, NUMEL, GPUS, 1, "all", init=True, factor=1.0)
    held = dram(step)
    assert GPUS * held.total() == estimate[0] + GPUS * held["gradient partition"] == 20 * P
    at_rest = gpu_states(step, "optimizer")[-1]
    assert at_rest.total() == 0
    assert estimate[1] == 4 * NUMEL


@pytest.mark.parametrize("stage", [2, 3])
def test_the_ledger_counts_host_memory_as_the_programs_do(stage: Stage) -> None:
    """`zerosim memory`: 18 bytes a parameter of a node's share."""
    (entry,) = [each for each in ledger(P, GPUS, GPUS) if each.stage == stage and each.offload == "cpu"]
    held = dram(program(stage, where=CPU))
    held.pop("gradient on its way", None)
    assert entry.dram_bytes_per_node == GPUS * held.total()
