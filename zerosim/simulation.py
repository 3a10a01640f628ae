"""The one place where the trades meet: a scenario is built into a program, priced, played, and looked at.

`simulate` answers one question and nothing more: no file is read and nothing is printed here. The result is a
Timeline that knows its scenario, so that it can be summarised.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from zerosim.costs import Change, price
from zerosim.engine import play
from zerosim.errors import Finding, InputError
from zerosim.resources import Calibrated, Supply
from zerosim.scenario import Scenario
from zerosim.spec.scenario_text import strategy_text
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Pipeline, Zero
from zerosim.spec.topology import Gpu, Topology
from zerosim.step import DTYPE_BYTES, Step
from zerosim.strategies import build, model_flops
from zerosim.timeline import Timeline
from zerosim.views import Choices, Facts, Summary, TierMemory, choices, memory, summarize
from zerosim.views.running import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Timeline):
    """The timeline of one step of a scenario."""

    scenario: Scenario
    notes: tuple[str, ...] = ()  # what pricing assumed, one sentence each
    findings: tuple[Finding, ...] = ()  # and what it found
    calibration: tuple[Calibrated, ...] = ()  # measured numbers, and which of them it used

    def summary(self, tiers: Mapping[str, TierMemory] | None = None) -> Summary:
        """Every number that a report shows; `tiers`: the view of its memory, where it is known already."""
        with no_collection():
            return summarize(self, facts(self.scenario, self.notes, self.findings, self.calibration), tiers)

    def tiers(self) -> dict[str, TierMemory]:
        """The view of its memory: of a GPU, and of the tiers of a node."""
        with no_collection():
            return memory(self, self.scenario.topology.fullest)


def simulate(scenario: Scenario, steps: tuple[Step, ...] | None = None, change: Change | None = None) -> Simulation:
    """Play one step. ZerosimError when the program cannot end or the machine lacks what it needs.

    `steps` are its programs, where they are at hand: they do not depend on what links and devices do in a second.
    `change`: played on the machine so changed, to which what was measured on the scenario's is carried over.
    """
    with no_collection():
        steps = programs(scenario) if steps is None else steps
        priced = price(steps, scenario.topology, scenario.launch, scenario.calibration, scenario.machine, change)
        played = play(steps, priced.classes, priced.demands, priced.supply)
        return Simulation.of(
            played,
            scenario=scenario,
            notes=priced.notes,
            calibration=priced.calibration,
            findings=(*priced.findings, *(each.finding for each in priced.floors if each.seconds > played.makespan)),
        )


def resupplied(played: Simulation, supply: Supply) -> Simulation:
    """The same step where resources have other rates; prices, and so the algorithms of collectives, stay."""
    with no_collection():
        again = play(played.steps, played.classes, played.demands, supply)
        return replace(played, spans=again.spans, events=again.events, supply=supply)


def programs(scenario: Scenario) -> tuple[Step, ...]:
    """The step's programs, not played; what a framework refuses only when it runs is wrong in the scenario."""
    try:
        with no_collection():
            return build(
                scenario.strategy, scenario.model, scenario.training, scenario.world_size, scenario.ranks_per_node
            )
    except InputError as error:
        (section,) = strategy_text(scenario.strategy, scenario.training)
        above = ("strategy", section)
        places = [
            replace(wrong, source=scenario.source, path=".".join(filter(None, (*above, wrong.source, wrong.path))))
            for wrong in error.problems
        ]
        raise InputError(places) from None


def facts(
    scenario: Scenario,
    notes: tuple[str, ...] = (),
    findings: tuple[Finding, ...] = (),
    calibration: tuple[Calibrated, ...] = (),
) -> Facts:
    """What a summary needs and a timeline cannot know; `notes`, `findings` and `calibration` of pricing."""
    training, world, replicas = scenario.training, scenario.world_size, scenario.replicas
    samples = training.micro_batch_size * training.gradient_accumulation_steps * replicas
    flops = model_flops(scenario.model, training) * training.gradient_accumulation_steps
    return Facts(
        title=scenario.title,
        nodes=len(scenario.topology.hosts),
        world_size=world,
        tokens=samples * training.sequence_length,
        samples=samples,
        model_flops=flops * replicas / world,
        peak_flops=_peak_flops(scenario),
        findings=(*scenario.findings, *findings),
        assumptions=(*scenario.assumptions, *notes),
        choices=_choices(scenario),
        calibration=calibration,
        running=_running(scenario.topology),
        fullest=scenario.topology.fullest,
    )


