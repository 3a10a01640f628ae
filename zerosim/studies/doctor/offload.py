"""Offload that collapses: the step waits for host memory, PCIe, drives or the CPU's optimizer.

Told from what the GPU waits for: copies between tiers and work of the CPU, and what limited them. What helps is to move
less (optimizer states only, or nothing), to move it better (pinned, pipelined), or to move it for more tokens: a larger
micro-batch copies parameters and gradients less often, a larger global batch runs the optimizer less often.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import DeepSpeed, Fsdp, Zero
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.optimizers import ADAM, ANOTHER
from zerosim.studies.doctor.settings import DEEPSPEED, batch, fsdp, larger_batches, zero
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_count, show_seconds, show_share

LEAST = 0.1  # of the step; a choice
MOVES, CPU = frozenset({"transfer"}), frozenset({"host_compute"})
TIMES = (2, 4)  # as many sequences a step
ASSUMED = "optimizer-assumed"  # minted by spec/deepspeed_optimizer: the file has none
ON_GPU = {"offload_param__device": "none"}
SUB_GROUP = 100_000_000  # elements: several of them, so that drives and CPU overlap


def slow_tiers(case: Case) -> Trouble | str:
    """What is lost to copies and to the CPU."""
    copies, computing = case.waiting(MOVES), case.waiting(CPU)
    lost = copies + computing
    if lost == 0:
        return "nothing is waited for"
    parts = {"copies": copies, "the CPU": computing}
    each = ", ".join(f"{show_seconds(seconds)} for {what}" for what, seconds in parts.items() if seconds)
    said = f"{each}: {show_share(case.share(lost))} of the step"
    if case.share(lost) < LEAST:
        return said
    most = CPU if computing > copies else MOVES
    return Trouble(
        code="offload-collapses",
        severity=weight(case, lost),
        symptom=f"The GPU waits {said}.",
        cause=_why(case, most, max(copies, computing)),
        candidates=tuple(_remedies(case)),
        lost=lost,
    )


def _why(case: Case, most: frozenset[str], seconds: float) -> str:
    label = case.limit(most)
    work = "the optimizer on the CPU" if most is CPU else "copies between tiers"
    use = next((use for use in case.summary.resources.values() if use.label == label), None)
    busy = f", busy {show_share(use.utilization)} of the step" if use else ""
    return f"Most of it ({show_seconds(seconds)}) are {work}, limited by {label}{busy}."


def _remedies(case: Case) -> Iterator[Candidate]:
    strategy = case.scenario.strategy
    better: list[Candidate] = []
    less: list[Candidate] = []
    if isinstance(strategy, DeepSpeed):
        better += _better(case, strategy)
        less += _less(strategy.zero)
    elif isinstance(strategy, Fsdp) and strategy.cpu_offload:
        less.append(fsdp("nothing offloaded", cpu_offload=False))
    yield from (*better, *less)
    larger = list(larger_batches(case))
    yield from larger
    yield from (each.also(larger[-1]) for each in less if larger)
    yield from (each.also(another) for each in better for another in larger[:1])
    training = case.scenario.training
    for times in TIMES:
        yield batch(case, training.micro_batch_size * times, training.gradient_accumulation_steps)
    yield batch(case, training.micro_batch_size, training.gradient_accumulation_steps * TIMES[-1])


def _better(case: Case, strategy: DeepSpeed) -> Iterator[Candidate]:
    """The same states in the same places, moved better."""
    given = strategy.zero
    states, weights = given.offload_optimizer, given.offload_param
    keys: dict[str, object] = {}
    if states.device != "none" and not states.pin_memory:
        keys["offload_optimizer__pin_memory"] = True
    if weights.device != "none" and not weights.pin_memory:
        keys["offload_param__pin_memory"] = True
    if keys:
        yield zero("pinned host memory", **keys)
    if given.optimizer_on_host and strategy.optimizer.on_cpu == "torch":
        yield _own_adam(case, strategy)
    if states.device == "nvme" and given.stage == 3 and not (states.pipeline_read and states.pipeline_write):
        pipelined = {"offload_optimizer__pipeline_read": True, "offload_optimizer__pipeline_write": True}
        for size in dict.fromkeys((given.sub_group_size, SUB_GROUP)):
            what = f"drives and CPU pipelined, sub-groups of {show_count(size)} elements"
            yield zero(what, sub_group_size=size, offload_optimizer__buffer_count=12, **pipelined)
    if not given.overlap_comm:
        yield zero("overlap_comm, so that gradients are copied during backward", overlap_comm=True)


def _own_adam(case: Case, strategy: DeepSpeed) -> Candidate:
    """DeepSpeed's Adam for the CPU, which passes over memory once; the parameters of the file's optimizer stay."""
    what = "DeepSpeed's own CPU Adam"
    if any(each.code == ASSUMED for each in case.scenario.findings):  # the script builds it
        return Candidate(what, ((f"{DEEPSPEED}.zero_force_ds_cpu_optimizer=true",),))
    if strategy.optimizer.name in ("Adam", "AdamW"):
        return Candidate(what, ((f"{DEEPSPEED}.optimizer.params.torch_adam=false",),))
    return Candidate(what, (ADAM,), (ANOTHER,))


def _less(given: Zero) -> Iterator[Candidate]:
    """Fewer states elsewhere."""
    states, weights = given.offload_optimizer, given.offload_param
    if given.stage == 3 and weights.device != "none":
        yield zero("optimizer states only: parameters on the GPU", offload_param__device="none")
        if states.device == "nvme":
            yield zero("optimizer states in host memory, parameters on the GPU", offload_optimizer__device="cpu",
                       offload_param__device="none")  # fmt: skip
    if states.device == "nvme" and given.stage == 3:
        yield zero("optimizer states in host memory", offload_optimizer__device="cpu")
        if weights.device == "nvme":
            both = {"offload_optimizer__device": "cpu", "offload_param__device": "cpu"}
            yield zero("everything in host memory", **both)
    if states.device != "none":
        weighs = given.stage == 3 and weights.device != "none"
        yield zero("nothing offloaded", offload_optimizer__device="none", **(ON_GPU if weighs else {}))
