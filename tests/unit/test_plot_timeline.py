"""Timelines as figures: the boxes are the spans, in the lanes and colours of the SVG."""

from __future__ import annotations

import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tests.plots import boxes, entries, hatches, kinds, path_of, words
from tests.timelines import many, offloaded, played, skewed, tiny, tiny_demands, tiny_step
from zerosim import InputError, plot
from zerosim.report import svg
from zerosim.report.lanes import LOW, Scale
from zerosim.report.palette import INKS
from zerosim.step import Matmul
from zerosim.timeline import Timeline

LANES = ["host", "compute", "nccl.dp", "d2h", "exposed"]


def slow() -> Timeline:
    """`tiny()` whose matmuls take twice as long: 45 s."""
    return played(tiny_step(), tiny_demands(), slowdown={"all": 2.0})


def lanes(figure: Figure, panel: int = 0) -> list[str]:
    return [label.get_text() for label in figure.axes[panel].get_yticklabels()]


def spans(figure: Figure, ink: str, panel: int = 0) -> list[tuple[float, float]]:
    return [(pytest.approx(box.left), pytest.approx(box.right)) for box in boxes(figure.axes[panel], ink)]  # type: ignore[misc]  # approx is untyped


def test_a_box_is_a_span() -> None:
    figure = plot.timeline(tiny())
    assert lanes(figure) == LANES
    assert spans(figure, "matmul") == [(2, 5), (5, 8), (8, 14), (14, 20)]
    assert spans(figure, "all_gather") == [(0, 2), (2, 4)]
    assert spans(figure, "reduce_scatter") == [(14, 17), (20, 23)]
    assert spans(figure, "pass") == [(24, 26)]
    assert spans(figure, "transfer") == [(26, 27)]
    assert figure.axes[0].get_xlim() == (0, 27)


def test_a_line_tells_boxes_of_a_kind_apart_that_follow_each_other() -> None:
    """The two gathers at 2 s, four products at 5, 8 and 14 s; not the reductions, between which is a pause."""
    (seams,) = (each for each in plot.timeline(tiny()).axes[0].collections if isinstance(each, LineCollection))
    assert sorted(line[0][0] for line in seams.get_segments()) == [pytest.approx(x) for x in (2, 5, 8, 14)]


def test_what_is_exposed_is_a_row() -> None:
    """5 s of collectives and 1 s of a copy."""
    figure = plot.timeline(tiny())
    assert spans(figure, "exposed") == [(0, 2), (20, 23)]
    assert spans(figure, "copying") == [(26, 27)]


def test_lanes_are_from_top_to_bottom_and_a_copy_is_low() -> None:
    ax = plot.timeline(tiny()).axes[0]
    tops = [boxes(ax, ink)[0].top for ink in ("issue", "matmul", "all_gather", "transfer", "exposed")]
    assert tops == sorted(tops)
    copy, product = boxes(ax, "transfer")[0], boxes(ax, "matmul")[0]
    assert copy.bottom - copy.top == pytest.approx(LOW * (product.bottom - product.top))
    below, above = ax.get_ylim()
    assert below > max(box.bottom for ink in kinds(ax) for box in boxes(ax, ink))
    assert above < 0


def test_kinds_have_the_colour_and_a_hatch_of_the_palette() -> None:
    figure = plot.timeline(tiny())
    for name in ("matmul", "all_gather", "reduce_scatter", "pass", "transfer"):
        assert to_hex(path_of(figure.axes[0], name).get_facecolor()).upper() == INKS[name].colour.upper()
    found = hatches(figure)
    shown = [found[INKS[name].word] for name in ("matmul", "all_gather", "reduce_scatter", "pass", "transfer")]
    assert len(set(shown)) == len(shown)


def test_the_legend_has_what_is_in_the_picture_and_no_more() -> None:
    assert entries(plot.timeline(tiny())) == [
        "host issues", "waits", "matrix products", "memory-bound kernels", "all-gather", "reduce-scatter", "copies",
        "exposed communication", "exposed transfer",
    ]  # fmt: skip
    assert entries(plot.timeline(tiny(), lanes=["compute"])) == ["matrix products", "memory-bound kernels"]


