"""Copies between tiers, and the CPU's work on host memory.

Rules: GPU and host are joined by a full-duplex PCIe link (each direction its own resource) or by C2C (one resource);
host memory is read and written through one rate. Every rank of the node does what the representative does at the same
moment (SPMD): on a shared thing a copy counts once for each rank that shares it, so its time is that of its share.
Bytes between GPU and NVMe bounce through host memory. Constants: catalogue groups `copies`, `dram`, `cpu_adam`, `nvme`.
"""

from __future__ import annotations

from zerosim.catalog import constant
from zerosim.costs.site import Site, cores, link_key
from zerosim.errors import InputError, Problem
from zerosim.resources import Demand, Use
from zerosim.step import HostCompute, Transfer

_ROUTES = {  # (source, target) -> parts of the way
    ("gpu", "dram"): ("d2h",),
    ("dram", "gpu"): ("h2d",),
    ("dram", "nvme"): ("write",),
    ("nvme", "dram"): ("read",),
    ("gpu", "nvme"): ("d2h", "write"),
    ("nvme", "gpu"): ("read", "h2d"),
    ("gpu", "gpu"): ("device",),
    ("dram", "dram"): ("host",),
}


def transfer(work: Transfer, site: Site) -> Demand:
    """A copy: the fixed cost of its parts, then one flow through everything on its way."""
    parts = _ROUTES.get((work.source, work.target))
    if parts is None:
        raise InputError([Problem(f"copy {work.source} to {work.target}", expected="tiers gpu, dram or nvme")])
    latency, uses = 0.0, dict[str, Use]()
    for part in parts:
        for use in _PARTS[part](work, site):
            known = uses.get(use.resource)  # host memory is written and read again on a bounce
            uses[use.resource] = use._replace(amount=use.amount + known.amount) if known else use
        latency += _fixed(part)
    return Demand(latency, tuple(uses.values()) if work.bytes else ())


def _fixed(part: str) -> float:
    if part in ("read", "write"):
        return constant(f"nvme.{part}_latency_us") * 1e-6
    return constant("copies.h2d_launch_us") * 1e-6 if part in ("h2d", "d2h") else 0.0


def _down(work: Transfer, site: Site) -> list[Use]:
    return _over_lane(work, site, "h2d")


def _up(work: Transfer, site: Site) -> list[Use]:
    return _over_lane(work, site, "d2h")


def _over_lane(work: Transfer, site: Site, way: str) -> list[Use]:
    """HBM, the GPU's link, the uplink of its switch, host memory. Pageable memory goes through a staging buffer."""
    link = site.host_link
    if link is None:
        raise _missing(site, "a PCIe or C2C link from the GPU to a socket", f"copies {work.source} to {work.target}")
    memory = Use(site.resource("hbm"), work.bytes, site.gpu.stream_efficiency)
    pinned = 1.0 if work.pinned else constant("copies.pageable_factor")
    passes = 1 if work.pinned else 3  # the staging buffer is written, and read again
    host = Use(site.resource("dram"), passes * work.bytes * site.socket_ranks, constant("dram.stream_eff"))
    if link.kind == "c2c":
        return [memory, Use(site.resource("c2c"), work.bytes, pinned * constant("copies.c2c_eff")), host]
    eff = constant(f"copies.{way}_eff.{link_key(link)}")
    uses = [memory, Use(site.resource(f"pcie.{way}"), work.bytes, pinned * eff), host]
    if site.uplink:
        eff = constant(f"copies.{way}_eff.{link_key(site.uplink)}")
        uses.append(Use(site.resource(f"uplink.{way}"), work.bytes * site.switch_ranks, eff))
    return uses


def _read(work: Transfer, site: Site) -> list[Use]:
    return _drive(work, site, 1.0)


def _write(work: Transfer, site: Site) -> list[Use]:
    """The drives' rate is that of reading; writing reaches less of it, and shares it."""
    return _drive(work, site, sum(d.write for d in site.drives) / max(1.0, sum(d.read for d in site.drives)))


def _drive(work: Transfer, site: Site, share: float) -> list[Use]:
    if not site.drives:
        raise _missing(site, "nvme drives", f"copies {work.source} to {work.target}")
    striped = constant("nvme.raid0_eff") if len(site.drives) > 1 else 1.0
    return [
        Use(site.resource("nvme"), work.bytes * site.local, striped * share),
        Use(site.resource("dram"), work.bytes * site.socket_ranks, constant("dram.stream_eff")),
    ]


def _device(work: Transfer, site: Site) -> list[Use]:
    return [Use(site.resource("hbm"), 2 * work.bytes, site.gpu.stream_efficiency)]


def _host(work: Transfer, site: Site) -> list[Use]:
    return [Use(site.resource("dram"), 2 * work.bytes * site.socket_ranks, constant("dram.stream_eff"))]


_PARTS = {"h2d": _down, "d2h": _up, "read": _read, "write": _write, "device": _device, "host": _host}


def host_compute(work: HostCompute, site: Site) -> Demand:
    """Work of the CPU, bound by host memory or by what its cores move; ranks of a socket share both.

    Each kind reaches its own part of the memory's rate.
    """
    if site.socket is None or not site.dram:
        raise _missing(site, "a socket with dram", f"{work.kind} on the CPU")
    if not work.dram_bytes:
        return Demand()
    moved = work.dram_bytes * site.socket_ranks
    uses = [Use(site.resource("dram"), moved, _host_efficiency(work.kind))]
    if cores(site):
        uses.append(Use(site.resource("cpu"), moved))
    return Demand(uses=tuple(uses))


def _host_efficiency(kind: str) -> float:
    """Fraction of the paper bandwidth of host memory."""
    if kind.endswith("optimizer"):
        slower = constant("cpu_adam.torch_foreach_slowdown") if kind.startswith("torch") else 1.0
        return constant("cpu_adam.dram_eff") / slower
    stream = constant("dram.stream_eff")
    return stream * constant("cpu_cast.stream_share") if kind == "cast" else stream


def _missing(site: Site, expected: str, reason: str) -> InputError:
    return InputError([Problem(f"node {site.device.host}", found="none", expected=f"{expected}: the step {reason}")])
