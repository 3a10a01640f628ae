"""Files of a profiler as one timeline: a class for each rank, each on its own clock.

Rules: a rank's step begins at 0, because clocks of machines differ; the rank that takes longest explains the step. A
folder stands for the traces in it. What could not be told is a finding, never a guess.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zerosim.errors import Finding, InputError, Problem, printable
from zerosim.measured.program import Recorded, record
from zerosim.measured.steps import Wanted, Window, window
from zerosim.measured.works import UNSAID
from zerosim.resources import RankClass, Supply
from zerosim.spec.profile import Profile, left_out, read_profile
from zerosim.spec.profile_events import Level
from zerosim.step import Step
from zerosim.timeline import Timeline
from zerosim.views import recorded
from zerosim.views.activity import activity

MANY_UNNAMED = 0.01  # of the kernels' seconds: more that no table knows is a warning; a choice
MOST_UNLAUNCHED = 0.01  # of the GPU events: fewer without a recorded launch do not matter; a choice
NAMED = 3  # kernels that are named in a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Timeline):
    """The timeline of one measured step."""

    facts: recorded.Facts

    def summary(self) -> recorded.Recorded:
        """Every number that the trace tells."""
        return recorded.record(self, self.facts)


class _Rank:
    """One GPU of one file."""

    def __init__(self, profile: Profile, device: int, rank: int, name: str, wanted: Wanted) -> None:
        self.profile, self.device, self.rank, self.name = profile, device, rank, name
        self.window: Window = window(profile, device, wanted)
        self.recorded: Recorded = record(profile, self.window, name)


def read_trace(*paths: str | os.PathLike[str], step: Wanted = None, title: str = "") -> Measured:
    """The step of the traces of one run, one file a rank; a folder stands for the traces in it.

    `step`: the N of ProfilerStep#N, or "all" (of several all but the last, which may be cut off).
    """
    ranks = _ranks([read_profile(path) for path in _files(paths)], step)
    programs = _programs(ranks)
    classes = tuple(RankClass(rank.name, (rank.rank,), programs.index(rank.recorded.step)) for rank in ranks)
    supply = _supply(ranks)
    timeline = Timeline(
        steps=programs,
        classes=classes,
        spans={rank.name: rank.recorded.spans for rank in ranks},
        demands={rank.name: rank.recorded.demands for rank in ranks},
        supply=supply,
        events=sum(rank.recorded.events for rank in ranks),
    )
    slowest = next(rank for rank in ranks if rank.name == timeline.slowest.name)
    return Measured.of(timeline, facts=_facts(ranks, slowest, title or _title(paths), timeline))


def _files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    if not all(map(os.fspath, paths)):
        raise InputError([Problem("trace", found="no name", expected="the name of a file or a folder")])
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.name.endswith((".json", ".json.gz")))
            if not inside:
                raise InputError([Problem(str(path), found="a folder without traces", expected=".json or .json.gz")])
            found += inside
        else:
            found.append(path)
    return found


def _title(paths: Sequence[str | os.PathLike[str]]) -> str:
    names = [printable(Path(path).name or str(path)) for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _ranks(profiles: Sequence[Profile], wanted: Wanted) -> list[_Rank]:
    """A rank for each GPU; all at the step of the first."""
    _distinct(profiles)
    found: list[_Rank] = []
    for place, profile in enumerate(profiles):
        devices = sorted({event.device for event in profile.gpu})
        numbered = len(profiles) == 1 and profile.rank is None and len(devices) > 1  # one process with several GPUs
        for device in devices:
            rank = device if numbered else place if profile.rank is None else profile.rank
            name = f"rank {rank}" + (f", GPU {device}" if len(devices) > 1 and not numbered else "")
            found.append(_Rank(profile, device, rank, name, wanted))
            wanted = wanted if wanted is not None else found[0].window.number
    return found


def _programs(ranks: Sequence[_Rank]) -> tuple[Step, ...]:
    """What the ranks ran; those that ran the same share one, as in a played step."""
    found: list[Step] = []
    for rank in ranks:
        if rank.recorded.step not in found:
            found.append(rank.recorded.step)
    return tuple(found)


def _distinct(profiles: Sequence[Profile]) -> None:
    """Two files of the same rank are of two runs, or one twice."""
    ranks = Counter(profile.rank for profile in profiles)
    twice = [rank for rank, count in ranks.items() if count > 1 and rank is not None]
    said = [profile for profile in profiles if profile.rank is not None]
    if twice:
        files = " and ".join(profile.source for profile in profiles if profile.rank == twice[0])
        raise InputError([Problem(files, found=f"rank {twice[0]} in each", expected="one file a rank, of one run")])
    if said and len(said) < len(profiles):
        silent = next(profile.source for profile in profiles if profile.rank is None)
        expected = "a rank in every file (distributedInfo), or in none"
        raise InputError([Problem(silent, found="no rank, which other files have", expected=expected)])


def _supply(ranks: Sequence[_Rank]) -> Supply:
    """Nothing but the memory of the GPU: a trace knows no rates."""
    sizes = [rank.profile.capacities[rank.device] for rank in ranks if rank.device in rank.profile.capacities]
    return Supply(rates={}, capacities={"gpu": min(sizes)} if sizes else {}, overheads={}, units={}, labels={})


# --- what is known of it ---------------------------------------------------------------------------------------------


def _facts(ranks: Sequence[_Rank], slowest: _Rank, title: str, timeline: Timeline) -> recorded.Facts:
    events = max(sum(rank.recorded.events for rank in ranks), 1)
    worlds = [rank.profile.world_size for rank in ranks if rank.profile.world_size]
    simulated = all(rank.profile.simulated for rank in ranks)
    most = max(ranks, key=lambda rank: _memory(rank)[0] or 0.0) if simulated else slowest  # as `run` says of stages
    allocated, reserved = _memory(most)
    return recorded.Facts(
        title=title,
        step=slowest.window.label,
        world_size=max(worlds) if worlds else None,
        product=slowest.profile.products.get(slowest.device, ""),
        launched=sum(rank.recorded.unlaunched for rank in ranks) <= MOST_UNLAUNCHED * events,
        allocated=allocated,
        reserved=reserved,
        levels=tuple(_held(most)),
        context=most.profile.context if simulated else None,
        simulated=simulated,
        met=simulated and all(rank.recorded.met for rank in ranks),
        waited=slowest.recorded.waited,
        findings=tuple(_findings(ranks, slowest, timeline)),
        assumptions=tuple(_assumptions(ranks, slowest)),
    )


def _memory(rank: _Rank) -> tuple[float | None, float | None]:
    """The peaks within the step."""
    levels = _levels(rank)
    reserved = [level.reserved for level in levels if level.reserved is not None]
    allocated = max((level.allocated for level in levels), default=0.0)
    return allocated or None, max(reserved, default=None)


def _levels(rank: _Rank) -> list[Level]:
    """Of memory within the step; what was held when it began counts."""
    known = [level for level in rank.profile.levels if level.device == rank.device and level.time <= rank.window.end]
    inside = [level for level in known if level.time >= rank.window.start]
    before = [level for level in known if level.time < rank.window.start][-1:]
    return [*before, *inside]


def _held(rank: _Rank) -> Iterator[tuple[float, float]]:
    """What was allocated from so many seconds of the step on."""
    scale = 1e6 * rank.profile.ticks
    for level in _levels(rank):
        yield max(level.time - rank.window.start, 0.0) / scale, level.allocated


def _findings(ranks: Sequence[_Rank], slowest: _Rank, timeline: Timeline) -> Iterator[Finding]:
    known = slowest.recorded
    yield from _of_files({id(rank.profile): rank.profile for rank in ranks}.values())
    unnamed = Counter(dict(known.unnamed))
    if unnamed:
        seconds, computed = sum(unnamed.values()), float(sum(b - a for a, b in activity(timeline).compute.tolist()))
        names = ", ".join(name for name, _ in unnamed.most_common(NAMED))
        share = seconds / computed if computed else 0.0
        message = (
            "1 kernel that no table knows counts as a memory-bound one"
            if len(unnamed) == 1
            else (f"{len(unnamed)} kernels that no table knows count as memory-bound ones")
        )
        message += f", {100 * share:.1f} % of "
        message += f"the compute: {names}{', ...' if len(unnamed) > NAMED else ''}."
        yield Finding("kernels-unknown", "warning" if share > MANY_UNNAMED else "note", message)
    if known.unsaid:
        message = f"{known.unsaid} collectives whose kind the trace does not say count as {UNSAID.replace('_', '-')}."
        yield Finding("collectives-unknown", "warning", message)
    if known.unlaunched > MOST_UNLAUNCHED * known.events:
        message = f"{known.unlaunched} of {known.events} GPU events have no recorded launch, so that it is not known "
        message += "whether the GPU waited for the host."
        yield Finding("launches-unknown", "note", message, "Record ProfilerActivity.CPU, too.")
    if not known.phased:
        message = "The trace does not tell forward, backward and optimizer: it has no autograd ops with an optimizer's "
        message += "annotation in this step."
        yield Finding("phases-unknown", "note", message, "Record ProfilerActivity.CPU, and step a torch optimizer.")
    if len(ranks) > 1 and len({rank.window.steps for rank in ranks}) > 1:
        yield Finding("steps-differ", "warning", "The ranks' traces do not have the same steps.")


def _of_files(profiles: Iterable[Profile]) -> Iterator[Finding]:
    """What is wrong in files and yet leaves a step to look at."""
    for profile in profiles:
        if profile.lost:
            message = f"GPU events of {printable(Path(profile.source).name)} are left out: {left_out(profile.lost)}."
            yield Finding("events-left-out", "warning", message)
        if profile.repeated:
            message = (
                f"ProfilerStep#{profile.repeated[0]} is in {printable(Path(profile.source).name)} more than once; "
            )
            yield Finding("steps-repeated", "warning", f"{message}the earliest is taken.")
        if profile.rank is not None and profile.world_size is not None and not 0 <= profile.rank < profile.world_size:
            message = f"{printable(Path(profile.source).name)} says that it is of rank {profile.rank} of "
            message += f"{profile.world_size}, which are counted from 0."
            yield Finding("rank-unlikely", "warning", message)


def _assumptions(ranks: Sequence[_Rank], slowest: _Rank) -> Iterator[str]:
    steps = slowest.profile.steps
    if len(steps) > 1:
        numbers = f"{steps[0].number} to {steps[-1].number}"
        yield f"of the steps {numbers} in the trace {slowest.window.label.removeprefix('step ')} is shown"
    if not steps:
        yield "no ProfilerStep in the trace: all of it is one step, from the first GPU event to the last"
    if len(ranks) > 1 and not all(rank.profile.simulated for rank in ranks):
        yield "each rank's step begins at 0: clocks of different machines are not compared"
