"""What stage 3's parameter coordinator decides for one micro-step, as plain data, and what it decides it from.

A `Plan` is made by `fetch` and replayed by `stage3_parameters`. It speaks of parameters, by registration index, and of
gathers, by their place in the plan; it knows no buffer, no op and no stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

Gather = tuple[int, ...]  # the parameters of one coalesced all-gather, in registration order


class Visit(NamedTuple):
    """What happens at one pre-hook, in this order. Numbers index `Plan.gathers`.

    `demanded` are gathered now; each of `collected` is waited for (a gather may be collected several times, once per
    parameter that first uses it); `prefetched` are gathered ahead. Of the parameters `read_ahead` the shards are read.
    """

    demanded: tuple[int, ...]
    collected: tuple[int, ...]
    prefetched: tuple[int, ...]
    read_ahead: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One micro-step: a visit per pre-hook, released parameters per post-hook (in event order), the rest at the end.

    `reads`: gathers before which the host waits for all reads, with the shards that it asks for first. `read_twice`:
    shards that the read-ahead meets twice, for which DeepSpeed 0.19.8 would take two buffers and stop. `secondary`:
    gathers of secondary shards (hpZ).
    """

    gathers: tuple[Gather, ...]
    visits: tuple[Visit, ...]
    releases: tuple[tuple[int, ...], ...]
    leftovers: tuple[int, ...]
    persistent: frozenset[int]
    peak_elements: int  # most elements gathered or in flight, persistent ones included
    reads: Mapping[int, tuple[int, ...]]
    read_twice: frozenset[int]
    secondary: frozenset[int] = frozenset()
    dispensable: tuple[frozenset[int], ...] = ()  # what each post-hook may drop


class Kept(NamedTuple):
    """What one gather cannot mix. `quantized`: parameters whose shards are kept in 8 bits. `secondary`: those that have
    a secondary shard when the micro-step begins, None where there are none (hpZ)."""

    quantized: frozenset[int] = frozenset()
    secondary: frozenset[int] | None = None


PLAIN = Kept()


class Found(NamedTuple):
    """What a micro-step finds: parameters that are gathered, the count of live ones, and what each post-hook may drop
    (None where this is the pass that decides it)."""

    gathered: frozenset[int] | None = None  # None: the persistent ones
    live: int = 0
    dispensable: tuple[frozenset[int], ...] | None = None


USUAL = Found()
