"""The page of an answer: whole HTML, every number in it, no markup but its own, small, reproducible."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerosim
from tests.documents import Document
from tests.timelines import many, offloaded, skewed, tiny
from zerosim.errors import Finding
from zerosim.report.lanes import TITLES
from zerosim.report.page import LIMIT, Origin, Said, Shown, render, section
from zerosim.report.page.drawing import inks
from zerosim.report.page.fitting import fitted
from zerosim.report.page.glossary import words
from zerosim.report.page.markup import Markup, element, embedded
from zerosim.report.page.sections import told
from zerosim.report.page.settings import differing, flat, parted
from zerosim.report.parts import cause_name
from zerosim.report.words import NO_BREAK, share
from zerosim.simulation import Simulation
from zerosim.timeline import Timeline
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.summary import Facts, Summary, summarize

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"q\" 'a' \u2028 ]]>"
SMALL: dict[str, Any] = {
    "title": "small",
    "topology": "dgx-a100-80",
    "model": {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1000},
    "training": {"sequence_length": 128, "gradient_accumulation_steps": 4, "attention": "flash"},
}
CASES: dict[str, dict[str, Any]] = {
    "zero2": {"strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}}},
    "nvme": {
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {
            "stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}}}
    },
    "pipeline": {"gpus": 2, "strategy": {"pipeline": {"stages": 2, "schedule": "1f1b"}}},
    "unequal": {
        "topology": {
            "name": "two", "node": {"count": 2, "gpus": {"device": "a100_sxm_80", "count": 2},
            "nics": {"count": 1, "bandwidth": "10 Gbps", "kind": "ethernet"}},
            "overrides": [{"node": 1, "nics": {"bandwidth": "2 Gbps"}}, {"gpu": "0.1", "compute": 0.5}],
            "price": {"currency": "EUR", "node_hour": 12, "electricity": 0.25}, "power": {"node": "3 kW"},
        },
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}},
    },
    "too much": {
        "training": {"sequence_length": 128, "micro_batch_size": 200000, "attention": "flash"},
        "strategy": {"ddp": {"bucket_cap_mb": 25}},
    },
}  # fmt: skip


@cache
def played(case: str) -> Shown:
    scenario = zerosim.from_mapping({**SMALL, **CASES[case]})
    simulation: Simulation = zerosim.simulate(scenario)
    return Shown(simulation, simulation.summary(), scenario.text, ranks_per_node=scenario.ranks_per_node)


@cache
def page(*cases: str) -> Document:
    return Document(render([played(case) for case in cases], Origin("zerosim run small.yaml", "1.2.3")))


def summary_of(answer: Shown) -> Summary:
    assert isinstance(answer.summary, Summary)
    return answer.summary


def shown(timeline: Timeline, **facts: Any) -> Shown:
    known = {"title": "toy", "nodes": 1, "world_size": 2, "tokens": 5400.0, "samples": 2.0, "model_flops": 1350.0}
    return Shown(timeline, summarize(timeline, Facts(**{**known, "peak_flops": 100.0, **facts})))


# --- the numbers -----------------------------------------------------------------------------------------------------


def numbers(summary: Summary) -> Iterator[str]:
    """Every number of a summary as a reader is to find it, but parts of tiers that are empty."""
    yield from (show_count(summary.tokens_per_second), show_count(summary.samples_per_second), show_share(summary.mfu))
    yield from (show_flops(1e12 * summary.model_tflops_per_gpu), f"GPUs {summary.world_size}", f"nodes {summary.nodes}")
    yield f"seed {summary.seed}"
    yield from _below(summary.as_json())
    yield from (share(stall.seconds, summary.step_seconds) for stall in summary.stalls)
    yield from (share(use.utilization, 1.0) for use in summary.resources.values())
    yield from (f"{cause_name(kind)} {each.count}" for kind, each in summary.collectives.items())
    yield show_share(summary.communication.overlap) if summary.communication.total_seconds else ""


def _below(value: Any, name: str = "") -> Iterator[str]:
    """Seconds, bytes and labels, wherever they stand."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _below(each, name if key in ("forward", "backward", "optimizer") else key)
    elif isinstance(value, list):
        for each in value:
            yield from _below(each, name)
    elif name.endswith("seconds") or name in ("phases", "breakdown"):
        yield show_seconds(value)
    elif (name.endswith("_bytes") or name == "bytes") and value:
        yield show_size(value)
    elif name in ("message", "remedy", "assumptions"):
        yield value


