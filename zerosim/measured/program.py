"""Recorded GPU events as ops and spans, in the order in which the host launched them.

Rules
- An op has the work that `works` tells; dependencies, which the trace does not say, are empty.
- `issued` is the end of the call that launched it; where none was recorded, the start of the step. `ready` is its
  start: that a kernel waits for others within itself (NCCL) cannot be seen from one rank. Collectives of a simulated
  step say how long they waited before they began.
- An op is issued after the host has waited (`cudaStreamSynchronize` and its like) for the op that ended in that wait.
- Times are cut at the edges of the step, and are seconds from its start.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zerosim.measured.phases import Phased, Phases
from zerosim.measured.steps import Window, launch
from zerosim.measured.works import Works, of_host
from zerosim.resources import Demand
from zerosim.spec.profile import Profile
from zerosim.spec.profile_events import WAITED, GpuEvent, HostEvent, Thread
from zerosim.spec.profile_kernels import brief, is_communication
from zerosim.spec.profile_values import Named
from zerosim.spec.profile_values import number as amount
from zerosim.step import COMPUTE, HOST_STREAM, PHASES, Op, Phase, Step
from zerosim.timeline import Span
from zerosim.views.intervals import length, union

_PHASES: Mapping[Any, Phase] = {phase: phase for phase in PHASES}


class Recorded(NamedTuple):
    """A rank's step. `unnamed`: kernels that no table knew, seconds by name; `unsaid`: collectives of no known kind;
    `unlaunched`: GPU events without a recorded launch; `waited`: how often and how long the thread of the host that
    waited longest waited for the GPU; `met`: every collective says how long it waited for ranks."""

    step: Step
    spans: tuple[Span, ...]
    demands: tuple[Demand, ...]
    events: int
    unnamed: Mapping[str, float]
    unsaid: int
    unlaunched: int
    waited: tuple[int, float]
    phased: bool
    met: bool


class _Piece(NamedTuple):
    """An event on its way to an op: when it was issued, by which call, and when it ran, in seconds of the step."""

    issued: float
    start: float
    end: float
    event: GpuEvent | HostEvent
    call: HostEvent | None


class _Program:
    """The ops of one rank, added in the order in which the host issued them."""

    def __init__(self, profile: Profile, window: Window, rank_class: str) -> None:
        self.profile, self.rank_class = profile, rank_class
        self.works = Works(profile)
        self.ops: list[Op] = []
        self.spans: list[Span] = []
        self.demands: list[Demand] = []
        self._streams = _streams(window.events, profile.titles)
        self._phases = Phases(profile, window)

    def add(self, piece: _Piece, host_waits: tuple[int, ...]) -> None:
        """An event, and what the host waited for before it issued it."""
        number, event, call = len(self.ops), piece.event, piece.call
        known = _said(event.arguments) or self._phases.of(call)
        name, layer = str(event.arguments.get("op") or brief(event.name)), event.arguments.get("layer")
        if isinstance(event, GpuEvent):
            work = self.works.of_gpu(event, piece.end - piece.start)
            stream = self._streams[event.device, event.stream]
        else:
            work, stream = of_host(event), _row(event, self.profile.titles)
        self.ops.append(
            Op(number, name, stream, work, host_waits=host_waits, phase=known.phase,
               micro_batch=known.micro_batch, layer=layer if isinstance(layer, int) else None)
        )  # fmt: skip
        waited = (amount(event.arguments.get(WAITED)) or 0.0) / 1e6 / self.profile.ticks
        ready = max(min(piece.start, piece.start - waited), piece.issued)
        self.spans.append(Span(number, self.rank_class, piece.issued, ready, piece.start, piece.end, ""))
        calling = min((call.end - call.start) / 1e6 / self.profile.ticks, piece.issued) if call else 0.0
        self.demands.append(Demand(host=max(calling, 0.0)))

    def close(self, end: float) -> None:
        """A marker where the host left the step, if that is later than all else: so the step is as long as it was."""
        if end > max((span.end for span in self.spans), default=0.0):
            last = self.ops[-1] if self.ops else Op(0, "", HOST_STREAM, None)
            number = len(self.ops)
            marker = Op(number, "end of step", HOST_STREAM, None, phase=last.phase, micro_batch=last.micro_batch)
            self.ops.append(marker)
            self.spans.append(Span(number, self.rank_class, end, end, end, end, ""))
            self.demands.append(Demand())

    def step(self) -> Step:
        micro_batches = 1 + max((op.micro_batch for op in self.ops), default=0)
        return Step(tuple(self.ops), (), frozenset(), self.works.groups, micro_batches)


def record(profile: Profile, window: Window, rank_class: str) -> Recorded:
    """The program of one rank and when it ran."""
    pieces = sorted(_pieces(profile, window), key=lambda piece: (piece.issued, _turn(piece), piece.start, piece.end))
    awaited = _awaited(profile, window, pieces)
    program = _Program(profile, window, rank_class)
    for number, piece in enumerate(pieces):
        program.add(piece, awaited.get(number, ()))
    program.close((window.end - window.start) / 1e6 / profile.ticks)
    return Recorded(
        step=program.step(),
        spans=tuple(program.spans),
        demands=tuple(program.demands),
        events=len(pieces),
        unnamed=program.works.unnamed,
        unsaid=program.works.unsaid,
        unlaunched=sum(piece.call is None for piece in pieces if isinstance(piece.event, GpuEvent)),
        waited=_waited(profile, window),
        met=all(WAITED in each.event.arguments for each in pieces if _is_collective(each.event)),
        phased=all(op.phase != "unknown" for op in program.ops),
    )


def _clock(profile: Profile, window: Window) -> Callable[[float], float]:
    """From the trace's clock to seconds of the step; what lies outside is moved to its edge."""
    scale = 1e6 * profile.ticks
    return lambda time: (min(max(time, window.start), window.end) - window.start) / scale


