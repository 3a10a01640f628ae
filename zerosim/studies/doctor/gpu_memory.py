"""Out of GPU memory: of activations, which no stage of ZeRO shards, or of the model states.

Told from what is held at the peak. Where activations alone are more than what is missing, a stage above cannot be the
answer: recomputation or a smaller micro-batch is (Rajbhandari et al. 2020, ZeRO, section 3.2: residual memory). What
PyTorch's allocator cannot place although bytes enough are free may end a run in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report.words import counted
from zerosim.simulation import Simulation
from zerosim.spec.strategy import Ddp, Fsdp, Pipeline, Zero
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import (
    checkpointing,
    deepspeed_instead,
    fsdp,
    smaller_batches,
    training,
    zero,
)
from zerosim.studies.doctor.trouble import Candidate, Measured, Trouble
from zerosim.units import show_size
from zerosim.views.memory import GPU, memory, unfit
from zerosim.views.memory_findings import FRAGMENTATION
from zerosim.views.summary import TierUse

ACTIVATIONS, STATES = "activations-not-sharded", "states-do-not-fit"
SMALL_BUCKET = 50_000_000  # elements: 200 MB for the two buckets of 16 bits
STAGES = {"optimizer": 1, "gradients": 2, "parameters": 3}


def out_of_memory(case: Case) -> Trouble | str:
    """What does not fit on a GPU, or may find no room in one piece."""
    gpu = case.summary.memory["gpu"]
    excess = gpu.peak_bytes - gpu.capacity_bytes
    if excess > 0:
        return _does_not_fit(case, gpu, excess)
    broken = next((each for each in case.summary.findings if each.code == FRAGMENTATION), None)
    if broken is None:
        return f"{show_size(gpu.peak_bytes)} of {show_size(gpu.capacity_bytes)} at the peak"
    return Trouble(
        code=FRAGMENTATION,
        severity="warning",
        symptom=broken.message,
        cause="What is in use leaves no room in one piece: the cache of PyTorch's allocator is as large as the GPU.",
        candidates=tuple(_remedies(case, gpu, True)),
        lost=case.seconds,  # all of the step hangs on it
        aim="measured",
        measure=_placed,
    )


def _placed(played: Simulation) -> Measured:
    """Whether PyTorch's allocator finds room for everything."""
    tiers = memory(played, played.scenario.ranks_per_node)
    reserve = tiers[GPU].reserve
    failures = 0 if reserve is None else reserve.failures
    words = f"{counted(failures, 'request')} without room"
    return Measured({"failed_requests": failures}, words, bool(failures or unfit(tiers)))


def _does_not_fit(case: Case, gpu: TierUse, excess: float) -> Trouble:
    held, at = gpu.activations_bytes, gpu.peak_at.op or "the start of the step"
    of_activations = held > excess and held >= _states(gpu)
    parts = {
        "activations": held,
        "parameters": gpu.parameters_bytes,
        "gradients": gpu.gradients_bytes,
        "optimizer states": gpu.optimizer_bytes,
        "buffers": gpu.buffers_bytes,
    }
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    return Trouble(
        code=ACTIVATIONS if of_activations else STATES,
        severity="error",
        symptom=(
            f"{show_size(gpu.peak_bytes)} of GPU memory needed at {at}, {show_size(excess)} more than there are: "
            f"{', '.join(f'{name} {show_size(size)}' for name, size in largest if size)}."
        ),
        cause=_of_activations(case, held) if of_activations else _of_states(case, gpu),
        candidates=tuple(_remedies(case, gpu, of_activations)),
        aim="fits",
    )


def _states(gpu: TierUse) -> float:
    return gpu.parameters_bytes + gpu.gradients_bytes + gpu.optimizer_bytes


def _of_activations(case: Case, held: float) -> str:
    training = case.scenario.training
    kept = "" if training.activation_checkpointing == "full" else ", and nothing recomputes those of the blocks"
    sharded = f"Stage {case.stage} shards model states only: activations" if case.stage else "Activations"
    return f"{sharded} of {training.tokens} tokens a micro-step are {show_size(held)} on every GPU{kept}."


