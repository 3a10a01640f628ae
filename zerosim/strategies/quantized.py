"""Into which blocks ZeRO++ cuts what it quantizes, and what they weigh: weights in int8 (qwZ), gradients in int4 (qgZ).

Source: DeepSpeed 0.19.8 runtime/zero/partition_parameters.py (CUDAQuantizer), runtime/comm/coalesced_collectives.py
(`all_to_all_quant_reduce`). A block has a scale in fp32. What cannot be cut evenly is a Problem where DeepSpeed would
stop. No op is written here: that do `quantized_gathers` and `zeropp`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from zerosim.errors import Problem

FP16, INT8, SCALE = 2, 1, 4  # bytes
INT4 = 2  # elements in a byte
TARGET = 8000  # elements of a block (`target_group_size`)
UNIT = 8  # elements that a kernel reads at once: a block has a multiple of them


class Quantized(NamedTuple):
    """Elements in int8, in `blocks` blocks with a scale each."""

    elements: int
    blocks: int

    @property
    def bytes(self) -> float:
        return float(INT8 * self.elements + SCALE * self.blocks)


def blocks_of(elements: int) -> int:
    """The least number of equal blocks of at most TARGET elements, each a multiple of UNIT; 0 where there is none."""
    units, rest = divmod(elements, UNIT)
    if rest or not units:
        return 0
    least = -(-elements // TARGET)
    found = units
    divisor = 1
    while divisor * divisor <= units:
        if units % divisor == 0:
            found = min([found, *(d for d in (divisor, units // divisor) if d >= least)])
        divisor += 1
    return found


def quantized(elements: int) -> Quantized:
    return Quantized(elements, blocks_of(elements))


def uneven(name: str, elements: int) -> Problem:
    """A shard, or the shards of a gather, that DeepSpeed would refuse to quantize."""
    expected = f"a number of elements that {UNIT} divides, to quantize"
    return Problem("zero_optimization", "zero_quantized_weights", f"{elements} on a rank in {name}", expected)


# --- gradients -----------------------------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """A gradient of `elements` as qgZ cuts it, in a node of `local` ranks: scales inside a node, and between nodes."""

    elements: int
    local: int
    inside: int

    @property
    def between(self) -> int:
        return self.inside // self.local

    @property
    def packed(self) -> int:
        """Bytes of the blocks as they leave a rank."""
        return self.elements // INT4

    @property
    def bytes(self) -> float:
        """Of blocks and scales as they leave a rank."""
        return float(self.packed + SCALE * self.inside)

    @property
    def bytes_between(self) -> float:
        """Of blocks and scales once they are summed over a node."""
        return float(self.packed // self.local + SCALE * self.between)


def gradient_blocks(shape: tuple[int, ...], local: int, nodes: int) -> Blocks | None:
    """None where the gradient is reduced in full width."""
    elements, world = math.prod(shape), local * nodes
    if len(shape) < 2 or elements % (2 * world):
        return None
    return Blocks(elements, local, inside=max(shape[0], shape[1], world))


def uneven_blocks(name: str, blocks: Blocks, world: int) -> Problem:
    """Scales that cannot be dealt out among the ranks, so that torch's all-to-all would stop."""
    expected = f"a number that the {world} GPUs divide, for zero_quantized_gradients"
    return Problem("zero_optimization", "zero_quantized_gradients", f"{blocks.inside} blocks of {name}", expected)
