"""Stage 3's parameters: each module's are gathered before it runs and dropped after it.

Source: DeepSpeed runtime/zero/partition_parameters.py, partitioned_param_coordinator.py. The gather lane, which without
`overlap_comm` is the compute lane (parameter_offload.py, __allgather_stream), has the copies into and out of the
gathered buffers, and with parameters in host memory the copies that bring shards up, for which the host waits: so it
cannot run ahead, and what a prefetch brings up delays the module in whose hook it starts. On one rank there is nothing
to gather: a shard in host memory is copied to where it is used, and the host waits when it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zerosim.errors import InputError
from zerosim.spec.model import Model
from zerosim.spec.strategy import UNLIMITED, DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, GATHER
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.events import Event
from zerosim.strategies.fetch_plan import Plan
from zerosim.strategies.gathering import FullWidth, Gathers, InFlight, Members
from zerosim.strategies.leaf_modules import check_leaves, unmatched
from zerosim.strategies.network import Node
from zerosim.strategies.quantized import blocks_of, uneven
from zerosim.strategies.quantized_gathers import QuantizedGathers
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.secondary import SecondaryShards
from zerosim.strategies.stage3_groups import stage3_groups
from zerosim.strategies.stage3_layout import stage3_layout
from zerosim.strategies.stage3_plans import Run, planned
from zerosim.strategies.swap_parameters import ShardStore

OUTSTANDING = 2  # events a host list may hold before it blocks on the oldest (coordinator and stage3.py)


class GatheredParameters(DeepSpeedProgram):
    """What the module hooks do."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, ranks: Ranks) -> None:
        self.groups = stage3_groups(config.zero, ranks)
        super().__init__(config, model, training, self.groups.shards.size)
        self.group = self.groups.shards.name
        self.builder.groups = {group.name: group for group in self.groups.all()}
        network, zero = self.network, config.zero
        self.layout = stage3_layout(config, network.numels, network.trainable, self.world_size, self.width)
        # On one rank a shard on the GPU is its parameter (partition_parameters.py, NoGatherHandle): all stay.
        self.alone = self.world_size == 1
        stay = self.alone and self.layout.placement.parameters == "gpu"
        if stay:
            zero = replace(zero, param_persistence_threshold=UNLIMITED, model_persistence_threshold=UNLIMITED)
        self.secondary = self._secondary()
        events, frozen = self.forward_events + self.backward_events, self.secondary.frozen if self.secondary else None
        run = Run(self.layout, frozen, self.release, training.gradient_accumulation_steps)
        self.plans, offload = planned(events, network.numels, zero, run)
        self.plan = self.plans[0]
        config = replace(config, zero=replace(config.zero, offload_param=offload))
        self.store = ShardStore(self.builder, config, self.layout, self.groups.shards, network.names, self.width)
        sums = self.store if zero.use_all_reduce_for_fetch_params else None
        self.gather_lane = GATHER if zero.overlap_comm else COMPUTE
        self.full_width: Gathers = FullWidth(self.builder, self.dtype, network.numels, self.gather_lane, sums)
        self.in_int8 = QuantizedGathers(
            self.builder, self.dtype, network.numels, self.gather_lane, self.layout.quantized
        )
        self.persistent = [] if stay else sorted(self.plan.persistent)  # those that are gathered and kept
        self.in_flight: dict[int, InFlight] = {}
        self.full: dict[int, int] = {}  # buffer of each gathered parameter
        self.saved: dict[Node, int] = {}  # buffer of a dropped weight that autograd keeps for the module's backward
        self.repeats = not (self.release.keeps_leftovers and any(plan.leftovers for plan in self.plans))
        self.visit = 0
        self.post = 0
        self.fetch_events: list[tuple[int, ...]] = []
        self._check_quantized()
        check_leaves(network)
        self._note(model)

    def _note(self, model: Model) -> None:
        """Where the run is not what was asked for, and keys that ask for something of which it has nothing."""
        if self.plan.read_twice:
            names = ", ".join(self.network.names[p] for p in sorted(self.plan.read_twice))
            self.notes.append(f"the shard of {names} is read once; DeepSpeed 0.19.8 would ask twice for it, and stop")
        self.notes += [f"no module is named {name}, as leaf_module says" for name in unmatched(model, self.zero)]
        if self.zero.zero_quantized_gradients and not self.groups.reduction and not self.groups.of_mics:
            self.notes.append("zero_quantized_gradients changes nothing on one node")
        if self.zero.zero_quantized_nontrainable_weights and not self.layout.quantized:
            self.notes.append("zero_quantized_nontrainable_weights changes nothing: no parameter is frozen")
        if self.secondary is not None and not any(plan.secondary for plan in self.plans):
            self.notes.append("zero_hpz_partition_size only takes memory: nothing is gathered twice in a step")
        elif self.secondary is not None and self.secondary.group.size == self.world_size:
            self.notes.append("zero_hpz_partition_size only takes memory: its group is all ranks")

    def _secondary(self) -> SecondaryShards | None:
        if self.groups.secondary is None:
            return None
        network = self.network
        return SecondaryShards(
            self.builder, self.layout, self.groups.secondary, self.world_size, network.names, network.trainable
        )

    def _check_quantized(self) -> None:
        """Every gather that is quantized, and every shard that is kept so, can be cut into blocks."""
        shards: dict[tuple[int, ...], int] = {(p,): self.layout.shards[p].elements for p in self.layout.quantized}
        if self.zero.zero_quantized_weights:
            every = [self._members(plan, gather) for plan in self.plans for gather in range(len(plan.gathers))]
            shards |= {members.parameters: members.own for members in every}
        wrong = {
            self._gather_name(members): elements for members, elements in shards.items() if not blocks_of(elements)
        }
        if wrong:
            raise InputError([uneven(name, elements) for name, elements in wrong.items()])

    def prepare(self) -> None:
        self.store.residents()
        if self.secondary is not None:
            self.secondary.residents()
        for p in self.persistent:
            buffer = self.builder.resident("persistent parameter", "parameters", self._size(p))
            self.full[p] = self.builder.gathered(buffer, p)

    def begin(self) -> None:
        self.timer()
        self.plan = self.plans[min(self.micro_batch, len(self.plans) - 1)]
        self.visit = self.post = 0
        self.in_flight.clear()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """The pre-hook: gather what is missing, wait for what is used, gather ahead, read further ahead."""
        visit = self.plan.visits[self.visit]
        self.visit += 1
        self.builder.call(module_hooks=1, hook_parameters=len(event.node.hooked_parameters))
        for gather in visit.demanded:
            self._gather(gather)
        for gather in visit.collected:
            self._collect(gather, fast=event.node.leaf and self.zero.module_granularity_threshold > 0)
        self.builder.wait(COMPUTE, self.gather_lane)
        for gather in visit.prefetched:
            self._gather(gather)
        self.store.read(visit.read_ahead)

    def after(self, event: Event) -> None:
        """The post-hook: drop what is not needed soon."""
        node, released = event.node, self.plan.releases[self.post]
        self.post += 1
        self.builder.call(module_hooks=1, hook_parameters=len(node.hooked_parameters))
        kept = None
        if event.direction == "backward" and node in self.saved:
            self.builder.release(self.saved.pop(node), COMPUTE)
        elif event.direction != "backward" and event.saving and node.input_gradient and node.kept_weight in released:
            kept = node.kept_weight
            self.saved[node] = self.full[kept]
        self._drop(released, kept)

    def release_leftovers(self) -> None:
        """Parameters of modules without a post-hook, at the end of a backward."""
        self.fetch_events.clear()  # compute waited for every collection, the reduction lane for compute
        if not self.release.keeps_leftovers:
            self._drop(self.plan.leftovers)

    def _drop(self, parameters: Sequence[int], kept: int | None = None) -> None:
        """What they take is freed, but for a weight that is `kept` for the backward of its module."""
        for parameter in parameters:
            if self.secondary is not None:
                self.secondary.cut(parameter)
            buffer = self.full.pop(parameter)
            if parameter != kept:
                self.builder.release(buffer, COMPUTE)

    # --- gathers -----------------------------------------------------------------------------------------------------

    def _gather(self, gather: int) -> None:
        """Read the shards that are on NVMe, then start the gather."""
        members = self.plan.gathers[gather]
        self.builder.call(hook_parameters=len(members))
        if gather in self.plan.reads:
            self.store.read(self.plan.reads[gather])
            self.store.await_reads()
        self.in_flight[gather] = self._copy_whole(members) if self.alone else self._start(gather)

    def _start(self, gather: int) -> InFlight:
        members = self._members(self.plan, gather)
        return self._way(members).start(members)

    def _members(self, plan: Plan, gather: int) -> Members:
        parameters = plan.gathers[gather]
        secondary = self.secondary if gather in plan.secondary else None
        return Members(parameters, secondary or self.store, self._gather_name(parameters))

    def _way(self, members: Members) -> Gathers:
        quantizes = self.zero.zero_quantized_weights or self.layout.shards[members.parameters[0]].quantized
        return self.in_int8 if quantizes else self.full_width

    def _copy_whole(self, members: tuple[int, ...]) -> InFlight:
        """One rank: no collective; a shard that was read into a buffer on the GPU is used there."""
        for parameter in members:
            self.full[parameter] = self._full(parameter)
            self.store.copy_up(parameter, self.gather_lane)
        return InFlight(self.builder.next_op - 1, self.full[members[-1]])

    def _gather_name(self, members: tuple[int, ...]) -> str:
        first = self.network.names[members[0]]
        return f"all-gather {first}" + (f" and {len(members) - 1} more" if len(members) > 1 else "")

    def _collect(self, gather: int, fast: bool = False) -> None:
        """Make the gather available; at most OUTSTANDING collections stay unfinished behind the host, not counting
        `fast` ones (`fast_sharding_for_leaf_module`)."""
        if len(self.fetch_events) > OUTSTANDING:
            self.builder.block(self.fetch_events[-OUTSTANDING - 1])
        if gather in self.in_flight:
            self._land(gather, self.in_flight.pop(gather))
        if not fast:
            self.fetch_events.append(tuple(self.builder.tail(self.gather_lane)))

    def _land(self, gather: int, flight: InFlight) -> None:
        """Make its parameters, once it has arrived."""
        if self.alone:
            self.builder.block(self.builder.tail(self.gather_lane))
            return
        self.builder.wait_for(self.gather_lane, [flight.collective])
        members = self._members(self.plan, gather)
        self.full.update(self._way(members).land(flight, members, self._full))

    # --- at the step -------------------------------------------------------------------------------------------------

    def release_persistent(self) -> None:
        if self.release.keeps_leftovers:
            self._drop(self.plan.leftovers)
        for parameter in self.persistent:
            if self.secondary is not None:
                self.secondary.cut(parameter)
            self.builder.release(self.full[parameter], COMPUTE)

    def gather_persistent(self) -> None:
        """All first shards are brought up; then one all-gather each, nothing coalesced. Secondary ones are out of date
        since the step, and forgotten."""
        swapped = [p for p in self.persistent if self.layout.shards[p].tier == "nvme"]
        self.store.read(swapped)
        if swapped:
            self.store.await_reads()
        brought = [] if self.alone else self.store.bring_up(self.persistent, COMPUTE)
        for parameter in sorted(self.persistent, key=lambda p: self.layout.shards[p].quantized):
            self.builder.acquire_again(self.full[parameter])
            if self.alone:
                self.store.copy_up(parameter, COMPUTE)
                continue
            if self.layout.shards[parameter].quantized:
                self.in_int8.at_once(Members((parameter,), self.store, self._gather_name((parameter,))))
                continue
            elements = self.world_size * self.layout.shards[parameter].elements
            name, members = self._gather_name((parameter,)), (parameter,)
            self.builder.collective(COMPUTE, "all_gather", elements, self.dtype, self.group, name=name, gathers=members)
        for buffer in brought:
            self.builder.release(buffer, COMPUTE)
        if self.secondary is not None:
            self.secondary.forget()

    def _full(self, parameter: int) -> int:
        """A parameter that is gathered or copied into a buffer of its own."""
        buffer = self.builder.acquire("gathered parameter", "parameters", self._size(parameter))
        return self.builder.gathered(buffer, parameter)

    def _size(self, parameter: int) -> float:
        """Bytes that a full parameter takes beside its shard."""
        whole = self.alone and self.store.on_gpu(parameter)
        return 0.0 if whole else float(self.width * self.network.numels[parameter])
