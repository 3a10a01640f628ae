"""What a profiler recorded of one process: GPU events, the calls that launched them, steps, and what tells phases.

Rules
- A GPU event is one of the categories kernel, gpu_memcpy, gpu_memset (also in their spellings before Kineto); a
  `stream` among the arguments of anything else means nothing.
- Times are microseconds of the trace's own clock; `ticks` of them are one, where a simulated step was stretched.
- What is not in the trace is None: nothing is made up here, and nothing is judged.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.profile_file import Event, read_events

Thread = tuple[Any, Any]  # pid, tid; either may be text

GPU_CATEGORIES = {
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set", "memcpy": "copy", "memset": "set",
}  # fmt: skip
CALL_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"})
STEP = re.compile(r"ProfilerStep\s?#(\d+)")
OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#|^(## ?)?optimizer([._ ]step)?( ##)?$", re.IGNORECASE)
CPU_OPTIMIZER = re.compile(r"^Optimizer\.step#\w*CPU\w*\.step")  # DeepSpeedCPUAdam and its like
BACKWARD = re.compile(r"^autograd::engine::evaluate_function")  # torch/csrc/autograd/engine.cpp
ANNOTATED_BACKWARD = re.compile(r"^(## ?)?backward( ##)?$", re.IGNORECASE)
SIMULATED = "op"  # the argument that only traces of zerosim have
_LARGEST = 1 << 53  # whole numbers up to here are floats
KEPT_ARGUMENTS = (
    "bytes", "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name",
    "Process Group Description", SIMULATED, "phase", "micro-batch", "layer", "elements",
)  # fmt: skip


class GpuEvent(NamedTuple):
    """Something that ran on a stream of a GPU. `kind`: kernel, copy, set."""

    name: str
    kind: str
    device: int
    stream: Any
    row: Thread
    start: float
    end: float
    correlation: int | None
    external: int | None
    arguments: Mapping[str, Any]


class HostEvent(NamedTuple):
    """Something on a thread of the host: a call of the runtime, an annotation, an op of the framework."""

    name: str
    thread: Thread
    start: float
    end: float
    correlation: int | None = None
    external: int | None = None
    arguments: Mapping[str, Any] = {}


class Level(NamedTuple):
    """Bytes of GPU memory at a moment, as the caching allocator counted them (`profile_memory`)."""

    time: float
    device: int
    allocated: float
    reserved: float | None


class Title(NamedTuple):
    """What a row is called."""

    row: Thread
    title: str


class ProfiledStep(NamedTuple):
    """A ProfilerStep: its number, and when the host was in it."""

    number: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One file. `steps` in order of time; `calls` by correlation; `waits`: when the host waited for the GPU; `work` of
    the CPU and of drives."""

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
    capacities: Mapping[int, float] = field(default_factory=dict)  # bytes of memory, by device
    products: Mapping[int, str] = field(default_factory=dict)  # names of GPUs, by device


def read_profile(path: str | Path) -> Profile:
    """A file, read; InputError where it is none, or has no work of a GPU in it."""
    sorter = _Sorter()
    head, _ = read_events(path, sorter.take)
    if not sorter.gpu:
        found = "no GPU events (kernel, gpu_memcpy, gpu_memset)" + ("" if sorter.seen else ", and no others")
        expected = "a trace with the GPU's activities: ProfilerActivity.CUDA"
        raise InputError([Problem(str(path), found=found, expected=expected)])
    sorter.gpu.sort(key=lambda event: (event.start, event.end))
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = [each for each in _list(head.get("deviceProperties")) if isinstance(each, dict)]
    return Profile(
        source=str(path),
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        ticks=_number(head.get("ticksPerMicrosecond")) or 1.0,
        gpu=tuple(sorter.gpu),
        calls=sorter.calls,
        steps=tuple(sorted(sorter.steps.values(), key=lambda step: step.start)),
        backward=tuple(sorter.backward),
        optimizer=tuple(sorter.optimizer),
        waits=tuple(sorter.waits),
        work=tuple(sorted(sorter.work, key=lambda event: (event.start, event.end))),
        collectives=sorter.collectives,
        levels=_levels(sorter.levels, _number(head.get("contextBytes")) or 0.0),
        titles=sorter.titles,
        capacities={
            number: size
            for place, each in enumerate(devices)
            if (size := _number(each.get("totalGlobalMem"))) and (number := _whole(each.get("id", place))) is not None
        },
        products={
            number: str(each["name"])
            for place, each in enumerate(devices)
            if "name" in each and (number := _whole(each.get("id", place))) is not None
        },
    )


