"""Stage 3's shards where they live, and their way to the GPU before a gather and back after an update.

Source: DeepSpeed 0.19.8 runtime/zero/partition_parameters.py, runtime/swap_tensor/partitioned_param_swapper.py. A shard
in host memory comes up by a plain `.to`: the host waits for the whole gather lane and the copy, shard by shard. Reads
from NVMe are asked for ahead; who needs one waits for all. With `use_gds` they go straight into buffers on the GPU;
writes never do, for they start in host memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.swap_rules import aligned
from zerosim.step import COMPUTE, HOST_STREAM, READ, WRITE, Group, HostCompute, Tier, Transfer
from zerosim.strategies.builder import Builder
from zerosim.strategies.placement import MASTER_BYTES, HostOptimizer
from zerosim.strategies.requests import request
from zerosim.strategies.stage3_layout import Stage3Layout, SubGroup


class ShardStore:
    """The shards of a rank, spread over `group`; `width`: bytes of an element."""

    def __init__(
        self, builder: Builder, config: DeepSpeed, layout: Stage3Layout, group: Group, names: Sequence[str], width: int
    ) -> None:
        self.group = group
        self.builder = builder
        self.config = config
        self.layout = layout
        self.names = names
        self.width = width
        self.host = HostOptimizer(builder, config.optimizer, width)
        self.reads: list[int] = []  # asked for, not waited for
        self.direct = config.aio.use_gds
        self.buffers: Tier = "gpu" if self.direct else "dram"

    # --- what is there from step to step -----------------------------------------------------------------------------

    def residents(self) -> None:
        layout = self.layout
        in_flat = {p for group in layout.groups if group.flat for p in group.parameters}
        self._resident("parameter shards", sum(s.bytes for s in layout.shards if s.tier == "gpu"), "gpu")
        self._resident("parameter shards", self.width * layout.flat, "dram", pinned=True)
        for parameter, shard in enumerate(layout.shards):
            if shard.tier == "dram" and parameter not in in_flat:
                self._resident("parameter shard", shard.bytes, "dram", shard.pinned)
        self._resident("parameter shards", self.width * sum(map(self._aligned, layout.swapped)), "nvme")
        if layout.placement.parameters == "nvme":
            self._swap_buffers()

    def _swap_buffers(self) -> None:
        """A pool to read into; room for the largest sub-group to write from, if any is not in the flat buffer."""
        offload, groups = self.config.zero.offload_param, self.layout.groups
        size = self.width * offload.buffer_count * aligned(offload.buffer_size, self.width, self.config.aio)
        self.builder.resident("buffers of shards from NVMe", "buffers", float(size), self.buffers)
        if not all(group.flat for group in groups):
            largest = max(groups, key=lambda group: group.elements)
            size = self.width * sum(map(self._aligned, largest.parameters))
            self.builder.resident("buffers of shards to NVMe", "buffers", float(size), "dram")

    def _resident(self, name: str, size: float, tier: Tier, pinned: bool = False) -> None:
        if size:
            self.builder.resident(name, "parameters", float(size), tier, pinned)

    def _aligned(self, parameter: int) -> int:
        return aligned(self.layout.shards[parameter].elements, self.width, self.config.aio)

    # --- to the GPU --------------------------------------------------------------------------------------------------

    def read(self, parameters: Sequence[int]) -> None:
        """Ask the drives for shards; nobody waits yet."""
        for parameter in parameters:
            work = request(self.config.aio, self.width * self._aligned(parameter), "nvme", self.buffers)
            self.reads.append(self.builder.launch(READ, f"read {self.names[parameter]}", work))

    def await_reads(self) -> None:
        self.builder.block(self.reads)
        self.reads.clear()

    def elements(self, parameters: Sequence[int]) -> int:
        return self.layout.elements(parameters)

    def on_gpu(self, parameter: int) -> bool:
        """Its shard needs no copy."""
        tier = self.layout.shards[parameter].tier
        return tier == "gpu" or (tier == "nvme" and self.direct)

    def bring_up(self, parameters: Sequence[int], lane: str, in_place: bool = False) -> list[int]:
        """Copy shards to the GPU one by one, the host waiting for each; the buffers that they land in, unless that is
        their place in the bucket."""
        landed = []
        for parameter in parameters:
            if not (in_place or self.on_gpu(parameter)):
                size = self.layout.shards[parameter].bytes
                landed.append(self.builder.acquire("shard on its way", "buffers", size))
            self.copy_up(parameter, lane, blocking=True)
        return landed

    def copy_up(self, parameter: int, lane: str, blocking: bool = False) -> None:
        """Copy a shard to the GPU, unless it is there."""
        if not self.on_gpu(parameter):
            shard, name = self.layout.shards[parameter], self.names[parameter]
            up = Transfer(shard.bytes, "dram", "gpu", shard.pinned)
            self.builder.copy(lane, f"copy shard {name} to the GPU", up, blocking=blocking)

    # --- from the optimizer ------------------------------------------------------------------------------------------

    def renew(self, group: SubGroup) -> None:
        """New parameters of a sub-group to where its shards live, unless these and its master are both on the GPU."""
        shards = self.layout.shards
        if not group.flat:
            swapped = [p for p in group.parameters if shards[p].tier == "nvme"]
            for parameter in sorted(group.parameters, key=lambda p: p in swapped):
                self._to_host(shards[parameter].elements, group)
            self.builder.block([self._write(parameter) for parameter in swapped])
        elif self.layout.placement.parameters == "gpu":
            self._to_gpu(group.elements)
        else:
            self._to_host(group.elements, group)

    def _to_gpu(self, elements: int) -> None:
        """torch casts where the source is, and then copies pageable memory (aten/src/ATen/native/cuda/Copy.cu)."""
        size, cast = float(self.width * elements), None
        if self.width < MASTER_BYTES:
            cast = self.builder.acquire("parameters on their way", "buffers", size, "dram")
            self.host.cast(elements)
        up = Transfer(size, "dram", "gpu", pinned=False)
        self.builder.copy(COMPUTE, "copy parameters to the GPU", up, blocking=True)
        if cast is not None:
            self.builder.release(cast, COMPUTE)

    def _to_host(self, elements: int, group: SubGroup) -> None:
        """From a GPU they come down in fp32, and are cast in host memory."""
        size, narrow = float(MASTER_BYTES * elements), self.width < MASTER_BYTES
        if group.optimizer == "gpu":
            landed = self.builder.acquire("parameters on their way", "buffers", size, "dram") if narrow else None
            down = Transfer(size, "gpu", "dram", pinned=group.flat and not narrow)
            self.builder.copy(COMPUTE, "copy parameters to host", down, blocking=True)
            self.host.cast(elements)
            if landed is not None:
                self.builder.release(landed, HOST_STREAM)
        elif narrow:
            self.host.cast(elements)
        else:
            self.builder.host_compute("copy parameters", HostCompute("stream", elements, 2 * size))

    def _write(self, parameter: int) -> int:
        work = request(self.config.aio, self.width * self._aligned(parameter), "dram", "nvme")
        return self.builder.launch(WRITE, f"write {self.names[parameter]}", work)
