"""What the way in which processes are started, and what drives can keep up, make of a step: told with its cost.

Each finding compares the step's own work on this machine with the same work after the remedy, both as if they ran
alone. Nothing is judged that the user did not choose: a step without work on the CPU hears nothing of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from zerosim.costs import processor
from zerosim.costs.machine import Machine
from zerosim.costs.site import Site
from zerosim.costs.sockets import Crossing, Home, Seating
from zerosim.costs.transfers import transfer
from zerosim.errors import Finding
from zerosim.resources import RankClass, Supply
from zerosim.spec.launch import Launch
from zerosim.step import HostCompute, Transfer, Work
from zerosim.units import show_rate, show_seconds, show_size

WORTH_TELLING = 1.05  # by how much something takes longer before it is told; a choice


class Load(NamedTuple):
    """What one class of ranks does in a step: each work, and how often."""

    ranks: RankClass
    site: Site
    works: Mapping[Work, int]


class _Delay(NamedTuple):
    """Seconds of a step's work as it is, and after the remedy."""

    load: Load
    now: float
    then: float

    @property
    def told(self) -> str:
        return f"takes {show_seconds(self.now)} instead of {show_seconds(self.then)}"


def findings(loads: Sequence[Load], machine: Machine, launch: Launch, supply: Supply) -> tuple[Finding, ...]:
    """At most one of each code: that of the ranks that lose most."""
    return (*_threads(loads, machine, launch), *_far(loads, supply), *_queues(loads, supply))


class Floor(NamedTuple):
    """Seconds that steps take at least in the long run; the finding is worth telling where one alone takes less."""

    seconds: float
    finding: Finding


def floors(loads: Sequence[Load]) -> tuple[Floor, ...]:
    """What a single step does not show."""
    slowest = max(_caches(loads), key=lambda floor: floor.seconds, default=None)
    return () if slowest is None else (slowest,)


def _worst(delays: Sequence[_Delay]) -> _Delay | None:
    worst = max(delays, key=lambda delay: delay.now - delay.then, default=None)
    return worst if worst and worst.now > WORTH_TELLING * worst.then else None


# --- threads and cores ---------------------------------------------------------------------------------------------


def _threads(loads: Sequence[Load], machine: Machine, launch: Launch) -> Iterator[Finding]:
    """More threads than cores, so few that they cannot move what memory gives, or memory that is half remote."""
    better = _better(launch, loads[0].site)
    seating = Seating.of(machine, better)
    delays = []
    for load in loads:
        home, others = load.site.home, [seat.home for seat in seating.kinds(load.ranks.ranks) if seat.home]
        works = {work: times for work, times in load.works.items() if isinstance(work, HostCompute)}
        if works and home and others and home.cores:
            then = max(processor.seconds(works, other) for other in others)
            delays.append(_Delay(load, processor.seconds(works, home), then))
    worst = _worst(delays)
    if worst and worst.load.site.home:
        yield _of_threads(worst, worst.load.site.home, worst.load.site.local, better)


def _better(launch: Launch, site: Site) -> Launch:
    """As many threads as there are cores: by DeepSpeed's launcher bound to them, else by the variable."""
    if launch.launcher == "deepspeed":
        return Launch(bind_cores_to_rank=True)
    cores = site.home.cores if site.home else 0
    return replace(launch, omp_num_threads=max(1, cores // site.local))


def _of_threads(delay: _Delay, home: Home, ranks: int, better: Launch) -> Finding:
    each = "one thread" if home.threads == 1 else f"{home.threads} threads"
    used = home.threads * home.ranks
    if home.crowded:
        code, how = "cpu-oversubscribed", f"{ranks} ranks of a node compute with {each} each on its {home.cores} cores"
    elif used < home.cores:
        code, how = "cpu-threads", f"Each rank computes with {each}: {used} of {home.cores} cores"
    else:
        code, how = "cpu-unbound", "The ranks' threads and memory lie on all sockets"
    return Finding(code, "warning", f"{how}. The CPU's work of a step {delay.told}.", _remedy(better))


def _remedy(better: Launch) -> str:
    if better.bind_cores_to_rank:
        return (
            "Set launch.bind_cores_to_rank (deepspeed --bind_cores_to_rank): own cores and near memory for each rank."
        )
    return f"Set launch.omp_num_threads to {better.omp_num_threads} (OMP_NUM_THREADS)."


# --- sockets and drives --------------------------------------------------------------------------------------------


def _far(loads: Sequence[Load], supply: Supply) -> Iterator[Finding]:
    """Ranks bound to another socket than their GPU's: their copies cross the link between the sockets."""
    delays = []
    for load in loads:
        if load.site.far:
            works = _copies(load, {"gpu", "dram"})
            straight = replace(load.site, crossing=Crossing())
            delays.append(_Delay(load, _seconds(works, load.site, supply), _seconds(works, straight, supply)))
    worst = _worst(delays)
    if worst:
        count = sum(len(delay.load.ranks.ranks) for delay in delays)
        yield Finding(
            code="remote-socket",
            severity="warning",
            message=(
                f"{count} ranks are bound to another socket than that of their GPU: copying over the link between "
                f"the sockets {worst.told} in a step."
            ),
            remedy="Order the GPUs by socket, as the ranks' cores are (CUDA_VISIBLE_DEVICES).",
        )


def _queues(loads: Sequence[Load], supply: Supply) -> Iterator[Finding]:
    """Requests to drives that are too few or too small, or wait for each other."""
    delays = []
    for load in loads:
        works = {work: times for tier in ("gpu", "dram") for work, times in _copies(load, {tier, "nvme"}).items()}
        free = {work._replace(batch=0.0, in_turn=False): times for work, times in works.items()}
        delays.append(_Delay(load, _seconds(works, load.site, supply), _seconds(free, load.site, supply)))
    worst = _worst(delays)
    if worst:
        asked = next(work for work in worst.load.works if isinstance(work, Transfer) and work.batch)
        waits = ", all of which has to end before more is asked for" if asked.in_turn else ""
        yield Finding(
            code="drive-queue",
            severity="warning",
            message=(
                f"A rank asks the drives for {show_size(asked.batch)} at once (aio: block_size x queue_depth x "
                f"intra_op_parallelism){waits}: reading and writing {worst.told} in a step."
            ),
            remedy=f"Raise aio.queue_depth or aio.block_size{', with overlap_events: true' if asked.in_turn else ''}.",
        )


def _copies(load: Load, tiers: Set[str]) -> dict[Transfer, int]:
    """Copies between these two tiers, and how often each."""
    return {
        work: times
        for work, times in load.works.items()
        if isinstance(work, Transfer) and {work.source, work.target} == tiers
    }


def _seconds(works: Mapping[Transfer, int], site: Site, supply: Supply) -> float:
    """Seconds of copies, one after the other."""
    return sum(times * transfer(work, site).alone(supply) for work, times in works.items())


def _caches(loads: Sequence[Load]) -> Iterator[Floor]:
    """Drives that cannot keep up the rate at which they take the first bytes (the rule: `drives`)."""
    for load in loads:
        written, drives = load.site.written, load.site.drives
        if drives and written and drives.sustained < drives.write:
            least, lasting = drives.least(written), drives.striped * drives.sustained
            message = (
                f"A step writes {show_size(written)} to the drives of a node, which keep up {show_rate(lasting)} and "
                f"take more only while their caches of {show_size(drives.cache)} last. "
                f"With full caches a step takes at least {show_seconds(least)}."
            )
            remedy = "Drives that keep up their rate of writing, or more of them."
            yield Floor(least, Finding("drive-cache", "warning", message, remedy))
