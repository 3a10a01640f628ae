"""The same step with its states in GPU memory, host memory and on drives: what is moved, how long it takes, and why.

Every rung is the scenario itself with another `offload_optimizer` and `offload_param`, played; its other settings stay.
Stages 1 and 2 have the optimizer in host memory only, as DeepSpeed does; stage 0, which partitions nothing, and what is
not DeepSpeed are taken at stage 3 (`instead` says so). More micro-steps, or larger ones, spread the optimizer's copies
over more tokens: `amortised` is that curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, facts, simulate
from zerosim.spec.strategy import DeepSpeed
from zerosim.step import Transfer
from zerosim.studies.offloads import Device, placed
from zerosim.studies.reason import reason
from zerosim.studies.rung_names import left_out, strategy_name
from zerosim.views.memory import held, unfit

PLACES = {"none": "HBM", "cpu": "DRAM", "nvme": "NVMe"}
LADDER: tuple[tuple[Device, Device], ...] = (  # where the optimizer is, and the parameters
    ("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "none"), ("nvme", "cpu"), ("nvme", "nvme"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that one rank copies in a step."""

    gpu_to_dram_bytes: float
    dram_to_gpu_bytes: float
    nvme_write_bytes: float
    nvme_read_bytes: float


@dataclass(frozen=True, slots=True)
class TierRung:
    """One placement. `dram_bytes` and `nvme_bytes` are peaks per node.

    `relative_throughput` compares with the first that fits (with HBM, where none does).
    """

    optimizer: str
    parameters: str
    fits: bool
    gpu_bytes: float
    dram_bytes: float
    nvme_bytes: float
    moved: Moved
    step_seconds: float
    tokens_per_second: float
    relative_throughput: float
    busiest_resource: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Amortised:
    """One placement at one batch. `relative_throughput`: against the first that fits at the same batch, as above."""

    optimizer: str
    parameters: str
    micro_batch_size: int
    gradient_accumulation_steps: int
    fits: bool
    step_seconds: float
    tokens_per_second: float
    relative_throughput: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def instead(scenario: Scenario) -> str:
    """A sentence where it is not the scenario's own strategy that is played; "" where it is."""
    if _config(scenario) is scenario.strategy:
        return ""
    named = strategy_name(scenario.strategy)
    return f"The scenario's strategy, {named}, has no choice of tiers: played is DeepSpeed at stage 3 instead."


class _Placed(NamedTuple):
    optimizer: str
    parameters: str
    scenario: Scenario
    left_out: str = ""  # what of the scenario's own stage 3 is not played there


def tiers(scenario: Scenario) -> list[TierRung]:
    """All placements that the scenario's stage and machine have, HBM first."""
    rungs = [_rung(place) for place in _placements(scenario)]
    base = next((rung for rung in rungs if rung.fits), rungs[0]).tokens_per_second
    return [replace(rung, relative_throughput=rung.tokens_per_second / base) for rung in rungs]


def amortised(
    scenario: Scenario, accumulations: Sequence[int] = (), micro_batches: Sequence[int] = ()
) -> list[Amortised]:
    """Every placement at every batch; without `accumulations` (or `micro_batches`) the scenario's own."""
    training = scenario.training
    points: list[Amortised] = []
    for micro_batch in micro_batches or (training.micro_batch_size,):
        for steps in accumulations or (training.gradient_accumulation_steps,):
            batch = {"micro_batch_size": micro_batch, "gradient_accumulation_steps": steps}
            points += _points(scenario.replace(training=batch))
    return points


def _points(scenario: Scenario) -> list[Amortised]:
    points = [_point(place) for place in _placements(scenario)]
    base = next((point for point in points if point.fits), points[0]).tokens_per_second
    return [replace(point, relative_throughput=point.tokens_per_second / base) for point in points]


def _point(place: _Placed) -> Amortised:
    played, training, known = simulate(place.scenario), place.scenario.training, facts(place.scenario)
    seconds = played.makespan
    return Amortised(
        optimizer=place.optimizer,
        parameters=place.parameters,
        micro_batch_size=training.micro_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        fits=not unfit(held(played, known.ranks_per_node)),
        step_seconds=seconds,
        tokens_per_second=known.tokens * (1 / seconds),
        relative_throughput=1.0,
    )


# --- placements ------------------------------------------------------------------------------------------------------


def _placements(scenario: Scenario) -> Iterator[_Placed]:
    config = _config(scenario)
    drives = bool(scenario.topology.devices("nvme"))
    for optimizer, parameters in LADDER:
        if "nvme" in (optimizer, parameters) and not drives:
            continue
        if config.zero.stage < 3 and (parameters != "none" or optimizer == "nvme"):
            continue
        zero = placed(config.zero, optimizer, parameters, scenario)
        elsewhere = scenario.replace(strategy=replace(config, zero=zero))
        yield _Placed(PLACES[optimizer], PLACES[parameters], elsewhere, left_out(config.zero, zero))


def _config(scenario: Scenario) -> DeepSpeed:
    strategy = scenario.strategy
    if isinstance(strategy, DeepSpeed) and strategy.zero.stage:
        return strategy
    given = strategy if isinstance(strategy, DeepSpeed) else DeepSpeed(optimizer=strategy.optimizer)
    overlap = given.zero.overlap_comm if given.zero.overlap_comm_given else True
    return replace(given, zero=replace(given.zero, stage=3, overlap_comm=overlap))


# --- one rung --------------------------------------------------------------------------------------------------------


def _rung(place: _Placed) -> TierRung:
    played = simulate(place.scenario)
    summary = played.summary()
    memory = {name: tier.peak_bytes for name, tier in summary.memory.items()}
    busiest = next(iter(summary.resources.values()), None)
    return TierRung(
        optimizer=place.optimizer,
        parameters=place.parameters,
        fits=summary.fits,
        gpu_bytes=memory["gpu"],
        dram_bytes=memory.get("dram", 0.0),
        nvme_bytes=memory.get("nvme", 0.0),
        moved=moved(played),
        step_seconds=summary.step_seconds,
        tokens_per_second=summary.tokens_per_second,
        relative_throughput=1.0,
        busiest_resource=busiest.label if busiest else "",
        reason="; ".join(filter(None, (place.left_out, reason(summary)))),
    )


def moved(played: Simulation) -> Moved:
    """Copies of one rank; a direct one between GPU and drive counts as the drive's."""
    copies = [op.work for op in played.step.ops if isinstance(op.work, Transfer)]

    def between(source: str, target: str) -> float:
        return sum(copy.bytes for copy in copies if (copy.source, copy.target) == (source, target))

    return Moved(
        gpu_to_dram_bytes=between("gpu", "dram"),
        dram_to_gpu_bytes=between("dram", "gpu"),
        nvme_write_bytes=between("dram", "nvme") + between("gpu", "nvme"),
        nvme_read_bytes=between("nvme", "dram") + between("nvme", "gpu"),
    )
