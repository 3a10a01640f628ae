"""Every number that a report shows, computed once. `Summary.as_json()` is what `run --json` prints.

The timeline knows ops, bytes and seconds; what it cannot know (tokens, model FLOP, the peak rate, the title) comes as
`Facts`. The names of the fields are a contract with users; more may be added, these stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zerosim.errors import Finding
from zerosim.resources import Calibrated
from zerosim.step import Collective, Phase
from zerosim.timeline import Timeline
from zerosim.views.activity import Activity, activity
from zerosim.views.breakdown import Breakdown, Communication, breakdown, communication
from zerosim.views.bubble import Bubble, bubble
from zerosim.views.bubble_finding import bubble_finding
from zerosim.views.choices import Choices
from zerosim.views.contention import Loss, contention
from zerosim.views.findings import Weighed, ordered, weighed
from zerosim.views.memory import Holding, TierMemory, memory, unfit
from zerosim.views.memory_findings import memory_findings
from zerosim.views.phases import phases
from zerosim.views.running import Cost, Energy, Running, bill
from zerosim.views.stalls import Stall, stalls
from zerosim.views.time_findings import Seen, of_the_cpu, on_the_path, time_findings
from zerosim.views.utilization import ResourceUse, Volume, collectives, utilization
from zerosim.views.waits import Wait
from zerosim.views.waits import waits as who_waits

HOLDINGS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Facts:
    """What a timeline cannot know. Tokens and samples: of a step, over all ranks. `model_flops`: per GPU and step,
    without recomputation. `peak_flops`: per GPU at the training dtype. `choices`: what bears on memory.
    """

    title: str
    nodes: int
    world_size: int
    tokens: float
    samples: float
    model_flops: float
    peak_flops: float
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[str, ...] = ()
    seed: int = 0
    choices: Choices = field(default_factory=Choices)
    calibration: tuple[Calibrated, ...] = ()
    running: Running = field(default_factory=Running)
    fullest: int = 0  # ranks of the node that has most; 0 where all have as many

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the fullest node."""
        return self.fullest or -(-self.world_size // self.nodes)


@dataclass(frozen=True, slots=True)
class PeakAt:
    """When the peak is reached, and the op at whose issue it is (empty: it is there from the start)."""

    seconds: float
    op: str
    phase: Phase
    micro_batch: int
    layer: int | None


@dataclass(frozen=True, slots=True)
class TierUse:
    """A tier at its peak; the parts sum to `peak_bytes`. `reserved_bytes`: with the allocator's cache (GPU only).
    `rounding_bytes` of the peak hold nothing: page-locked blocks are powers of two.

    `allocated_bytes` is the peak of what the program held, without overhead: PyTorch's `max_memory_allocated`;
    `busy_bytes` the peak of what could not be reused yet, with overhead: more where the host runs far ahead.
    """

    capacity_bytes: float
    peak_bytes: float
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    overhead_bytes: float
    peak_at: PeakAt
    allocated_bytes: float
    busy_bytes: float
    reserved_bytes: float | None
    allocator_flushes: int
    held: tuple[Holding, ...]
    rounding_bytes: float


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """A class of ranks: how many, and the seconds its collectives waited for other ranks to arrive. `program`: which
    one they run, the stage of a pipeline."""

    name: str
    ranks: int
    first_rank: int
    end_seconds: float
    waited_seconds: float
    program: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One played step in numbers: seconds, bytes, FLOP."""

    scenario: str
    fits: bool
    world_size: int
    nodes: int
    seed: int
    step_seconds: float
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    samples_per_second: float
    model_tflops_per_gpu: float
    mfu: float
    phases: Mapping[Phase, float]
    breakdown: Breakdown
    communication: Communication
    stalls: tuple[Stall, ...]
    memory: Mapping[str, TierUse]
    collectives: Mapping[str, Volume]
    resources: Mapping[str, ResourceUse]
    findings: tuple[Finding, ...]
    assumptions: tuple[str, ...]
    classes: tuple[ClassSummary, ...]
    contention: tuple[Loss, ...]
    pipeline: Bubble | None
    waits: tuple[Wait, ...]
    calibration: tuple[Calibrated, ...]
    cost: Cost | None = None
    energy: Energy | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and text. Of cost and energy nothing, where they are not known."""
        unknown = [name for name in ("cost", "energy") if getattr(self, name) is None]
        plain = {name: _plain(value) for name, value in asdict(self).items() if name not in unknown}
        return plain | {"calibration": [each._asdict() for each in self.calibration]}


def summarize(timeline: Timeline, facts: Facts, tiers: Mapping[str, TierMemory] | None = None) -> Summary:
    """All views of one timeline; `tiers`: that of its memory, where it is known already."""
    seconds = timeline.makespan
    tiers = memory(timeline, facts.ranks_per_node) if tiers is None else tiers
    seen = activity(timeline)
    parts, waits = breakdown(timeline, seen), stalls(timeline, seen)
    volumes, resources = collectives(timeline), utilization(timeline)
    found = Seen(parts, waits, resources, volumes, on_the_path(timeline))
    stages = facts.choices.pipeline
    waiting = bubble(timeline, stages) if stages else None
    rate = 1 / seconds if seconds else 0.0
    computing = parts.compute * rate
    cost, energy = bill(facts.running, seconds, computing, facts.tokens)
    return Summary(
        scenario=facts.title,
        fits=not unfit(tiers),
        world_size=facts.world_size,
        nodes=facts.nodes,
        seed=facts.seed,
        step_seconds=seconds,
        tokens_per_second=facts.tokens * rate,
        tokens_per_second_per_gpu=facts.tokens * rate / facts.world_size,
        samples_per_second=facts.samples * rate,
        model_tflops_per_gpu=facts.model_flops * rate / 1e12,
        mfu=facts.model_flops * rate / facts.peak_flops if facts.peak_flops else 0.0,
        phases=phases(timeline),
        breakdown=parts,
        communication=communication(timeline, seen),
        stalls=waits,
        memory={name: _tier_use(timeline, tier) for name, tier in tiers.items()},
        collectives=volumes,
        resources=resources,
        findings=ordered(
            (
                *_found_before(facts, seen, found),
                *map(Weighed, memory_findings(timeline, tiers, facts.world_size, facts.ranks_per_node, facts.choices)),
                *time_findings(timeline, found, facts.choices),
                *(bubble_finding(waiting, stages, tiers.get("gpu")) if stages and waiting else ()),
            )
        ),
        assumptions=tuple(dict.fromkeys((*facts.assumptions, *(note for s in timeline.steps for note in s.notes)))),
        classes=tuple(_classes(timeline)),
        contention=contention(timeline),
        pipeline=waiting,
        waits=who_waits(timeline),
        calibration=facts.calibration,
        cost=cost,
        energy=energy,
    )


def _found_before(facts: Facts, seen: Activity, found: Seen) -> Iterator[Weighed]:
    """What the scenario and its prices told, weighed by the step."""
    on_the_path = sum(hung.seconds for hung in of_the_cpu(found.path))
    return (weighed(each, seen, found.breakdown.host_compute, on_the_path) for each in facts.findings)


def _tier_use(timeline: Timeline, tier: TierMemory) -> TierUse:
    return TierUse(
        capacity_bytes=tier.capacity,
        peak_bytes=tier.peak,
        peak_at=_peak_at(timeline, tier),
        allocated_bytes=tier.allocated.peak - tier.overhead,
        busy_bytes=tier.busy.peak,
        reserved_bytes=tier.reserve.curve.peak if tier.reserve else None,
        allocator_flushes=tier.reserve.flushes if tier.reserve else 0,
        held=tier.held[:HOLDINGS_SHOWN],
        rounding_bytes=tier.rounding,
        **{f"{category}_bytes": size for category, size in tier.parts.items()},
    )


def _peak_at(timeline: Timeline, tier: TierMemory) -> PeakAt:
    if tier.peak_op is None:
        return PeakAt(tier.peak_seconds, "", "forward", 0, None)
    op = timeline.program(tier.rank_class).ops[tier.peak_op]
    return PeakAt(tier.peak_seconds, op.name, op.phase, op.micro_batch, op.layer)


def _classes(timeline: Timeline) -> Iterator[ClassSummary]:
    collective = [[op.number for op in step.ops if isinstance(op.work, Collective)] for step in timeline.steps]
    for name, ranks, program, _ in timeline.classes:
        spans = timeline.spans[name]
        waited = sum(spans[number].start - spans[number].ready for number in collective[program])
        yield ClassSummary(name, len(ranks), ranks[0], max((span.end for span in spans), default=0.0), waited, program)


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
