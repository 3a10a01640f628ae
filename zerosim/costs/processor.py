"""Work of the CPU: what a rank's home gives to it, and how long a step's work takes there.

Bound by host memory, of whose paper rate each kind of work reaches its own part, or by the cores, each of which moves
so much and no more. Memory of several sockets is in part remote to each of them: S sockets give together
1 / (1/S + (S-1)/S / remote_eff) of what each gives to its own cores. Where the node runs more threads than it has cores
they take turns, which costs the work a factor whatever limits it. Constants: groups `dram`, `cpu_adam`, `cpu_cast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from zerosim.catalog import constant
from zerosim.costs.site import Site, missing
from zerosim.costs.sockets import Home
from zerosim.resources import Demand, Use
from zerosim.step import HostCompute

Kind = Literal["optimizer", "torch_optimizer", "cast", "stream"]
GB = 1e9


def host_compute(work: HostCompute, site: Site) -> Demand:
    """Every rank of the home does the same at the same time, and they share its memory; its cores where these are
    fewer than all their threads."""
    home = site.home
    if home is None:
        raise missing(site, "a socket with dram", f"{work.kind} on the CPU")
    if not work.dram_bytes:
        return Demand()
    moved = work.dram_bytes * home.ranks
    uses = [Use(site.resource("dram"), moved, memory_share(work.kind, home), home.ranks)]
    if home.cores:
        sharing = home.ranks if home.crowded else 1
        uses.append(
            Use(site.resource("cpu"), work.dram_bytes * sharing, cores_share(home) * sharing / home.ranks, sharing)
        )
    return Demand(uses=tuple(uses))


def core_rate(home: Home) -> float:
    """Bytes/s that all cores of a home move."""
    return home.cores * constant("cpu_adam.per_core_gbs") * GB


def memory_share(kind: Kind, home: Home) -> float:
    """Fraction of the paper rate of the home's memory that work of a kind reaches."""
    return _own_share(kind) * locality(home.sockets) / memory_turns(home)


def cores_share(home: Home) -> float:
    """Fraction of what the home's cores move that its ranks' threads move."""
    return min(1.0, home.threads * home.ranks / home.cores) / memory_turns(home)


def locality(sockets: int) -> float:
    """What is left of memory's rate when its pages lie on so many sockets evenly, and so do those who read them."""
    near = 1 / sockets
    return 1 / (near + (1 - near) / constant("dram.remote_eff"))


def seconds(works: Mapping[HostCompute, int], home: Home) -> float:
    """How long these works, each so many times, take the CPU when nothing else uses its memory."""
    return sum(times * work.dram_bytes * home.ranks / _rate(work.kind, home) for work, times in works.items())


def _rate(kind: Kind, home: Home) -> float:
    by_memory = home.dram * memory_share(kind, home)
    return min(by_memory, core_rate(home) * cores_share(home)) if home.cores else by_memory


def memory_turns(home: Home) -> float:
    """How many times longer work takes where threads take turns."""
    return constant("cpu_adam.oversubscribed_factor") if home.crowded else 1.0


def _own_share(kind: Kind) -> float:
    """Of the paper rate of memory that is near."""
    stream = constant("dram.stream_eff")
    return {
        "optimizer": constant("cpu_adam.dram_eff"),
        "torch_optimizer": constant("cpu_adam.torch_dram_eff"),
        "cast": stream * constant("cpu_cast.stream_share"),
        "stream": stream,
    }[kind]
