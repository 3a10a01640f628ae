"""What recorded events are: work of the kind and the bytes that the trace says; shapes and FLOP it does not say.

Rules: a kernel that no table knows counts as a memory-bound one; how many, and how long, is counted. A process group is
told by its ranks as well as by its description, because DeviceMesh describes all groups of a dimension alike
(`mesh_tp`: torch/distributed/device_mesh.py of PyTorch 2.13.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

from zerosim.spec.profile import Profile
from zerosim.spec.profile_events import GpuEvent, HostEvent
from zerosim.spec.profile_kernels import (
    CollectiveName,
    KernelKind,
    brief,
    collective_name,
    is_communication,
    kernel_kind,
    way,
)
from zerosim.spec.profile_values import WIDEST, number, whole
from zerosim.step import Attention, Collective, CollectiveKind, Group, HostCompute, Matmul, Pass, Tier, Transfer, Work

# c10::ScalarType as Kineto writes it: the dtype here, and how many of its elements one of that is
DTYPES: Mapping[str, tuple[str, int]] = {
    "Double": ("fp64", 1), "Float": ("fp32", 1), "Half": ("fp16", 1), "BFloat16": ("bf16", 1), "Long": ("int64", 1),
    "Int": ("int32", 1), "Short": ("int8", 2), "Char": ("int8", 1), "Byte": ("uint8", 1), "Bool": ("uint8", 1),
    "Float8_e4m3fn": ("uint8", 1), "Float8_e5m2": ("uint8", 1), "ComplexFloat": ("fp32", 2),
}  # fmt: skip
UNSAID: CollectiveKind = "all_reduce"  # what counts as the kind that the trace does not say; told where it happens
_KERNELS: Mapping[KernelKind, Work] = {
    "matmul": Matmul((), ""), "reduction": Pass(0.0, "reduction"), "optimizer": Pass(0.0, "adam"),
    "elementwise": Pass(0.0, "stream"), "unknown": Pass(0.0, "stream"),
}  # fmt: skip
_OF_CPU: Mapping[str, HostCompute] = {
    "optimizer": HostCompute("optimizer", 0.0, 0.0), "torch_optimizer": HostCompute("torch_optimizer", 0.0, 0.0),
    "cast": HostCompute("cast", 0.0, 0.0), "stream": HostCompute("stream", 0.0, 0.0),
}  # fmt: skip
_TIERS: Mapping[str, Tier] = {tier: tier for tier in get_args(Tier)}


class Works:
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
        group = _group(said)
        size = whole(said.get("Group size")) or 1
        self.groups.setdefault(group, Group(group, max(size, 1)))
        dtype, times = DTYPES.get(str(said.get("dtype")), ("uint8", 1))
        elements = max(_number(said.get("In msg nelems")), _number(said.get("Out msg nelems")))
        return Collective(_exchanged(kind, said), int(elements) * times, dtype, group)


def _group(said: Mapping[str, Any]) -> str:
    """What a process group is called: so that two are told apart, if the trace says their ranks."""
    name, ranks = (
        said.get("Process Group Description") or said.get("Process Group Name"),
        said.get("Process Group Ranks"),
    )
    return " ".join(str(part) for part in (name, ranks) if part)


def _exchanged(kind: CollectiveName | None, said: Mapping[str, Any]) -> CollectiveKind:
    """Several sends and receives in one call are an exchange; `send` and `recv` one way."""
    if kind == "send_recv" and str(said.get("Collective name", "")).casefold() == "coalesced":
        return "exchange"
    if kind == "send_recv" and "all" in str(said.get("Collective name", "")).casefold():
        return "all_to_all"
    return kind or UNSAID


def _kernel(kind: KernelKind, name: str) -> Work:
    if kind == "attention":
        return Attention(0, 0, 0, 0, 0, False, "bwd" in name or "ackward" in name, "")
    return _KERNELS[kind]


def _copy(event: GpuEvent) -> Transfer:
    known = way(event.name)
    return Transfer(_number(event.arguments.get("bytes")), known.source, known.target, known.pinned)


def of_host(event: HostEvent) -> Work:
    """A copy to or from a drive, or work of the CPU."""
    size = _number(event.arguments.get("bytes"))
    words = event.name.split()
    if words[0] == "copy" and words[2:3] == ["to"] and {words[1], words[3]} <= _TIERS.keys():
        return Transfer(size, _TIERS[words[1]], _TIERS[words[3]])
    known = _OF_CPU.get(words[0].removeprefix("cpu_"), _OF_CPU["optimizer"])
    return known._replace(elements=_number(event.arguments.get("elements")))


def _number(value: Any) -> float:
    """A count or a size; 0 where the trace does not say one of at most 64 bits."""
    found = number(value) or 0.0
    return found if 0 <= found < WIDEST else 0.0
