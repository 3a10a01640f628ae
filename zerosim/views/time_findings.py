"""What most of a step waits for, where it is one thing: collectives, copies, the optimizer on the CPU, the host.

Collectives are judged by what of them is exposed. Copies and the CPU overlap each other (drives are read while the CPU
computes), and which of them makes the step longer is told by the critical path alone: so they are judged by that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zerosim.errors import Finding
from zerosim.step import HostCompute, Op, Transfer, Work
from zerosim.timeline import Timeline
from zerosim.units import show_seconds, show_share
from zerosim.views.breakdown import Breakdown
from zerosim.views.choices import Choices
from zerosim.views.critical_path import critical_path
from zerosim.views.findings import Weighed
from zerosim.views.fsdp import fewer_gathers, fewer_reductions
from zerosim.views.stalls import HOST, Stall
from zerosim.views.utilization import ResourceUse, Volume

# shares of the step that are worth a note; choices
COMMUNICATION_BOUND = 0.3
HOST_BOUND = 0.2
TIERS_BOUND = 0.2
NEARLY_ALL = 0.99  # of what is told: no second cause is worth a word

ONCE_A_STEP = "a larger micro-batch or more gradient_accumulation_steps: it is done once a step, and weighs less"
EVERY_MICRO_STEP = "fewer and larger micro-batches: it is done in each of them"


class Hung(NamedTuple):
    """Seconds that the step hung on an op, and what limited the op."""

    op: Op
    resource: str
    seconds: float
    label: str  # what a person calls the resource, as the op used it


class Seen(NamedTuple):
    """What the views of a step have found; `path`: what of copies and the CPU's work its end hangs on."""

    breakdown: Breakdown
    stalls: Sequence[Stall]
    resources: Mapping[str, ResourceUse]
    volumes: Mapping[str, Volume]
    path: Sequence[Hung]


def time_findings(timeline: Timeline, seen: Seen, choices: Choices) -> Iterator[Weighed]:
    """What most of the step waits for, with its seconds."""
    seconds, exposed = timeline.makespan, seen.breakdown.exposed_communication
    if exposed > COMMUNICATION_BOUND * seconds:
        yield Weighed(_communication_bound(seen, seconds, choices), exposed)
    yield from _bound_by_tiers(timeline, seen, choices)
    host = sum(stall.seconds for stall in seen.stalls if stall.cause == HOST)
    if host > HOST_BOUND * seconds:
        message = f"{show_share(host / seconds)} of the step the GPU waits for the host to issue the next op."
        remedy = "More work per launch: a larger micro-batch, fused kernels, fewer and larger modules for the hooks."
        yield Weighed(Finding("host-bound", "note", message, remedy), host)


def _communication_bound(seen: Seen, seconds: float, choices: Choices) -> Finding:
    exposed: defaultdict[tuple[str, str], float] = defaultdict(float)
    for stall in seen.stalls:
        if stall.cause in seen.volumes:
            exposed[stall.resource, stall.label] += stall.seconds
    (resource, label), worst = max(exposed.items(), key=lambda item: item[1])
    waits = [stall for stall in seen.stalls if stall.cause in seen.volumes]
    gathers = max(waits, key=lambda stall: stall.seconds).cause == "all_gather"
    whole = seen.breakdown.exposed_communication
    limit = _limit(label, seen.resources.get(resource))
    return Finding(
        code="communication-bound",
        severity="note",
        message=(
            f"{show_share(whole / seconds)} of the step waits for collectives; "
            f"what limits {_most(worst, whole, seconds)} is {limit}."
        ),
        remedy=_less_communication(resource == "latency", gathers, choices),
    )


def _less_communication(latency: bool, gathers: bool, choices: Choices) -> str:
    """`latency` limits them; most of them are `gathers`."""
    if choices.fsdp:
        ways = fewer_gathers(choices.fsdp) if gathers else fewer_reductions(choices.fsdp, choices.accumulation)
        last = "larger units, of several blocks" if latency else "more bandwidth there, or a larger micro-batch"
        return _sentence((*ways, last))
    if latency:
        return "Larger buckets or fewer collectives, where latency limits them."
    return (
        "More bandwidth there, or more compute for each byte: a larger micro-batch, or more accumulation where "
        "gradients are reduced once a step."
    )


