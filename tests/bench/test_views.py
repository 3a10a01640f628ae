"""The views grow with the number of ops, not with its square, also where every collective is exposed."""

import time

import pytest

from tests.timelines import many
from zerosim.timeline import Timeline
from zerosim.views import Facts, critical_path, summarize

FACTS = Facts("many", 1, 2, 1.0, 1.0, 1.0, 1.0)


def seconds(timeline: Timeline) -> float:
    """CPU seconds, the best of three."""
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        summarize(timeline, FACTS)
        critical_path(timeline)
        best = min(best, time.process_time() - before)
    return best


@pytest.mark.timed
@pytest.mark.parametrize("exposed", [False, True])
def test_four_times_the_ops_take_about_four_times_as_long(exposed: bool) -> None:
    assert seconds(many(12_000, exposed)) < 8 * seconds(many(3_000, exposed))
