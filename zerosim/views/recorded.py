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
from zerosim.views.stalls import HOST, IDLE, LAUNCH, NO_RESOURCE, Stall, stalls
from zerosim.views.summary import Summary
from zerosim.views.utilization import ResourceUse
from zerosim.views.waiting import ran, waited_before, waiting

UNTOLD = (
    "tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "model_tflops_per_gpu", "mfu", "fits",
    "nodes", "seed", "resources",
)  # fmt: skip  # keys of `run --json` that no trace answers
PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers", "overhead")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the files say beside their events. `launched`: the launches of the kernels were recorded. `allocated` and
    `reserved`: peaks of GPU memory as the caching allocator counted them. `waited`: how often and how long the thread
    of the host that waited longest waited for the GPU. `simulated`: zerosim wrote them, so all ranks have one clock;
    `met`: and their collectives say how long they waited for ranks; `context`: bytes beside what the allocator counts;
    `levels`: what was allocated from so many seconds of the step on.
    """

    title: str
    step: str
    world_size: int | None
    product: str = ""
    launched: bool = True
    allocated: float | None = None
    reserved: float | None = None
    levels: tuple[tuple[float, float], ...] = ()
    context: float | None = None
    waited: tuple[int, float] = (0, 0.0)
    simulated: bool = False
    met: bool = False
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
    """Memory of the GPU; None where it was not recorded. `peak_bytes`: with the context, which no profiler counts."""

    peak_bytes: float | None
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
    """One measured step in numbers, of the rank that took longest; `measured` is False of a trace of zerosim's."""

    scenario: str
    step: str
    measured: bool
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
        gpu = {f"{part}_bytes": None for part in PARTS} | {"peak_at": None} | plain.pop("memory")
        lists = {name: list(plain[name]) for name in ("stalls", "classes", "findings", "assumptions")}
        unknown = {"phase": None} if self.phases is None else {}
        lists["stalls"] = [
            stall | unknown | {name: stall[name] or None for name in ("resource", "label")} for stall in lists["stalls"]
        ]
        told = {**plain, **lists, "memory": {"gpu": gpu}}
        return told | dict.fromkeys(UNTOLD)


Answer = Summary | Recorded  # what reports show: a step that was played, or one that was measured


def record(timeline: Timeline, facts: Facts) -> Recorded:
    """All that a measured timeline tells; where each rank has its own clock, the slowest is looked at alone."""
    whole, slowest = timeline, timeline.slowest
    timeline = replace(whole, classes=(slowest,))
    met = whole if facts.simulated else timeline
    seen = activity(timeline)
    known = all(op.phase != "unknown" for op in timeline.step.ops)
    ops, spans = timeline.step.ops, timeline.spans[slowest.name]
    return Recorded(
        scenario=facts.title,
        step=facts.step,
        measured=not facts.simulated,
        product=facts.product,
        world_size=facts.world_size,
        step_seconds=timeline.makespan,
        phases=phases(met) if known else None,
        breakdown=breakdown(timeline, seen),
        communication=communication(timeline, seen),
        stalls=_stalls(stalls(met, seen), facts.launched, slowest.name),
        kernels=_kernels(ops, spans),
        collectives=_moved((work.kind, work.bytes, span) for work, span in ran(ops, spans, Collective)),
        copies=_moved((way(work), work.bytes, span) for work, span in ran(ops, spans, Transfer)),
        memory=_memory(timeline, facts),
        host_waits=Kernels(*facts.waited),
        classes=tuple(_classes(whole, facts)),
        findings=facts.findings,
        assumptions=facts.assumptions,
    )


def _memory(timeline: Timeline, facts: Facts) -> MeasuredMemory:
    told = facts.allocated is not None and facts.context is not None
    peak = (facts.allocated or 0.0) + (facts.context or 0.0) if told else None
    return MeasuredMemory(peak, timeline.supply.capacities.get("gpu"), facts.allocated, facts.reserved)


def _stalls(found: Sequence[Stall], launched: bool, own: str) -> tuple[Stall, ...]:
    """Without launches nobody knows whether the GPU waited for the host; and "" is a resource that is not known, as of
    a rank that waited for one of which there is no trace: then it seems to wait for its `own`."""
    seconds: defaultdict[tuple[str, Phase, str, str], float] = defaultdict(float)
    for stall in found:
        cause = IDLE if not launched and stall.cause in (HOST, LAUNCH) else stall.cause
        known = stall.resource not in ("", NO_RESOURCE, own) and cause == stall.cause
        seconds[cause, stall.phase, *((stall.resource, stall.label) if known else ("", ""))] += stall.seconds
    merged = [Stall(cause, phase, resource, time, label) for (cause, phase, resource, label), time in seconds.items()]
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


def _classes(timeline: Timeline, facts: Facts) -> Iterator[RankSummary]:
    """Collectives of a simulated step begin when all have come, so their lengths say nothing of who waited."""
    waited = waiting(timeline) if not facts.simulated else waited_before(timeline) if facts.met else {}
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
