"""PyTorch's FullyShardedDataParallel: a unit's parameters are one flat tensor, gathered before the unit runs.

Source: torch/distributed/fsdp/fully_sharded_data_parallel.py, _runtime_utils.py (torch 2.13). Four lanes beside
compute: pre-unshard, unshard (all-gathers), post-backward (reduce-scatters) and for hybrids all-reduce. Gathers and
reductions of a shard group share its communicator, in the order in which the host issues them. Nothing but the host's
running ahead makes a gather early in the forward; the rate limiter keeps the host back: before an unshard it waits for
the oldest free event, if two or more are queued. From the second step on events that nobody waited for are left over
from the step before, so that three units may be there at a time, not two. One rank is NO_SHARD.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zerosim.errors import InputError, Problem
from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Step
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.events import GRADIENT, RUN, Event
from zerosim.strategies.fsdp1_gradients import ALL_REDUCE, POST_BACKWARD, ReducedUnits
from zerosim.strategies.fsdp1_handles import ACCUMULATE, AWAIT, RESHARD, UNSHARD, Action, Handles
from zerosim.strategies.fsdp1_hooks import Hooks
from zerosim.strategies.fsdp1_parameters import PRE_UNSHARD, UNSHARD_LANE
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import Unit

REHEARSED = 3  # micro-steps of a step that need be rehearsed: those between the first and the last are alike


class FullySharded(ReducedUnits):
    """One step; what is done when is decided by its `hooks`."""

    def __init__(self, config: Fsdp, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        if self.replicas and self.shard_size == 1:
            expected = (
                "at least 2: torch turns to NO_SHARD in groups of one rank, and nothing is summed over the others"
            )
            raise InputError([Problem("", "shard_size", "1", expected)])
        trained = frozenset(number for number, flat in self.flats.items() if flat.trains)
        differentiable = [unit.number for unit in self.units if unit.node.output_gradient]
        handles = Handles(config, self.sharded, self.flats, differentiable)
        reentrant = self.checkpointed and training.reentrant
        self.hooks = Hooks(handles, self.units, trained, (self.forward_events, self.backward_events), reentrant)
        n = min(self.last_micro_batch + 1, REHEARSED)
        left_over = self.hooks.rehearse([not config.no_sync or m == n - 1 for m in range(n)])
        self.free_events = deque(() for _ in range(left_over))  # the host has waited for all at the end of the step

    def prepare(self) -> None:
        super().prepare()
        if not self.offloaded:
            return
        for flat in self.flats.values():
            if flat.trains:
                size = float(self.shard_width * flat.shard)
                self.builder.resident("gradient shard", "gradients", size, "dram", pinned=True)
        if self.last_micro_batch and not self.config.no_sync:
            self.notes.append("FSDP1 that offloads and reduces in every micro-step keeps the last one's gradients only")

    # --- hooks -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Shards are what the optimizer has written."""
        self.builder.wait(UNSHARD_LANE, COMPUTE)
        self.builder.wait(PRE_UNSHARD, COMPUTE)
        self.hooks.handles.begin(self.synchronizes)

    def enter(self, unit: Unit, event: Event) -> None:
        self._act(self.hooks.at(event))

    def leave(self, unit: Unit, event: Event) -> None:
        self._act(self.hooks.at(event))

    def _run(self, event: Event) -> None:
        super()._run(event)
        if event.direction == "backward":
            self._act(self.hooks.after(RUN, event.node))

    def gradient(self, parameter: int, buffer: int) -> None:
        self.collect(parameter, buffer)
        self._act(self.hooks.after(GRADIENT, self.arrives[parameter], parameter))

    def _act(self, actions: Iterable[Action]) -> None:
        for kind, number, real in actions:
            unit = self.units[number]
            if kind == UNSHARD:
                self.unshard(unit, real)
            elif kind == AWAIT:
                self.builder.wait(COMPUTE, UNSHARD_LANE)
            elif kind == ACCUMULATE:
                self.put_together(unit)
            elif kind == RESHARD:
                self.reshard(unit, real)
            else:
                self.reduce(unit)

    def epilogue(self) -> None:
        """The final callback: compute waits for what is on its way, with offloading the host, too."""
        if self.synchronizes:
            self.builder.wait(COMPUTE, POST_BACKWARD)
            if self.replicas:
                self.builder.wait(COMPUTE, ALL_REDUCE)
            if self.offloaded:
                self.builder.block(self.builder.tail(COMPUTE))
        self._act(self.hooks.handles.finish())
        for buffer in self.copied:
            self.builder.release(buffer, COMPUTE)
        self.copied.clear()

    # --- the step ----------------------------------------------------------------------------------------------------

    @property
    def scaler_group(self) -> str:
        """ShardedGradScaler sums in `unscale_`, which nobody calls for a fused optimizer, unless to clip."""
        unscales = not self.config.optimizer.fused or self.config.gradient_clipping > 0
        return DATA_PARALLEL if unscales else ""

    def reduce_norm(self) -> None:
        """clip_grad_norm_: a sum over the shard group; the host reads it if gradients are in its memory."""
        if not self.sharded:
            return
        self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", self.shard_group, name="all-reduce norm")
        if self.offloaded:
            self.builder.read(COMPUTE)


def write(config: Fsdp, model: Model, training: Training, ranks: Ranks) -> Step:
    """The step of an FSDP1 run, from the second one on."""
    return FullySharded(config, model, training, ranks).write()
