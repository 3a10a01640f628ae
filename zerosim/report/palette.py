"""Colour, hatch and word of each kind of work, and of each part of a step and of memory: one of each, everywhere.

Rules: colours alone never tell kinds apart, each has its own hatch too; a part of a step looks like no kind of work, as
both stand in one picture; other modules hand these colours on and have none of their own for what is told here.

Colours of work: Okabe and Ito (2008), "Color Universal Design", the palette that colour-blind readers can tell apart.
Plain fills are compute; slanted lines are collectives; dots are copies; a grid is the CPU; rings are what is exposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from zerosim.step import Attention, Collective, HostCompute, Matmul, Pass, Transfer, Work

Hatch = Literal["plain", "rising", "falling", "crossed", "upright", "level", "dotted", "grid", "ringed"]

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
    "ringed": "M1.5 3a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0 -3 0",
}


class Line(NamedTuple):
    """A colour that what is below it shines through."""

    colour: str
    opacity: float

    @property
    def mixed(self) -> str:
        """Both as one colour: `#00000066`."""
        return f"{self.colour}{round(255 * self.opacity):02X}"


class Tone(NamedTuple):
    """A colour on light paper, and the one on dark paper."""

    light: str
    dark: str


class Ink(NamedTuple):
    """How a kind of work is drawn. `word` stands in legends, `dark` says that letters on it have to be white."""

    word: str
    colour: str
    hatch: Hatch = "plain"
    dark: bool = False

    @property
    def line(self) -> Line:
        """Of the strokes of its hatch."""
        return Line("#FFFFFF", 0.45) if self.dark else Line("#000000", 0.4)


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
    "exposed": Ink("exposed communication", "#C2185B", "ringed", dark=True),
    "copying": Ink("exposed transfer", "#999999", "dotted"),
    "computing": Ink("host compute", "#666666", "grid", dark=True),
}
SPENT: Mapping[str, Ink] = {  # the parts of a step, by the fields of `views.Breakdown`
    "compute": Ink("compute", "#A9BFD6"),
    "exposed_communication": BARE["exposed"],
    "exposed_transfer": BARE["copying"],
    "host_compute": BARE["computing"],
    "idle": Ink("idle", "#FFFFFF", "falling"),
}
HELD: Mapping[str, Ink] = {  # the parts of memory, by `step.CATEGORIES`
    "parameters": Ink("parameters", "#0072B2", dark=True),
    "gradients": Ink("gradients", "#009E73", "level", dark=True),
    "optimizer": Ink("optimizer", "#E69F00", "rising"),
    "activations": Ink("activations", "#56B4E9", "dotted"),
    "buffers": Ink("buffers", "#CC79A7", "crossed"),
    "overhead": Ink("overhead", "#BBBBBB", "grid"),
}

UNPARTED = Ink("held, of parts unknown", "#D6D6D6", "upright")  # memory of which only the sum was recorded

TONES: Mapping[str, Tone] = {  # of what is no work of the GPU
    "issue": Tone("#555555", "#BBBBBB"),  # the host
    "wait": Tone("#6B6B6B", "#A0A0A0"),  # the rim of an open box
    "even": Tone("#8F8F8F", "#9AA0A8"),  # what a stage of a pipeline works on
    "odd": Tone("#CFCFCF", "#70767F"),
}
BANDS = (Line("#888888", 0.35), Line("#888888", 0.2))  # phases, in turn, on any paper

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