@pytest.mark.parametrize("case", CASES)
def test_every_number_of_the_summary_stands_in_the_page(case: str) -> None:
    answer, read = played(case), page(case)
    missing = [
        each for each in numbers(summary_of(answer)) if " ".join(each.replace(NO_BREAK, " ").split()) not in read.text
    ]
    assert not missing
    for path, value in flat(answer.settings):
        assert f"{path} {' '.join(value.split())}" in read.text


@pytest.mark.parametrize("name", ["llama-2-70b-hsdp", "slow-network/zero3"])
def test_so_it_does_for_what_is_shipped(name: str) -> None:
    simulation = zerosim.simulate(zerosim.load(f"scenarios/{name}.yaml"))
    read = Document(render([Shown(simulation, simulation.summary())]))
    assert all(" ".join(each.replace(NO_BREAK, " ").split()) in read.text for each in numbers(simulation.summary()))
    assert len(read.source.encode()) < LIMIT


def test_what_a_case_alone_has_is_told() -> None:
    assert "DOES NOT FIT" in page("too much").text
    assert "fits in memory NO" in page("too much").text
    assert "pipeline 1f1b: 2 stages, 4 micro-batches" in page("pipeline").text
    assert "tokens/EUR" in page("unequal").text
    assert "wait for each other" in page("unequal").text
    assert "nvme per node" in page("nvme").text
    quiet = page("zero2").text
    assert not any(word in quiet for word in ("DOES NOT", "pipeline", "tokens/EUR", "wait for each other", "nvme per"))


def test_several_answers_stand_side_by_side_and_each_is_whole() -> None:
    read = page("zero2", "nvme", "pipeline")
    for case in ("zero2", "nvme", "pipeline"):
        missing = [
            n for n in numbers(summary_of(played(case))) if " ".join(n.replace(NO_BREAK, " ").split()) not in read.text
        ]
        assert not missing
    assert "quantity A B B/A C C/A" in read.text
    assert "3 steps compared" in read.text
    assert "strategy.deepspeed.zero_optimization.stage 2 3 -" in read.text
    assert "training.sequence_length" not in read.text.partition("Findings")[0].partition("What differs")[2]
    assert [level for level, title in read.headings if title == "A  small"] == [3, 2]  # of its findings, its own


# --- the document ----------------------------------------------------------------------------------------------------


def test_a_page_is_one_document_with_landmarks() -> None:
    read = page("nvme")  # whose reading has held its form
    assert read.source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert [read.count(tag) for tag in ("head", "main", "header", "nav", "h1")] == [1] * 5
    assert re.search(r"<head>.*<title>small - zerosim</title>.*</head>", read.source, re.DOTALL)
    titles = [title for level, title in read.headings if level == 2]
    assert titles[:4] == ["The step", "Findings", "Timeline", "Where the time goes"]
    assert titles[-4:] == ["The scenario", "Assumptions", "Words", "How to make it again"]
    assert "made again by zerosim run small.yaml" in read.text
    assert "Version of zerosim: 1.2.3" in read.text


