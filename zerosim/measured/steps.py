"""Which step of a trace is looked at, and what belongs to it.

Rules
- A GPU event belongs to the step in which the host launched it; without a launch, to that in which it began.
- The last of several steps may be cut off, and so is not looked at (as in HolisticTraceAnalysis); of the others the
  middle one is (of two the later), which is past the warm-up. Without steps the whole trace is one.
- A step lasts from when the host began it, or the GPU ended those before it, to when the host left it and the GPU has
  ended it. So steps meet without a hole, and their times add up.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.profile import Profile
from zerosim.spec.profile_events import GpuEvent, HostEvent

Wanted = int | Literal["all"] | None


class Window(NamedTuple):
    """A step of one GPU in microseconds of the trace, and its events, by start. `label`: which step it is; `number`:
    its number, where it is one ProfilerStep."""

    label: str
    start: float
    end: float
    events: tuple[GpuEvent, ...]
    steps: int = 1  # how many are in it
    number: int | None = None


def window(profile: Profile, device: int, wanted: Wanted = None) -> Window:
    """The step of a GPU that is wanted, else the usual one."""
    events = [event for event in profile.gpu if event.device == device]
    if not profile.steps:
        if isinstance(wanted, int):
            found, expected = f"{wanted}, and no ProfilerStep in {profile.source}", "a trace with steps, or no --step"
            raise InputError([Problem("--step", found=found, expected=expected)])
        ends = (*(event.end for event in events), *(work.end for work in profile.work))
        return Window("the whole trace", _first(events, profile.work), max(ends), tuple(events))
    starts = [step.start for step in profile.steps]
    places = [_place(event, profile, starts) for event in events]
    first, last = _chosen(profile, places, wanted)
    own = [event for event, place in zip(events, places, strict=True) if first <= place <= last]
    before = (event.end for event, place in zip(events, places, strict=True) if place < first)
    start = max([profile.steps[first].start, *before])
    end = max([profile.steps[last].end, *(event.end for event in own)])
    begun, ended = profile.steps[first].number, profile.steps[last].number
    label = f"steps {begun} to {ended}" if first < last else f"step {begun}"
    return Window(label, start, end, tuple(own), last - first + 1, begun if first == last else None)


def launch(event: GpuEvent, profile: Profile) -> HostEvent | None:
    """The call that launched it, as far as it was recorded."""
    return None if event.correlation is None else profile.calls.get(event.correlation)


def _first(events: Sequence[GpuEvent], work: Sequence[HostEvent]) -> float:
    return min(*(event.start for event in events), *(each.start for each in work), math.inf)


def _place(event: GpuEvent, profile: Profile, starts: Sequence[float]) -> int:
    """The place of its step among the steps; -1 before the first."""
    call = launch(event, profile)
    return bisect_right(starts, event.start if call is None else call.start) - 1


def _chosen(profile: Profile, places: Sequence[int], wanted: Wanted) -> tuple[int, int]:
    """The places of the first and the last step that is looked at."""
    numbers = [step.number for step in profile.steps]
    whole = range(max(1, len(numbers) - 1))
    if wanted == "all":
        return whole[0], whole[-1]
    busy = sorted(set(places) & set(range(len(numbers))))
    if wanted is not None:
        place = numbers.index(wanted) if wanted in numbers else None
        if place is None or place not in busy:
            said = ", ".join(str(numbers[each]) for each in busy) or "none with GPU events"
            found = f"{wanted}" + ("" if place is None else f", in which {profile.source} has no GPU events")
            near = nearest(str(wanted), [str(numbers[each]) for each in busy])
            raise InputError([Problem("--step", "", found, f"a step of {profile.source}: {said}", near)])
        return place, place
    full = [place for place in busy if place in whole] or busy
    if not full:
        found, expected = "no GPU event that a step launched", "a trace that was recorded while the step ran"
        raise InputError([Problem(profile.source, found=found, expected=expected)])
    middle = full[len(full) // 2]
    return middle, middle
