"""The playground in a real browser: a knob is turned, and numbers and timeline are those of `simulate`; links restore;
files are saved; what is wrong stands beside its knob; all of it by keyboard."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, Route, expect

from tests.cli.asking import SMALL
from zerosim.cli.playing import _bound
from zerosim.playground.controls import BY_NAME
from zerosim.playground.serving import server
from zerosim.playground.start import begin
from zerosim.scenario import from_mapping, load
from zerosim.simulation import simulate
from zerosim.units import show_count, show_seconds
from zerosim.views import Summary

EVIL = "<script>window.broken=1</script> & \"quoted\" 'too'"
STEPS = "gradient_accumulation_steps"
SCENARIO = SMALL.replace("title: small", f"title: {json.dumps(EVIL)}\nnodes: 2").replace("stage: 2", "stage: 3")
SCENARIO = SCENARIO.replace(f"{STEPS}: 2", f"{STEPS}: 1")  # of one micro-step nothing is drawn before
STAGE, ZERO = "strategy.deepspeed.zero_optimization.stage", "strategy.deepspeed.zero_optimization"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("play") / "evil.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(file: Path) -> Iterator[str]:
    """A real server at a free port of the loopback."""
    with _bound(0) as opened:
        running = server(begin(file), opened)
        thread = threading.Thread(target=lambda: running.run(sockets=[opened]), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{opened.getsockname()[1]}/"
        running.should_exit = True
        thread.join(10)


def summary(file: Path, *changes: str) -> Summary:
    return simulate(load(file, changes)).summary()


def shows(page: Page, wanted: Summary) -> None:
    """Headline and timeline are those of a summary, to the last bit."""
    known = {"step": wanted.step_seconds, "tokens": wanted.tokens_per_second, "mfu": wanted.mfu}
    texts = show_seconds(wanted.step_seconds), f"{show_count(wanted.tokens_per_second)} tokens/s"
    for name, text in zip(known, texts, strict=False):  # a step that waits for its host is as long with more tokens
        expect(page.locator(f"[data-number={name}] .headline")).to_have_text(text)
    for name, value in known.items():
        assert float(page.locator(f"[data-number={name}]").get_attribute("data-value") or 0) == value
    expect(page.locator("#status")).to_contain_text("Played and drawn")
    expect(page.locator("#timeline")).to_contain_text(show_seconds(wanted.step_seconds))


def opened(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#status")).to_contain_text("Played and drawn")


def stopped(page: Page, address: str) -> None:
    """Opened; from then on its clock goes on only where the test says."""
    page.clock.install()
    opened(page, address)
    page.clock.pause_at(datetime.now() + timedelta(minutes=5))


def saved(page: Page, button: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_knobs_are_turned_by_keyboard_and_by_hand(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    shows(page, summary(file))
    expect(page.locator("h1")).to_have_text(EVIL)
    assert page.evaluate("window.broken") is None
    slider = page.get_by_label("Micro-batch, slider")
    slider.focus()
    for _ in range(3):  # 1, 2, 3, 4
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Micro-batch", exact=True)).to_have_value("4")
    shows(page, summary(file, "training.micro_batch_size=4"))
    assert slider.get_attribute("aria-valuetext") == "4 sequences"
    page.get_by_label("Network, slider").fill("10")  # the first stop of the second decade: 10 Gb/s
    expect(page.get_by_label("Network", exact=True)).to_have_value("10")
    changed = ("training.micro_batch_size=4", "topology.node.nics.bandwidth=10 Gbps")
    shows(page, summary(file, *changed))
    page.get_by_label("stage3_prefetch_bucket_size", exact=True).fill("200 k")
    expect(page.locator("#knob-prefetch_bucket-about")).to_contain_text("200k elements")
    shows(page, summary(file, *changed, f"{ZERO}.stage3_prefetch_bucket_size=2e5"))


def test_keys_that_follow_each_other_are_one_question(page: Page, home: str, file: Path) -> None:
    """The page's clock stands still but for what the test lets go by: 350 ms after the last key it asks."""
    asked: list[Any] = []
    page.on("request", lambda each: asked.append(each.post_data_json) if each.url.endswith("/play") else None)
    stopped(page, home)
    box = page.get_by_label("stage3_prefetch_bucket_size", exact=True)
    box.fill("")
    for key in "200000":
        page.clock.run_for(300)
        box.press_sequentially(key)
        expect(page.locator("#status")).to_have_text("computing…")  # what is shown is of another state, and says so
    expect(page.locator("#knob-prefetch_bucket-about")).to_contain_text("200k elements")
    stops = BY_NAME["prefetch_bucket"].stops
    assert page.get_by_label("stage3_prefetch_bucket_size, slider").input_value() == str(stops.index(1_000_000))
    assert len(asked) == 1
    page.clock.run_for(400)
    shows(page, summary(file, f"{ZERO}.stage3_prefetch_bucket_size=2e5"))
    box.press("Tab")  # which asks nothing again
    box.fill("300000")
    box.press("Enter")  # which asks at once: the clock stands still
    shows(page, summary(file, f"{ZERO}.stage3_prefetch_bucket_size=3e5"))
    assert [each["state"]["prefetch_bucket"] for each in asked[1:]] == [200_000, 300_000]


