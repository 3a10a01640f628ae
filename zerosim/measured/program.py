"""Recorded GPU events as ops and spans, in the order in which the host launched them.

Rules
- An op has the kind and the bytes that the trace says; shapes, FLOP and dependencies it does not say are empty. A
  kernel that no table knows counts as a memory-bound one; how many, and how long, is counted.
- `issued` is the end of the call that launched it; where none was recorded, the start of the step. `ready` is its
  start: that a kernel waits for others within itself (NCCL) cannot be seen from one rank.
- An op is issued after the host has waited (`cudaStreamSynchronize` and its like) for the op that ended in that wait.
- Times are cut at the edges of the step, and are seconds from its start.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args

from zerosim.measured.phases import Phased, Phases
from zerosim.measured.steps import Window, launch
from zerosim.resources import Demand
from zerosim.spec.profile import GpuEvent, HostEvent, Profile, Thread
from zerosim.spec.profile_kernels import KernelKind, brief, collective_name, is_communication, kernel_kind, way
from zerosim.step import (
    COMPUTE,
    HOST_STREAM,
    PHASES,
    Attention,
    Collective,
    CollectiveKind,
    Group,
    HostCompute,
    Matmul,
    Op,
    Pass,
    Phase,
    Step,
    Tier,
    Transfer,
    Work,
)
from zerosim.timeline import Span

# c10::ScalarType as Kineto writes it: the dtype here, and how many of its elements one of that is
DTYPES: Mapping[str, tuple[str, int]] = {
    "Double": ("fp64", 1), "Float": ("fp32", 1), "Half": ("fp16", 1), "BFloat16": ("bf16", 1), "Long": ("int64", 1),
    "Int": ("int32", 1), "Short": ("int8", 2), "Char": ("int8", 1), "Byte": ("uint8", 1), "Bool": ("uint8", 1),
    "Float8_e4m3fn": ("uint8", 1), "Float8_e5m2": ("uint8", 1), "ComplexFloat": ("fp32", 2),
}  # fmt: skip
UNSAID = "all_reduce"  # what a collective counts as whose kind the trace does not say; told where it happens


class Recorded(NamedTuple):
    """A rank's step. `unnamed`: kernels that no table knew, seconds by name; `unsaid`: collectives of no known kind;
    `unlaunched`: GPU events without a recorded launch; `waited`: how often and how long the host waited for the GPU."""

    step: Step
    spans: tuple[Span, ...]
    demands: tuple[Demand, ...]
    events: int
    unnamed: Mapping[str, float]
    unsaid: int
    unlaunched: int
    waited: tuple[int, float]
    phased: bool


class _Piece(NamedTuple):
    """An event on its way to an op: when it was issued, by which call, and when it ran, in seconds of the step."""

    issued: float
    start: float
    end: float
    event: GpuEvent | HostEvent
    call: HostEvent | None


def record(profile: Profile, window: Window, rank_class: str) -> Recorded:
    """The program of one rank and when it ran."""
    pieces = sorted(_pieces(profile, window), key=lambda piece: (piece.issued, _turn(piece), piece.start, piece.end))
    streams = _streams(window.events, profile.titles)
    phases = Phases(profile, window)
    kinds = _Kinds(profile)
    awaited = _awaited(profile, window, pieces)
    ops: list[Op] = []
    spans: list[Span] = []
    demands: list[Demand] = []
    for number, piece in enumerate(pieces):
        event, call = piece.event, piece.call
        known = _said(event.arguments) or phases.of(call)
        work = kinds.of_gpu(event, piece.end - piece.start) if isinstance(event, GpuEvent) else _of_host(event)
        stream = streams[event.device, event.stream] if isinstance(event, GpuEvent) else _row(event, profile.titles)
        name = str(event.arguments.get("op") or brief(event.name))
        layer = event.arguments.get("layer")
        ops.append(
            Op(number, name, stream, work, host_waits=awaited.get(number, ()), phase=known.phase,
               micro_batch=known.micro_batch, layer=layer if isinstance(layer, int) else None)
        )  # fmt: skip
        spans.append(Span(number, rank_class, piece.issued, piece.start, piece.start, piece.end, ""))
        calling = min((call.end - call.start) / 1e6 / profile.ticks, piece.issued) if call else 0.0
        demands.append(Demand(host=max(calling, 0.0)))
    _close(ops, spans, demands, (window.end - window.start) / 1e6 / profile.ticks, rank_class)
    return Recorded(
        step=Step(tuple(ops), (), frozenset(), kinds.groups, 1 + max((op.micro_batch for op in ops), default=0)),
        spans=tuple(spans),
        demands=tuple(demands),
        events=len(pieces),
        unnamed=kinds.unnamed,
        unsaid=kinds.unsaid,
        unlaunched=sum(piece.call is None for piece in pieces if isinstance(piece.event, GpuEvent)),
        waited=_waited(profile, window),
        phased=all(op.phase != "unknown" for op in ops),
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
    seconds = _clock(profile, window)
    lengths = [seconds(wait.end) - seconds(wait.start) for wait in profile.waits]
    return sum(length > 0 for length in lengths), sum(lengths)


def _turn(piece: _Piece) -> float:
    """Of what was issued at the same moment: correlations count the calls of a process."""
    return math.inf if piece.call is None or piece.call.correlation is None else piece.call.correlation


def _close(ops: list[Op], spans: list[Span], demands: list[Demand], end: float, rank_class: str) -> None:
    """A marker where the host left the step, if that is later than all else: so the step is as long as it was."""
    if end > max((span.end for span in spans), default=0.0):
        last = ops[-1] if ops else Op(0, "", HOST_STREAM, None)
        number = len(ops)
        ops.append(Op(number, "end of step", HOST_STREAM, None, phase=last.phase, micro_batch=last.micro_batch))
        spans.append(Span(number, rank_class, end, end, end, end, ""))
        demands.append(Demand())


def _said(arguments: Mapping[str, Any]) -> Phased | None:
    """The phase that the event itself says, as those of a simulated step do."""
    phase, micro_batch = arguments.get("phase"), arguments.get("micro-batch")
    if phase not in PHASES:
        return None
    return Phased(cast(Phase, phase), micro_batch if isinstance(micro_batch, int) else 0)


# --- streams ---------------------------------------------------------------------------------------------------------


def _streams(events: Sequence[GpuEvent], titles: Mapping[Thread, str]) -> dict[tuple[int, Any], str]:
    """What the streams of a GPU are called: as the trace says beyond their numbers; else the one that computes most is
    `compute`, and the others have their numbers."""
    seconds: Counter[tuple[int, Any]] = Counter()
    names: dict[tuple[int, Any], str] = {}
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


# --- work ------------------------------------------------------------------------------------------------------------


class _Kinds:
    """What events are, and what could not be told of them."""

    def __init__(self, profile: Profile) -> None:
        self._called = profile.collectives
        self.groups: dict[str, Group] = {}
        self.unnamed: Counter[str] = Counter()
        self.unsaid = 0

    def of_gpu(self, event: GpuEvent, seconds: float) -> Work:
        if event.kind == "copy":
            return _copy(event)
        if event.kind == "set":  # fills memory of the GPU; HolisticTraceAnalysis counts it with the copies
            return Transfer(_number(event.arguments.get("bytes")), "gpu", "gpu")
        if is_communication(event.name):
            return self._collective(event)
        kind = kernel_kind(event.name)
        if kind == "unknown":
            self.unnamed[brief(event.name)] += seconds  # type: ignore[assignment]  # a Counter of seconds
        return _kernel(kind, event.name)

    def _collective(self, event: GpuEvent) -> Collective:
        said = event.arguments
        called = self._called.get(event.external, "") if event.external is not None else ""
        kind = collective_name(event.name, str(said.get("Collective name", "")), called)
        self.unsaid += kind is None
        group = str(said.get("Process Group Description") or said.get("Process Group Name") or "")
        size = int(_number(said.get("Group size")))
        self.groups.setdefault(group, Group(group, max(size, 1)))
        dtype, times = DTYPES.get(str(said.get("dtype")), ("uint8", 1))
        elements = max(_number(said.get("In msg nelems")), _number(said.get("Out msg nelems")))
        return Collective(_exchanged(kind, said), int(elements) * times, dtype, group)


def _exchanged(kind: str | None, said: Mapping[str, Any]) -> CollectiveKind:
    """Several sends and receives in one call are an exchange; `send` and `recv` one way."""
    if kind == "send_recv" and str(said.get("Collective name", "")).casefold() == "coalesced":
        return "exchange"
    if kind == "send_recv" and "all" in str(said.get("Collective name", "")).casefold():
        return "all_to_all"
    return cast(CollectiveKind, kind or UNSAID)


def _kernel(kind: KernelKind, name: str) -> Work:
    if kind == "matmul":
        return Matmul((), "")
    if kind == "attention":
        return Attention(0, 0, 0, 0, 0, False, "bwd" in name or "ackward" in name, "")
    flavours = {"reduction": "reduction", "optimizer": "adam"}
    return Pass(0.0, cast(Any, flavours.get(kind, "stream")))


def _copy(event: GpuEvent) -> Transfer:
    known = way(event.name)
    return Transfer(_number(event.arguments.get("bytes")), known.source, known.target, known.pinned)


def _of_host(event: HostEvent) -> Work:
    """A copy to or from a drive, or work of the CPU."""
    size = _number(event.arguments.get("bytes"))
    words = event.name.split()
    if words[0] == "copy" and words[2:3] == ["to"] and {words[1], words[3]} <= set(get_args(Tier)):
        return Transfer(size, cast(Tier, words[1]), cast(Tier, words[3]))
    kind = words[0].removeprefix("cpu_")
    named = kind if kind in ("optimizer", "torch_optimizer", "cast", "stream") else "optimizer"
    return HostCompute(cast(Any, named), _number(event.arguments.get("elements")), 0.0)


def _number(value: Any) -> float:
    """A count or a size; 0 where the trace does not say it."""
    return float(value) if isinstance(value, int | float) and value == value and value >= 0 else 0.0
