"""The drawing in a real browser: it zooms, tells, filters and stays bounded; nothing is asked of the network or `eval`.

Where a test points, it asks the view where things are (`at`), so that a change of the layout breaks no test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests import timelines
from tests.browser.drawings import place, shown, state, told
from zerosim.report.figure import figure
from zerosim.timeline import Timeline

EVIL = "</script><script>window.broken = 1</script> & \"quoted\" 'too' <b>bold</b> \u2028 end"


def test_hover_tells_what_how_much_why_and_what_it_waited_for(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    assert told(page, "nccl.dp", 3.0) == [
        "gather 1",
        "all-gather, op 1: forward, micro-batch 0, layer 1",
        "2 s, from 2 s to 4 s",
        "40 B (bf16 over 2 ranks, group dp, ring), 20 B/s",
        "limited by NIC 20 B/s, 100 % of it used",
        "issued at 0 s; waited 2 s for gather 0",
    ]
    forward = told(page, "compute", 3.0)
    assert forward[:4] == [
        "forward 0",
        "matrix products, op 2: forward, micro-batch 0, layer 0",
        "3 s, from 2 s to 5 s",
        "240 FLOP, 80 FLOP/s",
    ]
    assert forward[4] == "limited by SMs, 80 % of it used"
    assert told(page, "compute", 25.0)[-1] == "issued at 24 s; began as soon as the host had issued it"
    assert told(page, "host", 10.0) == ["the host waits before it issues adam", "18 s, from 5 s to 23 s"]
    assert told(page, "phases", 10.0) == ["backward", "15 s, from 8 s to 23 s"]
    assert told(page, "layers", 10.0)[0] == "layer 1"
    assert told(page, "exposed", 21.0)[:2] == ["exposed communication", "3 s, from 20 s to 23 s"]
    assert told(page, "exposed", 26.5)[0] == "exposed transfer"
    memory = told(page, "GPU memory", 10.0)
    assert memory[0].startswith("GPU memory at 10")
    assert memory[-2] == "peak 550 MB of 1 GB at 2 s, when the host issued backward 1"
    # 50 MB of overhead, two gathered layers, two activations, one gradient
    assert "activations 200 MB, buffers 80 MB" in memory[-1]
    assert told(page, "compute", 1.0) == []  # idle


def test_zoom_by_wheel_keys_buttons_and_pointer(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    assert (state(page)["start"], state(page)["end"]) == (0, 27)
    page.mouse.move(*place(page, "compute", 10.0))
    page.mouse.wheel(0, -400)
    around = state(page)
    assert around["end"] - around["start"] < 20
    share = (10 - around["start"]) / (around["end"] - around["start"])
    assert share == pytest.approx(10 / 27, abs=0.01)  # what is under the pointer stays there
    page.click("text=fit")
    assert state(page)["end"] == 27
    page.click("[aria-label='Zoom in']")
    assert (state(page)["start"], state(page)["end"]) == (6.75, 20.25)
    page.focus(".zerosim-over")
    page.keyboard.press("ArrowRight")
    assert state(page)["start"] == pytest.approx(6.75 + 1.35)
    page.keyboard.press("-")
    page.keyboard.press("Home")
    assert (state(page)["start"], state(page)["end"]) == (0, 27)
    page.mouse.dblclick(*place(page, "compute", 10.0))  # backward 1, from 8 to 14: three times its length
    assert (state(page)["start"], state(page)["end"]) == pytest.approx((2, 20), abs=1e-6)
    page.mouse.move(*place(page, "compute", 11.0))
    page.mouse.down()
    page.mouse.move(*place(page, "compute", 8.0))
    page.mouse.up()
    assert state(page)["start"] == pytest.approx(5, abs=0.05)
    page.keyboard.down("Shift")
    page.mouse.move(*place(page, "compute", 10.0))
    page.mouse.down()
    page.mouse.move(*place(page, "compute", 12.0))
    page.mouse.up()
    page.keyboard.up("Shift")
    assert (state(page)["start"], state(page)["end"]) == pytest.approx((10, 12), abs=0.05)
    strip = page.locator(".zerosim-strip")  # a click there brings the window, 2 s wide, to the step's middle
    left = page.evaluate("view.left")
    strip.click(position={"x": (left + page.evaluate("view.width")) / 2, "y": 5})
    assert (state(page)["start"], state(page)["end"]) == pytest.approx((12.5, 14.5), abs=0.05)
    page.evaluate("view.zoom(3, 3)")  # never narrower than can be told apart, never past an end
    narrow = state(page)
    assert 0 < narrow["end"] - narrow["start"] <= 27e-6
    page.evaluate("view.zoom(-5, 99)")
    assert (state(page)["start"], state(page)["end"]) == (0, 27)
    page.evaluate("document.body.style.height = '3000px'")
    page.mouse.wheel(0, 300)  # nothing is left to zoom out of, so the page scrolls
    page.wait_for_function("window.scrollY > 0")
    assert state(page)["end"] == 27


def test_all_by_keyboard(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    page.focus(".zerosim-over")
    page.keyboard.press("j")
    assert page.inner_text(".zerosim-said").startswith("compute: forward 0. matrix products")
    page.keyboard.press("j")
    assert state(page)["focus"] == "forward 1"
    page.keyboard.press("ArrowDown")  # the lane below, where the time is nearest
    assert state(page)["focus"] == "reduce 1"
    page.keyboard.press("c")  # what it waited for
    assert state(page)["focus"] == "backward 1"
    page.keyboard.press("k")
    assert state(page)["focus"] == "forward 1"
    assert page.is_visible(".zerosim-tip")
    page.keyboard.press("Enter")
    assert (state(page)["start"], state(page)["end"]) == pytest.approx((2, 11), abs=1e-6)
    page.keyboard.press("?")
    assert page.is_visible(".zerosim-help")
    page.keyboard.press("Escape")
    assert not page.is_visible(".zerosim-help")
    page.keyboard.press("Escape")
    assert not page.is_visible(".zerosim-tip")


def test_keys_reach_every_row_and_say_where_there_is_no_further(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    page.focus(".zerosim-over")
    page.keyboard.press("c")
    assert page.inner_text(".zerosim-said") == "no op is chosen: j chooses the first one"
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.inner_text(".zerosim-tip").endswith("this is the first one here")
    page.keyboard.press("c")
    assert page.evaluate("view.looking.focus.row.title") == "nccl.dp"
    rows = []
    for _ in range(12):
        page.keyboard.press("ArrowUp")
    for _ in range(12):
        rows.append(page.evaluate("view.looking.focus.row.title"))
        assert page.is_visible(".zerosim-tip")
        page.keyboard.press("ArrowDown")
    known = page.evaluate("view.panels[0].rows.map((row) => row.title)")
    assert list(dict.fromkeys(rows)) == known  # phases, layers, host, lanes, exposed, memory
    assert page.inner_text(".zerosim-said") == "there is no row further"
    page.keyboard.press("j")
    assert page.inner_text(".zerosim-said").startswith(f"{known[-1]}: ")


def test_ops_that_are_one_box_are_told_filtered_and_bounded(page: Page, tmp_path: Path) -> None:
    timeline = timelines.many(8000)
    shown(page, tmp_path, figure(timeline, "many", most=800))
    boxes = page.evaluate("view.panels[0].ranks.ops")
    assert boxes <= 800
    assert f"8000 ops, neighbours joined to {boxes}" in page.inner_text(".zerosim-about")
    page.focus(".zerosim-over")
    page.keyboard.press("j")
    name, kinds, busy = page.inner_text(".zerosim-tip").split("\n")[:3]
    assert name.endswith(" ops")
    assert kinds.startswith("matrix products")
    assert " busy of " in busy
    page.get_by_role("button", name="matrix products").click()
    assert state(page)["matches"][0]["ops"] == 4000  # forward and backward of 2000 layers
    seconds = state(page)["seconds"]
    for share in (1, 0.01):
        page.evaluate(f"view.zoom({seconds} * 0.4, {seconds} * (0.4 + 0.6 * {share}))")
        assert state(page)["drawn"] > 0


def test_the_wheel_leaves_no_stale_tip_and_no_scrolled_page(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.many(8000), "many"))
    page.evaluate("document.body.style.height = '3000px'")
    told(page, "compute", state(page)["seconds"] / 2)
    assert "more in this pixel" in page.inner_text(".zerosim-tip")
    for _ in range(40):
        page.mouse.wheel(0, -400)
    assert not page.is_visible(".zerosim-tip") or "more in this pixel" not in page.inner_text(".zerosim-tip")
    for _ in range(60):
        page.mouse.wheel(0, 400)
    assert (state(page)["start"], page.evaluate("window.scrollY")) == (0, 0)
    assert page.inner_text(".zerosim-range").startswith("0 s to ")


def test_the_filter_counts_and_goes_from_match_to_match(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    page.fill(".zerosim-search", "WARD")
    assert state(page)["matches"] == [{"ops": 4, "seconds": 18}]
    assert page.inner_text(".zerosim-count") == "4 ops, 18 s"
    page.press(".zerosim-search", "Enter")
    page.press(".zerosim-search", "Enter")
    assert state(page)["focus"] == "forward 1"
    page.press(".zerosim-search", "Shift+Enter")
    assert state(page)["focus"] == "forward 0"
    page.fill(".zerosim-search", "")
    entry = page.get_by_role("button", name="all-gather")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "true"
    assert state(page)["kinds"] == ["all_gather"]
    assert page.inner_text(".zerosim-count") == "2 ops, 4 s"
    entry.press("Space")
    assert state(page)["kinds"] == []
    page.evaluate("view.element.addEventListener('zerosim-filter', () => { window.told = view.state().kinds; })")
    page.evaluate("view.toggle(view.kinds.findIndex((kind) => kind.name === 'reduce_scatter'))")  # as a page may
    assert page.evaluate("window.told") == state(page)["kinds"] == ["reduce_scatter"]
    assert page.get_by_role("button", name="reduce-scatter").get_attribute("aria-pressed") == "true"
    words = page.locator(".zerosim-entry").all_inner_texts()
    assert words[:3] == ["matrix products", "memory-bound kernels", "all-gather"]
    assert "exposed communication" in words


def test_two_figures_share_one_axis_and_classes_can_be_chosen(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"), figure(timelines.skewed(), "skewed"))
    assert state(page)["seconds"] == 45
    assert place(page, "compute", 20.0)[0] == place(page, "compute", 20.0, panel=1)[0]
    assert place(page, "compute", 20.0)[1] < place(page, "compute", 20.0, panel=1)[1]
    assert page.locator("select").count() == 1  # only skewed has classes to choose from
    page.evaluate("view.zoom(9, 36)")
    assert told(page, "nccl.dp", 20.0, panel=1) == ["reduce 1 waits for rank 1", "12 s, from 14 s to 26 s"]
    page.select_option("select", "slow")
    assert state(page)["ranks"] == ["all", "slow"]
    assert told(page, "compute", 20.0, panel=1)[2] == "12 s, from 14 s to 26 s"  # backward 1 takes twice as long
    page.evaluate("view.show([view.panels[0].figure.given])")  # the window stays as a share: 0.2 to 0.8
    assert (state(page)["start"], state(page)["end"]) == pytest.approx((5.4, 21.6))


def test_twenty_thousand_ops_cost_about_two_rectangles_a_pixel_and_lane(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, figure(timelines.many(20_000), "many"))
    rows = page.evaluate(
        "view.panels[0].rows.filter((row) => !row.track).reduce((sum, row) => sum + row.sets.length, 0)"
    )
    pixels = page.evaluate("view.panels[0].scale().width")
    seconds = state(page)["seconds"]
    for share in (1, 0.3, 0.05, 0.01, 0.001):
        page.evaluate(f"view.zoom({seconds} * 0.4, {seconds} * (0.4 + 0.6 * {share}))")
        assert 0 < state(page)["drawn"] <= 2 * pixels * rows
    assert page.evaluate("view.panels[0].ranks.ops") == 20_000
    page.fill(".zerosim-search", "reduce 4")
    assert state(page)["matches"][0]["ops"] == 1111  # 4, 40-49, 400-499, 4000-4999


def test_names_stay_text(page: Page, tmp_path: Path) -> None:
    timeline = timelines.tiny()
    step = timeline.steps[0]
    renamed = tuple(op._replace(name=EVIL) if op.number == 1 else op for op in step.ops)
    evil = type(step)(renamed, step.buffers, step.resident, step.groups, step.micro_batches)
    shown(
        page,
        tmp_path,
        figure(Timeline((evil,), timeline.classes, timeline.spans, timeline.demands, timeline.supply), EVIL),
    )
    assert page.evaluate("window.broken") is None
    assert page.locator("b").count() == 0
    assert page.text_content(".zerosim-title") == EVIL
    page.mouse.move(*place(page, "nccl.dp", 3.0))
    assert page.text_content(".zerosim-tip strong") == EVIL


def test_dark_and_light(page: Page, tmp_path: Path) -> None:
    paper = "getComputedStyle(view.element).backgroundColor"
    page.emulate_media(color_scheme="dark")
    shown(page, tmp_path, figure(timelines.tiny(), "tiny"))
    assert page.evaluate(paper) == "rgb(22, 24, 28)"
    assert page.evaluate("view.inks.tone('text')") == "#dddddd"
    page.evaluate("document.documentElement.dataset.theme = 'light'")  # what the reader chose stands above
    state(page)
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate("view.inks.tone('text')") == "#222222"
    page.emulate_media(color_scheme="light")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    state(page)
    assert page.evaluate("view.inks.tone('text')") == "#dddddd"
