"""ZeRO++'s hierarchical partition (hpZ): a second, coarser shard of each parameter, shared by few ranks (of a node).

Source: DeepSpeed 0.19.8 runtime/zero/partition_parameters.py (`_partition_param_sec`), stage3.py
(`invalidate_secondary_tensor`). It is cut from a gathered parameter when that is dropped, and gathered instead of the
first shard until the step, which forgets it: so only the first gather of a step goes over all ranks. After each cut the
host waits for the compute lane. Those of frozen parameters stay. Offloaded parameters have theirs in host memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.step import COMPUTE, Group, HostCalls, HostCompute, Pass, Tier, Transfer
from zerosim.strategies.builder import Builder
from zerosim.strategies.quantized import quantized
from zerosim.strategies.stage3_layout import Stage3Layout

_CATEGORY = "parameters"


class SecondaryShards:
    """Those of this rank, shared by `group`, where first shards are spread over `ranks`."""

    def __init__(
        self,
        builder: Builder,
        layout: Stage3Layout,
        group: Group,
        ranks: int,
        names: Sequence[str],
        trainable: Sequence[bool],
    ) -> None:
        self.builder = builder
        self.layout = layout
        self.group = group
        self.times = ranks // group.size  # first shards in a second one
        self.names = names
        self.trainable = trainable
        self.tier: Tier = layout.placement.parameters
        self.pinned = self.tier == "dram" and layout.placement.parameters_pinned
        self.held: dict[int, int] = {}  # the buffer of each

    def elements(self, parameters: Sequence[int]) -> int:
        return self.times * self.layout.elements(parameters)

    def on_gpu(self, parameter: int) -> bool:
        return self.tier == "gpu"

    @property
    def frozen(self) -> frozenset[int]:
        """Parameters whose secondary shard the step leaves alone."""
        return frozenset(p for p, trainable in enumerate(self.trainable) if not trainable)

    def residents(self) -> None:
        for p in sorted(self.frozen):
            size = self._bytes(p)
            self.held[p] = self.builder.resident("secondary shard", _CATEGORY, size, self.tier, self.pinned)

    def cut(self, parameter: int) -> None:
        """From a parameter that is about to be dropped, unless there is one: cleared, then copied into."""
        if parameter in self.held:
            return
        build, size, name = self.builder, self._bytes(parameter), self.names[parameter]
        self.held[parameter] = build.acquire("secondary shard", _CATEGORY, size, self.tier, self.pinned)
        if self.tier == "gpu":
            work = Pass(3 * size, "stream", 2)
            build.launch(COMPUTE, f"secondary shard of {name}", work, HostCalls(kernels=work.kernels))
        else:
            build.host_compute(
                f"clear secondary shard of {name}", HostCompute("stream", self.elements([parameter]), size)
            )
            down = Transfer(size, "gpu", self.tier, self.pinned)
            build.copy(COMPUTE, f"copy secondary shard of {name} to host", down, blocking=True)
        build.block(build.tail(COMPUTE))

    def bring_up(self, parameters: Sequence[int], lane: str, in_place: bool = False) -> list[int]:
        """Copy those in host memory to the GPU one by one, the host waiting for each; the buffers they land in."""
        landed = []
        for parameter in parameters if self.tier != "gpu" else ():
            size = self._bytes(parameter)
            landed.append(self.builder.acquire("secondary shard on its way", "buffers", size))
            up = Transfer(size, self.tier, "gpu", self.pinned)
            name = f"copy secondary shard of {self.names[parameter]} to the GPU"
            self.builder.copy(lane, name, up, blocking=True)
        return landed

    def forget(self) -> None:
        """The step: parameters have changed."""
        for parameter in [p for p in self.held if self.trainable[p]]:
            self.builder.release(self.held.pop(parameter), COMPUTE)

    def _bytes(self, parameter: int) -> float:
        shard = self.layout.shards[parameter]
        return quantized(self.elements([parameter])).bytes if shard.quantized else self.times * shard.bytes
