"""In the drawing: why nothing was computed, and what can be asked from anywhere on the page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from tests import timelines
from tests.browser.drawings import shown, state, told
from zerosim.report.bands import exposed
from zerosim.report.figure import figure
from zerosim.units import show_seconds


def choose(page: Page, kind: str) -> str:
    """The counter, when this kind alone is chosen or no longer."""
    page.evaluate("(name) => view.toggle(view.kinds.findIndex((kind) => kind.name === name))", kind)
    state(page)
    return page.inner_text(".zerosim-count")


def test_an_exposed_stretch_tells_what_ran_and_what_ended_it(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    assert told(page, "exposed", 1.0) == [
        "exposed communication",
        "2 s, from 0 s to 2 s",
        "gather 0 (all-gather), all the time: limited by NIC 20 B/s, 100 % of it used",
        "computed next: forward 0 at 2 s, which waited for gather 0",
    ]
    host = "as soon as the host, which had waited for reduce 0, had issued it"
    assert told(page, "exposed", 21.0)[-1] == f"computed next: adam at 24 s, {host}"
    assert told(page, "exposed", 26.5)[2:] == [
        "stow (copies), all the time: limited by PCIe, 100 % of it used",
        "nothing is computed after it",
    ]
    page.focus(".zerosim-over")
    page.keyboard.press("j")
    for _ in range(4):  # over the lanes of communication and copies
        page.keyboard.press("ArrowDown")
        if page.inner_text(".zerosim-said").startswith("exposed: "):
            break
    assert "stow (copies), all the time: limited by PCIe" in page.inner_text(".zerosim-said")
    shown(page, tmp_path, figure(timelines.offloaded(), "offloaded"))
    assert [line.partition(":")[0] for line in told(page, "exposed", 13.5)[2:5]] == [
        "read states (copies), 88.9 % of the time",
        "log (copies), 22.2 % of the time",
        "gradients down (copies), 11.1 % of the time",
    ]
    assert told(page, "exposed", 19.5)[2].startswith("adam (CPU), all the time")


def test_a_wait_tells_for_whom(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.skewed(), "skewed"))
    assert told(page, "exposed", 23.0)[2] == "reduce 1, all the time: waits for rank 1"
    assert told(page, "nccl.dp", 23.0)[0] == "reduce 1 waits for rank 1"
    assert told(page, "nccl.dp", 27.0)[-1].endswith("waited 12 s for rank 1")


def test_intervals_are_counted_where_no_ops_are_meant(page: Page, tmp_path: Path) -> None:
    timeline = timelines.skewed()
    shown(page, tmp_path, figure(timeline, "skewed"))
    bare = exposed(timeline, timeline.slowest).communication
    seconds = show_seconds(sum(end - start for start, end in bare))
    assert choose(page, "exposed") == f"{len(bare)} intervals, {seconds}" == "3 intervals, 8 s"
    assert choose(page, "transfer") == "1 op, 1 s and 3 intervals, 8 s"
    choose(page, "exposed")
    choose(page, "transfer")
    # the first 6 s of the wait from 14 s to 26 s are hidden by compute, and yet counted
    assert choose(page, "wait") == "2 intervals, 21 s"
    assert choose(page, "wait") == ""


def test_keys_are_listed_from_anywhere_but_where_one_types(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    above = page.evaluate("view.panels[0].over.getBoundingClientRect().top")
    page.keyboard.press("?")  # nothing has the focus
    help_ = page.locator(".zerosim-help")
    assert help_.is_visible()
    assert page.evaluate("view.panels[0].over.getBoundingClientRect().top") == above  # nothing moved
    page.keyboard.press("Escape")
    assert help_.is_hidden()
    button = page.get_by_role("button", name="Keys", exact=True)
    button.click()
    assert help_.is_visible()
    page.keyboard.press("Escape")
    assert help_.is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "?"
    button.press("?")
    page.get_by_role("button", name="Close the keys").click()
    assert help_.is_hidden()
    page.locator(".zerosim-search").press("?")
    assert help_.is_hidden()
    assert page.input_value(".zerosim-search") == "?"
