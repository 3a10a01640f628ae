"""Where the trades meet for checkpoints: a scenario's files, and its programs that save and load, priced and played.

As `simulation` does for a step. Nothing is read from disk and nothing is printed here. Training stands still
meanwhile, and the ranks meet at a barrier afterwards, so that the makespan of a program is what it costs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from zerosim.costs import price
from zerosim.costs.drives import Drives
from zerosim.costs.files import FileOps, drives_of, limit_words, with_files
from zerosim.engine import play
from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.spec.scenario_text import strategy_text
from zerosim.spec.strategy import Ddp, DeepSpeed, Zero
from zerosim.step import READ, WRITE, Collective, Tier, Transfer
from zerosim.strategies import saving
from zerosim.strategies.checkpoint_files import File, checkpoint_files, weights_file
from zerosim.strategies.placement import placement_of
from zerosim.strategies.saving import Place, Saving
from zerosim.timeline import Timeline
from zerosim.views.intervals import length
from zerosim.views.memory import held


@dataclass(frozen=True, slots=True)
class Played:
    """A program that was played: seconds, those that the slowest rank spends on collectives, copies and files, the host
    memory of node 0 at its peak, and what limited it longest."""

    timeline: Timeline
    seconds: float
    gather_seconds: float
    copy_seconds: float
    file_seconds: float
    host_peak: float
    limited_by: str


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """The checkpoints of a scenario. `held`: bytes of host memory that training keeps of a rank; `shared`: bytes/s of a
    file system of all nodes, None where files go to the drives of a node."""

    scenario: Scenario
    held: float = 0.0
    shared: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scenario.strategy, Ddp | DeepSpeed):
            (name,) = strategy_text(self.scenario.strategy, self.scenario.training)
            found = f"the strategy {name}"
            raise InputError([Problem("--save-cost", "", found, "ddp or deepspeed, the only ones it knows")])

    @property
    def strategy(self) -> Ddp | DeepSpeed:
        assert isinstance(self.scenario.strategy, Ddp | DeepSpeed)
        return self.scenario.strategy

    @property
    def zero(self) -> Zero:
        """The ZeRO settings in force; stage 0 where there are none."""
        return self.strategy.zero if isinstance(self.strategy, DeepSpeed) else Zero()

    @property
    def local_ranks(self) -> int:
        """Ranks of node 0."""
        return len(self.scenario.topology.nodes[0].gpus)

    @property
    def tier(self) -> Tier | None:
        """What is behind requests to files; None where there is no storage."""
        topology = self.scenario.topology
        if self.shared is not None:
            return "dram"
        return "nvme" if all(topology.devices("nvme", host) for host in topology.hosts) else None

    @property
    def drives(self) -> Drives | None:
        """Those of node 0."""
        return drives_of(self.scenario.topology, self.scenario.topology.hosts[0])

    @property
    def swapped(self) -> bool:
        """Whether optimizer states are in swap files."""
        return any(file.swapped for file in self.files())

    @property
    def parameters_on_host(self) -> bool:
        """Whether the shards of the parameters live in host memory."""
        return placement_of(self.zero).parameters == "dram"

    def files(self) -> tuple[File, ...]:
        """The files of a checkpoint."""
        asked = self.scenario
        return checkpoint_files(self.strategy, asked.model, asked.training, asked.world_size)

    def weights(self) -> File:
        """The file of all weights in the dtype of training."""
        return weights_file(self.strategy, self.scenario.model, self.scenario.training)

    # --- programs ----------------------------------------------------------------------------------------------------

    def save(self) -> Played:
        """Save a checkpoint to resume from."""
        return self._played(saving.save(self._given()))

    def consolidate(self) -> Played:
        """Save all weights in one file."""
        return self._played(saving.consolidate(self._given()))

    def resume(self) -> Played:
        """Load what was saved. With `pipeline_loading_checkpoint` the ranks of a node take turns."""
        turns = self.zero.pipeline_loading_checkpoint and self.zero.stage == 3
        played = self._played(saving.resume(self._given(), alone=turns))
        if not turns:
            return played
        each = ("seconds", "gather_seconds", "copy_seconds", "file_seconds")
        return replace(played, **{name: self.local_ranks * getattr(played, name) for name in each})

    def _given(self) -> saving.Given:
        asked = self.scenario
        place = Place(self.tier, self.held)
        return saving.Given(self.strategy, asked.model, asked.training, asked.world_size, place)

    def _played(self, program: Saving) -> Played:
        step, topology = program.step, self.scenario.topology
        ops = FileOps(program.first, program.once, program.copied, program.cached)
        priced = with_files(price([step], topology, self.scenario.launch), step, topology, ops, self.shared)
        timeline = play([step], priced.classes, priced.demands, priced.supply)
        limit = _limit(timeline, self.drives)
        return Played(timeline, timeline.makespan, *_parts(timeline), self._host_peak(timeline, program), limit)

    def _host_peak(self, timeline: Timeline, program: Saving) -> float:
        """What the ranks of a node hold together at most. Others than rank 0 have no buffers where it works alone."""
        step, classes = program.step, timeline.classes
        own = {buffer for number in program.first for buffer in step.ops[number].acquires}
        buffers = tuple(b._replace(bytes=0.0) if i in own else b for i, b in enumerate(step.buffers))
        if own and len(classes) > 1:
            classes = tuple(each._replace(program=0 if each.ranks[0] == 0 else 1) for each in classes)
            timeline = replace(timeline, steps=(step, replace(step, buffers=buffers)), classes=classes)
        tiers = held(timeline, self.local_ranks)
        return tiers["dram"].peak if "dram" in tiers else 0.0


def _parts(timeline: Timeline) -> tuple[float, float, float]:
    """Seconds of the slowest rank in collectives, in copies to and from the GPU, and in requests to files."""
    parts: dict[str, list[tuple[float, float]]] = {"gather": [], "copy": [], "file": []}
    for op, span in zip(timeline.step.ops, timeline.spans[timeline.slowest.name], strict=True):
        if isinstance(op.work, Collective):
            parts["gather"].append((span.start, span.end))
        elif isinstance(op.work, Transfer):
            parts["file" if op.stream in (READ, WRITE) else "copy"].append((span.start, span.end))
    gather, copy, file = (length(np.array(spans).reshape(-1, 2)) for spans in parts.values())
    return gather, copy, file


def _limit(timeline: Timeline, drives: Drives | None) -> str:
    """What limited the slowest rank for most of the time."""
    name = timeline.slowest.name
    seconds: defaultdict[str, float] = defaultdict(float)
    for op, span, demand in zip(timeline.step.ops, timeline.spans[name], timeline.demands[name], strict=True):
        words = limit_words(span.bottleneck, demand, op.work, timeline.supply, drives)
        seconds[words] += span.end - span.start
    return max(seconds, key=lambda words: seconds[words], default="")
