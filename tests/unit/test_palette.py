"""One look and one word for each thing, in the terminal, the page, the timeline and the plots."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from pathlib import Path

from tests.timelines import tiny
from zerosim.report import svg
from zerosim.report.figure import figure
from zerosim.report.page.drawing import inks, swatch
from zerosim.report.palette import BARE, HELD, INKS, SPENT, TONES, Ink
from zerosim.report.parts import MEMORY_LETTERS, TIME_LETTERS
from zerosim.report.svg import render
from zerosim.step import CATEGORIES
from zerosim.views import Breakdown

HOUSE = Path(svg.__file__).parents[1]
OF_THE_TIMELINE = {
    "exposed_communication": "exposed",
    "exposed_transfer": "copying",
    "host_compute": "computing",
}


def light(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_part_of_a_step_looks_like_no_kind_of_work_and_is_called_like_none() -> None:
    """Bars of parts stand on one page with a timeline of work."""
    assert list(SPENT) == list(TIME_LETTERS) == [field.name for field in fields(Breakdown)]
    assert list(HELD) == list(MEMORY_LETTERS) == list(CATEGORIES)
    assert not {ink.colour for ink in SPENT.values()} & {ink.colour for ink in INKS.values()}
    assert not {ink.word for ink in SPENT.values()} & {ink.word for ink in INKS.values()}
    for one, other in combinations([*SPENT.values(), *INKS.values()], 2):
        assert (one.colour, one.hatch) != (other.colour, other.hatch)
    assert len({ink.hatch for ink in SPENT.values()}) == len(SPENT)


def test_what_is_exposed_is_the_same_in_a_bar_and_in_the_timeline() -> None:
    kinds = {kind["name"]: kind for kind in figure(tiny())["kinds"]}
    picture, page = render(tiny()), str(inks())
    for field, name in OF_THE_TIMELINE.items():
        ink = SPENT[field]
        assert ink is BARE[name]
        assert (kinds[name]["word"], kinds[name]["colour"], kinds[name]["night"]) == (ink.word, ink.colour, ink.colour)
        pattern = f'fill="{ink.colour}"'
        assert pattern in page[page.index(f'id="ink-{field}"') :].partition("</pattern>")[0]
        assert pattern in picture[picture.index(f'id="{name}-fill"') :].partition("</pattern>")[0]
        assert f'class="part {field}"' in swatch(field, "X")


def test_compute_is_far_lighter_than_what_is_exposed() -> None:
    """Beside each other they are told apart in grey; letters on each can be read (WCAG AA)."""
    assert contrast(SPENT["compute"].colour, SPENT["exposed_communication"].colour) > 3
    for ink in SPENT.values():
        assert contrast(ink.colour, "#FFFFFF" if ink.dark else "#000000") > 4.5
    assert contrast(SPENT["exposed_communication"].colour, "#16181C") > 3  # on dark paper


def test_no_other_module_has_a_colour_of_its_own_for_them() -> None:
    """Style sheets, scripts, the SVG and the plots are handed what they draw with."""
    own = {ink.colour for ink in [*BARE.values(), SPENT["compute"]]} | {c for tone in TONES.values() for c in tone}
    places = [Path(svg.__file__), *(path for room in ("report/figure", "report/page", "plot") for path in files(room))]
    for place in places:
        text = place.read_text(encoding="utf-8").upper()
        assert not [colour for colour in own if colour in text], place


def files(room: str) -> list[Path]:
    return [path for path in (HOUSE / room).iterdir() if path.suffix in (".py", ".js", ".css")]


def test_a_hatch_is_equally_strong_everywhere() -> None:
    """White at 45 % on a dark ink, black at 40 % on a light one."""
    assert Ink("", "#000000", "grid", dark=True).line.mixed == "#FFFFFF73"
    assert Ink("", "#FFFFFF", "grid").line.mixed == "#00000066"
    kinds = {kind["name"]: kind["line"] for kind in figure(tiny())["kinds"]}
    assert (kinds["pass"], kinds["all_gather"]) == ("#FFFFFF73", "#00000066")
    for text in (render(tiny()), str(inks())):
        assert 'stroke="#FFFFFF" stroke-opacity="0.45"' in text
        assert 'stroke="#000000" stroke-opacity="0.4"' in text
