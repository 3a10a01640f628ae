"""Rounding, averaging and Adam. Arithmetic is fp32; what is stored in bf16 is rounded as it is stored, as on a GPU.

Every sum has a fixed order, so that two runs that add in the same order agree bit for bit; and Adam goes element by
element, so that it may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def bf16(values: Array) -> Array:
    """The nearest numbers of 8 significant bits, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def rounding(dtype: str) -> Callable[[Array], Array]:
    """What storing in a dtype does to a number."""
    return {"bf16": bf16, "fp32": lambda values: values}[dtype]


def mean(gradients: Sequence[Array], dtype: str) -> Array:
    """Added up from the first to the last, divided by their number, rounded once."""
    total = gradients[0]
    for gradient in gradients[1:]:
        total = total + gradient
    return rounding(dtype)(total / np.float32(len(gradients)))


@dataclass(frozen=True, slots=True)
class Adam:
    """Kingma and Ba 2015, with bias correction; element by element, so that it may be cut anywhere."""

    rate: float = 0.02
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8

    def update(self, state: State, gradient: Array, step: int) -> None:
        """One step, the first is 1."""
        first, second = (np.float32(beta) for beta in self.betas)
        state.mean = first * state.mean + (1 - first) * gradient
        state.square = second * state.square + (1 - second) * gradient * gradient
        corrected = state.mean / np.float32(1 - self.betas[0] ** step)
        root = np.sqrt(state.square / np.float32(1 - self.betas[1] ** step))
        state.master = state.master - np.float32(self.rate) * corrected / (root + np.float32(self.epsilon))


@dataclass(slots=True)
class State:
    """fp32 master weights with Adam's two moments: 12 bytes an element."""

    master: Array
    mean: Array
    square: Array

    @classmethod
    def of(cls, master: Array) -> State:
        return cls(master.copy(), np.zeros_like(master), np.zeros_like(master))


def clip_factor(squares: float, clipping: float) -> np.float32:
    """By what gradients are multiplied, given the sum of their squares; clipping 0 is none."""
    return np.float32(min(1.0, clipping / (squares**0.5 + 1e-6)) if clipping else 1.0)
