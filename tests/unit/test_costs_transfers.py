"""Copies between tiers, by hand: what each takes, who shares it, how long that lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.costs_machines import demand, machine, priced, seconds
from zerosim import load, simulate
from zerosim.catalog import constant, constants
from zerosim.errors import InputError
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import named_topology
from zerosim.step import Transfer

GB = 1e9
LAUNCH = 6e-6  # of a copy
BOUND = Launch(bind_cores_to_rank=True)
FETCH, STOW = Transfer(GB, "dram", "gpu"), Transfer(GB, "gpu", "dram")


def node(gpus: int = 2, **more: Any) -> Topology:
    """A100 on PCIe 4, two on each switch, one socket of 204.8 GB/s and 64 cores."""
    switches = [{"gpus": [i, i + 1] if i + 1 < gpus else [i], "socket": 0} for i in range(0, gpus, 2)]
    return machine("a100_sxm_80", gpus, **{"pcie": {"switches": switches}, **more})


def rate(topology: Topology, work: Transfer, launch: Launch | None = None) -> float:
    """GB/s of each rank while all of them do the same."""
    return work.bytes / GB / (seconds(topology, work, launch=launch) - LAUNCH)


def limit(topology: Topology, work: Transfer) -> str:
    return demand(topology, work).bottleneck(priced(topology).supply)


# --- between GPU and host memory ---


def test_one_gpu_has_its_link_to_itself() -> None:
    assert rate(node(1), FETCH) == pytest.approx(0.79 * 31.5)  # 24.9
    assert rate(node(1), STOW) == pytest.approx(0.83 * 31.5)  # 26.1
    assert limit(node(1), STOW) == "pcie.d2h"


def test_two_gpus_behind_one_switch_share_its_uplink() -> None:
    assert rate(node(2), FETCH) == pytest.approx(0.79 * 31.5 / 2)  # 12.4
    assert limit(node(2), FETCH) == "uplink.h2d"
    use = next(use for use in demand(node(2), FETCH).uses if use.resource == "uplink.h2d")
    assert (use.amount, use.ranks) == (2 * GB, 2)


def test_eight_gpus_of_one_socket_share_its_memory() -> None:
    direct = node(8, pcie={})  # 8 x 24.9 = 199 GB/s would pass the links, but memory gives 0.8 x 204.8 = 163.8
    assert rate(direct, FETCH) == pytest.approx(0.8 * 204.8 / 8)  # 20.5
    assert limit(direct, FETCH) == "dram"
    assert rate(node(8), FETCH) == pytest.approx(0.79 * 31.5 / 2)  # four uplinks of 24.9: less than memory gives
    assert limit(node(8), FETCH) == "uplink.h2d"


def test_eight_gpus_behind_two_uplinks_of_pcie_5() -> None:
    """Published for such a machine: 114 GB/s to eight GPUs (RTX6K); 2 x 0.88 x 63 = 111."""
    halves = [{"gpus": [0, 1, 2, 3]}, {"gpus": [4, 5, 6, 7]}]
    genoa = [{"device": "epyc_genoa", "dram": {"capacity": "1 TB"}}]
    box = machine("h100_pcie", 8, pcie={"switches": halves}, sockets=genoa)
    assert 8 * rate(box, FETCH) == pytest.approx(110.9, abs=0.1)
    # both behind one part of the CPU that lets 73 GB/s through: 73 / 0.88 = 83 on paper
    quadrant = {"switches": [{"switches": halves, "uplink": "83 GB/s"}]}
    assert 8 * rate(machine("h100_pcie", 8, pcie=quadrant, sockets=genoa), FETCH) == pytest.approx(73, abs=0.1)


def test_switches_behind_switches_each_have_a_resource() -> None:
    """DGX-2: two GPUs on a switch, two of those on the next: four share 0.78 x 15.75 = 12.3 GB/s."""
    dgx2 = named_topology("dgx2-v100-32")
    assert rate(dgx2.select(gpus=1), FETCH) == pytest.approx(12.285)
    assert rate(dgx2, FETCH) == pytest.approx(12.285 / 4)
    assert limit(dgx2, FETCH) == "uplink2.h2d"
    amounts = {use.resource: use.amount / GB for use in demand(dgx2, FETCH).uses}
    assert (amounts["uplink.h2d"], amounts["uplink2.h2d"]) == (2, 4)
    bound = priced(dgx2, FETCH, launch=BOUND)
    faster = bound.supply.scaled("uplink2", 4)  # the first row of switches is still there
    assert bound.demands["all"][0].alone(faster) == pytest.approx(LAUNCH + 2 * GB / 12.285e9)


def test_each_direction_is_a_resource_and_both_together_are_one() -> None:
    down, up = ({use.resource for use in demand(node(1), work).uses} for work in (FETCH, STOW))
    assert down == {"hbm", "pcie.h2d", "uplink.h2d", "pcie.both", "uplink.both", "dram"}
    assert down & up == {"hbm", "pcie.both", "uplink.both", "dram"}  # an uplink has a limit for both ways, too
    assert priced(node(1)).supply.rates["pcie.both"] == 2 * 31.5e9


@pytest.mark.parametrize("key", sorted(constants("copies.both_eff")))
def test_both_directions_together_are_no_slower_than_one_and_no_faster_than_two(key: str) -> None:
    one, other, both = (constant(f"copies.{way}_eff.{key}") for way in ("h2d", "d2h", "both"))
    assert max(one, other) / 2 <= both <= (one + other) / 2 + 0.01


def test_c2c_carries_no_more_both_ways_than_one_way() -> None:
    grace = named_topology("gh200")
    assert rate(grace, FETCH) == pytest.approx(0.8 * 450)
    both = next(use for use in demand(grace, STOW).uses if use.resource == "c2c.both")
    assert both.efficiency * priced(grace).supply.rates["c2c.both"] == pytest.approx(360e9)  # 2 x 173 measured


def test_pageable_memory_is_five_times_slower_and_is_passed_three_times() -> None:
    pageable = FETCH._replace(pinned=False)
    assert rate(node(1), FETCH) / rate(node(1), pageable) == pytest.approx(5)
    amounts = [
        next(use.amount for use in demand(node(1), work).uses if use.resource == "dram") for work in (FETCH, pageable)
    ]
    assert amounts == [GB, 3 * GB]


# --- from socket to socket ---


def two_sockets(gpus: int, where: tuple[int, ...]) -> Topology:
    """A100 straight on two sockets of 204.8 GB/s, joined by 128 GB/s of which GPUs get 0.30: 38.4 GB/s each way."""
    switches = [{"gpus": [gpu], "socket": socket} for gpu, socket in enumerate(where)]
    return machine(
        "a100_sxm_80",
        gpus,
        pcie={"switches": switches},
        sockets=[{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2,
    )


def test_half_of_the_copies_of_ranks_that_are_not_bound_cross_between_sockets() -> None:
    box = two_sockets(4, (0, 0, 1, 1))
    uses = {use.resource: use for use in demand(box, FETCH).uses}
    assert uses["dram"][1:] == (4 * GB, 0.8, 4)  # of both sockets, by all ranks
    # two ranks here read half of theirs from there, two there read half of theirs from here
    assert (uses["sockets.into"].amount, uses["sockets.into"].ranks) == (GB, 2)
    assert (uses["sockets.out"].amount, uses["sockets.out"].ranks) == (GB, 2)
    assert priced(box).supply.rates["dram"] == 2 * 204.8e9
    assert rate(box, FETCH) == pytest.approx(0.79 * 31.5)  # 38.4 GB/s of the link for 2 x 24.9 / 2


def test_a_bound_rank_has_its_memory_near() -> None:
    box = two_sockets(4, (0, 0, 1, 1))
    found = priced(box, FETCH, launch=BOUND)
    assert len(found.classes) == 1
    uses = {use.resource: use for use in found.demands["all"][0].uses}
    assert uses["dram"][1:] == (2 * GB, 0.8, 2)
    assert "sockets.into" not in uses
    assert found.supply.rates["dram"] == 204.8e9
    assert found.findings == ()


def test_ranks_bound_to_the_wrong_socket_copy_over_the_link_and_are_told() -> None:
    box = two_sockets(4, (1, 1, 0, 0))  # GPUs 0 and 1 on socket 1, but ranks 0 and 1 at home on socket 0
    assert rate(box, FETCH, BOUND) == pytest.approx(0.3 * 128 / 2)  # 19.2 instead of 24.9
    found = priced(box, FETCH, launch=BOUND)
    assert [finding.code for finding in found.findings] == ["remote-socket"]
    assert "4 ranks" in found.findings[0].message
    assert "52.09 ms instead of 40.19 ms" in found.findings[0].message


def test_a_rank_at_home_elsewhere_is_a_class_of_its_own() -> None:
    box = two_sockets(2, (0, 0))  # both GPUs on socket 0; rank 1 is at home on socket 1
    found = priced(box, FETCH, launch=BOUND)
    assert [found_class.ranks for found_class in found.classes] == [(0,), (1,)]
    near, far = ({use.resource for use in found.demands[c.name][0].uses} for c in found.classes)
    assert "sockets.into.gpu 0.1" in far
    back = {use.resource for use in priced(box, STOW, launch=BOUND).demands["gpu 0.1"][0].uses}
    assert "sockets.out.gpu 0.1" in back
    assert "sockets.into.gpu 0.1" not in back
    assert len(priced(box, FETCH).classes) == 1
    assert near >= {"sockets.into.gpu 0.0"}  # rank 1's copies come into its socket too


# --- drives ---

FOUR = [{"read": "6.5 GB/s", "write": "3.8 GB/s", "capacity": "4 TB", "count": 4}]


def test_drives_are_shared_by_all_ranks_of_the_node() -> None:
    stored = node(2, nvme=FOUR)
    read = 80e-6 + 2 * GB / (4 * 6.5e9 * 0.75)
    assert seconds(stored, Transfer(GB, "nvme", "dram")) == pytest.approx(read)
    assert seconds(stored, Transfer(GB, "dram", "nvme")) == pytest.approx(20e-6 + 2 * GB / (4 * 3.8e9 * 0.75))
    amounts = {use.resource: (use.amount, use.ranks) for use in demand(stored, Transfer(GB, "nvme", "dram")).uses}
    assert amounts == {"nvme": (2 * GB, 2), "dram": (2 * GB, 2)}
    assert priced(stored).supply.capacities["nvme"] == 16e12


def test_a_direct_copy_leaves_host_memory_out() -> None:
    through = demand(node(2, nvme=FOUR), Transfer(GB, "nvme", "gpu"))
    amounts = {use.resource: use.amount for use in through.uses}
    assert through.latency == pytest.approx(86e-6)
    lane = {"pcie.h2d": GB, "pcie.both": GB, "uplink.h2d": 2 * GB, "uplink.both": 2 * GB}
    assert amounts == {"nvme": 2 * GB, "hbm": GB, **lane}


def test_requests_that_wait_for_each_other_cost_their_overhead() -> None:
    stored, batch = node(1, nvme=FOUR), 8 * 2**20
    waiting = Transfer(2**30, "nvme", "dram", batch=batch, in_turn=True)
    assert demand(stored, waiting).latency == pytest.approx(80e-6 + 128 * 100e-6)  # 1 GiB / 8 MiB = 128 requests
    assert demand(stored, waiting._replace(in_turn=False)).latency == pytest.approx(80e-6)
    said = priced(stored, waiting).findings[0]
    assert said.code == "drive-queue"
    # 1 GiB at 0.75 x 4 x 6.5 GB/s and 80 us, and 128 x 100 us more
    assert "A rank asks the drives for 8.389 MB at once" in said.message
    assert "takes 67.94 ms instead of 55.14 ms in a step" in said.message
    assert "overlap_events: true" in said.remedy


def test_few_bytes_in_flight_carry_no_more_than_their_latency_lets_through() -> None:
    """Four drives give two ranks 0.75 x 4 x 6.5 / 2 = 9.75 GB/s each. With 32 KiB in flight a rank reads
    32768 / 80 us = 0.4096 GB/s, and writes 32768 / 20 us = 1.638 GB/s of the 0.75 x 4 x 3.8 / 2 = 5.7 GB/s."""
    stored, few = node(2, nvme=FOUR), float(2**15)
    read, write = Transfer(GB, "nvme", "dram", batch=few), Transfer(GB, "dram", "nvme", batch=few)
    assert seconds(stored, read) == pytest.approx(80e-6 + 1 / 0.4096)
    assert seconds(stored, write) == pytest.approx(20e-6 + 1 / 1.6384)
    found = priced(stored, read, write)
    assert [each.bottleneck(found.supply) for each in found.demands["all"]] == ["requests.read", "requests.write"]
    assert found.supply.labels["requests.read"] == "few reads of NVMe in flight (aio)"
    assert [finding.code for finding in found.findings] == ["drive-queue"]
    assert "takes 3.052 s instead of 278.1 ms in a step" in found.findings[0].message
    assert found.findings[0].remedy == "Raise aio.queue_depth or aio.block_size."


@pytest.mark.parametrize("ranks", [1, 2])
def test_requests_enough_for_the_drives_make_no_difference(ranks: int) -> None:
    """8 MiB, as by default: 105 GB/s of reads."""
    stored, plain = node(ranks, nvme=FOUR), Transfer(GB, "nvme", "dram")
    assert demand(stored, plain._replace(batch=float(2**23))) == demand(stored, plain)
    assert priced(stored, plain._replace(batch=float(2**23))).findings == ()


CONSUMER = {"device": "nvme_gen4", "capacity": "2 TB"}


def test_what_a_step_writes_beyond_the_cache_goes_at_the_sustained_rate() -> None:
    """One consumer drive: 5 GB/s for 42 GB, then 2 GB/s; a step that writes 105 GB takes 42 / 5 + 63 / 2 = 39.9 s."""
    stored = node(1, nvme=[CONSUMER])
    little, much = Transfer(30 * GB, "dram", "nvme"), Transfer(52.5 * GB, "dram", "nvme")
    assert seconds(stored, little) == pytest.approx(30 / 5, rel=1e-4)
    found = priced(stored, much, much)
    assert sum(demand.alone(found.supply) for demand in found.demands["all"]) == pytest.approx(39.9, rel=1e-4)
    (floor,) = found.floors
    assert found.findings == ()
    assert floor.seconds == pytest.approx(52.5)  # 105 GB at 2 GB/s
    assert (floor.finding.code, floor.finding.severity) == ("drive-cache", "warning")
    assert "writes 105 GB to the drives of a node, which keep up 2 GB/s" in floor.finding.message
    assert "With full caches a step takes at least 52.5 s." in floor.finding.message
    assert priced(stored, little).floors[0].seconds == pytest.approx(15)
    assert priced(stored, Transfer(GB, "nvme", "dram")).floors == ()
    assert priced(node(1, nvme=FOUR), much, much).floors == ()


def test_the_caches_of_all_drives_take_what_all_ranks_write() -> None:
    """Two such drives, two ranks of 63 GB: 84 GB at 2 x 5 x 0.75, and 42 GB at 2 x 2 x 0.75 GB/s."""
    stored, work = node(2, nvme=[{**CONSUMER, "count": 2}]), Transfer(63 * GB, "dram", "nvme")
    assert seconds(stored, work) == pytest.approx(84 / 7.5 + 42 / 3, rel=1e-4)
    assert priced(stored, work).floors[0].seconds == pytest.approx(42)  # 126 / 3


def test_copies_that_cannot_be() -> None:
    with pytest.raises(InputError, match="nvme drives"):
        demand(node(), Transfer(GB, "nvme", "dram"))
    with pytest.raises(InputError, match="tiers gpu, dram or nvme"):
        demand(node(), Transfer(GB, "tape", "dram"))  # type: ignore[arg-type]  # what no tier is


def test_drives_are_called_by_the_way_that_they_are_used() -> None:
    supply = simulate(
        load(
            Path(__file__).parents[2] / "scenarios/seven-b/zero3-nvme.yaml", ["training.gradient_accumulation_steps=1"]
        )
    ).supply
    assert supply.called("nvme") == ("NVMe 52 GB/s, writes 30.4 GB/s, 8 per node", 52e9)
    assert supply.called("nvme", "read") == ("NVMe 52 GB/s, 8 per node", 52e9)
    label, rate = supply.called("nvme", "write")
    assert label == "NVMe writes 30.4 GB/s, 8 per node"
    assert rate == pytest.approx(30.4e9)
    assert supply.called("hbm", "read") == supply.called("hbm")
