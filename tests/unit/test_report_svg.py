"""The picture: well formed, one lane a stream, small however many ops, nothing told by colour alone."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timelines import host_optimizer, many, offloaded, played, skewed, tiny
from zerosim.report import axis, svg
from zerosim.report.marks import FINEST, Mark, drawn, fitting, joined
from zerosim.report.palette import INKS, ink_of
from zerosim.resources import Demand, RankClass, Supply
from zerosim.step import Collective, Group, Matmul, Op, Pass, Step, Transfer, Work
from zerosim.timeline import Span, Timeline

NS = {"svg": "http://www.w3.org/2000/svg"}
TITLES = "svg:g[@class='row']/svg:text[@class='lane']"


def lane_titles(picture: str) -> list[str | None]:
    return [title.text for title in ET.fromstring(picture).findall(TITLES, NS)]


def tooltips(picture: str) -> list[str]:
    return [title.text or "" for title in ET.fromstring(picture).iter(f"{{{NS['svg']}}}title")]


def crowded(count: int, streams: int = 8) -> Timeline:
    """The worst case for a picture: `count` ops of changing kinds with gaps, on many streams at once."""
    matmul, gather = Matmul(((1, 4, 5, 6),), "bf16"), Collective("all_gather", 8, "bf16", "dp")
    works: list[Work] = [matmul, Pass(1.0, "stream"), Transfer(1.0, "gpu", "dram"), gather]
    turns = [divmod(number, streams) for number in range(count)]
    ops = [Op(n, f"layers.{n}.mlp.up_proj", f"s{stream}", works[turn % 4]) for n, (turn, stream) in enumerate(turns)]
    spans = [Span(n, "all", turn, turn, turn, turn + 0.7, "nic") for n, (turn, _) in enumerate(turns)]
    step = Step(tuple(ops), (), frozenset(), {"dp": Group("dp", 2)}, 1)
    supply = Supply({"nic": 1.0}, {}, {}, {}, {})
    return Timeline((step,), (RankClass("all", (0, 1)),), {"all": spans}, {"all": [Demand()] * count}, supply)


def pipeline() -> Timeline:
    """Rank 0 computes for 3 s and sends for 1 s, then rank 1, which has waited, computes."""
    matmul, send = Matmul(((1, 4, 5, 6),), "bf16"), Collective("send_recv", 8, "bf16", "pair")
    stream = "nccl.stages 0 and 1"
    programs = [
        (Op(0, "forward 0", "compute", matmul), Op(1, "send", stream, send, after=(0,))),
        (Op(0, "receive", stream, send), Op(1, "forward 1", "compute", matmul, after=(0,))),
    ]
    spans = {
        "first": [Span(0, "first", 0, 0, 0, 3, "sm"), Span(1, "first", 0, 3, 3, 4, "nic")],
        "last": [Span(0, "last", 0, 0, 3, 4, "nic"), Span(1, "last", 0, 4, 4, 7, "sm")],
    }
    steps = tuple(Step(ops, (), frozenset(), {"pair": Group("pair", 2)}, 1) for ops in programs)
    classes = (RankClass("first", (0,), 0), RankClass("last", (1,), 1))
    demands = dict.fromkeys(spans, [Demand()] * 2)
    return Timeline(steps, classes, spans, demands, Supply({"nic": 1.0, "sm": 1.0}, {}, {}, {}, {}))


def test_lanes_are_the_host_the_streams_and_what_is_exposed() -> None:
    assert lane_titles(svg.render(tiny())) == ["host", "compute", "nccl.dp", "d2h", "exposed"]
    assert lane_titles(svg.render(host_optimizer())) == ["host", "compute", "CPU", "exposed"]


def test_drives_and_the_cpu_have_lanes_at_the_end() -> None:
    lanes_ = ["host", "compute", "reduce", "gather", "NVMe reads", "NVMe writes", "CPU", "exposed"]
    assert lane_titles(svg.render(offloaded())) == lanes_


def test_a_copy_is_a_low_box_on_the_lane_of_kernels() -> None:
    compute = ET.fromstring(svg.render(offloaded())).findall("svg:g[@class='row']", NS)[1]
    boxes = {path.attrib["class"]: path.attrib["d"].partition(" ")[2] for path in compute.findall("svg:path", NS)}
    assert {ink: box[: box.index("h")] for ink, box in boxes.items()} == {"matmul": "0", "transfer": "9.6", "pass": "0"}
    assert "v14.4h" in boxes["transfer"]  # 0.6 of 24 pixels, at the bottom
    assert "v24h" in boxes["pass"]


def test_the_host_computes_or_waits() -> None:
    found = tooltips(svg.render(offloaded()))
    assert "the host computes adam: 3 s" in found
    assert "the host waits 8 s before it issues adam" in found
    assert "host compute: 3 s, from 18 s" in found
    assert [tip for tip in found if tip.startswith("exposed transfer")] == [
        "exposed transfer: 9 s, from 9 s",
        "exposed transfer: 1 s, from 21 s",
        "exposed transfer: 500 ms, from 22.5 s",
    ]


def test_each_op_has_a_tooltip_that_explains_it() -> None:
    found = tooltips(svg.render(tiny()))
    assert "reduce 1 (reduce-scatter, op 5, backward)\n3 s, from 14 s to 17 s\n60 B\nlimited by NIC 20 B/s" in found
    assert "forward 0 (matrix products, op 2, forward)\n3 s, from 2 s to 5 s\n240 FLOP\nlimited by SMs" in found
    assert "the host waits 18 s before it issues adam" in found
    assert [tip for tip in found if tip.startswith("exposed")] == [
        "exposed communication: 2 s, from 0 s",
        "exposed communication: 3 s, from 20 s",
        "exposed transfer: 1 s, from 26 s",
    ]
    assert "backward: 15 s, from 8 s" in found


def test_boxes_stand_where_their_seconds_are() -> None:
    picture = ET.fromstring(svg.render(tiny(), width=1000))
    ground = picture.find("svg:g/svg:rect[@class='ground']", NS)
    assert ground is not None
    left, width = float(ground.attrib["x"]), float(ground.attrib["width"])
    box = picture.find("svg:g/svg:path[@class='pass']", NS)  # adam, 24 s to 26 s of 27 s
    assert box is not None
    x, _, rest = box.attrib["d"].removeprefix("M").partition(" 0h")
    assert float(x) == pytest.approx(left + width * 24 / 27, abs=0.01)
    assert float(rest.partition("v")[0]) == pytest.approx(width * 2 / 27, abs=0.01)


def test_a_phase_too_narrow_for_its_time_shows_its_name_and_then_nothing() -> None:
    def shown(width: int) -> list[str | None]:
        texts = ET.fromstring(svg.render(tiny(), width=width)).findall("svg:text[@class='middle']", NS)
        return [text.text for text in texts if text.text and text.text.startswith(("f", "b", "o"))]

    assert shown(1200) == ["forward 8 s", "backward 15 s", "optimizer 4 s"]
    assert shown(500) == ["forward 8 s", "backward 15 s", "optimizer"]
    assert shown(400) == ["forward 8 s", "backward 15 s"]


def test_the_class_that_ends_last_is_shown_unless_another_is_named() -> None:
    early = replace(skewed(), spans=dict(skewed().spans) | {"fast": tiny().spans["all"]})
    assert "45 s, 10 ops, rank 1<" in svg.render(early)
    fast = svg.render(skewed(), rank_class="fast")
    assert "45 s, 10 ops, rank 0<" in fast
    assert any("for the other ranks" in tip for tip in tooltips(fast))


def test_names_are_escaped_and_forbidden_characters_replaced() -> None:
    timeline = tiny()
    named = replace(timeline.step, ops=tuple(op._replace(name=f'<b>&"{op.name}\x07') for op in timeline.step.ops))
    picture = svg.render(replace(timeline, steps=(named,)), title="a < b & c")
    assert ET.fromstring(picture).findtext("svg:title", namespaces=NS) == "a < b & c"
    assert any('<b>&"adam\ufffd' in tip for tip in tooltips(picture))


def test_every_kind_has_its_own_colour_or_hatch_and_compute_its_own_word() -> None:
    looks = [(ink.colour, ink.hatch) for ink in INKS.values()]
    assert len(set(looks)) == len(looks)
    assert len({ink.word for ink in INKS.values()}) == len(INKS)
    assert set(INKS) >= {ink_of(op.work) for op in tiny().step.ops if op.work}


def test_the_legend_names_exactly_the_kinds_in_the_picture() -> None:
    texts = [text.text for text in ET.fromstring(svg.render(tiny())).findall("svg:text", NS)]
    present = {
        "host issues",
        "waits",
        "matrix products",
        "memory-bound kernels",
        "all-gather",
        "reduce-scatter",
        "copies",
    }
    assert present <= set(texts)
    assert not {"attention", "all-reduce", "CPU"} & set(texts)


def legend(picture: str) -> list[list[str]]:
    """The words of each line."""
    texts = [(float(each.attrib["y"]), each.text or "") for each in ET.fromstring(picture).findall("svg:text", NS)]
    axis = max(y for y, label in texts if label.endswith(" s") and label[0].isdigit() and "," not in label)
    lines = sorted({y for y, _ in texts if y > axis})
    return [[label for y, label in texts if y == line] for line in lines]


def test_the_legend_tells_what_the_cpu_does_alone_and_has_no_line_of_one() -> None:
    (line,) = legend(svg.render(offloaded()))
    assert line[-3:] == ["CPU", "exposed transfer", "host compute"]
    for width in (500, 700, 900):
        lines = legend(svg.render(offloaded(), width=width))
        assert [word for each in lines for word in each] == line
        assert min(map(len, lines)) > 1


def test_the_wait_for_other_ranks_is_exposed() -> None:
    fast = tooltips(svg.render(skewed(), rank_class="fast"))
    assert [tip for tip in fast if tip.startswith("waits for other ranks")] == [
        "waits for other ranks: 6 s, from 20 s",
        "waits for other ranks: 9 s, from 29 s",
    ]
    assert not any(tip.startswith("waits for other ranks") for tip in tooltips(svg.render(skewed(), rank_class="slow")))


def test_a_pipeline_shows_the_compute_of_every_stage() -> None:
    assert "waits for other ranks: 3 s, from 0 s" in tooltips(svg.render(pipeline()))  # of the last stage
    assert lane_titles(svg.render(pipeline())) == [
        "host", "compute, rank 0", "compute, rank 1", "nccl.stages 0 and 1", "exposed",
    ]  # fmt: skip


def test_the_same_timeline_gives_the_same_bytes() -> None:
    assert svg.render(tiny()) == svg.render(tiny())


@pytest.mark.parametrize("count", [4000, 8000, 20000])
def test_a_picture_is_small_however_many_ops(count: int) -> None:
    assert len(svg.render(crowded(count))) < 2_000_000


def test_many_equal_ops_become_few_boxes() -> None:
    assert len(svg.render(many(20_000))) < 20_000


def test_an_empty_step_is_a_picture_too() -> None:
    picture = svg.render(played(Step((), (), frozenset(), {}, 1), ()))
    assert lane_titles(picture) == ["host", "exposed"]


MARKS = st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.sampled_from(["a", "b"])), min_size=1, max_size=80)


@given(MARKS)
def test_joining_covers_the_same_pixels_to_a_fraction(steps: list[tuple[float, float, str]]) -> None:
    marks, x = [], 0.0
    for gap, width, ink in steps:
        marks.append(Mark(ink, x + gap, width))
        x += gap + width
    out = joined(marks)
    assert all(mark in out for mark in marks if mark.width >= FINEST)
    assert (out[0].x, out[-1].end) == pytest.approx((marks[0].x, marks[-1].end))
    bridged = sum(mark.width for mark in out) - sum(mark.width for mark in marks)
    assert -1e-9 <= bridged <= FINEST * len(marks)
    assert len(out) <= 2 + x / FINEST * 2


def test_a_narrow_run_takes_the_kind_of_its_widest() -> None:
    out = joined([Mark("a", 0.0, 0.05), Mark("b", 0.05, 0.1, "wide"), Mark("a", 0.15, 0.05), Mark("a", 5.0, 3.0)])
    assert [mark.ink for mark in out] == ["b", "a"]
    assert [mark.width for mark in out] == pytest.approx([0.2, 3.0])
    assert out[0].tooltip == "3 ops, the longest of them wide"


def test_a_box_too_narrow_for_a_mouse_has_no_tooltip() -> None:
    lines = list(drawn([Mark("a", 0.0, 1.0, "x", "tip"), Mark("a", 2.0, 30.0, "y", "tip")], 10.0))
    assert [line.count("<title>") for line in lines] == [1, 0, 0]
    assert lines[-1] == '<path class="a" d="M0 0h1v10h-1z"/>'


def test_a_label_is_whole_or_absent() -> None:
    assert [fitting("layers.3.up_proj", width) for width in (200, 50, 10)] == ["layers.3.up_proj", "up_proj", ""]


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (27.0, ["0 s", "5 s", "10 s", "15 s", "20 s", "25 s"]),
        (0.0123, ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms", "12 ms"]),
        (1.2, ["0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s", "1.2 s"]),
        (0.0, ["0 s"]),
    ],
)
def test_ticks_are_round(seconds: float, labels: list[str]) -> None:
    assert [label for _, label in axis.ticks(seconds, 7)] == labels


@given(st.floats(1e-8, 1e6), st.integers(1, 30))
def test_ticks_are_within_the_step_and_not_too_many(seconds: float, at_most: int) -> None:
    found = [tick for tick, _ in axis.ticks(seconds, at_most)]
    assert 1 <= len(found) <= at_most + 1
    assert found[-1] <= seconds * (1 + 1e-6)
