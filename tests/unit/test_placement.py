"""Devices that hang on a socket that is named, and ports that are not as the others: how a template says them."""

from __future__ import annotations

from typing import Any

import pytest

from zerosim.errors import InputError
from zerosim.spec.loading import inline
from zerosim.spec.topology import Nic, Topology
from zerosim.spec.topology_file import read_topology

NICS: dict[str, Any] = {
    "count": 4, "bandwidth": "200 Gbps", "kind": "infiniband",
    "unlike": [{"nics": [3], "bandwidth": "25 Gbps", "kind": "ethernet"}],
}  # fmt: skip


def box(first: dict[str, Any], second: dict[str, Any], nics: dict[str, Any] = NICS, **more: Any) -> Topology:
    cpu = {"device": "epyc_rome", "dram": {"capacity": "512 GB"}}
    node = {"gpus": {"device": "l40s", "count": 4}, "sockets": [cpu | first, cpu | second], "nics": nics}
    return read_topology(inline({"name": "box", "node": node, **more}, "t"))


def said(first: dict[str, Any], second: dict[str, Any], **more: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        box(first, second, **more)
    return [str(problem) for problem in caught.value.problems]


def above(topology: Topology, kind: str) -> list[str]:
    return [next(link.target for link in topology.nodes[0].links if link.source == f"{kind}{n}") for n in range(4)]


def test_what_a_socket_names_hangs_on_it_and_the_rest_evenly() -> None:
    uneven = box({"gpus": [0, 3], "nics": [2]}, {"gpus": [1]})
    assert above(uneven, "gpu") == ["socket0", "socket1", "socket1", "socket0"]
    assert above(uneven, "nic") == ["socket0", "socket0", "socket0", "socket1"]
    assert above(box({}, {}), "gpu") == ["socket0", "socket0", "socket1", "socket1"]


def test_a_device_hangs_in_one_place() -> None:
    assert said({"gpus": [0, 1]}, {"gpus": [1]}) == [
        "t: node.sockets.1.gpus.0: found GPU 1, which socket 0 has; expected each GPU on one socket or switch"
    ]
    assert said({"nics": [4]}, {}) == ["t: node.sockets.0.nics.0: found NIC 4; expected a NIC from 0 to 3"]


def test_ports_that_are_not_as_the_others() -> None:
    assert dict(box({}, {}).nodes[0].ports) == {"nic0": 25e9, "nic1": 25e9, "nic2": 25e9, "nic3": 3.125e9}
    slow = box({}, {}, overrides=[{"node": 0, "nics": {"bandwidth": "100 Gbps"}}])
    assert dict(slow.nodes[0].ports)["nic0"] == 12.5e9
    assert dict(slow.nodes[0].ports)["nic3"] == 3.125e9


def test_ports_that_are_slower_are_of_the_kind_of_the_others() -> None:
    slow = [{"nics": [1], "bandwidth": "25 Gbps"}]
    for nics in ({"bandwidth": "200 Gbps", "kind": "roce"}, {"device": "roce_200"}):
        node = box({}, {}, nics={"count": 4, **nics, "unlike": slow}).nodes[0]
        names = [port.figures.name.partition("_")[0] for port in node.of_kind("nic") if isinstance(port.figures, Nic)]
        assert names == ["roce"] * 4
        assert dict(node.ports)["nic1"] == 3.125e9


def test_ports_that_cannot_be() -> None:
    nics = NICS | {
        "unlike": [{"nics": [4], "bandwidth": "25 Gbps", "kind": "ethernet"}, {"nics": [0], "device": "cx9"}]
    }
    assert said({}, {}, nics=nics) == [
        "t: node.nics.unlike.0.nics.0: found NIC 4; expected a NIC from 0 to 3",
        't: node.nics.unlike.1.device: found "cx9"; expected a port of the catalogue (zerosim list devices)',
    ]
    fast = NICS | {"unlike": [{"nics": [1], "bandwidth": "800 Gbps", "kind": "infiniband"}]}
    assert "node.nics.unlike.0.bandwidth: found 800 Gb/s; expected at most 252 Gb/s" in said({}, {}, nics=fast)[0]
