"""Stage 3's parameters: each module's are gathered before it runs and dropped after it.

Source: DeepSpeed runtime/zero/partition_parameters.py, partitioned_param_coordinator.py. The gather lane has the copies
into and out of the gathered buffers, and with parameters in host memory the copies that bring shards up, for which the
host waits: so it cannot run ahead, and what a prefetch brings up delays the module in whose hook it starts. On one
rank there is nothing to gather: a shard in host memory is copied to where it is used, and the host waits when it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError
from zerosim.spec.model import Model
from zerosim.spec.strategy import ENOUGH, UNLIMITED, DeepSpeed, Offload, Zero
from zerosim.spec.swap_rules import empty_pool
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, GATHER
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.fetch import Plan, plan_fetches
from zerosim.strategies.network import Event
from zerosim.strategies.stage3_layout import stage3_layout
from zerosim.strategies.swap_parameters import ShardStore
from zerosim.strategies.swap_pool import PoolError

OUTSTANDING = 2  # events a host list may hold before it blocks on the oldest (coordinator and stage3.py)


class InFlight(NamedTuple):
    """A gather on its way: its collective and the buffer it lands in."""

    collective: int
    buffer: int


def _growing(count: int, most: int) -> Iterator[int]:
    """Counts to try, an eighth more each time, up to one that is enough for certain."""
    while count < most:
        count = min(most, count + 1 + count // 8)
        yield count


class GatheredParameters(DeepSpeedProgram):
    """What the module hooks do."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        network, zero = self.network, config.zero
        self.layout = stage3_layout(config, network.numels, network.trainable, world_size, self.width)
        # On one rank a shard on the GPU is its parameter (partition_parameters.py, NoGatherHandle): all stay.
        self.alone = world_size == 1
        stay = self.alone and self.layout.placement.parameters == "gpu"
        if stay:
            zero = replace(zero, param_persistence_threshold=UNLIMITED, model_persistence_threshold=UNLIMITED)
        self.plan, offload = self._planned(zero)
        config = replace(config, zero=replace(config.zero, offload_param=offload))
        self.store = ShardStore(self.builder, config, self.layout, network.names, self.width)
        self.persistent = [] if stay else sorted(self.plan.persistent)  # those that are gathered and kept
        self.in_flight: dict[int, InFlight] = {}
        self.full: dict[int, int] = {}  # buffer of each gathered parameter
        self.visit = 0
        self.post = 0
        self.fetch_events: list[tuple[int, ...]] = []
        if self.plan.read_twice:
            names = ", ".join(network.names[p] for p in sorted(self.plan.read_twice))
            self.notes.append(f"the shard of {names} is read once; DeepSpeed 0.19.8 would ask twice for it, and stop")

    def _planned(self, zero: Zero) -> tuple[Plan, Offload]:
        """The plan and the buffers it has. InputError, with a number that is enough, where DeepSpeed would stop for
        want of them."""
        events, numels, swapped = self.forward_events + self.backward_events, self.network.numels, self.layout.swapped

        def plan(count: int) -> Plan | None:
            with suppress(PoolError):
                offload = replace(zero.offload_param, buffer_count=count)
                return plan_fetches(events, numels, replace(zero, offload_param=offload), swapped)
            return None

        given = zero.offload_param
        least = 1 if given.buffer_count == ENOUGH else given.buffer_count
        counts = (least, *_growing(least, len(swapped)))
        count, planned = next((n, found) for n in counts if (found := plan(n)) is not None)
        if count != least and given.buffer_count != ENOUGH:
            raise InputError([empty_pool(given, count).problem()])
        return planned, replace(given, buffer_count=count)

    def prepare(self) -> None:
        self.store.residents()
        for p in self.persistent:
            self.full[p] = self.builder.resident("persistent parameter", "parameters", self._size(p))

    def begin(self) -> None:
        self.timer()
        self.visit = self.post = 0
        self.in_flight.clear()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """The pre-hook: gather what is missing, wait for what is used, gather ahead, read further ahead."""
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
        self.store.read(visit.read_ahead)

    def after(self, event: Event) -> None:
        """The post-hook: drop what is not needed soon."""
        released = self.plan.releases[self.post]
        self.post += 1
        self.builder.call(module_hooks=1, hook_parameters=len(event.node.parameters))
        for parameter in released:
            self.builder.release(self.full.pop(parameter), COMPUTE)

    def release_leftovers(self) -> None:
        """Parameters of modules without a post-hook, at the end of a backward."""
        self.fetch_events.clear()  # compute waited for every collection, the reduction lane for compute
        for parameter in self.plan.leftovers:
            self.builder.release(self.full.pop(parameter), COMPUTE)

    # --- gathers -----------------------------------------------------------------------------------------------------

    def _gather(self, gather: int) -> None:
        """Read the shards that are on NVMe, then start the gather."""
        members = self.plan.gathers[gather]
        self.builder.call(hook_parameters=len(members))
        if gather in self.plan.reads:
            self.store.read(self.plan.reads[gather])
            self.store.await_reads()
        self.in_flight[gather] = self._copy_whole(members) if self.alone else self._all_gather(members)

    def _all_gather(self, members: tuple[int, ...]) -> InFlight:
        """Copy my shards into place (when there are several) and start the all-gather."""
        shard = self.layout.elements(members)
        elements, several = shard * self.world_size, len(members) > 1
        name, category = ("gathered bucket", "buffers") if several else ("gathered parameter", "parameters")
        buffer = self.builder.acquire(name, category, float(self.width * elements))
        as_sum = several and self.zero.use_all_reduce_for_fetch_params
        brought = self.store.bring_up(members, in_place=as_sum)
        here = [p for p in members if self.store.on_gpu(p) or not as_sum] if several else []
        if here:
            moved = 2.0 * self.width * self.layout.elements(here)
            self._free(brought, self.elementwise(GATHER, "copy shards to bucket", moved, len(here)))
        collective = self.builder.collective(
            GATHER,
            "all_reduce" if as_sum else "all_gather",
            elements,
            self.dtype,
            DATA_PARALLEL,
            name=self._gather_name(members),
            asynchronous=True,
        )
        if not here:
            self._free(brought, collective)
        return InFlight(collective, buffer)

    def _free(self, buffers: list[int], op: int) -> None:
        for buffer in buffers:
            self.builder.release_after(buffer, op)

    def _copy_whole(self, members: tuple[int, ...]) -> InFlight:
        """One rank: no collective; a shard that was read into a buffer on the GPU is used there."""
        for parameter in members:
            self.full[parameter] = self.builder.acquire("gathered parameter", "parameters", self._size(parameter))
            self.store.copy_up(parameter, GATHER)
        return InFlight(self.builder.next_op - 1, self.full[members[-1]])

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
        if self.alone:
            self.builder.block(self.builder.tail(GATHER))
            return
        self.builder.wait_for(GATHER, [flight.collective])
        if len(members) == 1:
            self.full[members[0]] = flight.buffer
            return
        for parameter in members:
            self.full[parameter] = self.builder.acquire("gathered parameter", "parameters", self._size(parameter))
        elements = sum(self.network.numels[p] for p in members)
        if not self.zero.use_all_reduce_for_fetch_params:
            self.elementwise(GATHER, "assemble parameters", 2.0 * self.width * elements, len(members))
        else:
            self.builder.launch(GATHER, "parameters are views", None)
        self.builder.release(flight.buffer, GATHER)

    # --- at the step -------------------------------------------------------------------------------------------------

    def release_persistent(self) -> None:
        for parameter in self.persistent:
            self.builder.release(self.full[parameter], COMPUTE)

    def gather_persistent(self) -> None:
        """All shards are brought up; then one all-gather each, nothing coalesced."""
        swapped = [p for p in self.persistent if p in self.layout.swapped]
        self.store.read(swapped)
        if swapped:
            self.store.await_reads()
        brought = [] if self.alone else self.store.bring_up(self.persistent, COMPUTE)
        for parameter in self.persistent:
            self.builder.acquire_again(self.full[parameter])
            if self.alone:
                self.store.copy_up(parameter, COMPUTE)
                continue
            elements = self.world_size * self.layout.shards[parameter].elements
            name = self._gather_name((parameter,))
            self.builder.collective(COMPUTE, "all_gather", elements, self.dtype, DATA_PARALLEL, name=name)
        for buffer in brought:
            self.builder.release(buffer, COMPUTE)

    def _size(self, parameter: int) -> float:
        """Bytes that a full parameter takes beside its shard."""
        whole = self.alone and self.store.on_gpu(parameter)
        return 0.0 if whole else float(self.width * self.network.numels[parameter])
