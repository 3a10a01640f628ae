"""Logs in the form of nccl-tests, made from a known line T = a + w + 2 kappa sqrt(a w)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerosim.costs.bounds import bus_factor
from zerosim.step import CollectiveKind

PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall", "send_recv": "sendrecv", "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
HEADS = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
FULL = tuple(2**power for power in range(10, 33))  # 1 KiB to 4 GiB


class Line(NamedTuple):
    """Seconds, bytes/s on the bus."""

    alpha: float
    bandwidth: float
    kappa: float

    def seconds(self, kind: CollectiveKind, gpus: int, size: float) -> float:
        w = size * bus_factor(kind, gpus) / self.bandwidth
        return self.alpha + w + 2 * self.kappa * math.sqrt(self.alpha * w)


def rows(
    line: Line, kind: CollectiveKind, gpus: int, sizes: Iterable[int] = FULL, noise: float = 0.0, root: bool = True
) -> str:
    """Rows of figures; `noise`: standard deviation of ln T, the same each time."""
    shaken = random.Random(7)
    redop = "none" if kind in ("all_gather", "all_to_all", "broadcast") else "sum"
    lines = []
    for size in sizes:
        seconds = line.seconds(kind, gpus, size) * math.exp(shaken.gauss(0, noise))
        time = f"{seconds * 1e6:8.2f}"
        algbw = size / seconds / 1e9
        figures = f"{time}  {algbw:.2f}  {algbw * bus_factor(kind, gpus):.2f}      0"
        lines.append(
            f"{size:12}  {size // 4:12}     float    {redop}  {'    -1  ' if root else ''}{figures}  {figures}"
        )
    return "\n".join(lines) + "\n"


def devices(gpus: int, nodes: int) -> str:
    """The list of devices."""
    each = gpus // nodes
    return "".join(
        f"#  Rank {rank:2} Group  0 Pid {rank} on  node-{rank // each} device {rank % each:2} [0000:0a:00] NVIDIA\n"
        for rank in range(gpus)
    )


def log(
    line: Line, kind: CollectiveKind = "all_reduce", gpus: int = 8, nodes: int = 1, sizes: Sequence[int] = FULL,
    noise: float = 0.0,
) -> str:  # fmt: skip
    """A whole log of release 2.13 or later."""
    return (
        f"# Collective test starting: {PROGRAMS[kind]}_perf\n"
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 5 iters: 20\n#\n"
        f"# Using devices\n{devices(gpus, nodes)}#\n{HEADS}{rows(line, kind, gpus, sizes, noise)}"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 91.2\n#\n"
    )
