"""The plans of stage 3's micro-steps, and how many buffers for shards on NVMe they need.

Whether `buffer_count` is enough is known only when the coordinator has been played with it: a gather that finds too few
stops DeepSpeed. Then the error names a number that does. Where nobody gave one, one that does is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError
from zerosim.spec.release import Release
from zerosim.spec.strategy import ENOUGH, Offload, Zero
from zerosim.spec.swap_rules import empty_pool
from zerosim.strategies.events import Event
from zerosim.strategies.fetch import persistent_parameters, plan_fetches
from zerosim.strategies.fetch_history import steady_plans
from zerosim.strategies.fetch_plan import Found, Kept, Plan
from zerosim.strategies.stage3_layout import Stage3Layout
from zerosim.strategies.swap_pool import PoolError


class Run(NamedTuple):
    """What the plans of a run depend on beside model and knobs. `frozen`: parameters that have a secondary shard when a
    step begins, None without hpZ."""

    layout: Stage3Layout
    frozen: frozenset[int] | None
    release: Release
    micro_steps: int


def planned(events: Sequence[Event], numels: Sequence[int], zero: Zero, run: Run) -> tuple[list[Plan], Offload]:
    """The plans of a step's micro-steps, and the section with the buffers they have. InputError where DeepSpeed would
    stop for want of them."""
    given = zero.offload_param
    least = 1 if given.buffer_count == ENOUGH else given.buffer_count
    counts = (least, *_growing(least, len(run.layout.swapped)))
    count, plans = next(
        (n, found) for n in counts if (found := _with_buffers(events, numels, zero, run, n)) is not None
    )
    if count != least and given.buffer_count != ENOUGH:
        raise InputError([empty_pool(given, count).problem()])
    return plans, replace(given, buffer_count=count)


def _growing(count: int, most: int) -> Iterator[int]:
    """Counts to try, an eighth more each time, up to one that is enough for certain."""
    while count < most:
        count = min(most, count + 1 + count // 8)
        yield count


def _with_buffers(
    events: Sequence[Event], numels: Sequence[int], zero: Zero, run: Run, buffers: int
) -> list[Plan] | None:
    """None where so many do not do. From the second micro-step on every parameter that is gathered at all has a
    secondary shard."""
    zero = replace(zero, offload_param=replace(zero.offload_param, buffer_count=buffers))
    layout, every = run.layout, frozenset(range(len(numels)))

    def play(found: Found, first: bool) -> Plan:
        there = None if run.frozen is None else run.frozen if first else every
        return plan_fetches(events, numels, zero, layout.swapped, Kept(layout.quantized, there), found)

    with suppress(PoolError):
        persistent = persistent_parameters(numels, zero)
        return steady_plans(play, events, numels, persistent, run.release, run.micro_steps, alike=run.frozen is None)
    return None
