"""ZeRO stages 1 and 2: the optimizer states (and from stage 2 on the gradients) live with their owner, on its GPU or in
host memory.

Source: DeepSpeed runtime/zero/stage_1_and_2.py; op numbers are those of the specification in the tests' vectors.
What surprises: `reduce_scatter: true` issues an all-reduce of the whole bucket (use_multi_rank_bucket_allreduce), so
the wire carries twice what the ZeRO paper says; with `overlap_comm` the compute lane waits at each flush for the
*previous* reduction; the weights' all-gather after the optimizer is one collective that overlaps with nothing.

Rank 0's share is played: it owns the first partition, whose gradients become ready last.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, REDUCE, Slice
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.flat import FlatLayout, OwnerRun, flat_layout
from zerosim.strategies.offloaded import HostPartition
from zerosim.strategies.partition import RANK, GpuPartition, Partition
from zerosim.strategies.placement import placement_of

ALIGNED_BYTES = 16  # where a parameter begins with `parameter_alignment`


class PartitionedOptimizer(DeepSpeedProgram):
    """What stages 1 and 2 share: bucket, flush, boundary."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        super().__init__(config, model, training, world_size)
        alignment = ALIGNED_BYTES // self.width if config.zero.parameter_alignment else 1
        self.layout: FlatLayout = flat_layout(
            self.network.trainable_numels, world_size, config.zero.round_robin_gradients, alignment
        )
        self.lane = REDUCE if config.zero.overlap_comm else COMPUTE
        self.offloaded = placement_of(config.zero).optimizer != "gpu"
        self.contiguous = config.zero.contiguous_gradients or self.offloaded
        self.partition = self._partition()
        self.bucket: list[int] = []
        self.bucket_elements = 0
        self.bucket_buffers: list[int] = []
        self.filled: list[int] = []  # the last op that put a gradient into the bucket
        self.loose: list[int] = []  # gradients of the bucket in their own memory: oversized, or nothing is contiguous
        self.notes.append("rank 0's partition is played for all ranks; others keep other gradients, at other moments")

    def prepare(self) -> None:
        numel = sum(self.network.numels)
        buffer = self.builder.resident("parameters", "parameters", self.width * max(numel, self.layout.padded))
        self.builder.gathered(buffer, *range(len(self.network.numels)))
        self.partition.residents()

    def _partition(self) -> Partition:
        if not self.offloaded:
            return GpuPartition(self, self.layout, self.lane)
        placement = placement_of(self.zero)
        old = self.release.host_sums == "unless_last"
        several = (self.zero.stage == 2 or old) and self.last_micro_batch > 0  # stage 1 accumulates before it reduces
        pinned = placement.optimizer_pinned
        return HostPartition(self, self.layout, self.lane, accumulates=several, pinned=pinned)

    def repeated(self, by: int) -> None:
        self.partition.repeated(by)

    # --- filling the bucket (G0-G3) ----------------------------------------------------------------------------------

    def collect(self, parameter: int, buffer: int) -> None:
        """A gradient enters the bucket; the bucket is flushed first if it would overflow."""
        numel = self.network.numels[parameter]
        self.allocate_bucket()
        if self.bucket_elements + numel > self.zero.reduce_bucket_size:
            self.flush()
        if numel <= self.zero.reduce_bucket_size and self.contiguous:
            self._fill("copy gradient to bucket", numel, buffer)
        elif self.offloaded:
            own = self.builder.acquire("gradient", "gradients", float(self.reduced_width * numel))
            self._fill("copy gradient larger than the bucket", numel, buffer)
            self.loose.append(own)
        else:
            self.loose.append(buffer)
        self.bucket.append(parameter)
        self.bucket_elements += numel

    def _fill(self, name: str, numel: int, buffer: int) -> None:
        self.filled = [self.elementwise(COMPUTE, name, 2.0 * self.reduced_width * numel)]
        self.builder.release(buffer, COMPUTE)

    def allocate_bucket(self) -> None:
        if self.bucket_buffers or not self.contiguous:
            return
        size = float(self.reduced_width * self.zero.reduce_bucket_size)
        for _ in range(2 if self.zero.overlap_comm else 1):
            self.bucket_buffers.append(self.builder.acquire("gradient bucket", "buffers", size))

    # --- emptying it (F1-F9) -----------------------------------------------------------------------------------------

    def flush(self, last: bool = False) -> None:
        """Reduce the bucket. An empty one (before an oversized first gradient) still costs the two waits."""
        if self.zero.overlap_comm:
            self._change_lanes(last)
        if not self.bucket:
            return
        if self.zero.overlap_comm and not self.contiguous:
            self.builder.synchronize()
        self._reduce(self.layout.owner_runs(self.bucket))
        if self.zero.overlap_comm and self.release.compute_waits == "issued":
            self.builder.wait(COMPUTE, REDUCE)
        mine = [p for p in self.bucket if self.layout.in_partition(p, RANK)]
        if mine:
            self.partition.keep(mine)
        for buffer in self.loose:
            self.builder.release(buffer, self.lane)
        self.loose.clear()
        self.bucket.clear()
        self.filled.clear()
        self.bucket_elements = 0

    def _change_lanes(self, last: bool) -> None:
        """The reduction lane waits for the compute lane (offloaded: for what filled the bucket, `ready_events`), which
        waits for the previous flush, not for this one (but see `compute_waits`). After the last the host waits for all,
        so the lane need not.
        """
        before = self.builder.tail(REDUCE)
        if self.offloaded and self.release.guards_offload:
            self.builder.wait_for(REDUCE, self.filled)
        else:
            self.builder.wait(REDUCE, COMPUTE)
        if not last and self.release.compute_waits != "nothing":
            self.builder.wait_for(COMPUTE, before)

    def _reduce(self, runs: list[OwnerRun]) -> None:
        if not self.zero.reduce_scatter:
            self._all_reduce_in_place(runs)
        elif self.zero.use_multi_rank_bucket_allreduce and not self.release.rooted_reduces:
            for group in self._groups_of_runs(runs):
                self._all_reduce_runs(group)
        else:
            self._rooted_reduces(runs)

    def _groups_of_runs(self, runs: list[OwnerRun]) -> list[list[OwnerRun]]:
        """Runs are gathered until their sum exceeds the bucket: only an oversized gradient is ever split."""
        groups: list[list[OwnerRun]] = [[]]
        elements = 0
        for run in runs:
            groups[-1].append(run)
            elements += run.elements
            if elements > self.zero.reduce_bucket_size:
                groups.append([])
                elements = 0
        return [group for group in groups if group]

    def _all_reduce_runs(self, runs: list[OwnerRun]) -> None:
        """F3-F6: divide; flatten when there are several owners or tensors; all-reduce; copy back only what is mine."""
        elements = sum(run.elements for run in runs)
        mine = sum(run.elements for run in runs if run.owner == RANK)
        several, width = len(runs) > 1 or not self.contiguous, self.reduced_width
        temporary = self.builder.acquire("flattened bucket", "buffers", width * elements) if several else None
        passes = 2 if several else 1
        self.elementwise(self.lane, "divide gradients", 2.0 * width * elements * passes, passes)
        self._all_reduce(elements, tuple(piece for run in runs for piece in run.pieces))
        if temporary is not None:
            if mine:
                self.elementwise(self.lane, "copy back my gradients", 2.0 * width * mine)
            self.builder.release(temporary, self.lane)

    def _all_reduce_in_place(self, runs: list[OwnerRun]) -> None:
        elements = sum(run.elements for run in runs)
        self.elementwise(self.lane, "scale gradients", 2.0 * self.reduced_width * elements)
        self._all_reduce(elements, tuple(piece for run in runs for piece in run.pieces))

    def _rooted_reduces(self, runs: list[OwnerRun]) -> None:
        """One reduce per owner, owners in order of first appearance; with overlap a device synchronisation each."""
        by_owner: dict[int, list[Slice]] = {}
        width = self.reduced_width
        for run in runs:
            by_owner.setdefault(run.owner, []).extend(run.pieces)
        self.pass_over("divide gradients", sum(run.elements for run in runs), 2 * width, lane=self.lane)
        for owner, pieces in by_owner.items():
            if self.zero.overlap_comm:
                self.builder.synchronize()
            size = sum(piece.stop - piece.start for piece in pieces)
            several = len(pieces) > 1
            flat = self.builder.acquire("flattened run", "buffers", float(width * size)) if several else None
            if several:
                self.pass_over("flatten gradients", size, 2 * width, lane=self.lane)
            received = size if owner == RANK else 0
            self.reduce_on_wire(self.lane, "reduce", size, tuple(pieces), f"reduce to {owner}", received, owner)
            if flat is not None:
                if received:
                    self.pass_over("copy back my gradients", size, 2 * width, lane=self.lane)
                self.builder.release(flat, self.lane)

    def _all_reduce(self, elements: int, pieces: tuple[Slice, ...]) -> None:
        self.reduce_on_wire(self.lane, "all_reduce", elements, pieces, "all-reduce gradients", elements)

    # --- the end of a backward (E1-E4) -------------------------------------------------------------------------------

    def finish_reductions(self) -> None:
        if self.bucket:
            self.flush(last=True)
        if self.zero.overlap_comm:
            self.builder.synchronize()
        self.partition.finish()
        for buffer in self.bucket_buffers:  # E4: after the sums, which with overlap are on another lane
            self.builder.release_after(buffer, self.builder.next_op - 1)
        self.bucket_buffers.clear()

    # --- the optimizer (S1-S11) --------------------------------------------------------------------------------------

    def boundary(self) -> None:
        self.partition.update()
        self.gather_updated(self.layout)
        self.timer()
