"""ZeRO stage 1 over the replicas of a stage: each keeps, and steps, its share of the optimizer's states.

After Megatron-LM's distributed optimizer without overlap (core/distributed/param_and_grad_buffer.py,
core/optimizer/distrib_optimizer.py) [R]: parameters and gradients live in flat buffers; every backward adds to the
gradients, which are zeroed at the start of a step; after the last backward they are scaled and reduce-scattered; each
rank updates its share of the fp32 states (Rajbhandari et al. 2020, ZeRO, 5.1) and the parameters are all-gathered in
place. What first and last stage have in common is a buffer of its own, so that both cut it in the same way and may sum
it afterwards. DeepSpeed's PipelineEngine with stage 1 moves the same bytes, in buckets.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from zerosim.spec.strategy import Ddp
from zerosim.step import COMPUTE, DTYPE_BYTES, HostCalls, Pass, Slice
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.builder import Builder
from zerosim.strategies.flat import padded
from zerosim.strategies.network import Network
from zerosim.strategies.placement import MASTER_BYTES

ALIGNMENT = 128  # elements: buffers end on a multiple of 128 and of the ranks (param_and_grad_buffer.py) [R]


class Flat(NamedTuple):
    """Parameters that lie in one buffer, padded so that it can be cut in equal shares."""

    name: str
    parameters: tuple[int, ...]
    padded: int


class FlatBuffers:
    """Those of a stage, and what is done with them once a step. `shared`: parameters that another stage has, too."""

    def __init__(self, config: Ddp, builder: Builder, network: Network, shared: Collection[int], replicas: int) -> None:
        self._optimizer, self._dtype = config.optimizer, config.parameter_dtype
        self._builder, self._network, self._replicas = builder, network, replicas
        self._width = DTYPE_BYTES[self._dtype]
        trainable = [p for p, numel in enumerate(network.trainable_numels) if numel]
        self.flats = tuple(
            Flat(name, tuple(part), buffer_elements(sum(network.numels[p] for p in part), replicas))
            for name, part in (
                ("gradients", [p for p in trainable if p not in shared]),
                ("tied gradients", [p for p in trainable if p in shared]),
            )
            if part
        )
        self.elements = sum(flat.padded for flat in self.flats)
        self.share = self.elements // replicas

    def prepare(self) -> dict[int, int]:
        """What is resident; the buffer in which the gradient of each parameter is added up."""
        numels = zip(self._network.numels, self._network.trainable, strict=True)
        frozen = sum(numel for numel, trainable in numels if not trainable)
        resident = self._builder.resident
        buffer = resident("parameters", "parameters", float(self._width * (frozen + self.elements)))
        self._builder.gathered(buffer, *range(len(self._network.numels)))
        resident("optimizer states", "optimizer", float(self._optimizer.state_bytes * self.share))
        if self._width < MASTER_BYTES:
            resident("fp32 master parameters", "optimizer", float(MASTER_BYTES * self.share))
        held: dict[int, int] = {}
        for flat in self.flats:
            buffer = resident(f"flat {flat.name}", "gradients", float(self._width * flat.padded))
            held |= dict.fromkeys(flat.parameters, buffer)
            self._stream(f"zero {flat.name}", self._width * flat.padded)
        return held

    def reduce(self) -> None:
        """After the last backward: the mean over the replicas, of which each keeps its share."""
        for flat in self.flats:
            pieces = tuple(Slice(p, 0, self._network.numels[p]) for p in flat.parameters)
            self._stream(f"scale {flat.name}", 2 * self._width * flat.padded)
            self._builder.collective(
                COMPUTE, "reduce_scatter", flat.padded, self._dtype, DATA_PARALLEL,
                name=f"reduce-scatter {flat.name}", reduces=pieces,
            )  # fmt: skip

    def unscale(self) -> None:
        """fp16: the share, in place, while looking for inf."""
        self._stream("unscale gradients", 2 * self._width * self.share)

    def step(self) -> None:
        """Update the share, then gather what the replicas have updated."""
        optimizer, parameters = self._optimizer, sum(len(flat.parameters) for flat in self.flats)
        extra = MASTER_BYTES + self._width if self._width < MASTER_BYTES else 0  # fp32 master to the 16-bit copy
        kernels = optimizer.launches(math.ceil(parameters / self._replicas), self.share)
        work = Pass(float((optimizer.traffic_bytes + extra) * self.share), "adam", kernels)
        self._builder.launch(COMPUTE, f"{optimizer.name} step", work, HostCalls(kernels=kernels))
        for flat in self.flats:
            name = f"all-gather {flat.name.replace('gradients', 'parameters')}"
            self._builder.collective(
                COMPUTE, "all_gather", flat.padded, self._dtype, DATA_PARALLEL, name=name, gathers=flat.parameters
            )
        self._builder.synchronize()  # the loss is read once a step

    def _stream(self, name: str, size: float) -> None:
        self._builder.launch(COMPUTE, name, Pass(float(size), "stream", 1), HostCalls(kernels=1))


def buffer_elements(elements: int, ranks: int) -> int:
    """With padding."""
    return padded(elements, math.lcm(ranks, ALIGNMENT))
