"""What can be said of a measured step: the numbers of a Summary that a profiler's trace holds, in the same words.

Rule: what a trace does not tell is None, and never an estimate: tokens, FLOP and MFU (it knows no model), resources (it
knows no rates), parts of memory. Where phases are not known, neither are they of stalls. A collective's time is that of
its kernel, which on a rank that comes early contains the waiting; how much that was shows beside the other ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from zerosim.errors import Finding
from zerosim.step import Attention, Collective, HostCompute, Matmul, Op, Pass, Phase, Transfer
from zerosim.timeline import Span, Timeline
from zerosim.views.activity import activity
from zerosim.views.breakdown import Breakdown, Communication, breakdown, communication
from zerosim.views.phases import phases
from zerosim.views.stalls import IDLE, LAUNCH, NO_RESOURCE, Stall, stalls
from zerosim.views.summary import Summary
from zerosim.views.utilization import ResourceUse
from zerosim.views.waiting import ran, waiting

UNTOLD = (
    "tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "model_tflops_per_gpu", "mfu", "fits",
    "nodes", "seed", "resources",
)  # fmt: skip  # keys of `run --json` that no trace answers
PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers", "overhead")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the files say beside their events. `launched`: the launches of the kernels were recorded. `allocated` and
    `reserved`: peaks of GPU memory as the caching allocator counted them; `levels`: what was allocated from so many
    seconds of the step on. `waited`: how often and how long the thread
    of the host that waited longest waited for the GPU."""

    title: str
    step: str
    world_size: int | None
    product: str = ""
    launched: bool = True
    allocated: float | None = None
    reserved: float | None = None
    levels: tuple[tuple[float, float], ...] = ()
    waited: tuple[int, float] = (0, 0.0)
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernels:
    """Work of one kind on the GPU, or of the host; seconds are summed, also where some ran at once."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Collectives of one kind or copies of one way. `bytes`: None where the trace does not say all of them."""

    count: int
    seconds: float
    bytes: int | None


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """Memory of the GPU; None where it was not recorded."""

    capacity_bytes: float | None
    allocated_bytes: float | None
    reserved_bytes: float | None


@dataclass(frozen=True, slots=True)
class RankSummary:
    """A rank that was recorded. `waited_seconds`: by how much its collectives took longer than those of the rank that
    came last; None where the ranks that it waits for were not all recorded."""

    name: str
    ranks: int
    first_rank: int
    end_seconds: float
    compute_seconds: float
    exposed_seconds: float
    waited_seconds: float | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """One measured step in numbers, of the rank that took longest."""

    scenario: str
    step: str
    product: str
    world_size: int | None
    step_seconds: float
    phases: Mapping[Phase, float] | None
    breakdown: Breakdown
    communication: Communication
    stalls: tuple[Stall, ...]
    kernels: Mapping[str, Kernels]
    collectives: Mapping[str, Moved]
    copies: Mapping[str, Moved]
    memory: MeasuredMemory
    host_waits: Kernels
    classes: tuple[RankSummary, ...]
    findings: tuple[Finding, ...]
    assumptions: tuple[str, ...]

    @property
    def resources(self) -> Mapping[str, ResourceUse]:
        """A trace knows no rates, so no resource is told."""
        return {}

    def as_json(self) -> dict[str, Any]:
        """The keys of a Summary, null where a trace does not tell, and more."""
        plain = asdict(self)
        gpu = {f"{part}_bytes": None for part in ("peak", *PARTS)} | {"peak_at": None} | plain.pop("memory")
        lists = {name: list(plain[name]) for name in ("stalls", "classes", "findings", "assumptions")}
        told = {**plain, **lists, "memory": {"gpu": gpu}, "measured": True}
        if self.phases is None:
            told["stalls"] = [stall | {"phase": None} for stall in lists["stalls"]]
        return told | dict.fromkeys(UNTOLD)


Answer = Summary | Recorded  # what reports show: a step that was played, or one that was measured


