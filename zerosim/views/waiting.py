"""How long measured ranks waited for each other in collectives, which asks no clock of another machine.

Rule: NCCL's kernels of one collective end together, and each begins when its rank comes; so on the rank that comes last
it is the shortest, and what it took longer elsewhere is waiting. Only the collectives of a process group are compared
of which every rank was recorded and ran the same, kind for kind and byte for byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from zerosim.step import Collective, Op, Transfer
from zerosim.timeline import Span, Timeline

W = TypeVar("W", Collective, Transfer)


class _Run(NamedTuple):
    """A collective of a rank."""

    kind: str
    bytes: int
    seconds: float


def ran(ops: Sequence[Op], spans: Sequence[Span], kind: type[W]) -> Iterator[tuple[W, Span]]:
    """The work of one kind, and when it ran."""
    return ((op.work, span) for op, span in zip(ops, spans, strict=True) if isinstance(op.work, kind))


def waiting(timeline: Timeline) -> dict[str, float]:
    """Seconds that each rank's collectives took longer than the shortest of their groups; by class."""
    groups: defaultdict[str, dict[str, list[_Run]]] = defaultdict(dict)
    for known in timeline.classes:
        for group, runs in _by_group(timeline, known.name).items():
            groups[group][known.name] = runs
    waited: defaultdict[str, float] = defaultdict(float)
    for group, members in groups.items():
        if _comparable(list(members.values()), _size(timeline, group)):
            shortest = [min(run.seconds for run in runs) for runs in zip(*members.values(), strict=True)]
            for name, runs in members.items():
                waited[name] += sum(run.seconds - least for run, least in zip(runs, shortest, strict=True))
    return dict(waited)


def waited_before(timeline: Timeline) -> dict[str, float]:
    """Seconds that each rank's collectives waited before they began, as those of a simulated step say; by class."""
    return {
        known.name: sum(
            span.start - span.ready
            for _, span in ran(timeline.program(known).ops, timeline.spans[known.name], Collective)
        )
        for known in timeline.classes
    }


def _comparable(members: Sequence[Sequence[_Run]], size: int) -> bool:
    """Whether all ranks of a group were recorded, and ran the same."""
    same = {tuple((run.kind, run.bytes) for run in runs) for runs in members}
    return len(members) > 1 and len(members) == size and len(same) == 1


def _size(timeline: Timeline, group: str) -> int:
    """How many ranks a group has; 0 where the trace does not say it."""
    return max((step.groups[group].size for step in timeline.steps if group in step.groups), default=0)


def _by_group(timeline: Timeline, name: str) -> dict[str, list[_Run]]:
    """The collectives of a rank, in order; what goes from one rank to another is none."""
    found: defaultdict[str, list[_Run]] = defaultdict(list)
    for work, span in ran(timeline.program(name).ops, timeline.spans[name], Collective):
        if work.kind not in ("send_recv", "exchange"):
            found[work.group].append(_Run(work.kind, int(work.bytes), span.end - span.start))
    return dict(found)
