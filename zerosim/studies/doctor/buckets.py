"""Buckets of gradients: too small, so that latency is most of each collective; too large, so that the first begins late
and the last has nothing to hide behind, or memory goes to them; and reductions that are not overlapped at all.

Whether a size is wrong is known only when others were played: without a better one there is no trouble. Sizes are
elements in DeepSpeed, MiB in DDP. Stage 0 has no choice (semantics: a hard-coded 5e8).
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report.words import counted
from zerosim.spec.strategy import Ddp
from zerosim.studies.doctor.case import REDUCTIONS, Case, Done
from zerosim.studies.doctor.settings import written, zero
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_count, show_seconds, show_share, show_size

LEAST = 0.02  # of the step, exposed, or of the seconds of backward; choices, as the next three
BOUND = 0.3  # of a collective's time is latency
LATE = 0.25  # of the backward is over before the first reduction
LARGE = 0.1  # of the GPU's memory
FACTORS = (4, 16, 64)
SMALLEST, LARGEST = 1_000_000, 1_000_000_000  # elements
DDP_DEFAULT = 25.0  # MiB: torch's bucket_cap_mb
DEFAULT = "as DeepSpeed has it, where overlap_comm is not given on stages 1 and 2"


def not_overlapped(case: Case) -> Trouble | str:
    """Reductions on the stream of the kernels: nothing hides them."""
    given, exposed = case.zero, case.waiting(REDUCTIONS, ("forward", "backward"))
    seen = case.summary.communication
    said = f"{show_share(seen.overlap)} of the communication is hidden behind compute"
    if given is None or given.stage == 0 or given.overlap_comm or case.share(exposed) < LEAST:
        return said if seen.total_seconds else "nothing is communicated"
    return Trouble(
        code="not-overlapped",
        severity=weight(case, exposed),
        symptom=(
            f"{show_seconds(exposed)} of a step ({show_share(case.share(exposed))}) wait for reductions of gradients; "
            f"{said}."
        ),
        cause=f"overlap_comm is off, {DEFAULT}: backward stands still while a bucket is reduced.",
        candidates=(zero("overlap_comm", overlap_comm=True),),
        lost=exposed,
        confirmed=True,
        clear=f"{said}; overlap_comm would not make the step faster",
    )


def sizes(case: Case) -> Trouble | str:
    """Buckets that a smaller or larger size would better."""
    rows = [done for done in case.collectives(REDUCTIONS) if done.op.reduces and done.op.phase != "optimizer"]
    size = _size(case)
    if not rows or size is None:
        return "no buckets to choose"
    exposed, buffers = case.waiting(REDUCTIONS, ("forward", "backward")), case.summary.memory["gpu"].buffers_bytes
    capacity = case.summary.memory["gpu"].capacity_bytes
    latency, late = _latency(case, rows), _late(case, rows)
    number = counted(len(rows), "reduction")
    said = f"{number}, {show_seconds(exposed)} exposed, {show_share(latency)} of their time latency"
    if case.share(exposed) < LEAST and not (buffers > LARGE * capacity and not case.summary.fits):
        return said
    if latency > BOUND:
        code, cause = (
            "buckets-too-small",
            f"Buckets of {size.shown}: a collective costs latency, however little it sends.",
        )
        candidates = tuple(size.candidates(larger=True))
    elif late > LATE or buffers > LARGE * capacity:
        code = "buckets-too-large"
        cause = (
            f"Buckets of {size.shown}: the first is full when {show_share(late)} of the backward is over, "
            f"and the last ends after it; buffers of {show_size(buffers)}."
        )
        candidates = tuple(size.candidates(larger=False))
    else:
        return said
    return Trouble(
        code=code,
        severity=weight(case, exposed),
        symptom=f"{said}: {show_share(case.share(exposed))} of the step waits for them.",
        cause=cause,
        candidates=candidates,
        lost=exposed,
        aim="faster" if case.summary.fits or buffers <= LARGE * capacity else "fits",
        confirmed=True,
        clear=f"{said}; no other size that was played is better",
    )


def _latency(case: Case, rows: list[Done]) -> float:
    """The share of latency in the time that they would take alone."""
    supply = case.simulation.supply
    alone = sum(done.demand.alone(supply) for done in rows)
    return sum(done.demand.latency - done.demand.filling for done in rows) / alone if alone else 0.0


def _late(case: Case, rows: list[Done]) -> float:
    """How much of the last micro-step's backward is over when its first reduction begins."""
    last = max(done.op.micro_batch for done in rows)
    name = case.simulation.slowest.name
    spans = zip(case.simulation.step.ops, case.simulation.spans[name], strict=True)
    backward = [s for op, s in spans if op.stream == "compute" and op.phase == "backward" and op.micro_batch == last]
    if not backward:
        return 0.0
    begin, end = min(span.start for span in backward), max(span.end for span in backward)
    first = min(done.span.ready for done in rows if done.op.micro_batch == last)
    return min(1.0, max(0.0, first - begin) / (end - begin)) if end > begin else 0.0


# --- sizes -----------------------------------------------------------------------------------------------------------


class _Elements:
    """reduce_bucket_size."""

    def __init__(self, now: int) -> None:
        self.now, self.shown = now, f"{show_count(now)} elements"

    def candidates(self, larger: bool) -> Iterator[Candidate]:
        for factor in FACTORS:
            size = min(LARGEST, self.now * factor) if larger else max(SMALLEST, self.now // factor)
            if size != self.now:
                yield zero(f"buckets of {show_count(size)} elements", reduce_bucket_size=size)


class _MiB:
    """bucket_cap_mb."""

    def __init__(self, now: float) -> None:
        self.now, self.shown = now, f"{now:g} MiB"

    def candidates(self, larger: bool) -> Iterator[Candidate]:
        for factor in FACTORS:
            size = round(self.now * factor if larger else self.now / factor, 3)
            yield Candidate(f"buckets of {size:g} MiB", ((f"strategy.ddp.bucket_cap_mb={written(size)}",),))


def _size(case: Case) -> _Elements | _MiB | None:
    """The bucket that the strategy has; None where it has none to choose."""
    if case.zero is not None:
        return _Elements(case.zero.reduce_bucket_size) if case.zero.stage > 0 else None
    strategy = case.scenario.strategy
    return _MiB(strategy.bucket_cap_mb or DDP_DEFAULT) if isinstance(strategy, Ddp) else None
