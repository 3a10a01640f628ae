"""What a machine is made of: devices with their figures, and directed links between them.

Rule: values only. Rates are as on paper, one direction, in base units; what can be reached of them stands beside them
as an efficiency with a grade. Nothing here knows how a user wrote a topology down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["gpu", "nvswitch", "pcie_switch", "socket", "dram", "nic", "nvme", "leaf", "spine"]
LinkKind = Literal["nvlink", "pcie", "socket", "dram", "network", "nvme", "c2c"]
Grade = Literal["E", "A", "R", "D", "F", "user"]  # exact, approximate, recalled, derived, fitted, given by the user


@dataclass(frozen=True, slots=True)
class Gpu:
    """Figures of a GPU. FLOP/s dense, bytes, bytes/s."""

    name: str
    sms: int
    peak_flops: Mapping[str, float] = field(hash=False)  # by dtype: fp16, bf16, tf32, fp32, fp8
    matmul_efficiency: float  # best matmul rate found by search / dense peak
    sustained: float  # and the most that products hold all through a step, at the power of the board
    fp32_efficiency: float  # of plain fp32, without tensor cores and below the limit of the power
    memory_bytes: float  # as the driver reports it
    memory_bandwidth: float
    stream_efficiency: float  # fraction of memory_bandwidth that a copy reaches
    architecture: Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna"]
    nvls: bool = True  # reductions inside the NVSwitch are allowed: NCCL_NVLS_ENABLE=0 and some containers forbid them
    p2p: bool = True  # peers reach each other over PCIe without a bounce through host memory
    grade: Grade = "E"
    power: float = 0.0  # watts of the board; 0 where it is not known
    arithmetic: float = 1.0  # rate of products and attention, measured / as these figures have it (a calibration)

    @property
    def persistent_kernels(self) -> bool:
        """Whether products run as one block an SM that stays there and takes tile after tile: sm90 and newer."""
        return self.architecture in ("hopper", "blackwell")


@dataclass(frozen=True, slots=True)
class Nic:
    """Figures of a network port and its transport as NCCL uses it."""

    name: str
    efficiency: float  # achieved fraction for big messages
    latency: float  # seconds of a step between nodes inside a collective, small messages
    large_latency: float  # and of large ones, which are set up first (NCCL's protocol Simple)
    transport: Literal["rdma", "tcp", "tcp_gpudirect"]
    grade: Grade = "E"


@dataclass(frozen=True, slots=True)
class Socket:
    """Figures of a CPU socket."""

    name: str
    cores: int
    grade: Grade = "E"


@dataclass(frozen=True, slots=True)
class Drive:
    """Figures of an NVMe drive, bytes/s.

    `write` lasts for `cache` bytes; once these are full it writes at `sustained_write`, which is `write` for a drive
    that needs no such cache.
    """

    name: str
    read: float
    write: float
    sustained_write: float
    cache: float = 0.0
    grade: Grade = "E"


@dataclass(frozen=True, slots=True)
class Device:
    """A vertex of the graph. `host` is the index of its node (server); None for fabric switches."""

    name: str  # "0.gpu5", "0.nic0", "leaf0"
    kind: DeviceKind
    host: int | None
    figures: Gpu | Nic | Socket | Drive | None = None
    capacity: float = 0.0  # bytes of a gpu, dram or nvme
    compute: float = 1.0  # fraction of the figures' compute rate (a throttled GPU has 0.8)


@dataclass(frozen=True, slots=True)
class Link:
    """A directed edge. Both directions of a `shared` link draw on one rate (DRAM); others are full duplex."""

    source: str
    target: str
    kind: LinkKind
    bandwidth: float  # bytes/s on paper, this direction
    latency: float = 0.0
    shared: bool = False
    generation: int | None = None  # of NVLink or PCIe
