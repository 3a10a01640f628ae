"""Joined boxes: at most so many, nothing lost, and what is long stays alone."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests import timelines
from zerosim.report.figure import allotted, figure
from zerosim.report.figure.coarse import Boxes, joined

LENGTHS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.floats(0.001, 9.0), st.floats(0.0, 2.0)), min_size=1
)


def boxes(rows: list[tuple[int, int, float, float]]) -> Boxes:
    """One after the other in each lane: (lane, kind, how long, how long after the one before)."""
    free: dict[int, float] = {}
    start, end = [], []
    for lane, _, length, gap in rows:
        start.append(free.get(lane, 0.0) + gap)
        end.append(start[-1] + length)
        free[lane] = end[-1]
    lanes, kinds = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
    return Boxes(lanes, kinds, np.array(start), np.array(end), np.array(end) - np.array(start))


def test_four_short_neighbours_are_one_and_the_long_one_stays_alone() -> None:
    found = joined(boxes([(0, 0, 0.001, 0.0), (0, 0, 0.001, 0.0), (0, 0, 0.002, 0.001), (0, 0, 8.0, 0.0)]), 2)
    assert (found.counts.tolist(), found.start.tolist()) == ([3, 1], [0.0, 0.005])
    assert np.allclose(found.end, [0.005, 8.005])
    assert np.allclose(found.busy, [0.004, 8.0])


@given(LENGTHS, st.integers(1, 40))
def test_nothing_is_lost(rows: list[tuple[int, int, float, float]], most: int) -> None:
    given_boxes = boxes(rows)
    found = joined(given_boxes, most)
    assert found.counts.sum() == len(rows)
    assert np.isclose(found.busy.sum(), (given_boxes.end - given_boxes.start).sum())
    assert (found.busy <= (found.end - found.start) * (1 + 1e-9)).all()
    groups = found.group_of()
    assert (given_boxes.lane == given_boxes.lane[found.order[found.first]][groups]).all()
    assert (found.start[groups] <= given_boxes.start).all()
    assert (found.end[groups] >= given_boxes.end).all()


def test_a_figure_has_no_more_boxes_than_asked() -> None:
    timeline = timelines.many(20_000)
    sizes = []
    for most in (5000, 1000, 200):
        drawn = figure(timeline, most=most)
        known = drawn["classes"][0]
        assert known["ops"] <= most
        assert known["of"] == 20_000
        sizes.append(len(json.dumps(drawn)))
    assert sizes == sorted(sizes, reverse=True)


def test_room_is_shared_and_what_is_small_takes_its_own() -> None:
    assert allotted([10, 100, 100], 150) == 70
    assert allotted([10, 100], 200) == 100
    assert allotted([100, 100], 1) == 1
