"""ZeRO stage 3: parameters live in shards; each module's are gathered before it runs and dropped after it.

Source: DeepSpeed runtime/zero/stage3.py, partition_parameters.py, coalesced_collectives.py. Three lanes: compute, the
all-gather lane with copies into and out of the gathered buffers, and (with `overlap_comm`) the reduction lane. Gathers
and reduce-scatters share one communicator and go out in host order, so a large reduce-scatter delays the gathers
behind it. The compute lane never waits for a reduction before the epilogue; the host does: at most two gathers and two
reductions may be outstanding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from zerosim.spec.model import Model
from zerosim.spec.strategy import UNLIMITED, DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, GATHER, REDUCE, Slice, Step
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.fetch import Plan, plan_fetches
from zerosim.strategies.network import Event

OVERFLOW_BYTES = 10  # an element: isinf and isnan over the gradient partition, and the sum of either
OVERFLOW_SCRATCH = 2  # their boolean results
OUTSTANDING = 2  # events a host list may hold before it blocks on the oldest (coordinator and stage3.py)


class InFlight(NamedTuple):
    """A gather on its way: its collective and the buffer it lands in."""

    collective: int
    buffer: int


class Zero3(DeepSpeedProgram):
    uniform = True

    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        self.lane = REDUCE if config.zero.overlap_comm else COMPUTE
        self.shards = tuple(-(-numel // world_size) for numel in self.network.numels)  # ceil; padding is per parameter
        self.share = sum(s for s, t in zip(self.shards, self.network.trainable, strict=True) if t)
        # On one rank a parameter is its shard (partition_parameters.py, NoGatherHandle): all stay, nothing is gathered.
        zero = config.zero
        if world_size == 1:
            zero = replace(zero, param_persistence_threshold=UNLIMITED, model_persistence_threshold=UNLIMITED)
        self.plan: Plan = plan_fetches(self.forward_events + self.backward_events, self.network.numels, zero)
        self.persistent = sorted(self.plan.persistent) if world_size > 1 else []  # those that are gathered and kept
        self.in_flight: dict[int, InFlight] = {}
        self.full: dict[int, int] = {}  # buffer of each gathered parameter
        self.visit = 0
        self.post = 0
        self.fetch_events: list[tuple[int, ...]] = []
        self.reduce_events: list[tuple[int, ...]] = []
        self.bucket: list[int] = []
        self.bucket_elements = 0
        self.loose: list[int] = []  # gradients of the bucket in their own memory: oversized, or nothing is contiguous

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(range(self.last_micro_batch + 1))

    def prepare(self) -> None:
        resident, w = self.builder.resident, self.width
        resident("parameter shards", "parameters", float(w * sum(self.shards)))
        resident("gradient partition", "gradients", float(self.held_width * self.share))
        if self.zero.contiguous_gradients:
            resident("gradient bucket", "buffers", float(w * self.zero.reduce_bucket_size))
        self.optimizer_residents(self.share)
        for p in self.persistent:
            self.full[p] = resident("persistent parameter", "parameters", float(w * self.network.numels[p]))

    def begin(self) -> None:
        self.timer()
        self.visit = self.post = 0
        self.in_flight.clear()

    # --- parameters --------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """The pre-hook: gather what is missing, wait for what is used, gather ahead."""
        visit = self.plan.visits[self.visit]
        self.visit += 1
        self.builder.call(module_hooks=1, hook_parameters=len(event.node.parameters))
        for gather in visit.demanded:
            self._gather(gather)
        for gather in visit.collected:
            self._collect(gather)
        self.builder.wait(COMPUTE, GATHER)
        for gather in visit.prefetched:
            self._gather(gather)

    def after(self, event: Event) -> None:
        """The post-hook: drop what is not needed soon."""
        released = self.plan.releases[self.post]
        self.post += 1
        self.builder.call(module_hooks=1, hook_parameters=len(event.node.parameters))
        for parameter in released:
            self.builder.release(self.full.pop(parameter), COMPUTE)

    def _gather(self, gather: int) -> None:
        """Copy my shards into place (when there are several) and start the all-gather."""
        members = self.plan.gathers[gather]
        shard = sum(self.shards[p] for p in members)
        elements = shard * self.world_size
        self.builder.call(hook_parameters=len(members))
        several = len(members) > 1
        name, category = ("gathered bucket", "buffers") if several else ("gathered parameter", "parameters")
        buffer = self.builder.acquire(name, category, float(self.width * elements))
        if several:
            self.elementwise(GATHER, "copy shards to bucket", 2.0 * self.width * shard, len(members))
        as_sum = several and self.zero.use_all_reduce_for_fetch_params
        collective = self.builder.collective(
            GATHER,
            "all_reduce" if as_sum else "all_gather",
            elements,
            self.dtype,
            DATA_PARALLEL,
            name=self._gather_name(members),
            asynchronous=True,
        )
        self.in_flight[gather] = InFlight(collective, buffer)

    def _gather_name(self, members: tuple[int, ...]) -> str:
        first = self.network.names[members[0]]
        return f"all-gather {first}" + (f" and {len(members) - 1} more" if len(members) > 1 else "")

    def _collect(self, gather: int) -> None:
        """Make the gather available; at most OUTSTANDING collections stay unfinished behind the host."""
        if len(self.fetch_events) > OUTSTANDING:
            self.builder.block(self.fetch_events[-OUTSTANDING - 1])
        if gather in self.in_flight:
            self._land(gather, self.in_flight.pop(gather))
        self.fetch_events.append(tuple(self.builder.tail(GATHER)))

    def _land(self, gather: int, flight: InFlight) -> None:
        """A single parameter is a view of its buffer; several are concatenated from the ranks' pieces."""
        members = self.plan.gathers[gather]
        self.builder.wait_for(GATHER, [flight.collective])
        if len(members) == 1:
            self.full[members[0]] = flight.buffer
            return
        elements = 0
        for parameter in members:
            numel = self.network.numels[parameter]
            elements += numel
            size = float(self.width * numel)
            self.full[parameter] = self.builder.acquire("gathered parameter", "parameters", size)
        if not self.zero.use_all_reduce_for_fetch_params:
            self.elementwise(GATHER, "assemble parameters", 2.0 * self.width * elements, len(members))
        else:
            self.builder.launch(GATHER, "parameters are views", None)
        self.builder.release(flight.buffer, GATHER)

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, parameter: int, buffer: int) -> None:
        """Into the bucket, on the reduction lane; a gradient larger than the bucket stays where it is."""
        numel, limit = self.network.numels[parameter], self.zero.reduce_bucket_size
        self.builder.call(gradient_hooks=1)
        if self.bucket and self.bucket_elements + numel > limit:
            self._reduce()
        self.builder.wait(self.lane, COMPUTE)
        if self.bucket_elements + numel <= limit and self.zero.contiguous_gradients:
            self.elementwise(self.lane, "copy gradient to bucket", 2.0 * self.width * numel)
            self.builder.release(buffer, self.lane)
        else:
            self.loose.append(buffer)
        self.bucket.append(parameter)
        self.bucket_elements += numel

    def _reduce(self) -> None:
        """Interleave the ranks' chunks, divide, reduce-scatter, put my slices where they belong."""
        members = sorted(self.bucket)
        if len(self.reduce_events) > OUTSTANDING:
            self.builder.block(self.reduce_events[-OUTSTANDING - 1])
        if not self.zero.reduce_scatter and self.bucket_elements <= self.zero.reduce_bucket_size:
            self._all_reduce(members)
        else:
            self._reduce_scatter(members)
        shard = sum(self.shards[p] for p in members)
        moved = self.width + self.held_width * (1 if self.micro_batch == 0 else 2)  # copy, or read, add and write
        self.pass_over("keep my gradients", shard, moved, len(members), self.lane)
        for buffer in self.loose:
            self.builder.release(buffer, self.lane)
        self.reduce_events.append(tuple(self.builder.tail(self.lane)))
        self.loose.clear()
        self.bucket.clear()
        self.bucket_elements = 0

    def _reduce_scatter(self, members: list[int]) -> None:
        padded = self.world_size * sum(self.shards[p] for p in members)
        copied = len(members) > 1 or padded != self.network.numels[members[0]]
        temporary = (
            self.builder.acquire("interleaved gradients", "buffers", float(self.width * padded)) if copied else None
        )
        passes = 2 if copied else 1
        self.elementwise(
            self.lane, "interleave and divide gradients", 2.0 * self.width * padded * passes, len(members) + 1
        )
        received = padded // self.world_size
        self.reduce_on_wire(
            self.lane, "reduce_scatter", padded, self._pieces(members), "reduce-scatter gradients", received
        )
        if temporary is not None:
            self.builder.release_after(temporary, self.builder.next_op)

    def _all_reduce(self, members: list[int]) -> None:
        elements = self.bucket_elements
        self.pass_over("divide gradients", elements, 2 * self.width, lane=self.lane)
        self.reduce_on_wire(self.lane, "all_reduce", elements, self._pieces(members), "all-reduce gradients", elements)

    def _pieces(self, members: list[int]) -> tuple[Slice, ...]:
        return tuple(self.whole(p) for p in members)

    def epilogue(self) -> None:
        """Reduce the rest; the host waits for the reduction lane; modules without a post-hook are released."""
        if self.bucket:
            self._reduce()
        self.builder.block(self.builder.tail(self.lane))
        self.fetch_events.clear()  # compute waited for every collection, the reduction lane for compute
        self.reduce_events.clear()
        for parameter in self.plan.leftovers:
            self.builder.release(self.full.pop(parameter), COMPUTE)

    # --- the optimizer -----------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        largest = max(self.shards, default=0)
        groups = self.sub_groups()
        norm = "fp64" if self.zero.offload_optimizer.device == "none" else "fp32"  # the offloaded sum is kept in fp32
        for parameter in self.persistent:
            self.builder.release(self.full[parameter], COMPUTE)
        if self.dtype == "fp16":
            scanned = float(OVERFLOW_BYTES * self.share)
            self.overflow_flag(self.lane, scanned, float(OVERFLOW_SCRATCH * self.share), len(groups))
        for group in groups:
            self.norm_kernels(sum(self.shards[p] for p in group), largest, len(group))
            self.builder.collective(COMPUTE, "all_reduce", 1, norm, DATA_PARALLEL, name="all-reduce norm")
        for group in groups:
            self.update(sum(self.shards[p] for p in group), tensors=len(group))
        for parameter in self.persistent:
            self._gather_persistent(parameter)
        self.builder.synchronize()
        self.timer()

    def sub_groups(self) -> list[list[int]]:
        """Registration order; one closes when the sum of its shards reaches `sub_group_size`."""
        groups: list[list[int]] = [[]]
        elements = 0
        for parameter, trainable in enumerate(self.network.trainable):
            if not trainable:
                continue
            groups[-1].append(parameter)
            elements += self.shards[parameter]
            if elements >= self.zero.sub_group_size:
                groups.append([])
                elements = 0
        return [group for group in groups if group]

    def _gather_persistent(self, parameter: int) -> None:
        """One all-gather each, nothing coalesced."""
        self.builder.acquire_again(self.full[parameter])
        elements = self.world_size * self.shards[parameter]
        name = f"all-gather {self.network.names[parameter]}"
        self.builder.collective(COMPUTE, "all_gather", elements, self.dtype, DATA_PARALLEL, name=name)


def write(config: DeepSpeed, model: Model, training: Training, world_size: int) -> Step:
    """The step of a stage-3 run whose trace is complete (from the third forward on)."""
    return Zero3(config, model, training, world_size).write()
