"""The timeline as one SVG picture: lanes, phases, what is exposed, a time axis. No script, no font, no other file.

Rules: a kind of work has a hatch or a label beside its colour; what is too narrow to see is joined, so that a picture
stays small; the same timeline gives the same bytes. Light or dark is the reader's choice (`prefers-color-scheme`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerosim.report import axis, bands, lanes
from zerosim.report.lanes import Lane, Scale
from zerosim.report.marks import CHARACTER, Mark, drawn, fits, number, text
from zerosim.report.palette import BANDS, BARE, HATCHES, INKS, TONES, Ink
from zerosim.resources import RankClass
from zerosim.step import COMPUTE
from zerosim.timeline import Timeline
from zerosim.units import show_seconds
from zerosim.views.phases import stages_in_turn

MARGIN, GAP = 12.0, 5.0  # pixels
LANE, THIN, BAND = 24.0, 14.0, 18.0  # heights
HEAD, AXIS, LEGEND_LINE = 50.0, 26.0, 20.0
TICK_EVERY = 100  # pixels between ticks of the axis, at least
NARROWEST = 400  # pixels of the whole picture
LETTERS = {name: "on-dark" if ink.dark else "on-light" for name, ink in INKS.items()}
EXPOSED = {name: ink.word for name, ink in BARE.items()}
UNCOVERED = EXPOSED | {"wait": "waits for other ranks"}
WORKING_ON = {lanes.FLIGHTS[phase]: f"{phase} of a micro-batch" for phase in ("forward", "backward")}
ISSUING = {"issue": "host issues", "wait": "waits"}

STYLE = {
    "text": 'font:10px Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#222',
    ".title": "font-size:14px;font-weight:bold",
    ".lane": "text-anchor:end",
    ".middle": "text-anchor:middle",
    ".on-dark": "fill:#fff",
    ".on-light": "fill:#000;stroke:#fff;stroke-opacity:.6;stroke-width:3px;stroke-linejoin:round;paint-order:stroke",
    ".paper": "fill:#fff",
    ".ground": "fill:#888;fill-opacity:.1",
    ".grid": "stroke:#888;stroke-opacity:.35;fill:none",
    **{f".band-{turn}": f"fill:{band.colour};fill-opacity:{band.opacity}" for turn, band in enumerate(BANDS)},
    **{f".{name}": f"fill:{tone.light}" for name, tone in TONES.items()},
    ".wait": f"fill:none;stroke:{TONES['wait'].light};stroke-dasharray:3 2",
}
DARK_STYLE = {
    "text": "fill:#ddd",
    ".paper": "fill:#16181c",
    **{f".{name}": f"fill:{tone.dark}" for name, tone in TONES.items()},
    ".wait": f"stroke:{TONES['wait'].dark}",
}


class Frame(NamedTuple):
    """The measures of one picture, in pixels."""

    width: float
    left: float  # where time 0 is
    right: float
    top: float  # of the first lane
    bottom: float  # of the last one


def render(timeline: Timeline, width: int = 1200, rank_class: str = "", title: str = "") -> str:
    """The picture of one rank class; of the one that ends last, which explains the step, unless another is named."""
    width = max(width, NARROWEST)
    shown = next((known for known in timeline.classes if known.name == rank_class), timeline.slowest)
    unscaled = [*lanes_of(timeline, shown, Scale(0.0, 0.0))]
    left = MARGIN + CHARACTER * (max(len(lane.title) for lane in unscaled) + 1)
    scale = Scale(left, (width - MARGIN - left) / (timeline.makespan or 1.0))
    rows = list(lanes_of(timeline, shown, scale))
    top = HEAD + BAND + GAP
    bottom = top + sum(lane.height + GAP for lane in rows)
    frame = Frame(width, left, width - MARGIN, top, bottom)
    legend, lines = _legend(rows, frame)
    height = bottom + AXIS + LEGEND_LINE * lines + MARGIN
    body = [
        *_opening(timeline, shown, title, width, height),
        *_axis(timeline, scale, frame),
        *_phases(timeline, shown, scale),
        *_rows(rows, frame),
        *legend,
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def lanes_of(timeline: Timeline, shown: RankClass, scale: Scale) -> Iterator[Lane]:
    """The lanes of the picture, from top to bottom: the host, the streams, what is exposed."""
    yield lanes.host(timeline, shown, scale, THIN)
    own = lanes.streams(timeline, shown, scale, LANE)
    if len(timeline.steps) > 1 and not stages_in_turn(timeline):  # a pipeline: the schedule of all stages
        yield from lanes.flights(timeline, shown, scale, THIN)
    elif len(timeline.steps) > 1:  # the stairs of all stages for the compute of one
        yield from lanes.stages(timeline, shown, scale, LANE, THIN)
        own = [lane for lane in own if lane.title != COMPUTE]
    yield from own
    found = bands.exposed(timeline, shown)
    marks = [_bare("exposed", pair, scale) for pair in found.communication]
    marks += [_bare("copying", pair, scale) for pair in found.transfers]
    marks += [_bare("computing", pair, scale) for pair in found.host]
    marks += [_bare("wait", pair, scale) for pair in found.waits]
    yield Lane("exposed", sorted(marks, key=lambda mark: mark.x), THIN)


def _bare(ink: str, pair: tuple[float, float], scale: Scale) -> Mark:
    start, end = pair
    about = f"{UNCOVERED[ink]}: {show_seconds(end - start)}, from {show_seconds(start)}"
    return scale.mark(ink, start, end, "", about)


# --- parts of the picture --------------------------------------------------------------------------------------------


def _opening(timeline: Timeline, shown: RankClass, title: str, width: float, height: float) -> Iterator[str]:
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="zerosim" {size} role="img" aria-labelledby="title">'
    heading = title or "One training step"
    yield f'<title id="title">{text(heading)}</title>'
    yield f"<style>\n{_style()}\n</style>"
    yield "<defs>"
    yield from (_pattern(f"{name}-fill", ink) for name, ink in {**INKS, **BARE}.items())
    yield "</defs>"
    yield '<rect class="paper" width="100%" height="100%"/>'
    yield f'<text class="title" x="{number(MARGIN)}" y="24">{text(heading)}</text>'
    ranks = f"rank {shown.ranks[0]}" + (f", one of {len(shown.ranks)} alike" if len(shown.ranks) > 1 else "")
    about = f"{show_seconds(timeline.makespan)}, {len(timeline.program(shown).ops)} ops, {ranks}"
    yield f'<text x="{number(MARGIN)}" y="40">{text(about)}</text>'


def _style() -> str:
    """The rules, for this picture alone: it may stand inside a page that has rules of its own."""
    fills = {f".{name}": f"fill:url(#{name}-fill)" for name in [*INKS, *BARE]}
    light = [f".zerosim {selector}{{{rules}}}" for selector, rules in (STYLE | fills).items()]
    dark = [f".zerosim {selector}{{{rules}}}" for selector, rules in DARK_STYLE.items()]
    return "\n".join([*light, "@media (prefers-color-scheme:dark){", *dark, "}"])


def _pattern(name: str, ink: Ink) -> str:
    hatch, (colour, opacity), square = HATCHES[ink.hatch], ink.line, 'width="6" height="6"'
    lines = f'<path d="{hatch}" stroke="{colour}" stroke-opacity="{opacity}" fill="none"/>' if hatch else ""
    ground = f'<rect {square} fill="{ink.colour}"/>'
    return f'<pattern id="{name}" {square} patternUnits="userSpaceOnUse">{ground}{lines}</pattern>'


def _axis(timeline: Timeline, scale: Scale, frame: Frame) -> Iterator[str]:
    """Lines through all lanes with the time below them."""
    for seconds, label in axis.ticks(timeline.makespan, int((frame.right - frame.left) / TICK_EVERY)):
        x = scale.x(seconds)
        yield f'<path class="grid" d="M{number(x)} {number(HEAD + BAND)}V{number(frame.bottom)}"/>'
        labelled = min(x, frame.width - len(label) * CHARACTER / 2 - 2)
        yield f'<text class="middle" x="{number(labelled)}" y="{number(frame.bottom + 12)}">{text(label)}</text>'


def _phases(timeline: Timeline, shown: RankClass, scale: Scale) -> Iterator[str]:
    for index, band in enumerate(bands.phases(timeline, shown)):
        x, wide = scale.x(band.start), (band.end - band.start) * scale.pixels_per_second
        about = f"{band.label}: {show_seconds(band.end - band.start)}, from {show_seconds(band.start)}"
        box = f'x="{number(x)}" y="{number(HEAD)}" width="{number(wide)}" height="{number(BAND)}"'
        yield f'<rect class="band-{index % len(BANDS)}" {box}><title>{text(about)}</title></rect>'
        labels = (f"{band.label} {show_seconds(band.end - band.start)}", band.label)
        label = next((known for known in labels if fits(known, wide)), "")
        if label:
            yield f'<text class="middle" x="{number(x + wide / 2)}" y="{number(HEAD + 13)}">{text(label)}</text>'


def _rows(rows: Sequence[Lane], frame: Frame) -> Iterator[str]:
    y = frame.top
    for lane in rows:
        yield f'<g class="row" transform="translate(0 {number(y)})">'
        ground = f'x="{number(frame.left)}" width="{number(frame.right - frame.left)}" height="{number(lane.height)}"'
        yield f'<rect class="ground" {ground}/>'
        x, middle = number(frame.left - 6), number(lane.height / 2 + 3.5)
        yield f'<text class="lane" x="{x}" y="{middle}">{text(lane.title)}</text>'
        yield from drawn(lane.marks, lane.height, LETTERS)
        yield "</g>"
        y += lane.height + GAP


def _legend(rows: Sequence[Lane], frame: Frame) -> tuple[list[str], int]:
    """The kinds that are in the picture, in as many lines as they need."""
    present = {mark.ink for lane in rows for mark in lane.marks}
    words = ISSUING | WORKING_ON | {name: ink.word for name, ink in INKS.items()} | EXPOSED
    lines = _lines([(name, word) for name, word in words.items() if name in present], frame.right - frame.left)
    out = []
    for line, entries in enumerate(lines):
        x, y = frame.left, frame.bottom + AXIS + LEGEND_LINE * line
        for name, word in entries:
            high = 12 * (lanes.LOW if name == "transfer" else 1)
            box = f'x="{number(x)}" y="{number(y + 12 - high)}" width="16" height="{number(high)}"'
            out.append(f'<rect class="{name}" {box}/>')
            out.append(f'<text x="{number(x + 21)}" y="{number(y + 10)}">{text(word)}</text>')
            x += _entry(word)
    return out, len(lines)


def _lines(entries: Sequence[tuple[str, str]], room: float) -> list[list[tuple[str, str]]]:
    """The entries in as few lines as have room for them, and these about equally long."""
    whole = sum(_entry(word) for _, word in entries)
    count = math.ceil(whole / room) or 1
    while True:
        lines: list[list[tuple[str, str]]] = [[] for _ in range(count)]
        before = 0.0
        for entry in entries:
            wide = _entry(entry[1])
            lines[min(int(count * (before + wide / 2) / whole), count - 1)].append(entry)
            before += wide
        if count >= len(entries) or all(sum(_entry(word) for _, word in line) <= room for line in lines):
            return [line for line in lines if line] or [[]]
        count += 1


def _entry(word: str) -> float:
    """Pixels of an entry of the legend."""
    return 22 + CHARACTER * len(word) + 12
