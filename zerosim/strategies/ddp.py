"""torch DistributedDataParallel: gradients are all-reduced in buckets while backward goes on.

Source: torch/csrc/distributed/c10d/reducer.cpp, torch/nn/parallel/distributed.py. Buckets hold gradients in the order
in which they become ready and close when their size reaches the cap; bucket k goes out when it is complete and all
earlier ones are out. That holds from the second iteration on: in the first, one bucket holds everything. In a `no_sync`
micro-step nothing is communicated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, HostCalls, Pass, Step
from zerosim.strategies.base import DATA_PARALLEL, Program
from zerosim.strategies.events import GRADIENT, Event
from zerosim.strategies.network import Node

MIB = 1024 * 1024
FIRST_BUCKET_BYTES = 1 * MIB  # distributed.py: dist._DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 * MIB


class Bucket(NamedTuple):
    parameters: tuple[int, ...]
    elements: int


def buckets(order: list[int], numels: tuple[int, ...], width: int, cap_mib: float | None) -> list[Bucket]:
    """Fill buckets in `order`; one closes when its bytes reach the cap (so it overshoots by its last tensor)."""
    caps = [FIRST_BUCKET_BYTES, BUCKET_BYTES] if cap_mib is None else [cap_mib * MIB]
    filled: list[Bucket] = []
    members: list[int] = []
    for parameter in order:
        members.append(parameter)
        elements = sum(numels[p] for p in members)
        if elements * width >= caps[min(len(filled), len(caps) - 1)]:
            filled.append(Bucket(tuple(members), elements))
            members = []
    if members:
        filled.append(Bucket(tuple(members), sum(numels[p] for p in members)))
    return filled


class DistributedDataParallel(Program):
    def __init__(self, config: Ddp, model: Model, training: Training, world_size: int) -> None:
        autocast = DTYPE_BYTES[config.parameter_dtype] > DTYPE_BYTES[training.precision]
        super().__init__(model, training, world_size, autocast=autocast)
        self.config = config
        self.autocast = autocast
        self.buffer_elements = model.buffers
        self.master = DTYPE_BYTES[config.parameter_dtype]
        self.trainable = sum(self.network.trainable_numels)
        self.gradients: dict[int, int] = {}
        self.buckets = self._buckets()
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket.parameters}
        self.missing: list[int] = []
        self.launched = 0
        self.reductions_out: list[int] = []
        self.casts: dict[int, int] = {}  # 16-bit copies that autocast made, by the first parameter of their module
        casting = [node for node in self.network.root.walk() if self.autocast and self._casts(node)]
        self.cast = frozenset(parameter for node in casting for parameter in node.parameters)
        again = {below for node in self.network.root.walk() if node.checkpointed for below in node.walk()}
        self.in_blocks = frozenset(node.parameters[0] for node in casting if node in again)

    def _buckets(self) -> list[Bucket]:
        ready = [event.parameter for event in self.backward_events if event.kind == GRADIENT]
        rebuilt = not self.config.find_unused_parameters or self.config.static_graph
        if rebuilt and self.config.first_iteration:
            return buckets(ready, self.network.numels, self.master, math.inf)
        if rebuilt:
            return buckets(ready, self.network.numels, self.master, self.config.bucket_cap_mb)
        # never rebuilt: registration order, used in reverse
        return buckets(sorted(ready), self.network.numels, self.master, self.config.bucket_cap_mb)[::-1]

    @property
    def alone(self) -> bool:
        """One rank: nobody wraps the model, there is no reducer."""
        return self.world_size == 1

    @property
    def gradient_width(self) -> int:
        return self.master

    @property
    def synchronizes(self) -> bool:
        return not self.alone and (self.boundary_micro_batch or not self.config.no_sync)

    @property
    def reductions(self) -> tuple[int, ...]:
        n = self.last_micro_batch + 1
        if self.alone:
            return ()
        return (n - 1,) if self.config.no_sync else tuple(range(n))

    def prepare(self) -> None:
        elements = sum(self.network.numels)
        resident = self.builder.resident
        buffer = resident("parameters", "parameters", float(self.master * elements))
        self.builder.gathered(buffer, *range(len(self.network.numels)))
        resident("optimizer states", "optimizer", float(self.config.optimizer.state_bytes * self.trainable))
        if self.master < 4:
            resident("fp32 master parameters", "optimizer", 4.0 * self.trainable)
        if not self.alone and not self.config.gradient_as_bucket_view:
            resident("gradient buckets", "buffers", float(self.master * self.trainable))

    def begin(self) -> None:
        self.missing = [len(bucket.parameters) for bucket in self.buckets]
        self.launched = 0
        self.reductions_out = []
        after_no_sync = self.config.no_sync and self.micro_batch > 0
        if self.buffer_elements and not self.alone and not after_no_sync:
            elements = self.buffer_elements
            self.builder.collective(COMPUTE, "broadcast", elements, "fp32", DATA_PARALLEL, name="broadcast buffers")

    # --- autocast ----------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """Autocast casts a weight at its first use in a forward and keeps the copy until its backward."""
        node = event.node
        if (
            not self.autocast
            or event.direction == "backward"
            or not self._casts(node)
            or node.parameters[0] in self.casts
        ):
            return
        elements = sum(self.network.numels[p] for p in node.parameters)
        self.casts[node.parameters[0]] = self.builder.acquire(
            "autocast weight", "parameters", float(self.width * elements)
        )
        self.elementwise(COMPUTE, f"{node.name} autocast", float((4 + self.width) * elements), len(node.parameters))

    def _run(self, event: Event) -> None:
        super()._run(event)
        if event.node.parameters:
            self.forget(event)

    def forget(self, event: Event) -> None:
        """The copy goes with its backward, whether or not its module has a post-hook there. What has no backward has it
        for its forward only: the cache takes what is trained (aten/src/ATen/autocast_mode.cpp)."""
        if event.direction == "backward" or not event.node.output_gradient:
            self._drop(event.node.parameters[0])

    def turn(self) -> None:
        """The cache is cleared where autocast ends; backward keeps what it saved, and a checkpointed block nothing."""
        if self.checkpointed:
            for parameter in self.in_blocks.intersection(self.casts):
                self._drop(parameter)

    def _drop(self, parameter: int) -> None:
        buffer = self.casts.pop(parameter, None)
        if buffer is not None:
            self.builder.release(buffer, COMPUTE)

    def _widen(self, parameter: int) -> None:
        """The gradient of a 16-bit copy comes in 16 bit and is cast to the weight's dtype."""
        numel = self.network.numels[parameter]
        narrow = self.builder.acquire("16-bit gradient", "gradients", float(self.width * numel))
        self.elementwise(COMPUTE, "cast gradient", float((self.width + self.master) * numel))
        self.builder.release(narrow, COMPUTE)

    @staticmethod
    def _casts(node: Node) -> bool:
        """Autocast runs matrix products in 16 bit; lookups and norms keep fp32 weights."""
        return bool(node.parameters) and any(not isinstance(kernel.work, Pass) for kernel in node.work.forward)

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, parameter: int, buffer: int) -> None:
        if parameter in self.cast:
            self._widen(parameter)
        held = self.gradients.setdefault(parameter, buffer)
        if held != buffer:
            self.accumulate(held, buffer, self.network.numels[parameter], self.master)
        if self.synchronizes:
            self._ready(parameter)

    def _ready(self, parameter: int) -> None:
        if not self.config.gradient_as_bucket_view:
            size = 2.0 * self.master * self.network.numels[parameter]
            self.elementwise(COMPUTE, "copy gradient to bucket", size)
        self.missing[self.bucket_of[parameter]] -= 1
        while self.launched < len(self.buckets) and self.missing[self.launched] == 0:
            bucket = self.buckets[self.launched]
            pieces = tuple(self.whole(p) for p in sorted(bucket.parameters))
            number = self.builder.collective(
                COMPUTE, "all_reduce", bucket.elements, self.config.parameter_dtype, DATA_PARALLEL,
                name=f"all-reduce bucket {self.launched}", asynchronous=True, reduces=pieces,
            )  # fmt: skip
            self.reductions_out.append(number)
            self.launched += 1

    def epilogue(self) -> None:
        if not self.synchronizes:
            return
        if self.config.find_unused_parameters and not self.config.static_graph:
            self.builder.collective(
                COMPUTE, "all_reduce", len(self.gradients), "int32", DATA_PARALLEL, name="all-reduce used parameters"
            )
        self.builder.wait_for(COMPUTE, self.reductions_out)
        if not self.config.gradient_as_bucket_view:
            self.elementwise(COMPUTE, "copy buckets back", 2.0 * self.master * self.trainable, len(self.gradients))

    def boundary(self) -> None:
        optimizer = self.config.optimizer
        if self.dtype == "fp16":  # torch/amp/grad_scaler.py: unscale in place and look for inf, which the host reads
            self.elementwise(COMPUTE, "unscale gradients", 2.0 * self.master * self.trainable, len(self.gradients))
            self.agree()
            self.builder.read(COMPUTE)
        extra = 4 + self.master if self.master < 4 else 0  # fp32 master to the 16-bit copy
        kernels = optimizer.launches(len(self.gradients), self.trainable)
        work = Pass(float((optimizer.traffic_bytes + extra) * self.trainable), "adam", kernels)
        with self.optimizer_scratch(optimizer, float(self.master * self.trainable)):
            self.builder.launch(COMPUTE, f"{optimizer.name} step", work, HostCalls(kernels=kernels))
        for buffer in self.gradients.values():
            self.builder.release(buffer, COMPUTE)
        self.gradients.clear()
        self.builder.synchronize()  # the loss is read once a step

    def agree(self) -> None:
        """fp16: ranks with different gradients tell each other whether one has found an inf; here all have the same."""


def write(config: Ddp, model: Model, training: Training, world_size: int) -> Step:
    """The step of a DDP run, from the second iteration on."""
    return DistributedDataParallel(config, model, training, world_size).write()
