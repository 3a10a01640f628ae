"""Where the states of a rank live, and what the host does with those that live with it.

Source: DeepSpeed runtime/zero/offload_config.py, stage_1_and_2.py, stage3.py, ops/adam/cpu_adam.py. Gradients go where
the optimizer is. Nothing overlaps the optimizer on the CPU: its host thread computes, sub-group after sub-group.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.spec.strategy import Optimizer, Zero
from zerosim.step import HostCompute, Tier
from zerosim.strategies.builder import Builder

_TIERS: dict[str, Tier] = {"none": "gpu", "cpu": "dram", "nvme": "nvme"}
MASTER_BYTES = 4  # the fp32 copy of a parameter that the optimizer updates
SCALE_BYTES = 8  # fp32 gradient times 1 / (loss scale x clip factor), in place


@dataclass(frozen=True, slots=True)
class Placement:
    """The tier of the 16-bit parameters (a rank's shard) and of the optimizer (master, states, gradients)."""

    parameters: Tier = "gpu"
    optimizer: Tier = "gpu"
    parameters_pinned: bool = True
    optimizer_pinned: bool = True


def placement_of(zero: Zero) -> Placement:
    """What the stage makes of the two sections: nothing on stage 0; stages 1 and 2 keep parameters on the GPU and take
    an optimizer on NVMe for one in host memory."""
    if zero.stage == 0:
        return Placement()
    parameters, optimizer = zero.offload_param, zero.offload_optimizer
    if zero.stage < 3:
        tier: Tier = "gpu" if optimizer.device == "none" else "dram"
        return Placement(optimizer=tier, optimizer_pinned=optimizer.pin_memory)
    return Placement(_TIERS[parameters.device], _TIERS[optimizer.device], parameters.pin_memory, optimizer.pin_memory)


@dataclass(frozen=True, slots=True)
class HostOptimizer:
    """The optimizer as the host runs it, on fp32 masters in host memory; `width`: bytes of a 16-bit parameter."""

    builder: Builder
    optimizer: Optimizer
    width: int

    def residents(self, elements: int, pinned: bool, master_pinned: bool | None = None) -> None:
        """Master, gradients, states. The optimizer makes its states itself, and does not pin them."""
        resident, states = self.builder.resident, self.optimizer.state_bytes
        master_pinned = pinned if master_pinned is None else master_pinned
        resident("fp32 master parameters", "optimizer", float(MASTER_BYTES * elements), "dram", master_pinned)
        resident("fp32 gradients", "gradients", float(MASTER_BYTES * elements), "dram", pinned)
        if states:
            resident("optimizer states", "optimizer", float(states * elements), "dram")

    def update(self, elements: int, scale: bool = True, cast: bool = True) -> None:
        """Scale if need be, optimizer, and (`cast`) the new 16-bit copy; the host thread is busy with each in turn."""
        optimizer, compute = self.optimizer, self.builder.host_compute
        if scale:
            compute("scale gradients", HostCompute("stream", elements, float(SCALE_BYTES * elements)))
        moved = float(optimizer.traffic_bytes * elements)
        own = optimizer.on_cpu == "deepspeed"
        work = HostCompute("optimizer" if own else "torch_optimizer", elements, moved)
        compute(f"{optimizer.name} step on the CPU", work)
        if cast:
            self.cast(elements)

    def cast(self, elements: int) -> None:
        """The new 16-bit copy of fp32 parameters; nothing where they are trained in fp32."""
        if self.width < MASTER_BYTES:
            work = HostCompute("cast", elements, float((MASTER_BYTES + self.width) * elements))
            self.builder.host_compute(f"cast parameters to {8 * self.width} bit", work)
