"""Colour, hatch and word of each kind of work. Colours alone never tell kinds apart: each has its own hatch too.

Colours: Okabe and Ito (2008), "Color Universal Design", the palette that colour-blind readers can tell apart. Plain
fills are compute; slanted lines are collectives; dots are copies; a grid is the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from zerosim.step import Attention, Collective, HostCompute, Matmul, Pass, Transfer, Work

Hatch = Literal["plain", "rising", "falling", "crossed", "upright", "level", "dotted", "grid"]


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

BARE: Mapping[str, Ink] = {  # what a step shows when nothing is computed
    "exposed": Ink("exposed communication", "#000000", dark=True),
    "copying": Ink("exposed copies", "#999999", "dotted"),
    "computing": Ink("exposed work of the CPU", "#666666", "grid", dark=True),
}
SPENT: Mapping[str, Ink] = {  # the parts of a step, by the fields of `views.Breakdown`
    "compute": INKS["matmul"]._replace(word="compute"),
    "exposed_communication": INKS["all_gather"]._replace(word="exposed communication"),
    "exposed_transfer": INKS["transfer"]._replace(word="exposed copies"),
    "host_compute": INKS["host"]._replace(word="CPU"),
    "idle": Ink("idle", "#FFFFFF", "falling"),
}
HELD: Mapping[str, Ink] = {  # the parts of memory, by `step.CATEGORIES`
    "parameters": Ink("parameters", "#0072B2", dark=True),
    "gradients": Ink("gradients", "#009E73", "level", dark=True),
    "optimizer": Ink("optimizer states", "#E69F00", "rising"),
    "activations": Ink("activations", "#56B4E9", "dotted"),
    "buffers": Ink("buffers", "#CC79A7", "crossed"),
    "overhead": Ink("overhead", "#BBBBBB", "grid"),
}

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # of curves, one after the other
LIMIT = "#D55E00"  # of what there is no more than: the capacity of a tier, a target; and of what goes beyond


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
