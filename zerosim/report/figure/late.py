"""For which ranks the collectives of a class waited: those that came last, as `views.waits` counts them.

Rule: a list of changes, not a column: mostly one class is late all along, and then this takes a few bytes however many
ops there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from zerosim.report.figure.columns import moments, whole
from zerosim.resources import RankClass
from zerosim.timeline import Call, Timeline
from zerosim.views.critical_path import last_to_arrive

Together = Mapping[Call, Sequence[Call]]


def late(timeline: Timeline, shown: Sequence[RankClass], named: Callable[[RankClass], str]) -> list[dict[str, Any]]:
    """Of each class that is shown: since when its waits are for whom; the names are those of ranks."""
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    names = {each.name: named(each) for each in timeline.classes}
    return [_of(timeline, sorted(_waits(timeline, each, together)), names) for each in shown]


def _of(timeline: Timeline, waits: Sequence[tuple[float, str]], names: Mapping[str, str]) -> dict[str, Any]:
    changes = [next(same) for _, same in groupby(waits, key=lambda wait: wait[1])]
    known = list(dict.fromkeys(name for _, name in changes))
    return {
        "count": len(changes),
        "since": moments([since for since, _ in changes], timeline.makespan),
        "whom": whole([known.index(name) for _, name in changes]),
        "names": [names[name] for name in known],
    }


def _waits(timeline: Timeline, rank_class: RankClass, together: Together) -> Iterator[tuple[float, str]]:
    """When each collective could have begun, and the class that came last to it."""
    last: dict[int, str] = {}  # by identity of those who take part
    for number, span in enumerate(timeline.spans[rank_class.name]):
        call = Call(rank_class.name, number)
        if span.start > span.ready and call in together:
            known = id(together[call])
            if known not in last:
                last[known] = last_to_arrive(timeline, together, call).rank_class
            yield span.ready, last[known]
