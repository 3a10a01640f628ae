"""Copies between tiers.

Rules: GPU and host are joined by PCIe or C2C, of which each direction is a resource, and so are both together; above
that lie the uplinks of PCIe switches, with the same. Host memory is read and written through one rate, and so are the
drives. Every rank of the node does what the representative does at the same moment (SPMD): on a shared thing a copy
counts once for each rank that shares it, so its time is that of its share. Copies of a rank whose memory, or whose
drives, are on another socket than its GPU cross the link between them. Pageable memory goes through a pinned buffer
that a thread of the rank fills: how fast that is limits the copy, while the link stays free for others. Each request to
a drive takes its latency, so that N bytes in flight carry at most N / latency (Little's law), whatever the drives could
give. Constants: catalogue groups `copies`, `dram`, `nvme`.
"""

from __future__ import annotations

import math
from typing import Literal

from zerosim.catalog import constant
from zerosim.costs.drives import Drives
from zerosim.costs.links import link_key
from zerosim.costs.site import Site, missing
from zerosim.costs.sockets import Through
from zerosim.errors import InputError, Problem
from zerosim.resources import Demand, Use
from zerosim.spec.topology import Link
from zerosim.step import Transfer

_PARTS = {  # (source, target) -> parts of the way; memory counts in each direction apart
    ("gpu", "dram"): ("d2h", "memory"),
    ("dram", "gpu"): ("h2d", "memory"),
    ("dram", "nvme"): ("write", "buffer"),
    ("nvme", "dram"): ("read", "buffer"),
    ("gpu", "nvme"): ("d2h", "write"),
    ("nvme", "gpu"): ("read", "h2d"),
    ("gpu", "gpu"): ("device",),
    ("dram", "dram"): ("host",),
}
_MICROSECOND = 1e-6
_STAGED = 3  # times that pageable memory is passed: itself, and the staging buffer that is written and read again


def transfer(work: Transfer, site: Site) -> Demand:
    """A copy: the fixed cost of its parts, then one flow through everything on its way."""
    parts = _PARTS.get((work.source, work.target))
    if parts is None:
        raise InputError([Problem(f"copy {work.source} to {work.target}", expected="tiers gpu, dram or nvme")])
    latency = sum(_fixed(part, work) for part in parts)
    uses = [use for part in parts for use in _WAYS[part](work, site)]
    return Demand(latency, tuple(uses) if work.bytes else ())


def _fixed(part: str, work: Transfer) -> float:
    """Seconds that nobody shares. Requests that wait for each other each cost the drive's software its overhead."""
    if part in ("read", "write"):
        batches = math.ceil(work.bytes / work.batch) if work.in_turn and work.batch else 0
        return _latency(part) + batches * constant("nvme.request_us") * _MICROSECOND
    return constant("copies.h2d_launch_us") * _MICROSECOND if part in ("h2d", "d2h") else 0.0


def _latency(way: str) -> float:
    return constant(f"nvme.{way}_latency_us") * _MICROSECOND


# --- between GPU and socket ----------------------------------------------------------------------------------------


def _down(work: Transfer, site: Site) -> list[Use]:
    return _over_link(work, site, "h2d")


def _up(work: Transfer, site: Site) -> list[Use]:
    return _over_link(work, site, "d2h")


def _over_link(work: Transfer, site: Site, way: Literal["h2d", "d2h"]) -> list[Use]:
    """HBM, the GPU's own link and what both its directions share, the uplinks of the switches above."""
    link = site.host_link
    if link is None:
        raise missing(site, "a PCIe or C2C link from the GPU to a socket", f"copies {work.source} to {work.target}")
    uses = [
        Use(site.resource("hbm"), work.bytes, site.gpu.stream_efficiency),
        Use(site.resource(f"{link.kind}.{way}"), work.bytes, _reached(link, way)),
        Use(site.resource(f"{link.kind}.both"), work.bytes, _reached(link, "both")),
    ]
    for name, above, ranks in site.uplinks:
        for direction in (way, "both"):
            eff = _reached(above, direction)
            uses.append(Use(site.resource(f"{name}.{direction}"), work.bytes * ranks, eff, ranks))
    if not work.pinned:
        staged = constant("copies.pageable_factor") * _reached(link, way)
        uses.append(Use(site.resource("staging"), work.bytes, staged))
    return uses


def _reached(link: Link, way: str) -> float:
    """The fraction of its paper rate that copies reach, one way alone or both ways together."""
    return constant(f"copies.{way}_eff.{link_key(link)}")


def _memory(work: Transfer, site: Site) -> list[Use]:
    """Host memory as the GPU's copies see it, and the way between the sockets, where it lies behind another one."""
    passes = 1 if work.pinned else _STAGED
    to_gpu, by_others = site.crossing
    ways = {"into": to_gpu, "out": by_others} if work.source == "dram" else {"into": by_others, "out": to_gpu}
    crossed = [use for way, through in ways.items() for use in _crossed(work, site, way, through)]
    return [*_dram(passes * work.bytes, site), *crossed]


def _crossed(work: Transfer, site: Site, way: str, through: Through) -> list[Use]:
    """What goes into (or out of) the GPU's socket, by all ranks that do the same."""
    if not through.share or not site.crossing.into.rate:
        return []
    eff = constant("copies.socket_link_eff")
    return [Use(site.resource(f"sockets.{way}"), work.bytes * through.share, eff, through.ranks)]


def _dram(amount: float, site: Site) -> list[Use]:
    """`amount` read or written by each rank."""
    home = site.home
    if home is None:
        return []
    return [Use(site.resource("dram"), amount * home.ranks, constant("dram.stream_eff"), home.ranks)]


# --- drives, and copies within a tier ------------------------------------------------------------------------------


def _read(work: Transfer, site: Site) -> list[Use]:
    return _asked("read", work, site, _drives(work, site).read)


def _write(work: Transfer, site: Site) -> list[Use]:
    """The drives' rate is that of reading; writing reaches less of it, and shares it."""
    return _asked("write", work, site, _drives(work, site).writes(site.written))


def _asked(way: Literal["read", "write"], work: Transfer, site: Site, rate: float) -> list[Use]:
    """The drives, which give `rate` on paper; and the rank's requests, where they are too few for its share of that."""
    drives = _drives(work, site)
    uses = [Use(site.resource("nvme"), work.bytes * site.local, drives.striped * rate / drives.read, site.local)]
    into, out = site.swaps.gpu if "gpu" in (work.source, work.target) else site.swaps.memory
    for side, through in (("into", into), ("out", out)) if way == "read" else (("out", into), ("into", out)):
        uses += _crossed(work, site, side, through)
    in_flight = 0.0 if work.in_turn else work.batch / _latency(way)
    if 0 < in_flight < drives.striped * rate / site.local:
        uses.append(Use(site.resource(f"requests.{way}"), work.bytes, in_flight / drives.read))
    return uses


def _drives(work: Transfer, site: Site) -> Drives:
    if site.drives is None:
        raise missing(site, "nvme drives", f"copies {work.source} to {work.target}")
    return site.drives


def _buffer(work: Transfer, site: Site) -> list[Use]:
    return _dram(work.bytes, site)


def _device(work: Transfer, site: Site) -> list[Use]:
    return [Use(site.resource("hbm"), 2 * work.bytes, site.gpu.stream_efficiency)]


def _host(work: Transfer, site: Site) -> list[Use]:
    return _dram(2 * work.bytes, site)


_WAYS = {
    "h2d": _down,
    "d2h": _up,
    "memory": _memory,
    "read": _read,
    "write": _write,
    "buffer": _buffer,
    "device": _device,
    "host": _host,
}
