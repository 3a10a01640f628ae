"""ZeRO++'s gradients (qgZ): on several nodes each goes alone, in int4, by an all-to-all in the node and one across.

Source: DeepSpeed 0.19.8 runtime/comm/coalesced_collectives.py (`all_to_all_quant_reduce`), csrc/quantization/
{swizzled_quantize,quant_reduce}.cu. Each exchange is two collectives, blocks and their fp32 scales; what arrives in the
node is summed and quantized again. Nothing is coalesced: four all-to-alls a parameter. What cannot be cut, and every
vector, goes by a reduce-scatter of its own. The kernels are bound by memory, and read fp16 whatever the dtype is.
"""

from __future__ import annotations

from zerosim.errors import InputError
from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES, Slice
from zerosim.strategies.quantized import FP16, SCALE, Blocks, gradient_blocks, uneven_blocks
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.stage3_groups import Levels
from zerosim.strategies.zero3 import Zero3


class QuantizedGradients(Zero3):
    """Reduced over the two `levels` of the machine."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, ranks: Ranks, levels: Levels) -> None:
        super().__init__(config, model, training, ranks)
        self.levels = levels
        self.blocks = self._blocks(model)

    def _blocks(self, model: Model) -> dict[int, Blocks]:
        """What is made of each gradient that can be cut. InputError where torch's all-to-all would stop."""
        local, nodes, trainable = self.levels.local.size, self.levels.across.size, self.network.trainable
        given = {
            p: gradient_blocks(each.shape, local, nodes) for p, each in enumerate(model.parameters) if trainable[p]
        }
        blocks = {p: found for p, found in given.items() if found is not None}
        wrong = [p for p, found in blocks.items() if found.inside % self.world_size]
        if wrong:
            raise InputError([uneven_blocks(self.network.names[p], blocks[p], self.world_size) for p in wrong])
        return blocks

    def reduce_members(self, members: list[int]) -> None:
        for parameter in members:
            if parameter not in self.blocks:
                self.scatter([parameter])
            elif self.wire == self.dtype:
                self._reduce_alone(parameter)
            else:
                self._reduce_cast(parameter)

    def _reduce_cast(self, parameter: int) -> None:
        """In the communication dtype, there and back."""
        numel, wire = self.network.numels[parameter], DTYPE_BYTES[self.wire]
        copy = self.builder.acquire("gradient in the communication dtype", "buffers", float(wire * numel))
        self.pass_over("cast to the communication dtype", numel, self.width + wire, lane=self.lane)
        self._reduce_alone(parameter)
        received = numel // self.world_size
        self.pass_over("cast from the communication dtype", received, self.width + wire, lane=self.lane)
        self.builder.release(copy, self.lane)

    def _reduce_alone(self, parameter: int) -> None:
        """Quantize; exchange in the node; sum and quantize again; exchange across nodes; widen and average."""
        blocks, name, (local, across) = self.blocks[parameter], self.network.names[parameter], self.levels
        sent = self._pass(f"quantize gradient of {name}", FP16 * blocks.elements + blocks.bytes, blocks.bytes)
        arrived = self._exchange(name, local.name, blocks.packed, blocks.inside)
        summed = self._pass(f"sum gradient of {name}", blocks.bytes + blocks.bytes_between, blocks.bytes_between)
        self._free(sent, arrived)
        pieces = self.pieces([parameter])
        arrived = self._exchange(name, across.name, blocks.packed // local.size, blocks.between, pieces)
        widened = float(FP16 * blocks.elements // local.size)
        wide = self._pass(f"widen gradient of {name}", blocks.bytes_between + widened, widened)
        self._free(summed, arrived)
        # 0 + the first node's chunk, plus each of the others, and the quotient (Python's sum)
        passes, nodes = 2 + 3 * (across.size - 1) + 2, across.size
        share = blocks.elements // self.world_size
        self.pass_over("average over nodes", share, FP16 * passes, nodes + 1, self.lane)
        self._free(wide)

    def _exchange(self, name: str, group: str, packed: int, scales: int, pieces: tuple[Slice, ...] = ()) -> int:
        """Blocks, then scales; where they land."""
        arriving = self.builder.acquire("exchanged int4 blocks", "buffers", float(packed + SCALE * scales))
        exchange = self.builder.collective
        exchange(self.lane, "all_to_all", packed, "int8", group, name=f"all-to-all {name}", reduces=pieces)
        exchange(self.lane, "all_to_all", scales, "fp32", group, name=f"all-to-all {name} (scales)")
        return arriving

    def _pass(self, name: str, moved: float, made: float) -> int:
        """A kernel that moves so many bytes, and makes so many of them in memory of its own."""
        buffer = self.builder.acquire("quantized gradient", "buffers", float(made))
        self.elementwise(self.lane, name, float(moved))
        return buffer

    def _free(self, *buffers: int) -> None:
        for buffer in buffers:
            self.builder.release(buffer, self.lane)
