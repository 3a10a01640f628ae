"""Machines and one-op programs for the tests of costs."""

from __future__ import annotations

from typing import Any

from zerosim.costs import Priced, price
from zerosim.resources import Demand
from zerosim.spec.launch import Launch
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology
from zerosim.step import Collective, CollectiveKind, Group, Op, Step, Work, communicator


def machine(
    gpu: str | dict[str, Any] = "a100_sxm_80",
    gpus: int = 8,
    nodes: int = 1,
    nvlink: dict[str, Any] | None = None,
    nics: dict[str, Any] | None = None,
    **more: Any,
) -> Topology:
    """A cluster in the template form. `more` goes into the node, except fabric and overrides."""
    figures = {"device": gpu} if isinstance(gpu, str) else gpu
    node: dict[str, Any] = {"count": nodes, "gpus": {"count": gpus, **figures}}
    node["nvlink"] = nvlink or {"kind": "none"}
    node["pcie"] = more.pop("pcie", {"switches": [{"gpus": list(range(gpus)), "socket": 0}]})
    node["sockets"] = more.pop("sockets", [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}])
    if nics:
        node["nics"] = nics
    described: dict[str, Any] = {"name": "test", "node": node}
    for key in ("fabric", "overrides"):
        if key in more:
            described[key] = more.pop(key)
    node.update(more)
    return read_topology(inline(described, "test"))


def switched(
    gpu: str | dict[str, Any], gpus: int = 8, nodes: int = 1, nics: dict[str, Any] | None = None, **more: Any
) -> Topology:
    """GPUs on NVSwitch, or joined by `nvlink`, each with a PCIe switch of its own; ports hang there, and where there
    are fewer ports than GPUs these hang on the socket."""
    each = (nics or {}).get("count", 0) // gpus
    switches = [{"gpus": [i], "nics": list(range(i * each, (i + 1) * each)), "socket": 0} for i in range(gpus)]
    name = gpu if isinstance(gpu, str) else gpu.get("device")
    pcie = {"switches": switches, **({"generation": 5} if name == "gb200" else {})}
    return machine(gpu, gpus, nodes, more.pop("nvlink", {"kind": "switch"}), nics, pcie=pcie, **more)


def program(*works: Work, size: int, stride: int = 1) -> Step:
    """A step of these works, one after the other; collectives run over the group `dp`."""
    ops = tuple(
        Op(number, f"op{number}", communicator("dp") if isinstance(work, Collective) else "compute", work)
        for number, work in enumerate(works)
    )
    return Step(ops, (), frozenset(), {"dp": Group("dp", size, stride)}, 1)


def collective(kind: CollectiveKind, size: float) -> Collective:
    return Collective(kind, int(size), "uint8", "dp")


def priced(
    topology: Topology, *works: Work, size: int | None = None, stride: int = 1, launch: Launch | None = None
) -> Priced:
    step = program(*works, size=size or len(topology.gpus), stride=stride)
    return price([step], topology, launch or Launch())


def demand(topology: Topology, work: Work, size: int | None = None, stride: int = 1) -> Demand:
    """The demand of one op for the first class."""
    found = priced(topology, work, size=size, stride=stride)
    return found.demands[found.classes[0].name][0]


def seconds(
    topology: Topology, work: Work, size: int | None = None, stride: int = 1, launch: Launch | None = None
) -> float:
    found = priced(topology, work, size=size, stride=stride, launch=launch)
    return found.demands[found.classes[0].name][0].alone(found.supply)