def record(timeline: Timeline, facts: Facts) -> Recorded:
    """All that a measured timeline tells; each rank has its own clock, so the slowest is looked at alone."""
    whole, slowest = timeline, timeline.slowest
    timeline = replace(whole, classes=(slowest,))
    seen = activity(timeline)
    known = all(op.phase != "unknown" for op in timeline.step.ops)
    ops, spans = timeline.step.ops, timeline.spans[slowest.name]
    return Recorded(
        scenario=facts.title,
        step=facts.step,
        product=facts.product,
        world_size=facts.world_size,
        step_seconds=timeline.makespan,
        phases=phases(timeline) if known else None,
        breakdown=breakdown(timeline, seen),
        communication=communication(timeline, seen),
        stalls=_stalls(stalls(timeline, seen), facts.launched),
        kernels=_kernels(ops, spans),
        collectives=_moved((work.kind, work.bytes, span) for work, span in ran(ops, spans, Collective)),
        copies=_moved((way(work), work.bytes, span) for work, span in ran(ops, spans, Transfer)),
        memory=MeasuredMemory(timeline.supply.capacities.get("gpu"), facts.allocated, facts.reserved),
        host_waits=Kernels(*facts.waited),
        classes=tuple(_classes(whole)),
        findings=facts.findings,
        assumptions=facts.assumptions,
    )


def _stalls(found: Sequence[Stall], launched: bool) -> tuple[Stall, ...]:
    """Without launches nobody knows whether a kernel was launched before it began."""
    if launched:
        return tuple(found)
    seconds: defaultdict[tuple[str, Phase], float] = defaultdict(float)
    for stall in found:
        seconds[IDLE if stall.cause == LAUNCH else stall.cause, stall.phase] += stall.seconds
    merged = [Stall(cause, phase, NO_RESOURCE, time, NO_RESOURCE) for (cause, phase), time in seconds.items()]
    return tuple(sorted(merged, key=lambda stall: -stall.seconds))


# --- what ran --------------------------------------------------------------------------------------------------------


def way(work: Transfer) -> str:
    """ "gpu_to_dram": what a copy is called in JSON."""
    return f"{work.source}_to_{work.target}"


def word(op: Op) -> str:
    """The kind of a kernel; "" of what is none."""
    if isinstance(op.work, Pass):
        return {"stream": "elementwise", "reduction": "reduction", "adam": "optimizer"}[op.work.flavour]
    words = {Matmul: "matmul", Attention: "attention", HostCompute: "host_compute"}
    return words.get(type(op.work), "")


def _kernels(ops: Sequence[Op], spans: Sequence[Span]) -> dict[str, Kernels]:
    """What computed, the longest first."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for op, span in zip(ops, spans, strict=True):
        if name := word(op):
            seconds[name].append(span.end - span.start)
    return {name: Kernels(len(each), sum(each)) for name, each in _longest(seconds)}


def _longest(seconds: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    return sorted(seconds.items(), key=lambda item: (-sum(item[1]), item[0]))


def _moved(items: Iterator[tuple[str, float, Span]]) -> dict[str, Moved]:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    sizes: defaultdict[str, list[float]] = defaultdict(list)
    for name, size, span in items:
        seconds[name].append(span.end - span.start)
        sizes[name].append(size)
    return {
        name: Moved(len(each), sum(each), int(sum(sizes[name])) if all(sizes[name]) else None)
        for name, each in _longest(seconds)
    }


# --- ranks -----------------------------------------------------------------------------------------------------------


def _classes(timeline: Timeline) -> Iterator[RankSummary]:
    waited = waiting(timeline)
    for known in timeline.classes:
        seen = activity(replace(timeline, classes=(known,)))
        yield RankSummary(
            name=known.name,
            ranks=len(known.ranks),
            first_rank=known.ranks[0],
            end_seconds=max((span.end for span in timeline.spans[known.name]), default=0.0),
            compute_seconds=breakdown(timeline, seen).compute,
            exposed_seconds=communication(timeline, seen).exposed_seconds,
            waited_seconds=waited.get(known.name),
        )