def test_phases_are_named_with_their_length() -> None:
    assert {"forward 8 s", "backward 15 s"} <= set(words(plot.timeline(tiny()).axes[0]))


def test_a_part_of_the_step() -> None:
    figure = plot.timeline(tiny(), start=4.0, end=10.0)
    assert spans(figure, "matmul") == [(4, 5), (5, 8), (8, 10)]
    assert figure.axes[0].get_xlim() == (4, 10)
    assert "all_gather" not in kinds(figure.axes[0])


def test_lanes_by_name() -> None:
    assert lanes(plot.timeline(tiny(), lanes=["nccl.dp", "compute"])) == ["compute", "nccl.dp"]


def test_another_rank_class_waits_for_the_slow_one() -> None:
    slow, fast = (plot.timeline(skewed(), rank_class=name) for name in ("slow", "fast"))
    assert spans(slow, "matmul")[0] == (2, 8)
    assert spans(fast, "matmul")[0] == (2, 5)
    assert any("waits" in word for word in entries(fast))


def test_the_lanes_are_those_of_the_svg() -> None:
    for timeline in (tiny(), offloaded(), many(40)):
        expected = [lane.title for lane in svg.lanes_of(timeline, timeline.slowest, Scale(0.0, 1.0))]
        assert lanes(plot.timeline(timeline)) == expected


def test_twenty_thousand_spans_are_few_boxes() -> None:
    """At most one of a fraction of a pixel, and together they cover what was computed."""
    timeline = many(20_000, exposed=True)
    ax = plot.timeline(timeline, lanes=["compute", "exposed"]).axes[0]
    found = boxes(ax, "matmul")
    assert sum(isinstance(op.work, Matmul) for op in timeline.step.ops) == 10_000
    assert len(found) < 2500
    covered = sum(box.right - box.left for box in found)
    assert covered == pytest.approx(45_000 + 15_000 + 2, rel=0.4)  # joined over the pauses between, which are short
    assert len(ax.patches) == len(kinds(ax))


def test_two_steps_have_one_axis() -> None:
    figure = plot.timelines([tiny(), slow()], ["tiny", "slow"])
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["tiny: 27 s", "slow: 45 s"]
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 45)}
    assert [lanes(figure, panel) for panel in (0, 1)] == [LANES, LANES]
    assert spans(figure, "matmul", 1)[0] == (2, 8)
    assert len(figure.legends) == 1


def test_of_several_steps_each_shows_the_lanes_it_has() -> None:
    figure = plot.timelines([tiny(), offloaded()], ["a", "b"], lanes=["compute", "nccl.dp", "NVMe reads"])
    assert [lanes(figure, panel) for panel in (0, 1)] == [["compute", "nccl.dp"], ["compute", "NVMe reads"]]


def test_a_figure_of_ones_own() -> None:
    own = Figure(layout="constrained")
    upper, lower = own.subplots(2, 1)
    assert plot.timeline(tiny(), title="(a)", ax=lower) is own
    assert len(upper.lines) == len(upper.patches) == 0
    assert lower.get_title(loc="left") == "(a)"
    assert boxes(lower, "matmul")[0].right == pytest.approx(5)
    assert "all-gather" in entries(own)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rank_class": "al"}, 'rank_class: found "al"; expected one of all; nearest all'),
        ({"lanes": ["computes"]}, 'lanes: found "computes"; expected one of host, compute, nccl.dp, d2h, exposed'),
        ({"start": 3.0, "end": 2.0}, "end: found 2 s; expected a time after the start, 3 s"),
    ],
)
def test_what_is_asked_wrongly(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as error:
        plot.timeline(tiny(), **asked)  # type: ignore[arg-type]  # each is one of its own
    assert said in str(error.value)
