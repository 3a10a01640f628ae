"""Parts of the drawing that have a like in Python, and what becomes of it at its edges: deepest zoom, a new answer."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests import timelines
from tests.browser.drawings import place, shown, state
from zerosim.report import axis
from zerosim.report.figure import figure
from zerosim.units import show_flops, show_rate, show_seconds, show_share, show_size

UNITS = files("zerosim.report.figure").joinpath("units.js").read_text(encoding="utf-8")


def computed(page: Page, expression: str, values: Any) -> Any:
    """What units.js makes of values."""
    return page.evaluate(f"(values) => {{ {UNITS}\nreturn values.map({expression}); }}", values)


def test_numbers_are_written_as_on_the_terminal(page: Page) -> None:
    values = [0.0, 1e-12, 0.5e-9, 0.999949, 0.99995, 1.0625, 1.0635, 9999.4, 9999.5, 12345.0, 3600.0, 86_399.0]
    values += [number * 10.0**power for power in range(-9, 16, 2) for number in (1.0, 2.4375, 7.00049, 9.9996)]
    shows = {"seconds": show_seconds, "size": show_size, "rate": show_rate, "flops": show_flops, "share": show_share}
    for name, show in shows.items():
        assert computed(page, f"units.{name}", values) == [show(value) for value in values]
    assert computed(page, "units.flop", values) == [show_flops(value).removesuffix("/s") for value in values]


def test_moments_have_as_many_digits_as_tell_them_apart(page: Page) -> None:
    known = {
        (0.0, 1.0): "0 s",
        (1.5, 1.0): "1.5 s",
        (1.23456789, 1.0): "1.235 s",  # as any number
        (1.23456789, 1e-6): "1.23456789 s",
        (0.123456789, 1e-7): "123.456789 ms",
        (2e-6, 1e-9): "2 us",
    }
    assert computed(page, "([value, wide]) => moment(value, wide)", [*map(list, known)]) == [*known.values()]


def test_ticks_from_the_start_are_those_of_the_picture(page: Page) -> None:
    asked = [(seconds, most) for seconds in (1e-7, 3.3e-5, 0.02, 0.999, 1.0, 4.2, 27.0, 5400.0) for most in (1, 6, 11)]
    found = computed(page, "([seconds, most]) => ticks(0, seconds, most)", asked)
    for (seconds, most), marks in zip(asked, found, strict=True):
        wanted = axis.ticks(seconds, most)
        assert [label for _, label in marks] == [label for _, label in wanted]
        assert [at for at, _ in marks] == pytest.approx([at for at, _ in wanted])
    assert computed(page, "([start, end]) => ticks(start, end, 4)", [[2.5, 4.5]]) == [
        [[2.5, "2.5 s"], [3, "3 s"], [3.5, "3.5 s"], [4, "4 s"], [4.5, "4.5 s"]]
    ]
    assert computed(page, "([start, end]) => ticks(start, end, 4)", [[3, 3]]) == [[]]


def test_ends_are_right_in_the_narrowest_window(page: Page, tmp_path: Path) -> None:
    """No moment of this step is a short number; a tenth of a pixel is 5e-9 of a window of 2e-7 of it."""
    timeline = timelines.tiny()
    by = 0.0123456789
    spans = [
        span._replace(issued=by * span.issued, ready=by * span.ready, start=by * span.start, end=by * span.end)
        for span in timeline.spans["all"]
    ]
    shown(page, tmp_path, figure(replace(timeline, spans={"all": spans})))
    for end, after in ((8, 8), (14, 14), (23, 24)):  # forward 1, backward 1, reduce 0: then the next begins
        page.evaluate(f"view.zoom({end * by}, {end * by})")
        assert state(page)["end"] - state(page)["start"] == pytest.approx(27 * by * 2e-7, rel=1e-6)
        ends = page.evaluate("[...view.panels[0].ranks.ended].map((end) => view.panels[0].scale().x(end))")
        starts = page.evaluate("[...view.panels[0].ranks.start].map((start) => view.panels[0].scale().x(start))")
        middle = page.evaluate(f"view.panels[0].scale().x({end * by})")
        assert min(abs(found - middle) for found in ends) < 0.1
        assert after > end or min(abs(found - middle) for found in starts) < 0.1


def test_a_new_answer_keeps_the_focus_and_a_pointer_that_is_taken_away_chooses_nothing(
    page: Page, tmp_path: Path
) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"), figure(timelines.skewed(), "skewed"))
    page.locator(".zerosim-over").nth(1).focus()
    page.evaluate("view.show(view.panels.map((panel) => panel.figure.given))")
    assert page.evaluate("document.activeElement === view.panels[1].over")
    page.keyboard.press("k")  # and keys go on
    assert state(page)["focus"] == "forward 0"
    page.locator("select").focus()
    page.evaluate("view.show(view.panels.map((panel) => panel.figure.given))")
    assert page.evaluate("document.activeElement === view.panels[1].choice")
    before = state(page)
    page.keyboard.down("Shift")
    page.mouse.move(*place(page, "compute", 10.0))
    page.mouse.down()
    page.mouse.move(*place(page, "compute", 12.0))
    assert page.evaluate("view.selection !== null")
    page.evaluate("view.panels[0].over.dispatchEvent(new PointerEvent('pointercancel', { pointerId: 1 }))")
    page.mouse.up()
    page.keyboard.up("Shift")
    assert page.evaluate("view.selection") is None
    assert (state(page)["start"], state(page)["end"]) == (before["start"], before["end"])
