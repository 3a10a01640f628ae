"""The bandwidth ladder knows that the GPUs behind a PCIe switch share its link towards the host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import machine, switched
from zerosim.spec.topology import Topology
from zerosim.studies.bandwidths import Tier, bandwidths

GEN4 = 31.5e9  # sixteen lanes of PCIe 4


def uplinks(topology: Topology) -> Tier | None:
    return next((tier for tier in bandwidths(topology) if tier.name == "PCIe uplinks"), None)


@pytest.mark.parametrize(
    ("switches", "number", "part"),
    [
        ([[0, 1], [2, 3], [4, 5], [6, 7]], 4, GEN4 / 2),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], 2, GEN4 / 4),
        ([[0, 1, 2, 3, 4, 5], [6, 7]], 2, GEN4 / 6),  # who has least is told
    ],
)
def test_gpus_behind_a_switch_share_its_uplink(switches: list[list[int]], number: int, part: float) -> None:
    pcie: dict[str, Any] = {"generation": 4, "switches": [{"gpus": gpus, "socket": 0} for gpus in switches]}
    assert uplinks(machine(pcie=pcie)) == Tier("PCIe uplinks", GEN4, "switch", number, part)


def test_a_switch_for_each_gpu_is_no_rung() -> None:
    assert uplinks(switched("a100_sxm_80")) is None


def test_gpus_on_the_socket_have_none() -> None:
    assert uplinks(machine(gpus=4, pcie={"generation": 4})) is None