def _of_states(case: Case, gpu: TierUse) -> str:
    world = case.scenario.world_size
    zero = case.zero
    if world == 1:
        return f"All model states ({show_size(_states(gpu))}) are on one GPU."
    if zero is not None:
        whole = [name for name, stage in STAGES.items() if stage > zero.stage]
        if whole:
            return f"Stage {zero.stage} leaves {' and '.join(whole)} whole on each of {world} GPUs."
        return f"Even sharded over {world} GPUs the states are {show_size(_states(gpu))} on each."
    return f"The model states are {show_size(_states(gpu))} on each of {world} GPUs."


# --- remedies --------------------------------------------------------------------------------------------------------


def _remedies(case: Case, gpu: TierUse, of_activations: bool) -> Iterator[Candidate]:
    """On what it is of, else on the other, else on both; offload is the last of each."""
    on_activations, on_states = list(_on_activations(case)), list(_on_states(case, gpu))
    yield from (each.last(0 if of_activations else 2) for each in on_activations)
    yield from (each.last(each.resort + (2 if of_activations else 0)) for each in on_states)
    if on_activations:
        most = on_activations[-1]
        yield from (states.also(most).last(4 + states.resort) for states in on_states)


def _on_activations(case: Case) -> Iterator[Candidate]:
    given, strategy = case.scenario.training, case.scenario.strategy
    if isinstance(strategy, Pipeline) and strategy.schedule == "gpipe":
        yield Candidate("schedule 1f1b", (("strategy.pipeline.schedule=1f1b",),))
    if given.attention == "eager":
        yield training("flash attention, which keeps no scores", attention="flash")
    full = checkpointing()
    if given.activation_checkpointing != "full":
        yield full
    smaller = list(smaller_batches(case))
    yield from smaller
    if smaller and given.activation_checkpointing != "full":
        yield full.also(smaller[-1])


def _on_states(case: Case, gpu: TierUse) -> Iterator[Candidate]:
    strategy, world = case.scenario.strategy, case.scenario.world_size
    if case.zero is not None:
        yield from _of_zero(case.zero, gpu, world)
    elif isinstance(strategy, Ddp):
        yield from (deepspeed_instead(case, stage) for stage in (1, 2, 3) if world > 1)
    elif isinstance(strategy, Fsdp):
        if strategy.version == 1 and strategy.sharding_strategy != "FULL_SHARD" and world > 1:
            yield fsdp("FULL_SHARD", sharding_strategy="FULL_SHARD")
        if not strategy.cpu_offload:
            yield fsdp("shards and optimizer in host memory", cpu_offload=True).last(1)
    elif isinstance(strategy, Pipeline):
        if 2 * strategy.stages <= world and strategy.stages:
            yield Candidate("twice as many stages", ((f"strategy.pipeline.stages={2 * strategy.stages}",),))
        if strategy.zero_stage == 0:
            yield Candidate("optimizer states sharded over replicas", (("strategy.pipeline.zero_stage=1",),))


def _of_zero(given: Zero, gpu: TierUse, world: int) -> Iterator[Candidate]:
    """Higher stages, then offload; smaller buckets where they are a good part."""
    if gpu.buffers_bytes > 2 * 2 * SMALL_BUCKET and given.stage > 0:
        yield zero("smaller buckets", reduce_bucket_size=SMALL_BUCKET)
    yield from (zero(f"stage {stage}", stage=stage) for stage in range(given.stage + 1, 4) if world > 1)
    stage = given.stage or 2
    if given.offload_optimizer.device == "none":
        yield zero("optimizer in host memory", stage=stage, offload_optimizer__device="cpu").last(1)
    if given.offload_param.device == "none":
        both = {"offload_optimizer__device": "cpu", "offload_param__device": "cpu"}
        yield zero("stage 3 with optimizer and parameters in host memory", stage=3, **both).last(1)