def _pieces(profile: Profile, window: Window) -> Iterator[_Piece]:
    seconds = _clock(profile, window)
    for event in window.events:
        if event.end > window.start:
            call = launch(event, profile)
            start, end = seconds(event.start), seconds(event.end)
            yield _Piece(min(seconds(call.end), start) if call else 0.0, start, end, event, call)
    for work in profile.work:
        if window.start < work.end and work.start < window.end:
            start = seconds(work.start)
            yield _Piece(start, start, seconds(work.end), work, work)


def _awaited(profile: Profile, window: Window, pieces: Sequence[_Piece]) -> dict[int, tuple[int, ...]]:
    """By op, the one that the host waited for before it issued it: the last to end while it waited."""
    seconds = _clock(profile, window)
    ended = sorted((piece.end, number) for number, piece in enumerate(pieces))
    ends = [end for end, _ in ended]
    issued: dict[Thread, list[tuple[float, int]]] = {}
    for number, piece in enumerate(pieces):
        if piece.call is not None:
            issued.setdefault(piece.call.thread, []).append((seconds(piece.call.start), number))
    found: dict[int, tuple[int, ...]] = {}
    for wait in profile.waits:
        start, end = seconds(wait.start), seconds(wait.end)
        last, following = bisect_right(ends, end) - 1, issued.get(wait.thread, [])
        place = bisect_left(following, (end, -1))
        if start < end and last >= 0 and ends[last] > start and place < len(following):
            number = following[place][1]
            if ended[last][1] < number:
                found[number] = (ended[last][1],)
    return found


def _waited(profile: Profile, window: Window) -> tuple[int, float]:
    """Of the thread that waited longest: threads wait at the same time, and so may calls within one."""
    seconds = _clock(profile, window)
    threads: defaultdict[Thread, list[tuple[float, float]]] = defaultdict(list)
    for wait in profile.waits:
        start, end = seconds(wait.start), seconds(wait.end)
        if end > start:
            threads[wait.thread].append((start, end))
    each = [(length(union(np.array(waits))), len(waits)) for waits in threads.values()]
    longest, count = max(each, default=(0.0, 0))
    return count, longest


def _is_collective(event: GpuEvent | HostEvent) -> bool:
    return isinstance(event, GpuEvent) and event.kind == "kernel" and is_communication(event.name)


def _turn(piece: _Piece) -> float:
    """Of what was issued at the same moment: correlations count the calls of a process."""
    return math.inf if piece.call is None or piece.call.correlation is None else piece.call.correlation


def _said(arguments: Mapping[str, Any]) -> Phased | None:
    """The phase that the event itself says, as those of a simulated step do."""
    phase, micro_batch = arguments.get("phase"), arguments.get("micro-batch")
    known = _PHASES.get(phase) if isinstance(phase, str) else None
    return Phased(known, micro_batch if isinstance(micro_batch, int) else 0) if known else None


# --- streams ---------------------------------------------------------------------------------------------------------


def _streams(events: Sequence[GpuEvent], titles: Mapping[Thread, str]) -> dict[tuple[int, Named], str]:
    """What the streams of a GPU are called: as the trace says beyond their numbers; else the one that computes most is
    `compute`, and the others have their numbers."""
    seconds: Counter[tuple[int, Named]] = Counter()
    names: dict[tuple[int, Named], str] = {}
    for event in events:
        key = (event.device, event.stream)
        title = titles.get(event.row, "").removeprefix(f"stream {event.stream}").strip()
        names.setdefault(key, title if title and not title.isdigit() else f"stream {event.stream}")
        if event.kind == "kernel" and not is_communication(event.name):
            seconds[key] += event.end - event.start  # type: ignore[assignment]  # a Counter of seconds
    if COMPUTE not in names.values() and seconds:
        names[max(seconds, key=lambda key: seconds[key])] = COMPUTE
    return names


def _row(event: HostEvent, titles: Mapping[Thread, str]) -> str:
    """The stream of work outside the GPU: as a simulated step calls it, else the host's."""
    title = titles.get(event.thread, "") if event.arguments else ""
    return title.removeprefix("CPU ") or HOST_STREAM
