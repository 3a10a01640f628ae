"""Copies between tiers and work of the CPU, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import demand, machine, priced, seconds
from zerosim.errors import InputError
from zerosim.spec.topology import Topology
from zerosim.step import HostCompute, Transfer

GB = 1e9


def node(gpus: int = 2, **more: Any) -> Topology:
    """A100 on PCIe 4, two on each switch, one socket of 204.8 GB/s and 64 cores."""
    switches = [{"gpus": [i, i + 1] if i + 1 < gpus else [i], "socket": 0} for i in range(0, gpus, 2)]
    return machine("a100_sxm_80", gpus, pcie={"switches": switches}, **more)


def test_a_pinned_copy_takes_the_lane() -> None:
    alone = node(1)
    assert seconds(alone, Transfer(GB, "dram", "gpu")) == pytest.approx(6e-6 + GB / (0.79 * 31.5e9))
    assert seconds(alone, Transfer(GB, "gpu", "dram")) == pytest.approx(6e-6 + GB / (0.83 * 31.5e9))
    assert demand(alone, Transfer(GB, "gpu", "dram")).bottleneck(priced(alone).supply) == "pcie.d2h"


def test_two_gpus_behind_one_switch_share_its_uplink() -> None:
    shared = node(2)
    assert seconds(shared, Transfer(GB, "dram", "gpu")) == pytest.approx(6e-6 + 2 * GB / (0.79 * 31.5e9))
    assert demand(shared, Transfer(GB, "dram", "gpu")).bottleneck(priced(shared).supply) == "uplink.h2d"


def test_the_directions_are_apart() -> None:
    down, up = (demand(node(), Transfer(GB, *way)).uses for way in (("dram", "gpu"), ("gpu", "dram")))
    both = {use.resource for use in down} & {use.resource for use in up}
    assert both == {"hbm", "dram"}


def test_pageable_memory_is_five_times_slower() -> None:
    fast, slow = (seconds(node(1), Transfer(GB, "dram", "gpu", pinned)) - 6e-6 for pinned in (True, False))
    assert slow / fast == pytest.approx(5)


def test_host_memory_counts_every_rank_of_the_socket() -> None:
    use = next(u for u in demand(node(8), Transfer(GB, "gpu", "dram")).uses if u.resource == "dram")
    assert use[:3] == ("dram", 8 * GB, 0.8)


def test_a_drive_is_shared_by_all_ranks_of_the_node_and_bounces_through_host_memory() -> None:
    drives = [{"read": "6.5 GB/s", "write": "3.8 GB/s", "capacity": "4 TB", "count": 4}]
    with_nvme = node(2, nvme=drives)
    read = 80e-6 + 2 * GB / (4 * 6.5e9 * 0.75)
    assert seconds(with_nvme, Transfer(GB, "nvme", "dram")) == pytest.approx(read)
    assert seconds(with_nvme, Transfer(GB, "dram", "nvme")) == pytest.approx(20e-6 + 2 * GB / (4 * 3.8e9 * 0.75))
    through = demand(with_nvme, Transfer(GB, "nvme", "gpu"))
    amounts = {use.resource: use.amount for use in through.uses}
    assert through.latency == pytest.approx(86e-6)
    assert amounts == {"nvme": 2 * GB, "dram": 4 * GB, "hbm": GB, "pcie.h2d": GB, "uplink.h2d": 2 * GB}
    assert priced(with_nvme).supply.capacities["nvme"] == 16e12


def test_copies_that_cannot_be() -> None:
    with pytest.raises(InputError, match="nvme drives"):
        demand(node(), Transfer(GB, "nvme", "dram"))
    with pytest.raises(InputError, match="tiers gpu, dram or nvme"):
        demand(node(), Transfer(GB, "tape", "dram"))  # type: ignore[arg-type]


def test_cpu_adam_of_ten_billion_parameters() -> None:
    sockets = [{"device": "epyc_7742", "cores": 128, "dram": {"capacity": "1 TB", "bandwidth": "256 GB/s"}}]
    host = node(1, sockets=sockets)
    adam = HostCompute("optimizer", 10e9, 280e9)  # 28 B a parameter
    assert seconds(host, adam) == pytest.approx(2.19, rel=0.002)  # ZeRO-Offload, Table 4: 2.57 s
    assert seconds(host, HostCompute("torch_optimizer", 10e9, 280e9)) == pytest.approx(5.5 * 280e9 / 128e9)
    assert seconds(host, HostCompute("cast", 1e9, 6e9)) == pytest.approx(6e9 / (0.4 * 256e9))


def test_few_cores_move_less_than_memory_could() -> None:
    sockets = [{"device": "epyc_7742", "cores": 4, "dram": {"capacity": "1 TB", "bandwidth": "256 GB/s"}}]
    assert seconds(node(1, sockets=sockets), HostCompute("optimizer", 1e9, 28e9)) == pytest.approx(28e9 / 32e9)


def test_c2c_is_one_resource_for_both_ways() -> None:
    grace = machine("gh200", 1, pcie=None, sockets=[{"device": "grace", "dram": {"capacity": "480 GB"}}])
    assert seconds(grace, Transfer(GB, "dram", "gpu")) == pytest.approx(6e-6 + GB / (0.8 * 450e9))
    assert {"c2c"} < {use.resource for use in demand(grace, Transfer(GB, "gpu", "dram")).uses}