def test_only_its_own_style_and_script_may_do_anything() -> None:
    read = page("zero2")
    (policy,) = [known["content"] or "" for tag, known in read.elements if "http-equiv" in known]
    rules, (data, script) = "".join(read.raw["style"]), read.raw["script"]
    for kind, content in (("style", rules), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not read.attributes("style")
    assert not [name for _, known in read.elements for name in known if name.startswith("on") or name == "src"]
    assert all(each.startswith("#") for each in read.attributes("href"))
    (figure,) = json.loads(data)
    assert figure["seconds"] == pytest.approx(played("zero2").summary.step_seconds)
    assert not re.search(r"https?://(?!www\.w3\.org/)", read.source)


def test_the_same_inputs_give_the_same_bytes() -> None:
    again = zerosim.from_mapping({**SMALL, **CASES["zero2"]})
    simulation = zerosim.simulate(again)
    other = Shown(simulation, simulation.summary(), again.text, ranks_per_node=again.ranks_per_node)
    assert render([other], Origin("zerosim run small.yaml", "1.2.3")) == page("zero2").source


def test_nothing_of_the_users_becomes_markup() -> None:
    timeline = tiny()
    ops = tuple(op._replace(name=HOSTILE) for op in timeline.step.ops)
    timeline = replace(timeline, steps=(replace(timeline.step, ops=ops),))
    bad = Finding("x", "error", HOSTILE, HOSTILE)
    answer = shown(timeline, title=HOSTILE, findings=(bad,), assumptions=(HOSTILE,))
    said = Said(HOSTILE, HOSTILE + "\0\ud800")
    hostile = replace(answer, settings={HOSTILE: HOSTILE}, changes=(HOSTILE,), given=(said,), machine=(HOSTILE,))
    for answers in ([hostile], [hostile, hostile]):
        read = Document(render(answers, Origin(HOSTILE, HOSTILE), [said]))
        assert (read.count("script"), read.count("img")) == (2, 0)
        assert read.text.count(" ".join(HOSTILE.split())) > 10
        assert json.loads(read.raw["script"][0])
        read.source.encode()  # no half of a letter is left


@settings(max_examples=50)
@given(st.text())
def test_text_comes_back_as_it_was_unless_no_page_may_have_it(text: str) -> None:
    read = Document(element("b", text, title=text))
    kept = re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    assert "".join(read.words) == kept + " "
    assert read.attributes("title") == [kept]


@settings(max_examples=50)
@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none(), st.lists))
def test_embedded_json_ends_no_script(value: Any) -> None:
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_only_markup_stands_as_it_is() -> None:
    assert element("p", "<b>", Markup("<b></b>"), data_x="<", hidden=True, id=None) == (
        '<p data-x="&lt;" hidden>&lt;b&gt;<b></b></p>\n'
    )


# --- what there is room for ------------------------------------------------------------------------------------------


def test_twenty_thousand_ops_are_small_even_twice() -> None:
    timeline = many(20_000)
    answer = replace(shown(tiny()), timeline=timeline)
    two = render([answer, answer])
    assert len(two.encode()) < LIMIT
    assert [each["classes"][0]["ops"] for each in json.loads(Document(two).raw["script"][0])] == [20_000] * 2


def test_what_has_no_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = shown(tiny())
    assert not fitted([answer], 100).figures
    (said,) = fitted([answer], 100).left_out
    assert said.startswith("The step is not drawn: there is no room here for its 10 ops.")
    whole = fitted([shown(skewed())], 10**6)
    assert (len(whole.figures[0]["classes"]), whole.left_out) == (2, ())
    monkeypatch.setattr("zerosim.report.page.fitting.FEWEST", 1)
    fewer = fitted([shown(skewed())], len(embedded(list(whole.figures))) - 1)
    assert len(fewer.figures[0]["classes"]) == 1
    assert "1 more kinds of ranks" in fewer.left_out[0]


