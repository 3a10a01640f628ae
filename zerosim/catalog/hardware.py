"""Readers of hardware.yaml: named GPUs, network ports, CPU sockets and drives as values in base units.

Rule: figures only. What a port or a link is worth in a machine is the topology's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from zerosim.catalog.data import load, unknown
from zerosim.catalog.figures import constant
from zerosim.spec.devices import Drive, Gpu, Nic, Socket

GB, GBPS, TFLOPS, GIB, US = 1e9, 1e9 / 8, 1e12, 2.0**30, 1e-6


class GpuPorts(NamedTuple):
    """What leaves a GPU, each way: NVLink of all links together, PCIe, NVLink-C2C. 0 where there is none."""

    nvlink_generation: int = 0
    nvlink_bandwidth: float = 0.0
    nvlink_bridge: bool = False  # a bridge to one peer, no switch
    pcie_generation: int = 0
    pcie_lanes: int = 16
    c2c_bandwidth: float = 0.0
    nvlink_links: int = 0


class NicEntry(NamedTuple):
    """A network port of the catalogue."""

    kind: str
    bandwidth: float
    figures: Nic


class SocketEntry(NamedTuple):
    """A CPU socket of the catalogue with its memory's and its socket link's rates."""

    figures: Socket
    dram_bandwidth: float
    link_bandwidth: float


def gpu(name: str) -> Gpu:
    """The figures of a GPU."""
    return gpus()[name] if name in gpus() else _fail("GPU", name, "gpus")


def gpu_called(name: str) -> str | None:
    """The key of the GPU whose figures are called so: "H100-SXM5-80GB" is h100_sxm."""
    return next((key for key, known in gpus().items() if known.name == name), None)


def gpu_ports(name: str) -> GpuPorts:
    """The NVLink and PCIe ports of a GPU."""
    entry = _entry("gpus", "GPU", name)
    nvlink, pcie = entry.get("nvlink", {}), entry.get("pcie", {})
    return GpuPorts(
        nvlink.get("generation", 0),
        nvlink.get("gbs", 0) * GB,
        nvlink.get("bridge", False),
        pcie.get("generation", 0),
        pcie.get("lanes", 16),
        entry.get("c2c", {}).get("gbs", 0) * GB,
        nvlink.get("links", 0),
    )


def nic(name: str) -> Nic:
    """The figures of a network port."""
    return nics()[name].figures if name in nics() else _fail("network port", name, "nics")


def socket(name: str) -> Socket:
    """The figures of a CPU socket."""
    return sockets()[name].figures if name in sockets() else _fail("CPU", name, "cpus")


def drive(name: str) -> Drive:
    """The figures of an NVMe drive."""
    return drives()[name] if name in drives() else _fail("drive", name, "drives")


def pcie_bandwidth(generation: int, lanes: int = 16) -> float:
    """The paper rate of a PCIe link, one direction."""
    return float(_hardware()["pcie_x16_gbs"][generation]["gbs"]) * GB * lanes / 16


def nic_for(kind: str, bandwidth: float) -> NicEntry:
    """The port of a kind at a rate: the catalogue's (the first of equals), or one between its neighbours there.

    Between two ports what is achieved of the rate, and the latency, lie on a straight line (grade D), so that a faster
    port never gives less; beyond the slowest and the fastest the fraction that they achieve holds.
    """
    known: dict[float, NicEntry] = {}
    for entry in nics().values():
        if entry.kind == kind:
            known.setdefault(entry.bandwidth, entry)
    if not known:
        raise unknown("kind of network port", kind, list(nic_kinds()))
    if bandwidth in known:
        return known[bandwidth]
    below = known[max((rate for rate in known if rate < bandwidth), default=min(known))]
    above = known[min((rate for rate in known if rate > bandwidth), default=max(known))]
    return NicEntry(kind, bandwidth, _between(below, above, bandwidth))


def _between(below: NicEntry, above: NicEntry, bandwidth: float) -> Nic:
    (low, one), (high, other) = below[1:], above[1:]
    way = (bandwidth - low) / (high - low) if high > low else 0.0
    given = one.efficiency * low + way * (other.efficiency * high - one.efficiency * low)
    return Nic(
        name=f"{below.kind}_{bandwidth / GBPS:g}",
        efficiency=given / bandwidth if high > low else one.efficiency,
        latency=one.latency + way * (other.latency - one.latency),
        large_latency=one.large_latency + way * (other.large_latency - one.large_latency),
        transport=(one if way <= 0.5 else other).transport,
        grade="D",
    )


def nic_kinds() -> tuple[str, ...]:
    """The kinds of network port: infiniband, roce, ethernet, ..."""
    return tuple(dict.fromkeys(entry.kind for entry in nics().values()))


@cache
def gpus() -> Mapping[str, Gpu]:
    """All GPUs by name."""
    return MappingProxyType({name: _gpu(entry) for name, entry in _hardware()["gpus"].items()})


@cache
def nics() -> Mapping[str, NicEntry]:
    """All network ports by name."""
    return MappingProxyType({name: _nic(name, entry) for name, entry in _hardware()["nics"].items()})


@cache
def sockets() -> Mapping[str, SocketEntry]:
    """All CPU sockets by name."""
    return MappingProxyType(
        {
            name: SocketEntry(
                Socket(cpu["name"], cpu["cores"], cpu["grade"]), cpu["dram_gbs"] * GB, cpu["link_gbs"] * GB
            )
            for name, cpu in _hardware()["cpus"].items()
        }
    )


@cache
def drives() -> Mapping[str, Drive]:
    """All NVMe drives by name."""
    return MappingProxyType(
        {
            name: Drive(
                name=entry["name"],
                read=entry["read_gbs"] * GB,
                write=entry["write_gbs"] * GB,
                sustained_write=entry.get("sustained_gbs", entry["write_gbs"]) * GB,
                cache=entry.get("cache_gb", 0) * GB,
                grade=entry["grade"],
            )
            for name, entry in _hardware()["drives"].items()
        }
    )


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    memory, best = entry["memory"], entry.get("matmul", constant("gemm.efficiency"))
    return Gpu(
        name=entry["name"],
        sms=entry["sms"],
        peak_flops={dtype: rate * TFLOPS for dtype, rate in entry["peak_tflops"].items()},
        matmul_efficiency=best,
        sustained=entry.get("sustained", constant("gemm.sustained") * best),
        fp32_efficiency=constant("gemm.fp32"),
        memory_bytes=memory["gib"] * GIB,
        memory_bandwidth=memory["gbs"] * GB,
        stream_efficiency=memory.get("copy", constant("memory.stream_efficiency")),
        architecture=entry["architecture"],
        p2p=entry.get("p2p", True),
        power=entry.get("watts", 0.0),
        grade=entry["grade"],
    )


def _nic(name: str, entry: Mapping[str, Any]) -> NicEntry:
    small, large = entry["latency_us"] * US, entry["large_latency_us"] * US
    figures = Nic(name, entry["efficiency"], small, large, entry["transport"], entry["grade"])
    return NicEntry(entry["kind"], entry["gbps"] * GBPS, figures)


def _entry(section: str, what: str, name: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = _hardware()[section].get(name) or _fail(what, name, section)
    return entry


def _fail(what: str, name: str, section: str) -> Any:
    raise unknown(what, name, list(_hardware()[section]))


@cache
def _hardware() -> Mapping[str, Any]:
    return load("hardware.yaml")
