"""FSDP2's reductions: a group's gradients are reduce-scattered after its backward, and all-reduced over replicas.

Source: torch 2.13 torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives}.py, `post_backward`,
`foreach_reduce`. Gradients are copied and cast to the input of the reduce-scatter on the compute lane, which before
that waits until the reduce-scatter of the group before is over: one input is retained, so one reduction is out while
the next group computes. What follows a reduction is on its own lane; replicas have another. Shards of gradients have
the dtype of the shards; with `cpu_offload` each is copied to the host, which adds it up there if it has to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zerosim.step import COMPUTE, REDUCE, HostCompute, Transfer
from zerosim.strategies.fsdp import REPLICAS, FullyShardedProgram, divisors
from zerosim.strategies.fsdp2_groups import ParameterGroup

ALL_REDUCE = "all_reduce"
RETAINED = 1  # reduce_scatter_max_input_buffers


class Retained(NamedTuple):
    """The input of a reduce-scatter, and the ops after which that is over."""

    buffer: int
    over: tuple[int, ...]


class Reductions:
    """What `post_backward` does to gradients, and the end of a backward."""

    def __init__(self, program: FullyShardedProgram) -> None:
        self.program = program
        self.builder = program.builder
        self.config = program.config
        self.width = program.full_width
        self.wire = program.wire_width
        self.stored = program.shard_width
        fp16 = program.config.wire_dtype == "fp16"  # others are averaged by the collective
        self.divisors = divisors(program.world_size) if fp16 else (1, 1.0)
        self.retained: list[Retained] = []
        self.last: dict[str, tuple[int, ...]] = {}  # by lane: after what its last reduction is over
        self.copies: list[int] = []  # gradients on their way to the host

    # --- whole gradients ---------------------------------------------------------------------------------------------

    def accumulate(self, group: ParameterGroup) -> None:
        """Add to the sums in the wider dtype, where there are any (`accumulate_unsharded_grad_if_needed`)."""
        if group.widened is not None and group.gradients:
            moved = float((self.width + 2 * self.wire) * self._numel(group))
            self.program.elementwise(COMPUTE, f"{group.name} accumulate gradients", moved, len(group.gradients))
            self._free(group)

    def widen(self, group: ParameterGroup) -> None:
        """A backward without reduction: sums are in the dtype they will be reduced in, if that is another."""
        if self.config.wire_dtype == self.config.compute_dtype or not group.gradients:
            return
        numel = self._numel(group)
        group.widened = self.builder.acquire("accumulated gradients", "gradients", float(self.wire * numel))
        moved = float((self.width + self.wire) * numel)
        self.program.elementwise(COMPUTE, f"{group.name} cast gradients", moved, len(group.gradients))
        self._free(group)

    def _numel(self, group: ParameterGroup) -> int:
        return sum(self.program.network.numels[p] for p in group.trainable)

    def _free(self, group: ParameterGroup) -> None:
        for buffer in group.gradients.values():
            self.builder.release(buffer, COMPUTE)
        group.gradients.clear()

    # --- reductions --------------------------------------------------------------------------------------------------

    def recycle(self, most: int) -> None:
        """Compute waits until at most so many inputs of reduce-scatters are in use; the others are free."""
        while len(self.retained) > most:
            buffer, over = self.retained.pop(0)
            self.builder.wait_for(COMPUTE, over)
            self.builder.release(buffer, COMPUTE)

    def reduce(self, group: ParameterGroup) -> None:
        """One reduce-scatter of all gradients of the group, and what follows it."""
        self.recycle(RETAINED - 1)
        if not group.gradients and group.widened is None:
            return
        self._await(group, group.over)
        sent = self._copied_in(group)
        self.builder.wait(REDUCE, COMPUTE)
        received = self._reduce_scattered(group)
        self.retained.append(Retained(sent, tuple(self.builder.tail(REDUCE))))
        lane = self._all_reduced(group) if self.program.replicas else REDUCE
        self._store(group, self._cast(group, received, lane), lane)
        group.over = self.last[lane] = tuple(self.builder.tail(lane))

    def _copied_in(self, group: ParameterGroup) -> int:
        """The input of the reduce-scatter, padded; the gradients are free."""
        build, padded = self.builder, group.ranks * group.trainable_share
        read = self.width if group.widened is None else self.wire
        buffer = build.acquire("reduce-scatter input", "buffers", float(self.wire * padded))
        moved = float(read * self._numel(group) + self.wire * padded)
        self.program.elementwise(COMPUTE, f"{group.name} copy in gradients", moved)
        self._free(group)
        if group.widened is not None:
            build.release(group.widened, COMPUTE)
            group.widened = None
        return buffer

    def _reduce_scattered(self, group: ParameterGroup) -> int:
        """Its output, which is the gradient shard if it has its dtype. One rank copies."""
        share, size = group.trainable_share, float(self.wire * group.trainable_share)
        last = self.config.wire_dtype == self.config.parameter_dtype
        kind = ("gradient shard", "gradients") if last else ("reduce-scatter output", "buffers")
        output = self.builder.acquire(*kind, size)
        if self.divisors[0] > 1:
            self._divide(group, REDUCE, group.ranks * share)
        if group.ranks == 1:
            self.program.elementwise(REDUCE, f"{group.name} copy gradients", 2 * size)
            return output
        self.builder.collective(
            REDUCE,
            "reduce_scatter",
            group.ranks * share,
            self.config.wire_dtype,
            self.program.shard_group,
            name=f"reduce-scatter {group.name}",
            reduces=tuple(self.program.whole(p) for p in group.trainable),
        )
        return output

    def _all_reduced(self, group: ParameterGroup) -> str:
        """Over the replicas, on a lane of its own, which is returned."""
        self.builder.wait(ALL_REDUCE, REDUCE)
        self.builder.collective(
            ALL_REDUCE,
            "all_reduce",
            group.trainable_share,
            self.config.wire_dtype,
            REPLICAS,
            name=f"all-reduce {group.name}",
            reduces=tuple(self.program.whole(p) for p in group.trainable) if group.ranks == 1 else (),
        )
        return ALL_REDUCE

    def _divide(self, group: ParameterGroup, lane: str, elements: int) -> None:
        self.program.elementwise(lane, f"{group.name} divide gradients", 2.0 * self.wire * elements)

    def _cast(self, group: ParameterGroup, received: int, lane: str) -> int:
        """The gradient shard in the dtype of the shards; what was all-reduced in another is kept for a while."""
        share = group.trainable_share
        if self.divisors[1] != 1:
            self._divide(group, lane, share)
        if self.config.wire_dtype == self.config.parameter_dtype:
            return received
        cast = self.builder.acquire("gradient shard", "gradients", float(self.stored * share))
        self.program.elementwise(lane, f"{group.name} cast gradient shard", float((self.wire + self.stored) * share))
        if lane == ALL_REDUCE:
            group.all_reduced = received
        else:
            self.builder.release(received, lane)
        return cast

    def _store(self, group: ParameterGroup, shard: int, lane: str) -> None:
        """Keep it, or add it to what is kept."""
        held, key = self.program.held, group.unit.number
        if self.program.offloaded:
            for parameter in group.trainable:
                self._to_host(group, parameter, lane)
            self.builder.release(shard, lane)
        elif key in held:
            moved = 3.0 * self.stored * group.trainable_share
            self.program.elementwise(lane, f"{group.name} add gradient shard", moved, len(group.trainable))
            self.builder.release(shard, lane)
        else:
            held[key] = shard

    def _to_host(self, group: ParameterGroup, parameter: int, lane: str) -> None:
        """A copy of its own each. What has to be added on the CPU, or goes to pageable memory, the host waits for."""
        build, held, share = self.builder, self.program.held, group.shares[parameter]
        first, size = parameter not in held, float(self.stored * share)
        pinned = self.config.pin_memory and first
        landing = build.acquire("gradient shard", "gradients", size, "dram", pinned)
        copy = build.copy(lane, f"{group.name} gradient shard to host", Transfer(size, "gpu", "dram", pinned))
        if first:
            held[parameter] = landing
        else:
            build.host_compute("add gradient shard", HostCompute("stream", share, 3 * size))
            build.release(landing, COMPUTE)
        if pinned:
            self.copies.append(copy)

    # --- the end of a backward ---------------------------------------------------------------------------------------

    def finalize(self, group: ParameterGroup) -> None:
        """Compute waits for the last reduction of each lane, the host for gradients on their way to it."""
        self._await(group, [op for ops in self.last.values() for op in ops])
        self.last.clear()
        self.builder.block(self.copies)
        self.copies.clear()

    def _await(self, group: ParameterGroup, ops: Iterable[int]) -> None:
        """Compute waits for these; the group's last reduction is among them."""
        self.builder.wait_for(COMPUTE, ops)
        group.over = ()
        if group.all_reduced is not None:
            self.builder.release(group.all_reduced, COMPUTE)
            group.all_reduced = None