def test_an_answer_that_comes_late_is_not_shown_as_that_of_other_knobs(page: Page, home: str, file: Path) -> None:
    stopped(page, home)
    late: list[Route] = []
    page.route("**/play", lambda route: late.append(route))
    box = page.get_by_label("Micro-batch", exact=True)
    box.fill("3")
    with page.expect_request("**/play"):
        page.clock.run_for(400)
    box.fill("7")  # the question of 3 is on its way; that of 7 is not asked before 350 ms
    late[0].fulfill(response=late[0].fetch())
    page.evaluate("fetch('/start').then((told) => told.text())")  # whatever came before has been read
    expect(page.locator("#status")).to_have_text("computing…")
    assert page.locator("#shown").get_attribute("aria-busy") == "true"
    before = float(page.locator("[data-number=step]").get_attribute("data-value") or 0)
    assert before == summary(file).step_seconds
    assert "micro_batch=1" in page.url  # the address is that of what is shown
    name, content = saved(page, "#get-deepspeed")
    assert (name, json.loads(content)["train_micro_batch_size_per_gpu"]) == ("ds_config.json", 1)
    expect(page.locator("#status")).to_contain_text("computing… ds_config.json")
    page.unroute("**/play")
    page.clock.run_for(400)
    shows(page, summary(file, "training.micro_batch_size=7"))
    assert "micro_batch=7" in page.url


def test_of_a_long_step_one_micro_step_is_drawn_first(page: Page, home: str, file: Path) -> None:
    """An answer is long that took half a second, by the clock of the page."""
    stopped(page, home)
    held: list[Route] = []
    page.route("**/play", lambda route: held.append(route))
    box = page.get_by_label("Accumulation", exact=True)
    with page.expect_request("**/play"):
        box.fill("2")
        box.press("Enter")
    page.clock.run_for(500)
    held[0].continue_()
    shows(page, summary(file, f"training.{STEPS}=2"))
    with page.expect_request("**/play"):
        box.fill("3")
        box.press("Enter")
    assert (held[1].request.post_data_json or {})["state"]["accumulation"] == 1
    with page.expect_request("**/play"):
        held[1].continue_()
    expect(page.locator("#status")).to_contain_text("computing… The timeline is that of 1 micro-step instead of 3")
    timeline = page.locator("#timeline")
    expect(timeline).to_contain_text("With 1 micro-step, while all 3 are played")
    expect(timeline).to_contain_text(show_seconds(summary(file).step_seconds))
    before = page.locator("[data-number=step]").get_attribute("data-value") or ""
    assert float(before) == summary(file, f"training.{STEPS}=2").step_seconds
    assert page.locator("#shown").get_attribute("aria-busy") == "true"
    held[2].continue_()
    shows(page, summary(file, f"training.{STEPS}=3"))
    expect(timeline).not_to_contain_text("With 1 micro-step")


