"""A pipeline of eight stages and 64 micro-batches: what the engine does for it, counted."""

from __future__ import annotations

import pytest

from tests.pipelines import IN_FLIGHT, by_hand, programs
from zerosim.spec.strategy import Schedule


@pytest.mark.parametrize("schedule", IN_FLIGHT)
def test_the_work_of_the_engine_grows_with_the_ops(schedule: Schedule) -> None:
    """About an event an op, and four times the micro-batches are four times the ops."""
    few, many = (by_hand(programs(schedule, 8, count), 1.0, 2.0) for count in (16, 64))
    ops = [sum(len(step.ops) for step in played.steps) for played in (few, many)]
    assert ops[1] / ops[0] == pytest.approx(4, rel=0.05)
    assert all(played.events < 1.2 * count for played, count in zip((few, many), ops, strict=True))
    assert many.makespan == pytest.approx((64 + 7) * 3.0)
