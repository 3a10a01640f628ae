"""Gradients reduced in every micro-step, where once a step would do.

ZeRO stage 2 keeps no whole gradients, so it has to reduce before the next micro-step adds to them; so does FSDP, which
frees them, unless the script says no_sync, and DDP without it (DeepSpeed issues 373, 2252).
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import Ddp, Fsdp
from zerosim.step import Collective
from zerosim.studies.doctor.case import REDUCTIONS, Case
from zerosim.studies.doctor.settings import ZERO, fsdp, larger_batches, zero
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_seconds, show_share, show_size

LEAST = 0.03  # of the step, exposed; a choice


def every_micro_step(case: Case) -> Trouble | str:
    """Reductions before the last micro-step, and what of them is waited for."""
    micro_steps = case.simulation.step.micro_batches
    if micro_steps == 1:
        return "one micro-step"
    reduced = [done.op for done in case.collectives(REDUCTIONS) if done.op.reduces]
    early = [op for op in reduced if op.micro_batch + 1 < micro_steps]
    if not early:
        return f"{micro_steps} micro-steps, gradients reduced in the last alone"
    exposed = case.waiting(REDUCTIONS, ("forward", "backward"))
    lost = exposed * len(early) / len(reduced)
    if case.share(lost) < LEAST:
        return f"reductions of {micro_steps - 1} earlier micro-steps cost {show_share(case.share(lost))} of the step"
    size = sum(op.work.bytes for op in reduced if isinstance(op.work, Collective))
    who = f"Stage {case.stage}" if case.stage is not None else type(case.scenario.strategy).__name__.upper()
    return Trouble(
        code="reduces-every-micro-step",
        severity=weight(case, lost),
        symptom=(
            f"{len(reduced)} reductions of {show_size(size)} a step, {len(early)} of them before the last of "
            f"{micro_steps} micro-steps: {show_seconds(lost)} of waiting, {show_share(case.share(lost))} of the step."
        ),
        cause=f"{who} keeps no whole gradients between micro-steps, so it reduces in each of them.",
        candidates=tuple(_remedies(case)),
        lost=lost,
    )


def _remedies(case: Case) -> Iterator[Candidate]:
    strategy = case.scenario.strategy
    if case.stage in (2, 3):
        yield zero("stage 1, which reduces once a step", stage=1)
    elif isinstance(strategy, Fsdp):
        yield fsdp("no_sync: gradients accumulate whole", no_sync=True)
    elif isinstance(strategy, Ddp):
        yield Candidate("no_sync", (("strategy.ddp.no_sync=true",),))
    larger = list(larger_batches(case))
    yield from larger
    if case.stage in (2, 3):
        stage = Candidate("stage 1", ((f"{ZERO}.stage=1",),))
        yield from (stage.also(each) for each in larger)
