"""The page of `run --html` and `compare --html` in a real browser: from the disk, by mouse, by keyboard alone."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.cli.asking import SMALL, ask

THREE = SMALL.replace("stage: 2", "stage: 3").replace("title: small", 'title: "other <i>"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    two, three = place / "two.yaml", place / "three.yaml"
    two.write_text(SMALL)
    three.write_text(THREE)
    ask("run", three, "--html", place / "run.html")
    ask("compare", two, three, "--html", place / "compare.html")
    return place


def state(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("zerosim.view.state()")
    return found


def colours(page: Page) -> list[str]:
    """Paper and ink of the page and of its timeline."""
    script = """() => [document.body, document.querySelector(".zerosim-timeline")]
        .flatMap((each) => [getComputedStyle(each).backgroundColor, getComputedStyle(each).color])"""
    found: list[str] = page.evaluate(script)
    return found


def test_rows_and_wheel_and_pointer_show_in_the_timeline(page: Page, folder: Path) -> None:
    page.goto((folder / "run.html").as_uri())
    summary = ask("run", folder / "three.yaml", "--json").json
    assert page.title() == "other <i> - zerosim"
    assert page.evaluate("zerosim.view.drawn") > 50
    assert state(page)["seconds"] == pytest.approx(summary["step_seconds"])

    row = page.locator("#collectives tr", has_text="reduce-scatter")
    row.get_by_role("button").click()
    assert row.get_by_role("button").get_attribute("aria-pressed") == "true"
    assert state(page)["kinds"] == ["reduce_scatter"]
    assert state(page)["matches"][0]["ops"] == summary["collectives"]["reduce_scatter"]["count"]
    row.get_by_role("button").click()
    assert state(page)["kinds"] == []

    page.locator("#memory tr[data-at]").first.get_by_role("button").click()
    at, shown = summary["memory"]["gpu"]["peak_at"]["seconds"], state(page)
    assert shown["start"] <= at <= shown["end"]
    assert shown["end"] - shown["start"] < 0.05 * shown["seconds"]

    page.get_by_role("button", name="Show the whole step").click()
    canvas = page.locator(".zerosim-over")
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 90)
    page.mouse.wheel(0, -400)
    page.wait_for_function("zerosim.view.state().end - zerosim.view.state().start < zerosim.view.state().seconds")


def test_light_and_dark_by_the_system_and_by_the_button(page: Page, folder: Path) -> None:
    page.emulate_media(color_scheme="light")
    page.goto((folder / "run.html").as_uri())
    light = colours(page)
    page.emulate_media(color_scheme="dark")
    dark = colours(page)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.get_by_role("button", name="Light colours").click()
    assert colours(page) == light
    page.get_by_role("button", name="Dark colours").click()
    assert colours(page) == dark
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert page.pdf()[:4] == b"%PDF"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (colours(page), page.locator("details:not([open])").count()) == (light, 0)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (colours(page), page.locator("details[open]").count()) == (dark, 0)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.locator(".look").first.is_visible()


def test_by_keyboard_alone(page: Page, folder: Path) -> None:
    page.goto((folder / "run.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#content")
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("`${document.activeElement.className} ${document.activeElement.tagName}`"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", reached
        if reached[-1] == "look BUTTON":
            break
    assert "zerosim-over CANVAS" in reached
    kind = page.evaluate("document.activeElement.closest('tr').dataset.kind")
    page.keyboard.press("Enter")
    assert state(page)["kinds"] == [kind]


@pytest.mark.parametrize("width", [1280, 700])
def test_steps_lie_one_above_the_other_on_one_axis(page: Page, folder: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((folder / "compare.html").as_uri())
    both = ask("compare", folder / "two.yaml", folder / "three.yaml", "--json").json
    boxes = [each.bounding_box() for each in page.locator(".zerosim-over").all()]
    (above, below) = (box for box in boxes if box)
    assert (above["x"], above["width"]) == (below["x"], below["width"])
    assert above["y"] + above["height"] < below["y"]
    assert state(page)["seconds"] == pytest.approx(max(each["step_seconds"] for each in both))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_text("Everything about it").nth(1).click()
    page.locator("#answer-b-collectives tr", has_text="all-gather").get_by_role("button").click()
    counts = [each["collectives"].get("all_gather", {"count": 0})["count"] for each in both]
    assert [each["ops"] for each in state(page)["matches"]] == counts


def test_without_a_script_all_numbers_are_there(page: Page, folder: Path) -> None:
    assert page.context.browser
    with page.context.browser.new_context(java_script_enabled=False) as quiet:
        plain = quiet.new_page()
        plain.goto((folder / "run.html").as_uri())
        assert plain.get_by_text("The timeline needs JavaScript").is_visible()
        assert plain.locator("#stalls td").count() > 4
