"""What holds of every machine that the template can describe."""

from itertools import pairwise, product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zerosim import catalog
from zerosim.spec.devices import Device, Gpu, Nic, Socket
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """One to four nodes of one to six GPUs, with and without NVLink, PCIe switches, rails and stragglers."""
    nodes, gpus, nics = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    switches = draw(st.integers(0, 3))
    node: dict[str, Any] = {
        "count": nodes,
        "gpus": {"device": draw(st.sampled_from(["a100_sxm_80", "h100_sxm"])), "count": gpus},
        "nvlink": {"kind": draw(st.sampled_from(["switch", "mesh", "pairs", "none"]))},
        "pcie": {"switches": [{"gpus": list(range(gpus))[index::switches]} for index in range(switches)]},
        "sockets": [{"device": "epyc_genoa", "dram": {"capacity": "1 TB"}}] * draw(st.integers(1, 2)),
        "nics": {"count": nics, "bandwidth": "100 Gbps", "kind": draw(st.sampled_from(["roce", "infiniband"]))},
    }
    kind, leaf = draw(st.sampled_from(["switch", "rail", "fat_tree"])), draw(st.integers(1, 3))
    fabric = {"kind": kind} if kind == "switch" else {"kind": kind, "leaf_nodes": leaf}
    slow = draw(st.sets(st.tuples(st.integers(0, nodes - 1), st.integers(0, gpus - 1)), max_size=3))
    overrides = [{"gpu": f"{host}.{gpu}", "compute": 0.5} for host, gpu in sorted(slow)]
    return read_topology(inline({"name": "any", "node": node, "fabric": fabric, "overrides": overrides}, "any"))


@given(machines())
@settings(max_examples=40, deadline=None)
def test_every_gpu_reaches_every_other_by_links_of_the_graph(topology: Topology) -> None:
    names = [gpu.name for gpu in topology.gpus]
    for a, b in product(names[:3], names):
        route = topology.route(a, b)
        ends = [a, *(link.target for link in route)]
        assert ends[-1] == b
        assert len(ends) == len(set(ends))
        assert route == tuple(topology.graph.edges[pair]["link"] for pair in pairwise(ends))
        assert all(topology.device(name).kind != "gpu" for name in ends[1:-1])


@given(machines())
@settings(max_examples=40, deadline=None)
def test_classes_and_domains_share_out_the_ranks(topology: Topology) -> None:
    ranks = list(range(len(topology.gpus)))
    for shares in (topology.rank_classes(), topology.nvlink_domains()):
        assert sorted(rank for share in shares for rank in share) == ranks
    for share in topology.rank_classes():
        assert len({(topology.gpus[rank].compute, topology.gpus[rank].figures) for rank in share}) == 1
    for domain in topology.nvlink_domains():
        assert len({topology.host_of(rank) for rank in domain}) == 1


@given(machines(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_part_holds_what_was_asked_for(topology: Topology, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, len(topology.nodes)))
    each = data.draw(st.integers(1, len(topology.gpus) // len(topology.nodes)))
    part = topology.select(nodes=nodes, gpus=nodes * each)
    assert len(part.hosts) == nodes
    assert len(part.gpus) == nodes * each
    assert set(part.graph) <= set(topology.graph)
    assert all(topology.device(gpu.name) == gpu for gpu in part.gpus)


@given(machines())
@settings(max_examples=40, deadline=None)
def test_links_go_both_ways_and_uplinks_carry_their_downlinks(topology: Topology) -> None:
    for a, b in topology.graph.edges:
        assert topology.graph.has_edge(b, a)
    for leaf in topology.devices("leaf"):
        links = [topology.link(leaf.name, other) for other in topology.graph[leaf.name]]
        up = sum(link.bandwidth for link in links if link.target.startswith("spine"))
        assert up in (0, sum(link.bandwidth for link in links if not link.target.startswith("spine")))


def drawn(topology: Topology, order: Random) -> dict[str, Any]:
    """The same machine listed device by device, with made-up names, in any order that keeps the ranks in theirs."""
    names = {
        name: f"part{number}" for number, name in enumerate(order.sample(list(topology.graph), len(topology.graph)))
    }
    listed = order.sample(sorted(topology.graph), len(topology.graph))
    ranks = [gpu.name for gpu in topology.gpus]
    devices = [listing(topology.device(name), names[name]) for name in ranks + [n for n in listed if n not in ranks]]
    links = [
        {
            "from": names[link.source], "to": names[link.target], "duplex": "simplex", "kind": link.kind,
            "bandwidth": link.bandwidth, "latency": link.latency, "shared": link.shared, "generation": link.generation,
        }
        for a, b in topology.graph.edges
        for link in [topology.link(a, b)]
    ]  # fmt: skip
    return {"name": "drawn", "devices": devices, "links": order.sample(links, len(links))}


def listing(device: Device, name: str) -> dict[str, Any]:
    """A device as the graph form lists it."""
    said: dict[str, Any] = {"name": name, "kind": device.kind, "compute": device.compute}
    if device.host is not None:
        said["node"] = device.host
    match device.figures:
        case Gpu():
            said["device"] = next(key for key, gpu in catalog.gpus().items() if gpu.name == device.figures.name)
        case Socket():
            said["cores"] = device.figures.cores
        case Nic():
            said["device"] = device.figures.name
    return said | ({"capacity": device.capacity} if device.kind == "dram" else {})


@given(machines(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_machine_has_the_same_classes_in_either_form(topology: Topology, order: Random) -> None:
    """So equal servers are one class, whatever their parts are called and in whatever order they are listed."""
    other = read_topology(inline(drawn(topology, order), "drawn"))
    assert set(other.rank_classes()) == set(topology.rank_classes())
