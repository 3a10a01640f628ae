"""What becomes of a machine in which one thing is faster, and what a step gains by it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import collective, machine, program, seconds, switched
from zerosim import simulation
from zerosim.costs import Change, price
from zerosim.scenario import from_mapping
from zerosim.spec.calibration import Calibration, Curve, MeasuredRate
from zerosim.spec.launch import Launch
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology
from zerosim.step import HostCompute, Matmul, Pass, Transfer, Work
from zerosim.studies.faster import THINGS, Thing
from zerosim.studies.resource import FREED
from zerosim.studies.sensitivity import _Sold, sensitivity

SCENARIO: dict[str, Any] = {
    "topology": "dgx-a100-80",
    "model": {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1000},
    "training": {"sequence_length": 128, "attention": "flash"},
    "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}},
}
GATHER = collective("all_gather", 1e9)
DOWN = Transfer(1e9, "gpu", "dram")


def thing(name: str) -> Thing:
    return next(each for each in THINGS if each.name == name)


def leaves(nodes: int = 4, oversubscription: float = 2.0) -> Topology:
    """Two nodes a leaf, one port of 100 Gb/s each: an uplink carries 2 x 100 / oversubscription."""
    fabric = {"kind": "fat_tree", "leaf_nodes": 2, "oversubscription": oversubscription}
    return machine(gpus=1, nodes=nodes, nics={"count": 1, "bandwidth": "100 Gbps", "kind": "infiniband"}, fabric=fabric)


@pytest.mark.parametrize(("name", "port", "uplink"), [("nic", 2, 1), ("fabric", 1, 2), ("network", 2, 2)])
def test_ports_and_the_switches_above_them_are_two_things(name: str, port: float, uplink: float) -> None:
    faster = thing(name).machine(leaves(), 2.0)
    assert faster.link("0.nic0", "leaf0").bandwidth == pytest.approx(port * 12.5e9)
    assert faster.link("leaf0", "spine0").bandwidth == pytest.approx(uplink * 12.5e9)
    assert len({id(node) for node in faster.nodes}) == 1


@pytest.mark.parametrize(("name", "port", "uplink"), [("nic", 2, 1), ("fabric", 1, 2), ("network", 2, 2)])
def test_so_they_are_where_the_network_is_drawn(name: str, port: float, uplink: float) -> None:
    rates = {"bandwidth": "100 Gbps"}
    kinds: dict[str, dict[str, Any]] = {
        "gpu": {"device": "a100_sxm_80"}, "socket": {"cores": 8}, "nic": {"network": "infiniband"},
    }  # fmt: skip
    parts = [[{"name": f"{n}.{kind}", "kind": kind, "node": n, **more} for kind, more in kinds.items()] for n in (0, 1)]
    drawn = read_topology(inline({
        "name": "drawn",
        "devices": [*parts[0], *parts[1], *({"name": f"leaf{n}", "kind": "leaf"} for n in (0, 1)),
                    {"name": "spine", "kind": "spine"}],
        "links": [link for n in (0, 1) for link in (
            {"from": f"{n}.gpu", "to": f"{n}.socket", "bandwidth": "25 GB/s"},
            {"from": f"{n}.nic", "to": f"{n}.socket", "bandwidth": "25 GB/s"},
            {"from": f"{n}.nic", "to": f"leaf{n}", **rates}, {"from": f"leaf{n}", "to": "spine", **rates})],
    }, "drawn"))  # fmt: skip
    faster = thing(name).machine(drawn, 2.0)
    rates_of = {(link.source, link.target): link.bandwidth for link in faster.fabric.links((0, 1))}
    assert rates_of["0.nic", "leaf0"] == pytest.approx(port * 12.5e9)
    assert rates_of["leaf1", "spine"] == pytest.approx(uplink * 12.5e9)


@pytest.mark.parametrize(
    ("name", "work", "least"),
    [
        ("gpu", Matmul(((1, 8192, 8192, 8192),), "bf16"), 1.95),
        ("hbm", Pass(1e10, "stream"), 1.99),
        ("nvlink", GATHER, 1.8),
        ("pcie", DOWN, 1.99),
        ("cpu", HostCompute("stream", 1e9, 1e9), 1.0),
        ("nvme", Transfer(1e9, "dram", "nvme"), 1.9),
    ],
)  # fmt: skip
def test_what_a_thing_limits_takes_half_as_long_where_it_is_twice_as_fast(name: str, work: Work, least: float) -> None:
    drive = {"socket": 0, "count": 1, "read": "5 GB/s", "write": "4 GB/s", "capacity": "1 TB"}
    today = switched("a100_sxm_80", gpus=2, nvme=[drive])
    change = Change(lambda topology: thing(name).machine(topology, 2.0), lambda: thing(name).values(2.0))
    found = price([program(work, size=2)], today, change=change)
    faster = found.demands["all"][0].alone(found.supply)
    assert least <= seconds(today, work) / faster <= 2.0 + 1e-9


def test_a_faster_port_meets_the_lanes_behind_it() -> None:
    """Its slot of 31.5 GB/s gives 85 %: a port of 200 Gb/s gains little, and nothing more by being free."""
    today = switched("a100_sxm_80", nodes=2, nics={"device": "infiniband_hdr", "count": 8})
    twice, free = (thing("nic").machine(today, factor) for factor in (2.0, FREED))
    assert seconds(today, GATHER) > seconds(twice, GATHER)
    assert seconds(free, GATHER) == pytest.approx(seconds(twice, GATHER), rel=1e-3)


def two_leaves(nics: str = "{count: 1, bandwidth: 10 Gbps, kind: ethernet}") -> simulation.Simulation:
    """Four nodes on two leaves with thin uplinks."""
    fabric = "{kind: fat_tree, leaf_nodes: 2, oversubscription: 2}"
    changes = ("topology.node.count=4", f"topology.fabric={fabric}", f"topology.node.nics={nics}")
    return simulation.simulate(from_mapping(SCENARIO | {"topology": "ethernet-10g-a100"}, ".", changes))


def test_uplinks_go_with_the_rate_of_ports_and_ports_alone_reach_the_share_of_today() -> None:
    today = two_leaves()
    assert _Sold.of(today, thing("nic")) is None
    sold = _Sold.of(today, thing("network"))
    assert sold is not None
    assert sold.at(sold.today).makespan == pytest.approx(today.makespan)
    twice = sold.at(2 * sold.today)
    assert twice.supply.rates["leaf"] == pytest.approx(2 * today.supply.rates["leaf"])
    assert sold.seconds(FREED) < sold.seconds(2.0) == twice.makespan
    assert (sold.bounded, "at most 252 Gb/s" in sold.why) == ("", True)


def test_ports_that_differ_reach_the_share_of_today() -> None:
    uneven = two_leaves("{count: 2, bandwidth: 10 Gbps, kind: ethernet, unlike: [{nics: [1], bandwidth: 25 Gbps}]}")
    named = {name: _Sold.of(uneven, thing(name)) is None for name in ("nic", "network", "pcie")}
    assert named == {"nic": True, "network": True, "pcie": False}


def test_times_are_shorter_and_rates_higher() -> None:
    host, cores = thing("host").values(2.0), thing("cpu").values(2.0)
    assert set(host) > {"host.launch_us", "host.module_hook_us"}
    assert host["host.launch_us"] == pytest.approx(thing("host").values(1.0)["host.launch_us"] / 2)
    assert list(cores) == ["cpu_adam.per_core_gbs"]
    assert cores["cpu_adam.per_core_gbs"] == 2 * thing("cpu").values(1.0)["cpu_adam.per_core_gbs"]


def test_the_program_is_built_once_and_each_thing_is_played_thrice(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"build": 0, "play": 0}
    for name in counts:
        real = getattr(simulation, name)

        def counted(*given: object, _name: str = name, _real: Any = real) -> object:
            counts[_name] += 1
            return _real(*given)

        monkeypatch.setattr(simulation, name, counted)
    heard: list[tuple[int, int]] = []
    rows = sensitivity(simulation.simulate(from_mapping(SCENARIO)), lambda done, of: heard.append((done, of)))
    assert {row.thing for row in rows} == {"gpu", "hbm", "nvlink", "host", "collective_latency"}
    assert counts == {"build": 1, "play": 1 + 3 * 5}
    assert heard == [(done, 15) for done in range(1, 16)]
    assert [row.twice_as_fast_seconds for row in rows] == sorted(row.twice_as_fast_seconds for row in rows)


def test_a_step_that_waits_for_the_host_gains_what_the_host_does() -> None:
    """Kernels of a tiny model take less than the calls that launch them."""
    first, *_ = rows = sensitivity(simulation.simulate(from_mapping(SCENARIO)))
    assert first.thing == "host"
    assert first.gain(first.twice_as_fast_seconds) > 0.3
    assert next(row for row in rows if row.thing == "gpu").gain(first.step_seconds) == 0


def test_what_was_measured_is_carried_over_to_the_faster_machine() -> None:
    """A curve of 100 GB/s on NVLinks that model as 228 GB/s: with twice the links 200 GB/s. So with copies."""
    today, curve = switched("a100_sxm_80"), Curve("all_gather", 8, 1, 50e-6, 100e9, 0.0, (8, 2**30), 0.02, "a.log")
    measured = Calibration("", (curve,), rates=(MeasuredRate("copies.d2h", 5e9, "x"),))

    def played(name: str, factor: float) -> tuple[float, float]:
        change = Change(lambda topology: thing(name).machine(topology, factor), lambda: thing(name).values(factor))
        found = price([program(GATHER, DOWN, size=8)], today, Launch(), measured, change=change)
        gather, copy = (demand.alone(found.supply) for demand in found.demands["all"])
        return gather, copy

    found = price([program(GATHER, DOWN, size=8)], today, Launch(), measured)
    gather, copy = (demand.alone(found.supply) for demand in found.demands["all"])
    assert played("nvlink", 1.0) == pytest.approx((gather, copy), rel=1e-6)
    assert played("nvlink", 2.0) == pytest.approx((50e-6 + (gather - 50e-6) / 2, copy), rel=1e-3)
    assert played("pcie", 2.0) == pytest.approx((gather, copy / 2), rel=1e-3)
