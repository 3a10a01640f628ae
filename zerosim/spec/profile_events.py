"""The events of a trace that are kept, each put where it belongs while they are read.

Rules: a GPU event is one of the categories kernel, gpu_memcpy, gpu_memset (also in their spellings before Kineto); a
`stream` among the arguments of anything else means nothing. Of the ops of the framework only those are kept that tell
steps, phases and what a collective is called. What a terminal would act on is written as escapes in every name.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from zerosim.errors import printable
from zerosim.spec.profile_file import Event
from zerosim.spec.profile_values import Named, number, plain, whole

Thread = tuple[Named, Named]  # pid, tid

GPU_CATEGORIES = {
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set", "memcpy": "copy", "memset": "set",
}  # fmt: skip
CALL_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"})
STEP = re.compile(r"ProfilerStep\s?#(\d{1,18})")  # longer ones are no counts
OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#|^(## ?)?optimizer([._ ]step)?( ##)?$", re.IGNORECASE)
CPU_OPTIMIZER = re.compile(r"^Optimizer\.step#\w*CPU\w*\.step")  # DeepSpeedCPUAdam and its like
BACKWARD = re.compile(r"^autograd::engine::evaluate_function")  # torch/csrc/autograd/engine.cpp
ANNOTATED_BACKWARD = re.compile(r"^(## ?)?backward( ##)?$", re.IGNORECASE)
SIMULATED = "op"  # the argument that only traces of zerosim have
WAITED = "waited for ranks"  # ticks that a simulated collective waited before it began
KEPT_ARGUMENTS = (
    "bytes", "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name",
    "Process Group Description", "Process Group Ranks", SIMULATED, WAITED, "phase", "micro-batch", "layer", "elements",
)  # fmt: skip
LATEST = 1e18  # us; a time beyond is none: 30 000 years
NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class GpuEvent(NamedTuple):
    """Something that ran on a stream of a GPU. `kind`: kernel, copy, set."""

    name: str
    kind: str
    device: int
    stream: Named
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
    arguments: Mapping[str, Any] = NO_ARGUMENTS


class Level(NamedTuple):
    """Bytes of GPU memory at a moment, as the caching allocator counted them (`profile_memory`)."""

    time: float
    device: int
    allocated: float
    reserved: float | None


class ProfiledStep(NamedTuple):
    """A ProfilerStep: its number, and when the host was in it."""

    number: int
    start: float
    end: float


class Sorter:
    """Puts each event where it belongs, as they are read; most of them belong nowhere."""

    def __init__(self) -> None:
        self.seen = 0
        self.lost: Counter[str] = Counter()  # GPU events that cannot be used, by why
        self.repeated: set[int] = set()  # numbers of steps that came again
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
        if letter == "X":
            self._complete(event, name)
        elif letter in ("i", "I") and name == "[memory]":
            self._memory(event)
        elif letter == "M" and name == "thread_name":
            arguments = event.get("args")
            if isinstance(arguments, dict):
                self.titles[_thread(event)] = printable(str(arguments.get("name", "")).strip())
        elif letter == "C" and name in ("GPU memory allocated", "GPU memory reserved"):
            self._counter(event, name)

    def _complete(self, event: Event, name: Any) -> None:
        start, length = number(event.get("ts")), number(event.get("dur"))
        category = str(event.get("cat", "")).casefold()
        if not isinstance(name, str) or start is None or length is None or not _usable(start, length):
            if category in GPU_CATEGORIES:
                self.lost[_lacking(name, start, length)] += 1
            return
        name = printable(name)
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if category in GPU_CATEGORIES:
            self._gpu(event, sys.intern(name), GPU_CATEGORIES[category], start, start + length, arguments)
        elif category in CALL_CATEGORIES:
            correlation = whole(arguments.get("correlation"))
            call = HostEvent(sys.intern(name), _thread(event), start, start + length, correlation)
            if correlation is not None:
                self.calls[correlation] = call
            if name.endswith("Synchronize"):
                self.waits.append(call)
        elif not category.startswith("gpu_"):
            self._annotation(event, name, start, start + length, arguments)

    def _gpu(self, event: Event, name: str, kind: str, start: float, end: float, arguments: Event) -> None:
        row = _thread(event)
        device = whole(arguments.get("device"))
        device = device if device is not None else (whole(row[0]) or 0)
        stream = plain(arguments.get("stream", row[1]))
        kept = {key: _shown(arguments[key]) for key in KEPT_ARGUMENTS if key in arguments}
        correlation, external = whole(arguments.get("correlation")), whole(arguments.get("External id"))
        self.gpu.append(GpuEvent(name, kind, device, stream, row, start, end, correlation, external, kept))

    def _annotation(self, event: Event, name: str, start: float, end: float, arguments: Event) -> None:
        """Steps, phases, what a collective is called; of the ops of the framework no more."""
        known = HostEvent(name, _thread(event), start, end)
        step = STEP.fullmatch(name)
        if step:
            self._step(ProfiledStep(int(step[1]), start, end))
        elif BACKWARD.match(name) or ANNOTATED_BACKWARD.match(name):
            self.backward.append(known)
        elif OPTIMIZER.match(name):
            self.optimizer.append(known)
            if CPU_OPTIMIZER.match(name):
                self.work.append(known)
        elif name.startswith("nccl:"):
            external = whole(arguments.get("External id"))
            if external is not None:
                self.collectives[external] = name.removeprefix("nccl:")
        elif SIMULATED in arguments:
            self.work.append(known._replace(arguments={key: _shown(value) for key, value in arguments.items()}))

    def _step(self, step: ProfiledStep) -> None:
        """Of several with one number the earliest is it."""
        known = self.steps.setdefault(step.number, step)
        if known is not step:
            self.repeated.add(step.number)
            self.steps[step.number] = min(known, step, key=lambda each: each.start)

    def _memory(self, event: Event) -> None:
        """An allocation or a release of the caching allocator; those of the CPU (device type 0) are not counted."""
        arguments, time = event.get("args"), number(event.get("ts"))
        if not isinstance(arguments, dict) or time is None or arguments.get("Device Type") in (0, None):
            return
        allocated = number(arguments.get("Total Allocated"))
        if allocated is not None:
            device = whole(arguments.get("Device Id")) or 0
            self.levels.append(Level(time, device, allocated, number(arguments.get("Total Reserved"))))

    def _counter(self, event: Event, name: str) -> None:
        """The curves of a simulated step."""
        arguments, time = event.get("args"), number(event.get("ts"))
        size = number(arguments.get("bytes")) if isinstance(arguments, dict) else None
        if size is not None and time is not None:
            allocated, reserved = (size, None) if name.endswith("allocated") else (0.0, size)
            self.levels.append(Level(time, 0, allocated, reserved))


def _usable(start: float, length: float) -> bool:
    """Whether an event has its place in time."""
    return length >= 0 and abs(start) + length <= LATEST


def _lacking(name: Any, start: float | None, length: float | None) -> str:
    """What an event lacks that cannot be used."""
    if not isinstance(name, str):
        return "no name"
    if start is None or abs(start) > LATEST:
        return "no time"
    return "a negative duration" if length is not None and length < 0 else "no duration"


def _shown(value: Any) -> Any:
    """A value that may be printed."""
    return printable(value) if isinstance(value, str) else value


def _thread(event: Event) -> Thread:
    return (plain(event.get("pid")), plain(event.get("tid")))
