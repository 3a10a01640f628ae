"""Which ops of a program run the optimizer, and what each of them updates: an op says only how many elements."""

from __future__ import annotations

from collections.abc import Sequence

from sharding.layouts import Chunk, WrongProgramError
from zerosim.step import Collective, HostCompute, Op, Step
from zerosim.step import Pass as Kernels


def is_norm(op: Op, tensors: int) -> bool:
    """Whether it adds up what the ranks know of the norm of the gradients: one number, or one of each tensor."""
    if not isinstance(op.work, Collective) or op.reduces or op.gathers:
        return False
    return op.work.elements in (1, tensors) and op.work.dtype in ("fp32", "fp64")


def updates_of(step: Step, traffic: float, owned: Sequence[Chunk]) -> dict[int, list[slice]]:
    """The ops that run the optimizer, by number, and the pieces that each updates on each rank, one after the other.

    `traffic`: bytes that the optimizer moves for each element.
    """
    found: dict[int, list[slice]] = {}
    begins = [0] * len(owned)
    for op in step.ops:
        elements = _updated(op, traffic)
        if elements:
            ends = [_end(chunk, begin, elements, op) for chunk, begin in zip(owned, begins, strict=True)]
            found[op.number] = [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
            begins = ends
    if begins != [len(chunk) for chunk in owned]:
        raise WrongProgramError("the optimizer does not update everything")
    return found


def _updated(op: Op, traffic: float) -> int:
    if isinstance(op.work, Kernels) and op.work.flavour == "adam":
        return round(op.work.hbm_bytes / traffic)
    if isinstance(op.work, HostCompute) and op.work.kind in ("optimizer", "torch_optimizer"):
        return int(op.work.elements)
    return 0


def _end(chunk: Chunk, begin: int, elements: int, op: Op) -> int:
    end = begin
    while elements > 0 and end < len(chunk):
        elements -= chunk[end].room
        end += 1
    if elements:
        raise WrongProgramError(f"{op.name}: no pieces of so many elements")
    return end
