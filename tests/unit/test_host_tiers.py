"""The CPU's work by hand, who shares host memory with whom, and one rank played for eight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from tests.costs_machines import collective, demand, machine, priced, seconds
from tests.physical import apart
from zerosim.costs import Priced, price
from zerosim.engine import play
from zerosim.resources import Demand, Supply, Use
from zerosim.spec.launch import Launch
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import find_topology, named_topology, read_topology
from zerosim.step import HostCompute, Op, Step, Transfer, Work
from zerosim.timeline import Timeline

GB = 1e9
ADAM = HostCompute("optimizer", 1e9, 28 * GB)  # 28 B a parameter: the time of a thousand million of them
BOUND = Launch(bind_cores_to_rank=True)


def host(gpus: int = 1, sockets: int = 1, cores: int = 64) -> Topology:
    """`gpus` A100 on PCIe 4, spread over sockets of 204.8 GB/s."""
    cpu = {"device": "epyc_7742", "cores": cores, "dram": {"capacity": "1 TB"}}
    return machine("a100_sxm_80", gpus, pcie={}, sockets=[cpu] * sockets)


# --- the CPU ---


def test_cpu_adam_with_all_memory_near() -> None:
    assert seconds(host(), ADAM) == pytest.approx(28 / (0.57 * 204.8))
    assert seconds(host(), ADAM._replace(kind="torch_optimizer")) == pytest.approx(28 / (0.27 * 204.8))
    assert seconds(host(), ADAM._replace(kind="cast")) == pytest.approx(28 / (0.8 * 0.5 * 204.8))
    assert seconds(host(), ADAM._replace(kind="stream")) == pytest.approx(28 / (0.8 * 204.8))


def test_memory_of_two_sockets_is_half_remote() -> None:
    """0.57 / (1/2 + 1/2 / 0.5) = 0.38 of both; four sockets would give 0.57 / (1/4 + 3/4 / 0.5) = 0.326 of all."""
    assert seconds(host(1, sockets=2), ADAM) == pytest.approx(28 / (0.38 * 409.6))
    assert seconds(host(1, sockets=4), ADAM) == pytest.approx(28 / (0.57 / 1.75 * 819.2))


def test_memory_of_unequal_sockets_is_as_fast_as_the_slowest() -> None:
    """Half of the bytes lie on either socket: 2 x 20 GB/s, however fast the other one is."""
    slow, fast = ("20 GB/s", "204.8 GB/s"), ("20 GB/s", "409.6 GB/s")
    times = [seconds(unequal(8, *rates), ADAM, launch=Launch(omp_num_threads=16)) for rates in (slow, fast)]
    assert times == pytest.approx([8 * 28 / (0.38 * 40)] * 2)
    found = priced(unequal(8, *slow), ADAM)
    assert found.supply.rates["dram"] == 40e9
    said = "host memory 40 GB/s of 2 sockets, each at the rate of the slowest, shared by 8 GPUs"
    assert found.supply.labels["dram"] == said
    assert priced(host(8, sockets=2)).supply.labels["dram"] == "host memory 409.6 GB/s of 2 sockets, shared by 8 GPUs"


def test_bound_ranks_have_the_memory_of_their_own_socket() -> None:
    found = priced(unequal(8, "204.8 GB/s", "20 GB/s"), ADAM, launch=BOUND)
    times = {c.ranks: found.demands[c.name][0].alone(found.supply) for c in found.classes}
    assert times == pytest.approx({(0, 1, 2, 3): 4 * 28 / (0.57 * 204.8), (4, 5, 6, 7): 4 * 28 / (0.57 * 20)})


def test_what_binding_would_give_is_told_of_the_slowest_socket() -> None:
    """8 x 28 GB at 0.38 x 40 / 1.18; bound, 4 x 28 GB at 0.57 x 20 on the slow one."""
    said = told(unequal(8, "204.8 GB/s", "20 GB/s"), Launch(), ADAM)["cpu-oversubscribed"]
    assert "takes 17.39 s instead of 9.825 s" in said


def unequal(gpus: int, *rates: str) -> Topology:
    sockets = [{"device": "epyc_7742", "cores": 64, "dram": {"capacity": "1 TB", "bandwidth": rate}} for rate in rates]
    return machine("a100_sxm_80", gpus, pcie={}, sockets=sockets)


def test_ranks_share_memory_and_cores_of_their_node_or_when_bound_of_their_socket() -> None:
    eight = host(8, sockets=2)
    assert seconds(eight, ADAM, launch=BOUND) == pytest.approx(4 * 28 / (0.57 * 204.8))
    evenly = Launch(omp_num_threads=16)  # 8 x 16 threads on 128 cores: as many as there are
    assert seconds(eight, ADAM, launch=evenly) == pytest.approx(8 * 28 / (0.38 * 409.6))
    assert seconds(eight, ADAM) == pytest.approx(1.18 * 8 * 28 / (0.38 * 409.6))  # 8 x 128 threads


def test_few_cores_move_less_than_memory_could() -> None:
    assert seconds(host(cores=4), ADAM) == pytest.approx(28 / (4 * 8))


def test_one_thread_moves_what_one_core_moves() -> None:
    torchrun = Launch("torchrun")
    assert seconds(host(8, sockets=2), ADAM, launch=torchrun) == pytest.approx(28 / 8)
    assert seconds(host(1), ADAM, launch=torchrun) == pytest.approx(28 / (0.57 * 204.8))  # one process: all cores


def test_threads_that_have_cores_of_their_own_share_none() -> None:
    """One thread a rank: each moves its own bytes, however many ranks there are; eight times 64 threads take turns."""

    def cores(ranks: int, launch: Launch) -> Use:
        (op,) = priced(host(ranks), ADAM, launch=launch).demands["all"]
        return next(use for use in op.uses if use.resource == "cpu")

    for ranks in (1, 8):
        one = cores(ranks, Launch(omp_num_threads=1))
        assert (one.amount, one.efficiency, one.ranks) == (28 * GB, 1 / 64, 1)
    crowd = cores(8, Launch())
    assert (crowd.amount, crowd.ranks) == (8 * 28 * GB, 8)


def test_a_bound_rank_alone_on_two_sockets_has_both() -> None:
    assert seconds(host(1, sockets=2), ADAM, launch=BOUND) == pytest.approx(28 / (0.38 * 409.6))


def test_three_ranks_on_two_sockets_share_what_they_overlap_on() -> None:
    """The second has cores and memory of both, and shares each with another rank."""
    found = priced(host(3, sockets=2), ADAM, launch=BOUND)
    times = {c.ranks: found.demands[c.name][0].alone(found.supply) for c in found.classes}
    assert times[1,] == pytest.approx(3 * 28 / (0.38 * 409.6))
    assert times[2,] == times[0,] == pytest.approx(2 * 28 / (0.57 * 204.8))


# --- what is told ---


def told(topology: Topology, launch: Launch, *works: Work) -> dict[str, str]:
    return {f.code: f.message + " " + f.remedy for f in priced(topology, *works, launch=launch).findings}


def test_more_threads_than_cores_are_told_with_their_cost_and_remedy() -> None:
    said = told(host(8, sockets=2), Launch(), ADAM, ADAM)["cpu-oversubscribed"]
    assert "8 ranks of a node compute with 128 threads each on its 128 cores" in said
    # 2 x 8 x 28 GB at 0.38 x 409.6 / 1.18; bound 2 x 4 x 28 GB at 0.57 x 204.8
    assert "takes 3.396 s instead of 1.919 s" in said
    assert "bind_cores_to_rank" in said


def test_one_thread_under_torchrun_is_told() -> None:
    said = told(host(8, sockets=2), Launch("torchrun"), ADAM)["cpu-threads"]
    assert "one thread: 8 of 128 cores" in said
    assert "takes 3.5 s instead of 1.439 s" in said  # 28 GB at 8 GB/s; 8 x 28 GB at 0.38 x 409.6
    assert "omp_num_threads to 16" in said


def test_memory_on_all_sockets_is_told() -> None:
    said = told(host(8, sockets=2), Launch(omp_num_threads=16), ADAM)
    assert set(said) == {"cpu-unbound"}


def test_nothing_is_told_of_what_costs_nothing() -> None:
    copies = Transfer(GB, "dram", "gpu")
    assert told(host(8, sockets=2), Launch(), copies) == {}  # no work of the CPU
    assert told(host(8, sockets=2), BOUND, ADAM, copies) == {}
    assert told(host(1, sockets=2), Launch(), ADAM) == {}


# --- work and copies at once ---


def played(topology: Topology, lanes: Sequence[tuple[str, Work]], launch: Launch = BOUND) -> tuple[Priced, Timeline]:
    ops = tuple(Op(number, f"op{number}", stream, work) for number, (stream, work) in enumerate(lanes))
    step = Step(ops, (), frozenset(), {}, 1)
    found = price([step], topology, launch)
    return found, play([step], found.classes, found.demands, found.supply)


def test_the_optimizer_and_copies_together_take_what_memory_gives() -> None:
    """On Grace a copy alone gets 360 GB/s, CPUAdam 0.57 x 480. Together each has half of memory's time: 0.8 x 480 / 2
    and 0.57 x 480 / 2, and end together when they move as much."""
    copied, worked = 0.8 * 480 / 2, 0.57 * 480 / 2
    works = HostCompute("optimizer", 1.0, worked * GB), Transfer(copied * GB, "dram", "gpu")
    found, timeline = played(named_topology("gh200"), list(zip(("host", "compute"), works, strict=True)))
    ends = [span.end for span in timeline.spans["all"]]
    assert ends == pytest.approx([1.0, 1.0], abs=1e-5)
    assert memory_busy(found.demands["all"], found.supply) == pytest.approx(1.0)  # their parts of the memory add up


def test_copies_that_their_links_limit_leave_the_rest_of_memory_to_the_optimizer() -> None:
    """One A100 copies 24.9 of the 163.8 GB/s that copies reach: 0.15 of memory's time. CPUAdam has the other 0.85."""
    copied = 0.79 * 31.5
    rest = 1 - copied / (0.8 * 204.8)
    works = HostCompute("optimizer", 1.0, rest * 0.57 * 204.8 * GB), Transfer(copied * GB, "dram", "gpu")
    found, timeline = played(host(), list(zip(("host", "compute"), works, strict=True)))
    assert [span.end for span in timeline.spans["all"]] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert memory_busy(found.demands["all"], found.supply) == pytest.approx(1.0)


