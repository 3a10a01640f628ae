"""What a profiler recorded of one process: GPU events, the calls that launched them, steps, and what tells phases.

Rules: times are microseconds of the trace's own clock; `ticks` of them are one, where a simulated step was stretched.
What is not in the trace is None: nothing is made up here, and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerosim.errors import InputError, Problem, printable
from zerosim.spec.profile_events import GpuEvent, HostEvent, Level, ProfiledStep, Sorter, Thread
from zerosim.spec.profile_file import read_events
from zerosim.spec.profile_values import number, whole


@dataclass(frozen=True, slots=True)
class Profile:
    """One file. `steps` in order of time; `calls` by correlation; `waits`: when the host waited for the GPU; `work` of
    the CPU and of drives. `simulated`: zerosim wrote it; `context`: bytes beside what the allocator counts."""

    source: str
    rank: int | None
    world_size: int | None
    ticks: float
    gpu: tuple[GpuEvent, ...]
    calls: Mapping[int, HostEvent]
    steps: tuple[ProfiledStep, ...]
    backward: tuple[HostEvent, ...]
    optimizer: tuple[HostEvent, ...]
    waits: tuple[HostEvent, ...]
    work: tuple[HostEvent, ...]
    collectives: Mapping[int, str]  # what the host called a collective, by external id
    levels: tuple[Level, ...]
    titles: Mapping[Thread, str]
    lost: Mapping[str, int] = field(default_factory=dict)  # GPU events that were left out, by what they lack
    repeated: tuple[int, ...] = ()  # numbers of steps that were in the file again
    simulated: bool = False
    context: float | None = None
    capacities: Mapping[int, float] = field(default_factory=dict)  # bytes of memory, by device
    products: Mapping[int, str] = field(default_factory=dict)  # names of GPUs, by device


def read_profile(path: str | Path) -> Profile:
    """A file, read; InputError where it is none, or has no work of a GPU in it."""
    sorter = Sorter()
    head = read_events(path, sorter.take)
    if not sorter.gpu:
        raise InputError([_without_a_gpu(str(path), sorter)])
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return Profile(
        source=str(path),
        rank=whole(distributed.get("rank")),
        world_size=whole(distributed.get("world_size")),
        ticks=number(head.get("ticksPerMicrosecond")) or 1.0,
        gpu=tuple(sorted(sorter.gpu, key=_edges)),
        calls=sorter.calls,
        steps=tuple(sorted(sorter.steps.values(), key=lambda step: step.start)),
        backward=tuple(sorter.backward),
        optimizer=tuple(sorter.optimizer),
        waits=tuple(sorter.waits),
        work=tuple(sorted(sorter.work, key=_edges)),
        collectives=sorter.collectives,
        levels=_levels(sorter.levels, number(head.get("contextBytes")) or 0.0),
        titles=sorter.titles,
        lost=sorter.lost,
        simulated=str(head.get("traceName")).startswith("zerosim "),
        context=number(head.get("contextBytes")),
        repeated=tuple(sorted(sorter.repeated)),
        capacities={at: size for at, each in _devices(head) if (size := number(each.get("totalGlobalMem")) or 0.0) > 0},
        products={at: printable(str(each["name"])) for at, each in _devices(head) if "name" in each},
    )


def _without_a_gpu(source: str, sorter: Sorter) -> Problem:
    """Why nothing of a GPU can be used."""
    if sorter.lost:
        found, expected = f"no GPU event that can be used: {left_out(sorter.lost)}", "ts and dur in microseconds"
        return Problem(source, found=found, expected=expected)
    found = "no GPU events (kernel, gpu_memcpy, gpu_memset)" + ("" if sorter.seen else ", and no others")
    return Problem(source, found=found, expected="a trace with the GPU's activities: ProfilerActivity.CUDA")


def left_out(lost: Mapping[str, int]) -> str:
    """`2 have no duration, 1 has no name`."""
    return ", ".join(f"{count} {'has' if count == 1 else 'have'} {lacking}" for lacking, count in lost.items())


def _edges(event: GpuEvent | HostEvent) -> tuple[float, float]:
    return event.start, event.end


def _devices(head: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """What the head says of each GPU, with its number: its place, where it says none."""
    given = head.get("deviceProperties")
    known = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    for place, each in enumerate(known):
        at = whole(each.get("id", place))
        if at is not None:
            yield at, each


def _levels(levels: Sequence[Level], context: float) -> tuple[Level, ...]:
    """In order of time, as the allocator counts: without what a simulated step's curves hold beside it."""
    known = sorted(levels, key=lambda level: level.time)
    return tuple(
        level._replace(
            allocated=float(max(round(level.allocated - context), 0)),
            reserved=None if level.reserved is None else float(max(round(level.reserved - context), 0)),
        )
        for level in known
    )
