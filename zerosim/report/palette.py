"""Colour, hatch and word of each kind of work. Colours alone never tell kinds apart: each has its own hatch too.

Colours: Okabe and Ito (2008), "Color Universal Design", the palette that colour-blind readers can tell apart. Plain
fills are compute; slanted lines are collectives; dots are copies; a grid is the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from zerosim.step import Attention, Collective, HostCompute, Matmul, Pass, Transfer, Work

Hatch = Literal["plain", "rising", "falling", "crossed", "upright", "level", "dotted", "grid"]

# strokes in a square of 6 by 6 pixels that is repeated
HATCHES: Mapping[Hatch, str] = {
    "plain": "",
    "rising": "M-1 7L7 -1M-1 1L1 -1M5 7L7 5",
    "falling": "M-1 -1L7 7M-1 5L1 7M5 -1L7 1",
    "crossed": "M0 0L6 6M6 0L0 6",
    "upright": "M3 0V6",
    "level": "M0 3H6",
    "dotted": "M2 3h2",
    "grid": "M0 0V6M0 0H6",
}


class Ink(NamedTuple):
    """How a kind of work is drawn. `word` stands in legends, `dark` says that letters on it have to be white."""

    word: str
    colour: str
    hatch: Hatch = "plain"
    dark: bool = False


INKS: Mapping[str, Ink] = {
    "matmul": Ink("matrix products", "#0072B2", dark=True),
    "attention": Ink("attention", "#56B4E9"),
    "pass": Ink("memory-bound kernels", "#009E73", "level", dark=True),
    "all_gather": Ink("all-gather", "#E69F00", "rising"),
    "reduce_scatter": Ink("reduce-scatter", "#D55E00", "falling"),
    "all_reduce": Ink("all-reduce", "#CC79A7", "crossed"),
    "collective": Ink("other collectives", "#CC79A7", "upright"),
    "transfer": Ink("copies", "#F0E442", "dotted"),
    "host": Ink("CPU", "#BBBBBB", "grid"),
}

# the parts of a step (fields of `Breakdown`) and of a tier: what they have in common with a kind of work looks alike
TIME_INKS: Mapping[str, Ink] = {
    "compute": Ink("compute", "#0072B2", dark=True),
    "exposed_communication": Ink("exposed communication", "#E69F00", "rising"),
    "exposed_transfer": Ink("exposed transfer", "#F0E442", "dotted"),
    "host_compute": Ink("host compute", "#BBBBBB", "grid"),
    "idle": Ink("idle", "#FFFFFF"),
}
MEMORY_INKS: Mapping[str, Ink] = {
    "parameters": Ink("parameters", "#0072B2", dark=True),
    "gradients": Ink("gradients", "#009E73", "level", dark=True),
    "optimizer": Ink("optimizer", "#E69F00", "rising"),
    "activations": Ink("activations", "#56B4E9", "falling"),
    "buffers": Ink("buffers", "#CC79A7", "crossed"),
    "overhead": Ink("overhead", "#BBBBBB", "grid"),
}


def ink_of(work: Work) -> str:
    """The name in INKS."""
    match work:
        case Collective():
            return work.kind if work.kind in INKS else "collective"
        case Matmul():
            return "matmul"
        case Attention():
            return "attention"
        case Pass():
            return "pass"
        case Transfer():
            return "transfer"
        case HostCompute():
            return "host"
