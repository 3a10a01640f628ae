"""The kinds of marks in the drawing, each with its word, colour and hatch, for the legend and the canvas.

The inks of work come from `palette`; the others are those of the picture (`svg`): what is exposed, what waits, what the
host does. A colour that has to follow light and dark is "" here, and a rule of the style sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.report.palette import BARE, HATCHES, INKS, Hatch, Ink
from zerosim.report.svg import ISSUING, UNCOVERED, WORKING_ON

OTHERS: Mapping[str, Ink] = {
    "issue": Ink(ISSUING["issue"], ""),
    "wait": Ink(UNCOVERED["wait"], ""),  # an open box
    "hold": Ink("the host waits", ""),  # an open box too
    "exposed": Ink(UNCOVERED["exposed"], ""),
    "copying": BARE["copying"],
    "computing": BARE["computing"],
    "odd": Ink(WORKING_ON["odd"], ""),
    "even": Ink(WORKING_ON["even"], ""),
}
KINDS: Mapping[str, Ink] = {**INKS, **OTHERS}
NUMBERS = {name: number for number, name in enumerate(KINDS)}


def kinds() -> list[dict[str, Any]]:
    """One entry a kind, in the order of the legend."""
    return [{"name": name, **_drawn(ink)} for name, ink in KINDS.items()]


def _drawn(ink: Ink) -> dict[str, Any]:
    return {"word": ink.word, "colour": ink.colour, "hatch": _lines(ink.hatch), "dark": ink.dark}


def _lines(hatch: Hatch) -> str:
    """The path of a tile of six by six pixels."""
    return HATCHES[hatch]
