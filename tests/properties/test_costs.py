"""What holds of every price: monotone times, no more than the bus, no worse with more ports, right time alone."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.costs_machines import collective, demand, machine, priced, seconds, switched
from zerosim.costs.bounds import bus_factor, busy_seconds, wire_bytes
from zerosim.costs.compute import matmul
from zerosim.costs.drives import Drives
from zerosim.costs.machine import Machine
from zerosim.costs.site import survey
from zerosim.resources import Demand, Supply
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import named_topology
from zerosim.step import Attention, CollectiveKind, HostCompute, Matmul, Pass, Transfer, Work

KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "send_recv",
    "exchange",
)
GPUS = ("v100_sxm2_32", "a100_sxm_80", "h100_sxm", "h200_sxm", "b200_sxm")
PORTS = ("infiniband_edr", "efa_v1_100", "ethernet_10", "roce_100")

kinds = st.sampled_from(KINDS)
sizes = st.integers(1, 2**34)


@cache
def cluster(gpu: str, gpus: int, nodes: int, port: str = "infiniband_edr", ports: int = 8) -> Topology:
    return switched(gpu, gpus, nodes, {"device": port, "count": ports} if nodes > 1 else None)


@cache
def box(gpus: int, p2p: bool) -> Topology:
    half = gpus // 2
    parts = [{"gpus": list(range(half)), "socket": 0}, {"gpus": list(range(half, gpus)), "socket": 0}]
    return machine({"device": "rtx4090", "p2p": p2p}, gpus, pcie={"switches": parts})


machines = st.one_of(
    st.builds(
        cluster, st.sampled_from(GPUS), st.sampled_from((2, 4, 8)), st.sampled_from((1, 2, 3)), st.sampled_from(PORTS)
    ),
    st.builds(box, st.sampled_from((2, 4, 8)), st.booleans()),
)


@given(machines, kinds, sizes, sizes)
@settings(max_examples=60, deadline=None)
def test_a_larger_message_never_takes_less_time(topology: Topology, kind: CollectiveKind, one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert seconds(topology, collective(kind, small)) <= seconds(topology, collective(kind, large)) * (1 + 1e-12)


@given(machines, kinds, sizes)
@settings(max_examples=60, deadline=None)
def test_time_alone_is_finite_and_no_resource_is_busy_longer_than_the_flow(
    topology: Topology, kind: CollectiveKind, size: int
) -> None:
    found = priced(topology, collective(kind, size))
    for demands in found.demands.values():
        time = demands[0].alone(found.supply)
        assert 0 < time < math.inf
        assert 0 < demands[0].latency < time
        assert all(0 <= hold.share <= 1 for hold in demands[0].holds)
        flow = time - demands[0].latency
        assert all(busy <= flow * (1 + 1e-9) for busy in busy_seconds(demands, found.supply).values())


@given(st.sampled_from(GPUS), st.sampled_from((2, 4, 8)), kinds, sizes)
@settings(max_examples=40, deadline=None)
def test_the_bus_is_not_faster_than_the_wire(gpu: str, gpus: int, kind: CollectiveKind, size: int) -> None:
    one = cluster(gpu, gpus, 1)
    bus = bus_factor(kind, gpus) * size / seconds(one, collective(kind, size))
    gain = 2 * (gpus - 1) / gpus  # a reduction in the switch sends each buffer once
    assert bus <= priced(one).supply.rates["nvlink"] * (gain if kind == "all_reduce" else 1)


@given(st.sampled_from(GPUS), st.sampled_from((2, 3, 5)), kinds, sizes, st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_more_ports_never_slow_a_collective(gpu: str, nodes: int, kind: CollectiveKind, size: int, ports: int) -> None:
    few, more = (cluster(gpu, 8, nodes, "infiniband_edr", count) for count in (ports, ports + 1))
    work = collective(kind, size)
    assert seconds(more, work) <= seconds(few, work) * (1 + 1e-12)


@cache
def boxes(gpus: int, ports: int) -> Topology:
    """Two nodes without NVLink whose ports hang on the sockets beside the GPUs."""
    sockets = [{"device": "epyc_genoa", "dram": {"capacity": "1 TB"}}] * 2
    nics = {"device": "infiniband_hdr", "count": ports}
    return machine("l40s", gpus, 2, None, nics, pcie={"generation": 4, "lanes": 16}, sockets=sockets)


@given(st.sampled_from((2, 4, 8)), kinds, sizes, st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_more_ports_than_lanes_neither_slow_a_collective_nor_carry_more(
    gpus: int, kind: CollectiveKind, size: int, ports: int
) -> None:
    few, more = boxes(gpus, ports), boxes(gpus, ports + 1)
    time = seconds(more, collective(kind, size))
    assert time <= seconds(few, collective(kind, size)) * (1 + 1e-9)
    crossing = {"all_to_all": size / 2, "send_recv": size, "exchange": size}.get(kind, 0.0)  # of a GPU, each way
    assert crossing / time <= 31.5e9


@given(st.sampled_from(GPUS), kinds, sizes)
@settings(max_examples=30, deadline=None)
def test_a_group_on_one_node_of_many_costs_what_it_costs_on_one_node(gpu: str, kind: CollectiveKind, size: int) -> None:
    work = collective(kind, size)
    assert demand(cluster(gpu, 8, 2), work, size=8) == demand(cluster(gpu, 8, 1), work, size=8)


@given(st.sampled_from(GPUS), st.sampled_from((1, 2, 3)), st.integers(2**28, 2**34))
@settings(max_examples=30, deadline=None)
def test_a_large_all_reduce_is_at_most_a_scatter_and_a_gather(gpu: str, nodes: int, size: int) -> None:
    """And no less than half of them: a reduction in the network sends each byte once."""
    topology = cluster(gpu, 8, nodes)
    whole = seconds(topology, collective("all_reduce", size))
    halves = sum(seconds(topology, collective(kind, size)) for kind in ("reduce_scatter", "all_gather"))
    assert 0.5 * halves <= whole <= 1.15 * halves


@given(st.sampled_from(KINDS), st.integers(1, 2**30), st.integers(1, 6), st.integers(1, 16))
def test_what_leaves_the_islands_is_at_least_what_the_others_lack(
    kind: CollectiveKind, size: int, k: int, g: int
) -> None:
    wire = wire_bytes(kind, size, k * g, k)
    assert wire.gpu >= 0 <= wire.island
    assert (wire.island > 0) == (k > 1)
    if k > 1 and kind in ("all_gather", "reduce_scatter"):
        # Each island lacks (or must give away) (k-1)/k of the buffer; all send alike.
        assert wire.island >= size * (k - 1) / k * (1 - 1e-12)
    if k > 1 and kind == "all_reduce":
        tree = wire_bytes(kind, size, k * g, k, "tree")
        assert 2 * size * (k - 1) / k == pytest.approx(tree.island)
        assert tree.island <= wire.island * (1 + 1e-12)


tiers = st.sampled_from(("dgx-a100-80", "dgx2-v100-32", "gh200", "pcie-1x-rtx4090", "pcie-2x-rtx3090"))
stock = cache(named_topology)
launches = st.builds(
    Launch, st.sampled_from(("deepspeed", "torchrun")), st.booleans(), st.sampled_from((None, 1, 7, 1000))
)
amounts = st.floats(1e6, 1e12)
sources = st.sampled_from(("gpu", "dram"))
batches = st.sampled_from((0.0, 2.0**12, 2.0**23))
copies = st.builds(
    Transfer, amounts, st.sampled_from(("gpu", "dram", "nvme")), sources, st.booleans(), batches, st.booleans()
)
writes = st.builds(Transfer, amounts, sources, st.just("nvme"), st.booleans(), batches, st.booleans())
on_cpu = st.builds(HostCompute, st.sampled_from(("optimizer", "torch_optimizer", "cast", "stream")), amounts, amounts)
of_host: st.SearchStrategy[Work] = st.one_of(copies, writes, on_cpu)


@given(tiers, launches, of_host)
@settings(max_examples=100, deadline=None)
def test_work_of_the_host_is_shared_by_ranks_of_a_node_and_never_faster_than_on_paper(
    name: str, launch: Launch, work: Work
) -> None:
    topology = stock(name)
    found = priced(topology, work, launch=launch)
    for demands in found.demands.values():
        time = demands[0].alone(found.supply)
        assert 0 < time < math.inf
        assert time >= _paper(demands[0], found.supply)
        assert all(0 < use.efficiency <= 1 for use in demands[0].uses)
        assert all(1 <= use.ranks <= len(topology.gpus) for use in demands[0].uses)
        assert len({use.resource for use in demands[0].uses}) == len(demands[0].uses)


@given(tiers, launches, of_host)
@settings(max_examples=60, deadline=None)
def test_a_rank_alone_on_its_node_is_no_slower(name: str, launch: Launch, work: Work) -> None:
    """Save for a bound one, which has its memory on one socket beside others, and alone on all of them."""
    together, alone = (seconds(part, work, launch=launch) for part in (stock(name), stock(name).select(gpus=1)))
    assert alone <= together * (1 + 1e-9) or launch.bind_cores_to_rank


@given(st.floats(0, 1e13), st.floats(0, 1e13), st.floats(1e8, 1e10), st.floats(0.1, 1), st.floats(0, 1e12))
def test_writing_slows_from_the_first_rate_to_the_sustained_one(
    one: float, other: float, first: float, share: float, cache: float
) -> None:
    drives = Drives(1, 1e10, first, first * share, cache)
    less, more = (drives.writes(written) for written in sorted((one, other)))
    assert first * (1 + 1e-9) >= less >= more * (1 - 1e-9)
    assert more >= first * share * (1 - 1e-9)


_SUPPLIES: tuple[Topology, ...] = tuple(switched(gpu, 1) for gpu in ("a100_sxm_80", "b200_sxm"))
shapes = st.tuples(st.integers(1, 64), *(st.integers(1, 8192) for _ in range(3)))
dtypes = st.sampled_from(("bf16", "fp16", "fp32"))
kernels: st.SearchStrategy[Work] = st.one_of(
    st.builds(Matmul, st.lists(shapes, min_size=1, max_size=3).map(tuple), dtypes),
    st.builds(
        Attention, st.integers(1, 8), st.integers(1, 32), st.integers(1, 4096), st.integers(1, 4096),
        st.sampled_from((64, 128)), st.booleans(), st.booleans(), dtypes,
    ),
    st.builds(Pass, st.floats(1, 1e10), st.sampled_from(("stream", "reduction", "adam")), st.integers(1, 20)),
)  # fmt: skip


@given(st.sampled_from(_SUPPLIES), kernels)
@settings(max_examples=100, deadline=None)
def test_kernels_are_never_faster_than_the_paper_rates(topology: Topology, work: Work) -> None:
    found = priced(topology, work, size=1)
    kernel, supply = found.demands["all"][0], found.supply
    assert 0 < kernel.alone(supply) < math.inf
    assert all(0 < use.efficiency <= 1 for use in kernel.uses)
    assert kernel.alone(supply) >= _paper(kernel, supply)


def _paper(kernel: Demand, supply: Supply) -> float:
    return max(use.amount / supply.rates[use.resource] for use in kernel.uses)


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
@settings(max_examples=60, deadline=None)
def test_a_longer_product_takes_longer(m: int, k: int, n: int) -> None:
    topology = _SUPPLIES[0]
    site = survey(Machine(topology))[1][0]
    supply = priced(topology).supply
    short, long = (matmul(Matmul(((1, m, depth, n),), "bf16"), site).alone(supply) for depth in (k, 2 * k))
    assert short < long