class _Sorter:
    """Puts each event where it belongs, as they are read; most of them belong nowhere."""

    def __init__(self) -> None:
        self.seen = 0
        self.gpu: list[GpuEvent] = []
        self.calls: dict[int, HostEvent] = {}
        self.steps: dict[int, ProfiledStep] = {}
        self.backward: list[HostEvent] = []
        self.optimizer: list[HostEvent] = []
        self.waits: list[HostEvent] = []
        self.work: list[HostEvent] = []
        self.collectives: dict[int, str] = {}
        self.levels: list[Level] = []
        self.titles: dict[Thread, str] = {}

    def take(self, event: Event) -> None:
        """Whatever the event is; what is no event of a trace is passed over."""
        self.seen += 1
        letter, name = event.get("ph"), event.get("name")
        if not isinstance(name, str):
            return
        if letter == "X":
            self._complete(event, name)
        elif letter in ("i", "I") and name == "[memory]":
            self._memory(event)
        elif letter == "M" and name == "thread_name":
            arguments = event.get("args")
            if isinstance(arguments, dict):
                self.titles[_thread(event)] = str(arguments.get("name", "")).strip()
        elif letter == "C" and name in ("GPU memory allocated", "GPU memory reserved"):
            self._counter(event, name)

    def _complete(self, event: Event, name: str) -> None:
        start, length = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or length is None or length < 0:
            return
        category = str(event.get("cat", "")).casefold()
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if category in GPU_CATEGORIES:
            self._gpu(event, sys.intern(name), GPU_CATEGORIES[category], start, start + length, arguments)
        elif category in CALL_CATEGORIES:
            correlation = _whole(arguments.get("correlation"))
            call = HostEvent(sys.intern(name), _thread(event), start, start + length, correlation)
            if correlation is not None:
                self.calls[correlation] = call
            if name.endswith("Synchronize"):
                self.waits.append(call)
        elif not category.startswith("gpu_"):
            self._annotation(event, name, start, start + length, arguments)

    def _gpu(self, event: Event, name: str, kind: str, start: float, end: float, arguments: Event) -> None:
        row = _thread(event)
        device = _whole(arguments.get("device"))
        device = device if device is not None else (_whole(row[0]) or 0)
        stream = arguments.get("stream", row[1])
        kept = {key: arguments[key] for key in KEPT_ARGUMENTS if key in arguments}
        correlation, external = _whole(arguments.get("correlation")), _whole(arguments.get("External id"))
        self.gpu.append(GpuEvent(name, kind, device, stream, row, start, end, correlation, external, kept))

    def _annotation(self, event: Event, name: str, start: float, end: float, arguments: Event) -> None:
        """Steps, phases, what a collective is called; of the ops of the framework no more."""
        known = HostEvent(name, _thread(event), start, end)
        step = STEP.fullmatch(name)
        if step:
            self.steps[int(step[1])] = ProfiledStep(int(step[1]), start, end)
        elif BACKWARD.match(name) or ANNOTATED_BACKWARD.match(name):
            self.backward.append(known)
        elif OPTIMIZER.match(name):
            self.optimizer.append(known)
            if CPU_OPTIMIZER.match(name):
                self.work.append(known)
        elif name.startswith("nccl:"):
            external = _whole(arguments.get("External id"))
            if external is not None:
                self.collectives[external] = name.removeprefix("nccl:")
        elif SIMULATED in arguments:
            self.work.append(known._replace(arguments=arguments))

    def _memory(self, event: Event) -> None:
        """An allocation or a release of the caching allocator; those of the CPU (device type 0) are not counted."""
        arguments, time = event.get("args"), _number(event.get("ts"))
        if not isinstance(arguments, dict) or time is None or arguments.get("Device Type") in (0, None):
            return
        allocated = _number(arguments.get("Total Allocated"))
        if allocated is not None:
            device = _whole(arguments.get("Device Id")) or 0
            self.levels.append(Level(time, device, allocated, _number(arguments.get("Total Reserved"))))

    def _counter(self, event: Event, name: str) -> None:
        """The curves of a simulated step."""
        arguments, time = event.get("args"), _number(event.get("ts"))
        size = _number(arguments.get("bytes")) if isinstance(arguments, dict) else None
        if size is not None and time is not None:
            allocated, reserved = (size, None) if name.endswith("allocated") else (0.0, size)
            self.levels.append(Level(time, 0, allocated, reserved))


def _levels(levels: Sequence[Level], context: float) -> tuple[Level, ...]:
    """In order of time, as the allocator counts: without what a simulated step's curves hold beside it."""
    known = sorted(levels, key=lambda level: level.time)
    return tuple(
        level._replace(
            allocated=max(level.allocated - context, 0.0),
            reserved=None if level.reserved is None else max(level.reserved - context, 0.0),
        )
        for level in known
    )


def _thread(event: Event) -> Thread:
    return (_plain(event.get("pid")), _plain(event.get("tid")))


def _plain(value: Any) -> Any:
    """A number or text; anything else as text, so that it can be a key."""
    return value if isinstance(value, int | str) or value is None else str(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A finite number, also where it is written as text."""
    if (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < _LARGEST):
        return float(value)  # as nearly always
    if isinstance(value, bool):
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None
