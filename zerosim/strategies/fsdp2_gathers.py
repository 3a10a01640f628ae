"""FSDP2's all-gathers: when a group's parameters become whole, in which buffers, and when they are cut up again.

Source: torch 2.13 torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives}.py. Copies into the buffer
of an all-gather have a lane of their own, the collective the next; copies out of it are on the compute lane. Both lanes
wait for the copy out before the last one, in a forward, and for the last one in a backward. So the buffer of the group
before is kept till the host asks for the next in a forward, and two of them are there beside a group's parameters.
"""

from __future__ import annotations

from typing import NamedTuple

from zerosim.step import COMPUTE, GATHER, Transfer
from zerosim.strategies.fsdp import FullyShardedProgram
from zerosim.strategies.fsdp2_groups import Flight, ParameterGroup, State

COPY_IN = "gather.copy_in"
SMALLER = "reshard"  # the group of ranks of the smaller mesh


class Output(NamedTuple):
    """The buffer of an all-gather, and the op that copied out of it."""

    buffer: int
    copy_out: int


class Gathers:
    """`unshard`, `wait_for_unshard`, `reshard` of all groups. `shard_group`: the ranks that hold a group once."""

    def __init__(self, program: FullyShardedProgram) -> None:
        self.program = program
        self.builder = program.builder
        self.config = program.config
        self.width = program.full_width
        self.stored = program.shard_width
        self.kept: Output | None = None  # of the last group of a forward

    def begin(self) -> None:
        """The root's forward: what was done to shards is done before they are gathered."""
        self.builder.wait(COPY_IN, COMPUTE)
        self.builder.wait(GATHER, COMPUTE)

    # --- all-gathers -------------------------------------------------------------------------------------------------

    def unshard(self, group: ParameterGroup) -> None:
        """Issue the all-gather, unless it was or need not be."""
        if group.flight is not None or group.whole is not None:
            return
        if group.resharded is not None:
            self._await([group.resharded])
            group.resharded = None
        ranks = group.ranks if group.pieces is None else group.after_forward
        group.flight = Flight(None, None) if ranks == 1 else self._all_gather(group, ranks)

    def _all_gather(self, group: ParameterGroup, ranks: int) -> Flight:
        """Cast what this rank has, copy it to its place in the buffer, gather."""
        build, share = self.builder, group.elements // ranks
        staged = self._staged(group, share)
        output = build.acquire("all-gather output", "buffers", float(self.width * group.elements))
        self.program.elementwise(COPY_IN, f"{group.name} copy in", 2.0 * self.width * share)
        for buffer in staged:
            build.release(buffer, COPY_IN)
        build.wait(GATHER, COPY_IN)
        op = build.collective(
            GATHER,
            "all_gather",
            group.elements,
            self.config.compute_dtype,
            self.program.shard_group if group.pieces is None else SMALLER,
            name=f"all-gather {group.name}",
            gathers=group.parameters,
        )
        return Flight(op, output)

    def _staged(self, group: ParameterGroup, share: int) -> list[int]:
        """Buffers with the shards as they are gathered: brought up from the host, cast. One cast for all shards, but
        for those in host memory (`_get_param_all_gather_inputs`)."""
        build, staged = self.builder, []
        if group.pieces is None and self.program.offloaded:
            staged.append(build.acquire("shards on the GPU", "parameters", float(self.stored * share)))
            self.bring_up(group, COPY_IN)
        if self.width != self.stored and (group.pieces is None or not self.program.offloaded):
            staged.append(build.acquire("cast shards", "parameters", float(self.width * share)))
            read = self.stored if group.pieces is None else self.width
            kernels = len(group.parameters) if self.program.offloaded else 1
            self.program.elementwise(COPY_IN, f"{group.name} cast", float((read + self.width) * share), kernels)
        return staged

    def bring_up(self, group: ParameterGroup, lane: str) -> None:
        for share in group.shares.values():
            up = Transfer(float(self.stored * share), "dram", "gpu", self.config.pin_memory)
            self.builder.copy(lane, f"{group.name} shard to the GPU", up, layer=group.unit.node.layer)

    def wait(self, group: ParameterGroup) -> None:
        """Compute waits for the all-gather and copies the parameters out of its buffer."""
        if group.flight is None:
            return
        op, output = group.flight
        group.flight = None
        if op is None or output is None:
            self._copy_whole(group)
            return
        forward = group.state is State.FORWARD
        if forward:
            self.flush()
        self.builder.wait_for(COMPUTE, [op])
        self._hold(group)
        moved = 2.0 * self.width * group.elements
        copied = Output(output, self.program.elementwise(COMPUTE, f"{group.name} copy out", moved))
        self._drop_pieces(group)
        if forward:
            self.kept = copied
        else:
            self._drop(copied)

    def _copy_whole(self, group: ParameterGroup) -> None:
        """One rank: its shard is the parameter, which is copied all the same, and cast."""
        self._hold(group)
        casts = self.width != self.stored
        if self.program.offloaded:
            self.bring_up(group, COMPUTE)
        moved = self.stored + self.width + (2 * self.width if casts else 0)
        kernels = len(group.parameters) * (2 if casts else 1)
        self.program.elementwise(COMPUTE, f"{group.name} copy", float(moved * group.elements), kernels)

    def _hold(self, group: ParameterGroup) -> None:
        size = float(self.width * group.elements)
        buffer = self.builder.acquire("unsharded parameters", "parameters", size)
        group.whole = self.builder.gathered(buffer, *group.parameters)

    def flush(self) -> None:
        """Give back the buffer that the forward kept."""
        if self.kept is not None:
            self._drop(self.kept)
            self.kept = None

    def _drop(self, output: Output) -> None:
        """The lanes wait for the copy out; from then on the next copy in may use the memory."""
        self._await([output.copy_out])
        self.builder.release_after(output.buffer, self.builder.launch(COPY_IN, "all-gather output is free", None))

    def abandon(self, group: ParameterGroup) -> None:
        """An all-gather that nobody waited for: compute does, and the result is forgotten."""
        if group.flight is None:
            return
        op, output = group.flight
        group.flight = None
        if op is not None and output is not None:
            self.builder.wait_for(COMPUTE, [op])
            self._drop(Output(output, op))

    def _await(self, ops: list[int]) -> None:
        self.builder.wait_for(COPY_IN, ops)
        self.builder.wait_for(GATHER, ops)

    # --- and back ----------------------------------------------------------------------------------------------------

    def reshard(self, group: ParameterGroup) -> None:
        """Free the parameters; after a forward perhaps not, or but for the pieces of a smaller mesh."""
        if group.state is State.FORWARD:
            if group.after_forward == 0:
                return
            if group.after_forward < group.ranks:
                self._cut(group)
                return
        if group.whole is not None:
            self.builder.release(group.whole, COMPUTE)
            group.whole = None
        self._drop_pieces(group)

    def _cut(self, group: ParameterGroup) -> None:
        """Copy this rank's pieces out of the parameters, one kernel each (`to_sharded_post_forward`)."""
        if group.whole is None:
            return
        share = group.elements // group.after_forward
        group.pieces = self.builder.acquire("resharded parameters", "parameters", float(self.width * share))
        moved = 2.0 * self.width * share
        group.resharded = self.program.elementwise(COMPUTE, f"{group.name} reshard", moved, len(group.parameters))
        self.builder.release(group.whole, COMPUTE)
        group.whole = None

    def _drop_pieces(self, group: ParameterGroup) -> None:
        if group.pieces is not None:
            self.builder.release(group.pieces, COMPUTE)
            group.pieces, group.resharded = None, None
