"""The kinds of marks in the drawing, each with its word, colour and hatch, for the legend and the canvas.

All colours come from `palette`; the words of what is no work of the GPU are those of the picture (`svg`). What has
another colour on dark paper says both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.report.palette import BANDS, BARE, HATCHES, INKS, TONES, Ink
from zerosim.report.svg import ISSUING, UNCOVERED, WORKING_ON

OTHERS: Mapping[str, Ink] = {
    "issue": Ink(ISSUING["issue"], TONES["issue"].light),
    "wait": Ink(UNCOVERED["wait"], TONES["wait"].light),  # an open box
    "hold": Ink("the host waits", TONES["wait"].light),  # an open box too
    **BARE,
    "odd": Ink(WORKING_ON["odd"], TONES["odd"].light),
    "even": Ink(WORKING_ON["even"], TONES["even"].light),
    **{f"band-{turn}": Ink("", band.mixed) for turn, band in enumerate(BANDS)},
}
NIGHT: Mapping[str, str] = {**{name: tone.dark for name, tone in TONES.items()}, "hold": TONES["wait"].dark}
KINDS: Mapping[str, Ink] = {**INKS, **OTHERS}
NUMBERS = {name: number for number, name in enumerate(KINDS)}


def kinds() -> list[dict[str, Any]]:
    """One entry a kind, in the order of the legend."""
    return [{"name": name, **_drawn(ink), "night": NIGHT.get(name, ink.colour)} for name, ink in KINDS.items()]


def _drawn(ink: Ink) -> dict[str, Any]:
    """`hatch` is the path of a tile of six by six pixels, `line` the colour of its strokes."""
    hatch = HATCHES[ink.hatch]
    return {"word": ink.word, "colour": ink.colour, "hatch": hatch, "line": ink.line.mixed, "dark": ink.dark}