def _running(topology: Topology) -> Running:
    """What the machine costs and draws, as far as its file says it."""
    price, drawn = topology.price, topology.power.drawn(topology) if topology.power else None
    return Running(
        currency=price.currency if price else "",
        an_hour=price.an_hour(topology) if price else 0.0,
        kwh=price.kwh if price else 0.0,
        computing=drawn.computing if drawn else None,
        waiting=drawn.waiting if drawn else None,
    )


def _peak_flops(scenario: Scenario) -> float:
    """Mean over the ranks, dense, at the training dtype; a GPU without that dtype computes in fp32."""
    topology, precision = scenario.topology, scenario.training.arithmetic
    total = 0.0
    for ranks in topology.rank_classes():
        gpu = topology.gpus[ranks[0]]
        if isinstance(gpu.figures, Gpu):
            peaks = gpu.figures.peak_flops
            total += len(ranks) * gpu.compute * (peaks.get(precision) or peaks["fp32"])
    return total / scenario.world_size


def _choices(scenario: Scenario) -> Choices:
    """What bears on memory and on what would help."""
    training, strategy = scenario.training, scenario.strategy
    fsdp = _fsdp(scenario, strategy) if isinstance(strategy, Fsdp) else None
    zero = strategy.zero if isinstance(strategy, DeepSpeed) else Zero()
    sections = {"optimizer": zero.offload_optimizer, "parameters": zero.offload_param}
    offloaded = frozenset(state for state, section in sections.items() if section.device != "none")
    pinned = frozenset(state for state in offloaded if sections[state].pin_memory)
    if isinstance(strategy, Fsdp) and strategy.cpu_offload:
        offloaded = frozenset(sections)
        pinned = offloaded if strategy.version == 2 and strategy.pin_memory else pinned  # version 1 has no choice
    return Choices(
        checkpointing=training.activation_checkpointing == "full",
        micro_batch=training.micro_batch_size,
        stage=strategy.zero.stage if isinstance(strategy, DeepSpeed) else None,
        fsdp=fsdp,
        ddp=isinstance(strategy, Ddp),
        pipeline=_pipeline(scenario, strategy) if isinstance(strategy, Pipeline) else None,
        bucket_view=isinstance(strategy, Ddp) and strategy.gradient_as_bucket_view,
        offloaded=offloaded,
        on_nvme=frozenset(state for state in offloaded if zero.stage == 3 and sections[state].device == "nvme"),
        pinned=pinned,
        accumulation=training.gradient_accumulation_steps,
        pipelined=zero.offload_optimizer.pipeline_read or zero.offload_optimizer.pipeline_write,
        bound_cores=scenario.launch.bind_cores_to_rank,
    )


def _fsdp(scenario: Scenario, strategy: Fsdp) -> choices.Fsdp:
    """FSDP's choices; what it keeps gathered is the root's parameters and those of two blocks."""
    first, wrap = strategy.version == 1, strategy.wrap
    blocks = [module for module in scenario.model.root.walk() if module.block]
    within = sum(part.numel for block in blocks for module in block.walk() for part in module.parameters)
    shards = strategy.shards(scenario.world_size, scenario.ranks_per_node)
    return choices.Fsdp(
        version=strategy.version,
        shards=shards,
        across=shards > scenario.ranks_per_node,
        sharded=strategy.sharded,
        frees=strategy.frees,
        wrapped=bool(wrap.blocks or wrap.modules or wrap.least),
        prefetches=not first or strategy.backward_prefetch != "NO_PREFETCH",
        limited=not first or strategy.limit_all_gathers,
        offload=strategy.cpu_offload,
        no_sync=strategy.no_sync,
        kept=scenario.model.numel - within + 2 * within / max(1, len(blocks)),
        width=DTYPE_BYTES[strategy.compute_dtype],
        stored=DTYPE_BYTES[strategy.parameter_dtype],
        threads=scenario.launch.omp_num_threads is not None,
    )


def _pipeline(scenario: Scenario, strategy: Pipeline) -> choices.Pipeline:
    micro_batches = scenario.training.gradient_accumulation_steps
    sharded = strategy.zero_stage > 0
    return choices.Pipeline(strategy.schedule, strategy.stages, micro_batches, scenario.replicas, sharded)


@contextmanager
def no_collection() -> Iterator[None]:
    """A step is tens of thousands of tuples without cycles: looking for garbage among them only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
