"""Who was starved by whom: seconds that ops lost because others moved through the same resources.

An op loses `end - start` less what it takes by itself on an idle machine. Part of that goes to the *other ranks* of its
node, whose equal amounts are in its own uses: the demand as it is, less the demand with one rank's amounts. The rest
goes to other *ops* in flight. What a flow needs of a full resource and what others take of it add up to the time the
flow is there, so the seconds that others take are the seconds lost to them. The loss is charged first to the resource
that limited the op longest, then to the fullest, at most what others took there, and divided by what each took (flows
are taken to be even over their time). What nobody took is nobody's, and is left out.

Seconds are summed over ops and are no part of the step: ops lose at the same time, and a lost second that is hidden
costs the step nothing. A collective is one op of all its ranks and loses nothing to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.resources import WayOf
from zerosim.timeline import Timeline
from zerosim.views.flows import READING, WRITING, Floats, Lane, Needs, Places, lanes

OTHER_RANKS = "other_ranks"  # the winner where the ranks of a node do the same at the same time
WAYS: Mapping[str, WayOf] = {READING: "read", WRITING: "write"}
NOISE = 1e-9  # of the step: less than this is the rounding of sums


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds that ops of one kind lost on a resource to those of another; `ranks` ranks' amounts are in the losers'.

    `ops` of them lost something; by themselves these would take `alone_seconds` together.
    """

    resource: str
    label: str
    loser: str
    winner: str
    seconds: float
    ops: int
    alone_seconds: float
    ranks: float


class _Part(NamedTuple):
    """What one lane lost on one resource to one winner."""

    resource: str
    loser: str
    winner: str
    seconds: float
    ops: int
    alone: float
    ranks: float


def contention(timeline: Timeline) -> tuple[Loss, ...]:
    """What the ops of the slowest class lost, the largest loss first."""
    found: defaultdict[tuple[str, str, str], list[_Part]] = defaultdict(list)
    needs, least, slowest = Needs(timeline.supply), NOISE * timeline.makespan, timeline.slowest.name
    everyone = lanes(timeline, needs)
    for lane in [each for each in everyone if each.rank_class == slowest]:
        losers = _losers(timeline, lane, needs, least)
        for part in (*_to_ranks(lane, needs), *_to_ops(losers, everyone, needs, least)):
            found[part[:3]].append(part)
    losses = (_loss(timeline, parts) for parts in found.values())
    largest = sorted(losses, key=lambda loss: (-loss.seconds, loss.resource, loss.loser, loss.winner))
    return tuple(loss for loss in largest if loss.seconds > least)


def _loss(timeline: Timeline, parts: Sequence[_Part]) -> Loss:
    resource, loser, winner, *_ = parts[0]
    return Loss(
        resource=resource,
        label=timeline.supply.called(resource, WAYS.get(loser, "")).label,
        loser=loser,
        winner=winner,
        seconds=sum(part.seconds for part in parts),
        ops=sum(part.ops for part in parts),
        alone_seconds=sum(part.alone for part in parts),
        ranks=max(part.ranks for part in parts),
    )


def _to_ranks(lane: Lane, needs: Needs) -> Iterator[_Part]:
    """What ops lose to the ranks whose amounts are in their own."""
    for number, ops in enumerate(np.bincount(lane.needs).tolist()):
        need = needs.known[number]
        if ops and need.alone < need.together and not lane.collective:
            lost, alone = ops * (need.together - need.alone), ops * need.alone
            yield _Part(need.limit, lane.party, OTHER_RANKS, lost, ops, alone, need.ranks[need.limit])


# --- other ops -------------------------------------------------------------------------------------------------------


class _Losers(NamedTuple):
    """The ops of a lane that took longer than their demand says: resources are rows, ops are columns."""

    lane: Lane
    resources: Sequence[str]
    needs: Places
    begins: Floats
    ends: Floats
    excess: Floats
    seconds: Floats  # needed of each resource
    limited: npt.NDArray[np.bool_]  # the resource that limited the op longest


def _losers(timeline: Timeline, lane: Lane, needs: Needs, least: float) -> _Losers:
    excess = lane.ends - lane.starts - needs.column(lambda need: need.together)[lane.needs]
    places = np.flatnonzero(excess > least)
    numbers, spans = lane.needs[places], timeline.spans[lane.rank_class]
    resources = sorted({name for number in np.unique(numbers).tolist() for name in needs.known[number].seconds})
    bottlenecks = np.array([spans[op].bottleneck for op in lane.ops[places].tolist()])
    return _Losers(
        lane=lane,
        resources=resources,
        needs=numbers,
        begins=lane.begins[places],
        ends=lane.ends[places],
        excess=excess[places],
        seconds=np.array([needs.table(resource).seconds[numbers] for resource in resources]),
        limited=np.array([bottlenecks == resource for resource in resources]),
    )


def _to_ops(losers: _Losers, everyone: Sequence[Lane], needs: Needs, least: float) -> Iterator[_Part]:
    """What ops lose to those in flight with them."""
    if not losers.resources:
        return
    rivals = [each for each in everyone if each[:2] != losers.lane[:2]]  # not those of its own stream
    taken = _taken(losers, rivals, needs, least)
    whole = sum(taken.values(), np.zeros_like(losers.seconds))
    charged = _charged(losers, whole)
    for winner, part in taken.items():
        lost = np.divide(charged * part, whole, out=np.zeros_like(whole), where=whole > 0)
        for resource, row in zip(losers.resources, lost, strict=True):
            yield _part(losers, resource, winner, row, needs)


def _part(losers: _Losers, resource: str, winner: str, lost: Floats, needs: Needs) -> _Part:
    who = losers.needs[lost > 0]
    alone = float(needs.column(lambda need: need.alone)[who].sum())
    ranks = max((needs.known[number].ranks[resource] for number in np.unique(who).tolist()), default=1.0)
    return _Part(resource, losers.lane.party, winner, float(lost.sum()), len(who), alone, ranks)


def _taken(losers: _Losers, rivals: Sequence[Lane], needs: Needs, least: float) -> dict[str, Floats]:
    """Seconds that each winner took of each resource while each loser needed it."""
    found: dict[str, Floats] = {}
    for row, resource in enumerate(losers.resources):
        table = needs.table(resource)
        for rival in rivals:
            if rival.uses(table):
                part = rival.took(table, losers.begins, losers.ends)
                part[(part < least) | (losers.seconds[row] == 0)] = 0.0
                found.setdefault(rival.party, np.zeros_like(losers.seconds))[row] += part
    return found


def _charged(losers: _Losers, taken: Floats) -> Floats:
    """The excess of each op by resource: the one that limited it first, then the fullest, at most what was taken."""
    fullness = np.where(losers.limited, np.inf, losers.seconds + taken)
    order = np.argsort(-fullness, axis=0, kind="stable")
    left, charged, columns = losers.excess.copy(), np.zeros_like(taken), np.arange(len(losers.excess))
    for row in order:
        charged[row, columns] = np.minimum(left, taken[row, columns])
        left -= charged[row, columns]
    return charged