def memory_busy(demands: Sequence[Demand], supply: Supply) -> float:
    """Seconds that host memory is busy: bytes of each op by what that op can reach of it."""
    uses = [use for demand in demands for use in demand.uses if use.resource == "dram"]
    return sum(use.amount / (supply.rates["dram"] * use.efficiency) for use in uses)


# --- one rank for all ---

OFFLOAD: tuple[tuple[str, Work], ...] = (
    ("compute", Transfer(2 * GB, "gpu", "dram")),
    ("reduce", Transfer(1 * GB, "gpu", "dram")),
    ("host", HostCompute("optimizer", 1e8, 2.8 * GB)),
    ("gather", Transfer(3 * GB, "dram", "gpu")),
    ("nvme.read", Transfer(1 * GB, "nvme", "dram")),
    ("compute", Transfer(1 * GB, "dram", "gpu", pinned=False)),
    ("nvme.write", Transfer(0.5 * GB, "dram", "nvme")),
    ("host", HostCompute("cast", 1e8, 0.6 * GB)),
    ("nvme.read", Transfer(0.5 * GB, "nvme", "gpu")),
)


def evenly(name: str) -> Topology:
    """The machine with half of its drives on each socket. Those on one socket are near to half of the ranks, and all
    are played as the others, which have to be waited for: not every rank is then as slow as the one that is played."""
    described = yaml.safe_load(find_topology(name).read_text())
    (drives,) = described["node"]["nvme"]
    half = {**drives, "count": drives["count"] // 2}
    described["node"]["nvme"] = [{**half, "socket": 0}, {**half, "socket": 1}]
    return read_topology(inline(described, name))


@pytest.mark.parametrize("launch", [Launch(), BOUND, Launch(omp_num_threads=2)], ids=["unbound", "bound", "threads"])
@pytest.mark.parametrize("name", ["dgx-a100-80", "dgx-v100-16"])
def test_one_rank_played_is_every_rank_played(name: str, launch: Launch) -> None:
    found, one = played(evenly(name), OFFLOAD, launch)
    assert [c.ranks for c in found.classes] == [tuple(range(8))]
    each = apart(found, [work for _, work in OFFLOAD], launch.bind_cores_to_rank)
    assert len(each.supply.rates) > 2 * len(found.supply.rates)
    every = play([one.step], each.classes, each.demands, each.supply)
    spans = one.spans["all"]
    crowded = [
        span
        for span, demand in zip(spans, found.demands["all"], strict=True)
        if span.end - span.start > 1.2 * demand.alone(found.supply)
    ]
    assert len(crowded) > 3  # they are in each other's way
    expected = pytest.approx([time for span in spans for time in (span.start, span.end)])
    for rank in range(8):
        assert [time for span in every.spans[f"rank {rank}"] for time in (span.start, span.end)] == expected


# --- collectives on what is shared ---


def test_collectives_say_how_many_ranks_are_in_what_they_share() -> None:
    """Two nodes of eight A100 over one port of TCP: an all-gather of 8 GB brings each node the 4 GB that it lacks.

    They are written and read on their way out and on their way in: 16 GB of host memory.
    """
    found = demand(named_topology("ethernet-10g-a100"), collective("all_gather", 8 * GB))
    uses = {use.resource: (use.amount / GB, use.ranks) for use in found.uses}
    assert uses["nic"] == pytest.approx((7.5, 8))  # a ring crosses each boundary with 15/16 of the buffer
    assert uses["dram"] == pytest.approx((4 * 7.5, 8))
    assert uses["pcie.both"] == pytest.approx((2 * 7.5 / 4, 1))  # through the four GPUs on the socket of the port


def test_flows_of_a_ring_on_an_uplink_are_counted() -> None:
    """Four GPUs, two on each switch: the ring passes out of a switch once, with 3/4 of the buffer."""
    pairs = {"switches": [{"gpus": [0, 1]}, {"gpus": [2, 3]}]}
    found = demand(machine("l40s", 4, pcie=pairs), collective("all_gather", 8 * GB))
    uses = {use.resource: (use.amount / GB, use.ranks) for use in found.uses}
    assert uses["uplink.d2h"] == pytest.approx((6, 1))
    siblings = demand(machine("l40s", 4, pcie=pairs), collective("all_gather", 8 * GB), size=2, stride=2)
    both = next(use for use in siblings.uses if use.resource == "uplink.d2h")
    assert (both.amount / GB, both.ranks) == pytest.approx((8, 2))  # of two groups, each half of its buffer
