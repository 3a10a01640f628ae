"""Pricing whole programs: classes, names of resources, host time, sharing of demands, memory taken by libraries."""

from __future__ import annotations

from functools import partial

import pytest

from tests.costs_machines import collective, demand, machine, priced, program, seconds, switched
from tests.counting import calls
from zerosim.costs import price
from zerosim.costs.bounds import busy_seconds, least_seconds
from zerosim.errors import InputError
from zerosim.spec.loading import inline
from zerosim.spec.topology_file import read_topology
from zerosim.step import HostCalls, Matmul, Op, Pass, Step, Transfer

GIB = 2**30
HDR = {"device": "infiniband_hdr", "count": 8}
PRODUCT = Matmul(((1, 8192, 4096, 4096),), "bf16")


def test_equal_gpus_are_one_class_with_plain_names() -> None:
    found = priced(switched("a100_sxm_80", 8, 2, HDR), PRODUCT)
    assert [(c.name, len(c.ranks)) for c in found.classes] == [("all", 16)]
    own = {"sm", "hbm", "nvlink", "pcie.h2d", "pcie.d2h", "pcie.both"}
    plain = own | {"uplink.h2d", "uplink.d2h", "uplink.both", "staging", "dram", "cpu", "nic"}
    assert set(found.supply.rates) == plain
    assert found.supply.rates["nic"] == 200e9
    assert found.supply.labels["sm"] == "SMs 312 TFLOP/s bf16"
    assert found.supply.labels["nic"] == "NIC 200 Gb/s InfiniBand, 8 per node"
    assert {found.supply.units[name] for name in plain - {"sm"}} == {"B/s"}


def test_a_slow_node_is_a_class_of_its_own_and_holds_all_back() -> None:
    slow = [{"node": 1, "nics": {"device": "infiniband_edr"}}]
    cluster = switched("a100_sxm_80", 8, 4, HDR, overrides=slow)
    work = collective("all_gather", GIB)
    found = priced(cluster, work)
    assert [c.name for c in found.classes] == ["node 0 and 2 more", "node 1"]
    first, second = (found.demands[c.name][0] for c in found.classes)
    assert first is second  # one flow for the whole group
    assert first.bottleneck(found.supply) == "nic.node 1"
    assert {u.resource for u in first.uses} >= {"nic.node 1", "nic.node 0 and 2 more", "nvlink.node 1"}
    flow = first.alone(found.supply) - first.latency
    assert flow == pytest.approx(GIB * 31 / 32 / (8 * 12.5e9 * 0.9))
    faster = found.supply.scaled("nic", 2)
    assert all(faster.rates[n] == 2 * found.supply.rates[n] for n in faster.rates if n.startswith("nic"))


def test_a_group_inside_nodes_sees_only_its_own_node() -> None:
    slow = [{"node": 1, "nvlink": {"kind": "switch", "bandwidth": "150 GB/s"}}]
    cluster = switched("a100_sxm_80", 8, 2, HDR, overrides=slow)
    found = priced(cluster, collective("all_gather", GIB), size=8)
    fast, slower = (found.demands[c.name][0] for c in found.classes)
    assert all(use.resource.endswith(".node 0") for use in fast.uses)
    assert all(use.resource.endswith(".node 1") for use in slower.uses)
    assert slower.alone(found.supply) > fast.alone(found.supply)


def test_a_throttled_gpu_is_named() -> None:
    found = priced(switched("a100_sxm_80", overrides=[{"gpu": "0.5", "compute": 0.8}]), PRODUCT)
    assert [c.name for c in found.classes] == ["gpu 0.0 and 6 more", "gpu 0.5"]
    assert found.supply.rates["sm.gpu 0.5"] == pytest.approx(0.8 * 312e12)


def test_host_time_counts_calls() -> None:
    calls = HostCalls(2, 1, gradient_hooks=1, module_hooks=1, hook_parameters=4, reads=1, model_kernels=3)
    op = Op(0, "op", "compute", None, host=calls)
    found = price([Step((op,), (), frozenset(), {}, 1)], switched("a100_sxm_80")).demands["all"][0]
    assert found.host == pytest.approx(1e-6 * (2 * 10 + 30 + 50 + 100 + 4 * 20 + 10 + 3 * 45))
    assert (found.latency, found.uses) == (0.0, ())


def test_equal_ops_share_one_demand() -> None:
    work = Pass(1e6, "stream")
    found = priced(switched("a100_sxm_80"), work, Pass(1e6, "stream"), Pass(2e6, "stream")).demands["all"]
    assert found[0] is found[1]
    assert found[0] is not found[2]


def test_forty_thousand_ops_and_sixteen_thousand_gpus_cost_little() -> None:
    works = [Pass(float(i % 50), "stream") if i % 2 else collective("all_gather", i % 20) for i in range(40_000)]
    small, large = switched("a100_sxm_80"), switched("a100_sxm_80", 8, 2048, HDR)
    steps = [program(*works, size=size) for size in (8, 16_384)]
    made = []
    for step, cluster in zip(steps, (small, large), strict=True):
        assert len(set(map(id, price([step], cluster).demands["all"]))) <= 70
        made.append(calls(partial(price, [step], cluster)))
    assert made[0] < 5 * 40_000
    assert made[1] < made[0] + 40 * 16_384  # walks over all ranks a few times, not once an op


def test_capacities_and_what_libraries_take() -> None:
    found = priced(switched("a100_sxm_80"), collective("all_reduce", GIB))
    assert found.supply.capacities == {"gpu": pytest.approx(79.2 * GIB), "dram": 1e12}
    mib = 2**20
    buffers = 24 * 5 * (4 + 4.6875 + 0.5) * mib  # channels, peers, protocols
    assert found.supply.overheads["gpu"] == pytest.approx((0.6 + 0.4) * GIB + 32 * mib + buffers)
    without = priced(switched("a100_sxm_80", 1), PRODUCT)
    assert without.supply.overheads["gpu"] == pytest.approx(0.6 * GIB + 32 * mib)
    assert buffers + 0.4 * GIB == pytest.approx(1.5 * GIB, rel=0.02)  # as reported for the first communicator


def test_a_machine_without_a_way_between_gpus() -> None:
    gpus = [{"name": f"gpu{i}", "kind": "gpu", "node": 0, "device": "t4"} for i in range(2)]
    links = [{"from": "gpu0", "to": "gpu1", "kind": "nvlink", "bandwidth": "25 GB/s"}]
    pair = read_topology(inline({"name": "pair", "devices": gpus, "links": links}, "pair"))
    assert seconds(pair, collective("all_reduce", GIB)) > 0
    with pytest.raises(InputError, match="PCIe or C2C link"):
        demand(pair, Transfer(1.0, "gpu", "dram"))


def test_bounds_are_below_what_each_resource_is_busy() -> None:
    found = priced(machine("a100_sxm_80", 1), PRODUCT, PRODUCT, Pass(1e9, "stream"))
    demands = found.demands["all"]
    busy = busy_seconds(demands, found.supply)
    alone = [d.alone(found.supply) for d in demands]
    assert busy["sm"] == pytest.approx(2 * (alone[0] - 4e-6))
    assert busy["hbm"] > alone[2]
    assert max(alone) <= least_seconds(demands, found.supply) <= sum(alone)
