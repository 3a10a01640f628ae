"""What was measured on a machine, and stands for the catalogue's numbers there: values, each with its source.

    T(S) = alpha + w + 2 kappa sqrt(alpha w)        w = S x bus factor / bandwidth

A `Curve` is that line for one collective on so many GPUs of so many nodes; what a log did not determine is None, and
stays the model's. Nothing here knows how a file is written, how a log is fitted or how a step is priced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar, get_args

MeasuredKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
COLLECTIVES: tuple[MeasuredKind, ...] = get_args(MeasuredKind)
RATES = {  # what a rate is of
    "copies.h2d": "copies from pinned host memory to one GPU",
    "copies.d2h": "copies from one GPU to pinned host memory",
    "copies.both": "copies to and from one GPU at once, both together",
    "nvme.read": "reads of all drives of a node",
    "nvme.write": "writes to all drives of a node",
    "dram.adam": "host memory under CPU Adam, all ranks of a node",
}
EVERY_GPU = "all"  # a factor of every GPU that has none of its own
MOST_ALPHA = 1.0  # seconds; and rates in bytes/s: beyond these it is a unit that is missing
LEAST_RATE, MOST_RATE = 1e6, 1e15
SANE_RATE = 'from 1 MB/s to 1 PB/s, such as "25 GB/s"'
LEAST_FACTOR, MOST_FACTOR = 0.3, 1.3  # beyond these something else is wrong than the efficiency of kernels


def is_rate(rate: float) -> bool:
    """Whether a link, a drive or a memory may have this rate."""
    return LEAST_RATE <= rate <= MOST_RATE


class Curve(NamedTuple):
    """One collective. Seconds, bytes/s on the bus as nccl-tests counts it; `error` is the geometric mean of the fit."""

    collective: MeasuredKind
    gpus: int
    nodes: int
    alpha: float | None
    bandwidth: float | None
    kappa: float | None
    sizes: tuple[float, float]
    error: float
    source: str

    @property
    def name(self) -> str:
        """ "all_reduce of 16 GPUs on 2 nodes"."""
        return f"{self.collective} of {self.gpus} GPUs on {self.nodes} node{'s' if self.nodes > 1 else ''}"


class Compute(NamedTuple):
    """`factor`: rate of matrix products and attention, measured / by the catalogue, of a GPU of the catalogue."""

    gpu: str
    factor: float
    source: str


class MeasuredRate(NamedTuple):
    """Bytes/s of one of `RATES`."""

    name: str
    rate: float
    source: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that is known of a machine by measuring it; `origin` is the file, for those who are told of a mistake."""

    name: str
    curves: tuple[Curve, ...] = ()
    compute: tuple[Compute, ...] = ()
    rates: tuple[MeasuredRate, ...] = ()
    origin: str = ""

    def rate(self, name: str) -> MeasuredRate | None:
        """The rate of that name."""
        return next((each for each in self.rates if each.name == name), None)

    def factor(self, gpu: str) -> Compute | None:
        """What was measured of a GPU: its own, else that of all."""
        known = {each.gpu: each for each in self.compute}
        return known.get(gpu) or known.get(EVERY_GPU)

    def merged(self, newer: Calibration) -> Calibration:
        """Everything of both; what `newer` measured again stands in the place of what was there."""
        return replace(
            self,
            name=self.name or newer.name,
            curves=_merged(self.curves, newer.curves, keys=3),
            compute=_merged(self.compute, newer.compute, keys=1),
            rates=_merged(self.rates, newer.rates, keys=1),
        )


E = TypeVar("E", bound=tuple[Hashable, ...])


def _merged(old: Iterable[E], new: Iterable[E], keys: int) -> tuple[E, ...]:
    """Entries whose first `keys` fields agree are of the same thing."""
    return tuple({entry[:keys]: entry for entry in (*old, *new)}.values())