def _most(worst: float, whole: float, seconds: float) -> str:
    return "it" if worst >= NEARLY_ALL * whole else f"most of it ({show_share(worst / seconds)})"


def _limit(label: str, use: ResourceUse | None) -> str:
    return label + (f" (busy {show_share(use.utilization)} of the step)" if use else "")


# --- tiers -----------------------------------------------------------------------------------------------------------


def of_the_cpu(path: Iterable[Hung]) -> list[Hung]:
    """What of the critical path is work of the CPU."""
    return [hung for hung in path if isinstance(hung.op.work, HostCompute)]


def _bound_by_tiers(timeline: Timeline, seen: Seen, choices: Choices) -> Iterator[Weighed]:
    """Copies and work of the CPU that the end of the step hangs on."""
    copies = [hung for hung in seen.path if isinstance(hung.op.work, Transfer)]
    for code, hanging, said, remedy in (
        ("transfer-bound", copies, "are copies between tiers", _faster_copies),
        ("cpu-optimizer-bound", of_the_cpu(seen.path), "are work of the CPU", _faster_cpu),
    ):
        whole = sum(hung.seconds for hung in hanging)
        if whole > TIERS_BOUND * timeline.makespan:
            worst, time = _worst(hanging)
            labels = {hung.label for hung in hanging if hung.resource == worst}
            label = labels.pop() if len(labels) == 1 else timeline.supply.called(worst).label
            early = sum(hung.seconds for hung in hanging if hung.op.micro_batch + 1 < timeline.step.micro_batches)
            more_work = EVERY_MICRO_STEP if 2 * early > whole else ONCE_A_STEP
            limit = _limit(label, seen.resources.get(worst))
            said = f"{show_share(whole / timeline.makespan)} of the critical path ({show_seconds(whole)}) {said}"
            most = f"what limits {_most(time, whole, timeline.makespan)} is {limit}"
            ways = (*remedy([hung.op.work for hung in hanging if hung.resource == worst], choices), more_work)
            yield Weighed(Finding(code, "note", f"{said}; {most}.", _sentence(ways)), whole)


def on_the_path(timeline: Timeline) -> list[Hung]:
    """What the end of a step hangs on in which something is copied or computed by the CPU; else nothing."""
    if not any(isinstance(op.work, Transfer | HostCompute) for step in timeline.steps for op in step.ops):
        return []
    ops = {rank_class.name: timeline.program(rank_class).ops for rank_class in timeline.classes}
    found = []
    for link in critical_path(timeline):
        if link.why == "work":
            op, resource = ops[link.rank_class][link.op], timeline.spans[link.rank_class][link.op].bottleneck
            found.append(Hung(op, resource, link.end - link.start, timeline.limit(op, resource).label))
    return found


def _worst(hanging: Sequence[Hung]) -> tuple[str, float]:
    """The resource that most of it hangs on, and for how long."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for hung in hanging:
        seconds[hung.resource] += hung.seconds
    return max(seconds.items(), key=lambda item: item[1])


def _faster_copies(works: Sequence[Work | None], choices: Choices) -> Iterator[str]:
    copies = [work for work in works if isinstance(work, Transfer)]
    if any("nvme" in (work.source, work.target) for work in copies):
        if not choices.pipelined:
            yield (
                "set pipeline_read and pipeline_write, with a sub_group_size that makes several sub-groups, "
                "so that drives and CPU work at the same time"
            )
        yield "more or faster drives, or the states in host memory"
    elif any(not work.pinned for work in copies):
        yield "set pin_memory: from pageable memory copies are slower and the host waits for each"


def _faster_cpu(works: Sequence[Work | None], choices: Choices) -> Iterator[str]:
    if choices.fsdp:
        if not choices.fsdp.threads:
            yield "set launch.omp_num_threads to the cores of a rank: torchrun starts one thread"
        return
    if any(isinstance(work, HostCompute) and work.kind == "torch_optimizer" for work in works):
        yield "take DeepSpeed's own optimizer (no torch_adam), which passes over the states once"
    if not choices.bound_cores:
        yield "set bind_cores_to_rank, which gives each rank its cores and the memory beside them"


def _sentence(ways: Iterable[str]) -> str:
    text = "; ".join(ways)
    return f"{text[0].upper()}{text[1:]}."
