"""A ZeRO configuration with its states on other tiers; every other setting is the configuration's own.

So the buffers, pinning and pipelining that a rung in host memory or on drives has are those of the scenario's
`offload_optimizer` and `offload_param` sections, where it has them, and else DeepSpeed's defaults.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from zerosim.scenario import Scenario
from zerosim.spec.strategy import ENOUGH, Zero

Device = Literal["none", "cpu", "nvme"]


def placed(zero: Zero, optimizer: Device, parameters: Device, scenario: Scenario) -> Zero:
    """The scenario's own sections elsewhere; parameters on NVMe are all there, with buffers that hold the largest."""
    states, weights = replace(zero.offload_optimizer, device=optimizer), replace(zero.offload_param, device=parameters)
    if parameters == "nvme" and zero.offload_param.device != "nvme":
        room = max(weights.buffer_size, _largest(scenario))
        weights = replace(weights, max_in_cpu=0, buffer_size=room, buffer_count=ENOUGH)
    return replace(zero, offload_optimizer=states, offload_param=weights).offloadable


def _largest(scenario: Scenario) -> int:
    """Elements of the largest partition of a parameter."""
    return -(-max(parameter.numel for parameter in scenario.model.parameters) // scenario.world_size)