def test_a_page_with_too_much_for_it_is_drawn_coarser_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosim.report.page.document.LIMIT", 220_000)
    read = Document(render([shown(many(8000)), shown(tiny())]))
    assert len(read.source.encode()) < 220_000
    assert "8000 ops are drawn as" in read.text
    first, second = json.loads(read.raw["script"][0])
    assert (first["classes"][0]["of"], second["classes"][0]["ops"]) == (8000, 10)  # what is small stays whole


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeline", [tiny(), skewed(), offloaded()])
def test_sections_stand_on_their_own(timeline: Timeline) -> None:
    parts = section.shown(told(summary_of(shown(timeline))))  # as the playground has them
    read = Document("".join(("<h1>x</h1>", inks(), *parts)))
    titles = [title for level, title in read.headings if level == 2 and title != "Findings"]
    assert titles[:3] == ["Where the time goes", "Why the GPU waits", "Memory at its peak"]
    assert {"ink-compute", "ink-parameters", "time", "stalls", "memory"} <= set(read.ids)


def test_settings_are_paths_and_differ_where_they_differ() -> None:
    nested = {"a": {"b": [1, 2], "c": [{"d": None}], "e": {}}, "title": "x"}
    assert dict(flat(nested)) == {"a.b": "[1, 2]", "a.c.0.d": "null", "a.e": "{}", "title": "x"}
    assert differing([nested, {"a": {"b": [1, 2], "c": "text"}, "title": "y"}]) == [
        ("a.c.0.d", ["null", "-"]),
        ("a.e", ["{}", "-"]),
        ("a.c", ["-", "text"]),
    ]


def test_what_only_one_program_has_is_folded_unless_somebody_wrote_it() -> None:
    two = {"title": "x", "zero": {"stage": 2, "allgather_bucket_size": 5}}
    three = {"title": "y", "zero": {"stage": 3, "stage3_max_live_parameters": 9, "offload": {"device": "cpu"}}}
    found = parted(
        [two, three, three], ['{"stage": 2}', "zero: {stage: 3, offload: {device: cpu}}", "--set zero.stage=3"]
    )
    assert found.differing == [("zero.stage", ["2", "3", "3"]), ("zero.offload.device", ["-", "cpu", "cpu"])]
    assert found.own == {
        (0,): [("zero.allgather_bucket_size", ["5", "-", "-"])],
        (1, 2): [("zero.stage3_max_live_parameters", ["-", "9", "9"])],
    }


def test_what_differs_stands_first_and_what_only_one_has_is_folded() -> None:
    read = page("zero2", "nvme")
    assert [title for level, title in read.headings if level == 2][:2] == [
        "What is compared, and what differs", "Side by side",
    ]  # fmt: skip
    told = read.text.partition("Side by side quantity")[0]
    alone = len(parted([played(case).settings for case in ("zero2", "nvme")], ["", ""]).own[(1,)])
    assert f"and {alone} settings that only B has" in told


@pytest.mark.parametrize("cases", [("zero2",), ("nvme", "pipeline")])
def test_words_are_told_once_and_linked_where_they_are_used(cases: tuple[str, ...]) -> None:
    read = page(*cases)  # whose reading has held that no link is dead
    linked = [target for target in read.attributes("href") if target and target.startswith("#word")]
    assert {"#word-exposed", "#word-limited-by", "#word-busy", "#word-busy-memory", "#words-lanes"} <= set(linked)
    streams = {op.stream for case in cases for op in played(case).timeline.step.ops if op.work}
    told = read.text.partition("Lanes of the timeline")[2]
    known = {TITLES.get(stream, stream) for stream in streams}
    assert all(f" {name} " in told for name in known)


@pytest.mark.parametrize("name", ["seven-b/zero3-nvme", "llama-2-70b-hsdp", "llama-2-7b-fsdp-offload-4090"])
def test_every_lane_of_what_is_shipped_has_words(name: str) -> None:
    simulation = zerosim.simulate(zerosim.load(f"scenarios/{name}.yaml"))
    told = words([Shown(simulation, simulation.summary())]).body
    for stream in {op.stream for op in simulation.step.ops if op.work}:
        assert f">{TITLES.get(stream, stream)}</dt>" in told, stream


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        render([])
