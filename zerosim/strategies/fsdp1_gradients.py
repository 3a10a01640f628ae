"""FSDP1's gradients: that of a flat parameter is reduced when it is complete, on a lane of its own.

Source: torch/distributed/fsdp/_runtime_utils.py (_post_backward_hook, _reduce_grad, _reduce_grad_no_shard). Gradients
of a unit's parameters are put together on the compute lane; casts, padding, the division by the number of ranks before
and after the sum, and the sum over micro-steps are on the post-backward lane, for hybrids from the all-reduce on it.
"""

from __future__ import annotations

from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, CollectiveKind, Slice, Transfer
from zerosim.strategies.events import GRADIENT
from zerosim.strategies.fsdp import divisors
from zerosim.strategies.fsdp1_parameters import GatheredUnits
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import Unit

POST_BACKWARD, ALL_REDUCE = "post-backward", "all-reduce"


class ReducedUnits(GatheredUnits):
    """By unit: `pieces`, gradients of its parameters; `whole_gradients`, of its flat parameter."""

    def __init__(self, config: Fsdp, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        self.before_reduction, self.after_reduction = divisors(ranks.world)
        self.owner = {p: unit.number for unit in self.units for p in unit.parameters}
        self.arrives = {e.parameter: e.node for e in self.backward_events if e.kind == GRADIENT}
        self.pieces: dict[int, list[int]] = {}
        self.whole_gradients: dict[int, int] = {}
        self.copied: list[int] = []  # what is also in host memory, and kept until the backward ends

    def collect(self, parameter: int, buffer: int) -> None:
        """The gradient of one parameter."""
        self.widen(self.arrives[parameter], parameter)
        self.pieces.setdefault(self.owner[parameter], []).append(buffer)

    def put_together(self, unit: Unit) -> None:
        """The backward of `torch.split`; then the sum with micro-steps that did not synchronize, or, with NO_SHARD,
        whose sum over the ranks is there."""
        build, elements = self.builder, self.flats[unit.number].elements
        new = build.acquire("flat gradient", "gradients", float(self.full_width * elements))
        self.elementwise(COMPUTE, "concatenate gradients", 2.0 * self.full_width * elements)
        for piece in self.pieces.pop(unit.number, []):
            build.release(piece, COMPUTE)
        if unit.number in self.whole_gradients or (unit.number in self.held and not self.sharded):
            kept = self.full_width if unit.number in self.whole_gradients else self.shard_width
            self.elementwise(COMPUTE, "accumulate gradient", float((self.full_width + 2 * kept) * elements))
            build.release(new, COMPUTE)
        else:
            self.whole_gradients[unit.number] = new

    def reduce(self, unit: Unit) -> None:
        self.builder.wait(POST_BACKWARD, COMPUTE)
        if self.sharded:
            self._reduce_scatter(unit)
        else:
            self._all_reduce(unit)

    # --- sharded -----------------------------------------------------------------------------------------------------

    def _reduce_scatter(self, unit: Unit) -> None:
        """Then, for hybrids, the sum over replicas. The hook holds what it reduces until it returns."""
        build, flat, lane = self.builder, self.flats[unit.number], POST_BACKWARD
        gradients = self._on_wire(unit)
        shard = build.acquire("gradient shard", "gradients", float(self.wire_width * flat.shard))
        self._sum("reduce_scatter", unit, flat.padded)
        if self.replicas:
            lane = ALL_REDUCE
            build.wait(ALL_REDUCE, POST_BACKWARD)
            name = f"all-reduce {unit.node.name or 'root'}"
            build.collective(lane, "all_reduce", flat.shard, self.config.wire_dtype, self.replicas, name=name)
        self._divide(lane, self.after_reduction, flat.shard)
        if self.config.wire_dtype != self.config.parameter_dtype:
            shard = self._cast_shard(shard, flat.shard, lane)
        self._keep(unit, shard, lane)
        for buffer in gradients:
            build.release(buffer, POST_BACKWARD)

    def _on_wire(self, unit: Unit) -> list[int]:
        """The gradient, its cast to the dtype of the reduction, and what is padded of it."""
        flat, wire = self.flats[unit.number], self.wire_width
        buffers = [self.whole_gradients.pop(unit.number)]
        if self.config.wire_dtype != self.config.compute_dtype:
            buffers.append(self.builder.acquire("gradient to reduce", "gradients", float(wire * flat.elements)))
            self.elementwise(POST_BACKWARD, "cast gradient", float((self.full_width + wire) * flat.elements))
        if flat.padded != flat.elements:
            buffers.append(self.builder.acquire("padded gradient", "gradients", float(wire * flat.padded)))
            self.elementwise(POST_BACKWARD, "pad gradient", float(wire * (flat.elements + flat.padded)))
        self._divide(POST_BACKWARD, self.before_reduction, flat.padded)
        return buffers

    def _cast_shard(self, shard: int, elements: int, lane: str) -> int:
        cast = self.builder.acquire("gradient shard", "gradients", float(self.shard_width * elements))
        self.elementwise(lane, "cast gradient shard", float((self.wire_width + self.shard_width) * elements))
        self.builder.release(shard, lane)
        return cast

    def _keep(self, unit: Unit, shard: int, lane: str) -> None:
        elements = self.flats[unit.number].shard
        if self.offloaded:
            self._copy_down(shard, elements, lane)
        elif self.held.setdefault(unit.number, shard) != shard:
            self.elementwise(lane, "accumulate gradient shard", 3.0 * self.shard_width * elements)
            self.builder.release(shard, lane)

    # --- NO_SHARD ----------------------------------------------------------------------------------------------------

    def _all_reduce(self, unit: Unit) -> None:
        """The gradient is and stays whole; once it has been reduced it has the parameters' dtype."""
        elements, new = self.flats[unit.number].elements, self.whole_gradients.pop(unit.number, None)
        on_wire = self._cast_whole(elements, reduced=new is None)
        self._divide(POST_BACKWARD, self.before_reduction, elements)
        self._sum("all_reduce", unit, elements)
        self._divide(POST_BACKWARD, self.after_reduction, elements)
        temporary = [buffer for buffer in (new, on_wire) if buffer is not None]
        kept = self.held.get(unit.number)
        if self.config.wire_dtype != self.config.parameter_dtype:
            moved = float((self.wire_width + self.shard_width) * elements)
            if kept is None:
                kept = self.builder.acquire("reduced gradient", "gradients", float(self.shard_width * elements))
            self.elementwise(POST_BACKWARD, "cast gradient back", moved)
        elif kept is None:
            kept = temporary.pop()
        for buffer in temporary:
            self.builder.release(buffer, POST_BACKWARD)
        if self.offloaded:
            self._copy_down(kept, elements, POST_BACKWARD)
        else:
            self.held[unit.number] = kept

    def _cast_whole(self, elements: int, reduced: bool) -> int | None:
        """The gradient in the dtype of the reduction, if it has another; `reduced`: it is a sum already."""
        dtype, width = self.config.compute_dtype, self.full_width
        if reduced:
            dtype, width = self.config.parameter_dtype, self.shard_width
        if dtype == self.config.wire_dtype:
            return None
        on_wire = self.builder.acquire("gradient to reduce", "gradients", float(self.wire_width * elements))
        self.elementwise(POST_BACKWARD, "cast gradient", float((width + self.wire_width) * elements))
        return on_wire

    # --- both --------------------------------------------------------------------------------------------------------

    def _divide(self, lane: str, by: float, elements: int) -> None:
        if by > 1:
            self.elementwise(lane, f"divide gradient by {by:g}", 2.0 * self.wire_width * elements)

    def _sum(self, kind: CollectiveKind, unit: Unit, elements: int) -> None:
        """Over the shard group, for every parameter of the unit."""
        pieces: tuple[Slice, ...] = tuple(self.whole(p) for p in unit.parameters if self.network.trainable[p])
        name = f"{kind.replace('_', '-')} {unit.node.name or 'root'}"
        dtype, group = self.config.wire_dtype, self.shard_group
        self.builder.collective(POST_BACKWARD, kind, elements, dtype, group, name=name, reduces=pieces)

    def _copy_down(self, buffer: int, elements: int, lane: str) -> None:
        """Without shards torch's copy blocks the host."""
        down = Transfer(float(self.shard_width * elements), "gpu", "dram")
        self.builder.copy(lane, "copy gradient to host", down, blocking=not self.sharded)
        self.copied.append(buffer)
