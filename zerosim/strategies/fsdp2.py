"""PyTorch FSDP2 (`fully_shard`): the parameters of a module are whole while it runs, and shards of them otherwise.

Source: torch 2.13 torch/distributed/fsdp/_fully_shard/{_fsdp_state,_fsdp_param_group}.py. Here are the hooks: in a
forward a group is gathered when the host gets to it; in a backward its gather was issued by the group before it, one
ahead (or what the script names), in the order in which forwards ended. If the script tells which backward of a step is
the last (`set_is_last_backward`), only that one clears this order: then each backward after the first gathers a group
too many, the last one of the micro-step before. Groups whose input has no gradient are reduced at the end of a
backward, after the root's.
"""

from __future__ import annotations

from zerosim.errors import InputError, Problem
from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Step
from zerosim.strategies.events import Event
from zerosim.strategies.fsdp import FullyShardedProgram
from zerosim.strategies.fsdp2_gathers import SMALLER, Gathers
from zerosim.strategies.fsdp2_groups import ParameterGroup, State, parameter_groups, share_of
from zerosim.strategies.fsdp2_reductions import Reductions
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import Unit


class FullyShard(FullyShardedProgram):
    """One step."""

    def __init__(self, config: Fsdp, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        self.parameters = model.parameters
        self.groups = parameter_groups(config, self.units, model.parameters, self.shard_size)
        self.below = [group for group in self.groups if not group.unit.root]
        self.group_of = {group.unit.number: group for group in self.groups}
        self.owner = {p: group for group in self.groups for p in group.parameters}
        self.module_of = {p: node for node in self.network.root.walk() for p in node.parameters}
        self.order: list[ParameterGroup] = []  # in which forwards ended
        self._smaller_mesh(ranks)
        self.gathers = Gathers(self)
        self.reducer = Reductions(self)

    def _smaller_mesh(self, ranks: Ranks) -> None:
        for size in sorted({group.after_forward for group in self.groups} - {0, self.shard_size}):
            if size < 0 or self.shard_size % size:
                expected = f"true, false, or a number that divides the {self.shard_size} ranks of a shard group"
                raise InputError([Problem("", "reshard_after_forward", str(size), expected)])
            self.builder.groups[SMALLER] = ranks.shards(SMALLER, size)

    # --- what it has -------------------------------------------------------------------------------------------------

    def shard(self, unit: Unit, trainable: bool = False) -> int:
        kept = (p for p in unit.parameters if self.network.trainable[p] or not trainable)
        return sum(share_of(self.parameters[p], self.shard_size) for p in kept)

    @property
    def tensors(self) -> int:
        return sum(self.network.trainable)

    @property
    def reductions(self) -> tuple[int, ...]:
        return super().reductions if self.world_size > 1 else ()

    @property
    def last_backward(self) -> bool:
        """Whether torch takes this one for the last of a step: each of them, unless it is told."""
        return self.boundary_micro_batch or not self.config.set_is_last_backward

    @property
    def reshards(self) -> bool:
        return self.boundary_micro_batch or self.config.reshard_after_backward

    # --- the walk ----------------------------------------------------------------------------------------------------

    def micro_steps(self) -> None:
        """One after another; where they hand buffers over, none is like the one before it."""
        if self.config.reshard_after_backward and not self.config.set_is_last_backward:
            super().micro_steps()
            return
        for micro_batch in range(self.training.gradient_accumulation_steps):
            self.micro_batch = self.builder.micro_batch = micro_batch
            self._micro_step()

    def begin(self) -> None:
        self.gathers.begin()

    def turn(self) -> None:
        self.gathers.flush()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def enter(self, unit: Unit, event: Event) -> None:
        group = self.group_of.get(unit.number)
        if group is None:
            return
        self.builder.call(hook_parameters=len(group.parameters))
        if event.direction == "backward":
            self._pre_backward(group)
        elif group.in_backward:  # a forward that is run again: what it needs was gathered for the backward
            self._make_whole(group)
        else:
            group.state = State.FORWARD
            self._make_whole(group)
            self._prefetch(self._following(group))

    def leave(self, unit: Unit, event: Event) -> None:
        group = self.group_of.get(unit.number)
        if group is None:
            return
        self.builder.call(hook_parameters=len(group.parameters))
        if event.direction == "backward":
            self._post_backward(group)
        elif event.direction == "forward":
            self.gathers.reshard(group)
            group.places.append(len(self.order))
            self.order.append(group)
            group.state = State.IDLE
        elif not group.in_backward:  # it stays whole for the backward that follows
            group.state = State.IDLE

    def _make_whole(self, group: ParameterGroup) -> None:
        self.gathers.unshard(group)
        self.gathers.wait(group)

    def _pre_backward(self, group: ParameterGroup) -> None:
        group.state, group.in_backward = State.PRE_BACKWARD, True
        self._make_whole(group)
        named = self._preceding(group)
        if not named:
            place = group.places.pop() if group.places else 0
            named = [self.order[place - 1]] if place else []
        self._prefetch(named)

    def _prefetch(self, groups: list[ParameterGroup]) -> None:
        for group in groups:
            self.gathers.unshard(group)

    def _following(self, group: ParameterGroup) -> list[ParameterGroup]:
        """Whom the script names: the next ones; the root's it does not tell."""
        start = self.below.index(group) + 1 if group in self.below else len(self.below)
        return self.below[start : start + self.config.prefetch_forward]

    def _preceding(self, group: ParameterGroup) -> list[ParameterGroup]:
        """Those before it, the nearest first."""
        stop = self.below.index(group) if group in self.below else 0
        return self.below[max(0, stop - self.config.prefetch_backward) : stop][::-1]

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, parameter: int, buffer: int) -> None:
        """Autograd adds to what an earlier backward left."""
        self.widen(self.module_of[parameter], parameter)
        held = self.owner[parameter].gradients.setdefault(parameter, buffer)
        if held != buffer:
            self.accumulate(held, buffer, self.network.numels[parameter], self.gradient_width)

    def _post_backward(self, group: ParameterGroup) -> None:
        group.state = State.POST_BACKWARD
        self.reducer.accumulate(group)
        if self.reshards:
            self.gathers.reshard(group)
        if self.synchronizes:
            self.reducer.reduce(group)
        else:
            self.reducer.widen(group)

    def epilogue(self) -> None:
        """The root's final callback: what had no hook is reduced, root first; the last backward ends everything."""
        for group in self.groups:
            if group.state is not State.POST_BACKWARD:
                self._post_backward(group)
            group.state, group.in_backward = State.IDLE, False
            if self.last_backward:
                self.reducer.finalize(group)
                self.gathers.abandon(group)
                group.places.clear()
        self.gathers.flush()
        if self.last_backward:
            self.order.clear()
            self.reducer.recycle(0)

    # --- the optimizer -----------------------------------------------------------------------------------------------

    def reduce_norm(self) -> None:
        """The norms of all tensors as one vector, over the ranks that hold them once."""
        if self.shard_size > 1:
            dtype = self.config.parameter_dtype
            self.builder.collective(
                COMPUTE, "all_reduce", self.tensors, dtype, self.shard_group, name="all-reduce gradient norms"
            )


def write(config: Fsdp, model: Model, training: Training, ranks: Ranks) -> Step:
    """The step of a run with `fully_shard`."""
    return FullyShard(config, model, training, ranks).write()