def test_what_cannot_be_answered_is_said(page: Page, home: str, file: Path) -> None:
    held: list[Route] = []
    page.route("**/play", lambda route: held.append(route))
    page.goto(f"{home}#micro_batch=2&pinned=yes&pin.micro_batch=0")
    buttons = page.locator("#pin, [data-file]")
    assert [each.is_disabled() for each in buttons.all()] == [True] * 4  # there is nothing yet to keep
    page.unroute("**/play")  # and what was held goes on
    shows(page, summary(file, "training.micro_batch_size=2"))
    expect(page.locator("#lost")).to_have_text(re.compile("The baseline of this link is left out: found 0; expected"))
    expect(page.locator(".change")).to_have_count(0)
    assert [each.is_disabled() for each in buttons.all()] == [False] * 4
    page.evaluate("window.fetch = async () => new Response('Internal Server Error', { status: 500 })")
    page.locator("#get-scenario").click()
    expect(page.locator("#status")).to_have_text("zerosim play failed (500): Internal Server Error")
    page.locator("#pin").click()
    expect(page.locator("#lost")).to_be_hidden()


def test_strategies_have_knobs_of_their_own(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    strategy = page.get_by_label("Strategy", exact=True)
    strategy.focus()
    page.keyboard.press("ArrowUp")  # from ZeRO-3
    shows(page, summary(file, f"{STAGE}=2"))
    strategy.select_option("zero1")
    shows(page, summary(file, f"{STAGE}=1"))
    expect(page.get_by_label("reduce_bucket_size", exact=True)).to_be_visible()
    expect(page.get_by_label("stage3_prefetch_bucket_size", exact=True)).to_be_hidden()
    strategy.select_option("ddp")
    expect(page.get_by_label("bucket_cap_mb", exact=True)).to_be_visible()
    expect(page.locator("#get-deepspeed")).to_be_disabled()
    page.get_by_text("What else this scenario says").click()
    expect(page.locator("#waiting")).to_contain_text("comes back whole with ZeRO-3")
    page.get_by_role("button", name="Back to the start").click()
    shows(page, summary(file))


def test_a_link_restores_the_knobs_and_the_baseline(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    page.locator("#pin").click()
    page.get_by_label("Network", exact=True).fill("25")
    expect(page.locator("[data-number=step] .change")).to_contain_text("more, worse (was")
    shows(page, summary(file, "topology.node.nics.bandwidth=25 Gbps"))
    expect(page.locator("#timeline")).to_contain_text("Baseline: ")
    page.get_by_label("Micro-batch", exact=True).fill("2")  # a step of twice the tokens is neither better nor worse
    expect(page.locator("[data-number=step] .change")).to_have_text(
        re.compile(r"^\S+ % more \(was \S+ ms, for 2.048k tokens\)$")
    )
    expect(page.locator("[data-number=tokens] .change")).to_contain_text("better")
    page.get_by_label("Micro-batch", exact=True).fill("1")
    expect(page.locator("[data-number=step] .change")).to_contain_text("more, worse (was")
    address = page.url
    other = page.context.new_page()
    opened(other, address)
    shows(other, summary(file, "topology.node.nics.bandwidth=25 Gbps"))
    expect(other.get_by_label("Network", exact=True)).to_have_value("25")
    for part in ("[data-number=step] .change", "[data-number=mfu] .change"):
        assert other.locator(part).inner_text() == page.locator(part).inner_text()
    assert other.url == address
    other.locator("#unpin").click()
    expect(other.locator(".change")).to_have_count(0)
    expect(other.locator("#timeline")).not_to_contain_text("Baseline: ")


def test_a_link_that_does_not_read_is_told(page: Page, home: str, file: Path) -> None:
    page.goto(f"{home}#start=0123456789ab&micro_batch=2")
    expect(page.get_by_role("alert").first).to_contain_text("found the knobs of another scenario")
    page.get_by_role("button", name="Back to the start").click()
    shows(page, summary(file))
    page.goto(f"{page.url.replace('sequence=', 'sequences=')}")
    expect(page.get_by_role("alert").first).to_contain_text('the unknown knob "sequences"')


def test_a_link_that_was_cut_or_says_a_knob_twice_tells_so(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    page.get_by_label("Micro-batch", exact=True).fill("16")
    shows(page, summary(file, "training.micro_batch_size=16"))
    expect(page.locator("#lost")).to_be_hidden()
    whole = page.url
    page.goto(whole[: whole.index("micro_batch=16") + len("micro_batch=1")])
    expect(page.locator("#lost")).to_contain_text("This link is cut: knobs")
    shows(page, summary(file))  # 1 is not what it said, and no other number is
    page.goto(whole.replace("&end", "&micro_batch=2&end").replace("end=", "end=1"))
    expect(page.locator("#lost")).to_contain_text("This link is cut")
    page.goto(f"{home}#micro_batch=3&micro_batch=2")
    expect(page.locator("#lost")).to_have_text("This link says micro_batch twice: the last is taken.")
    shows(page, summary(file, "training.micro_batch_size=2"))
    page.goto(whole)
    shows(page, summary(file, "training.micro_batch_size=16"))
    expect(page.locator("#lost")).to_be_hidden()


def test_what_is_wrong_stands_beside_its_knob(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    box = page.get_by_label("reduce_bucket_size", exact=True)
    box.fill("half")
    beside = page.locator("#knob-reduce_bucket-wrong")
    expect(beside).to_have_text('found "half"; expected an integer, 0 or more')
    assert box.get_attribute("aria-invalid") == "true"
    expect(page.locator("#status")).to_contain_text("Not played: reduce_bucket_size is wrong. Below is still")
    page.locator("h1").click()
    page.locator("#status").get_by_role("button", name="reduce_bucket_size").click()
    expect(box).to_be_focused()
    expect(page.locator("#answer")).to_have_class(re.compile("old"))
    expect(box).to_have_value("half")
    box.fill("300000")
    expect(beside).to_be_hidden()
    shows(page, summary(file, f"{ZERO}.reduce_bucket_size=300000"))


def test_files_are_those_of_what_is_shown(page: Page, home: str, file: Path) -> None:
    opened(page, home)
    page.get_by_label("Micro-batch", exact=True).fill("2")
    wanted = summary(file, "training.micro_batch_size=2")
    shows(page, wanted)
    name, content = saved(page, "#get-scenario")
    kept = yaml.safe_load(content)
    assert (name, simulate(from_mapping(kept)).makespan) == ("scenario.yaml", wanted.step_seconds)
    name, content = saved(page, "#get-deepspeed")
    again: Any = from_mapping({**kept, "strategy": {"deepspeed": json.loads(content)}})
    assert (name, again.strategy) == ("ds_config.json", from_mapping(kept).strategy)
    name, content = saved(page, "#get-trace")
    assert name == "trace.json.gz"
    assert json.loads(gzip.decompress(content))["distributedInfo"]["world_size"] == 16


def test_what_does_not_fit_is_said_and_colours_can_be_turned(page: Page, home: str) -> None:
    opened(page, home)
    page.get_by_label("Sequence length", exact=True).fill("131072")
    page.get_by_label("Micro-batch", exact=True).fill("64")
    expect(page.locator("[data-tier=gpu]")).to_contain_text("DOES NOT FIT")
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.reload()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
