"""A few ranks hold up the others: a slow port, a bad cable, a throttled GPU, named by node and GPU.

Told from who waits for whom in the played step. What helps while a link is slow is to send less over it; what helps a
throttled GPU no setting knows. What mended ranks would give is played, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zerosim.spec.strategy import DeepSpeed, Fsdp
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import fsdp, zero
from zerosim.studies.doctor.trouble import Candidate, Changes, Price, Trouble, weight
from zerosim.units import show_seconds, show_share
from zerosim.views.waits import Wait

SMALLER = Price("a smaller global batch", 2.0)
LEAST = 0.03  # of the step: less is not worth a walk to the rack; a choice


def uneven_ranks(case: Case) -> Trouble | str:
    """The class of ranks for which others wait most, exposed."""
    worst = max(case.summary.waits, key=lambda wait: wait.exposed_seconds, default=None)
    if worst is None:
        return "all ranks are equally fast" if len(case.summary.classes) == 1 else "no rank waits for another"
    lost = worst.exposed_seconds
    if case.share(lost) < LEAST:
        return f"none waits more than {show_share(case.share(lost))} of the step for others"
    return Trouble(
        code="uneven-ranks",
        severity=weight(case, lost),
        symptom=(
            f"{worst.waiting} wait {show_seconds(lost)} of a step ({show_share(case.share(lost))}), not computing, "
            f"for {named(worst)}, {'late' if worst.cause == 'late' else 'slow'} at {worst.collectives} collectives."
        ),
        cause=f"{named(worst)} has less of {worst.label}." if worst.label else f"{named(worst)} is slower.",
        candidates=(*_less_traffic(case, worst), *_without(case, worst), _mended()),
        lost=lost,
    )


def named(wait: Wait) -> str:
    """The slow ones, as a person calls them."""
    return wait.waited_for if wait.node is None else f"node {wait.node} ({wait.waited_for})"


def _less_traffic(case: Case, worst: Wait) -> Iterator[Candidate]:
    """Settings that send less between nodes; none where it is the GPU itself."""
    strategy, ranks = case.scenario.strategy, case.scenario.ranks_per_node
    if worst.cause == "late" and worst.resource.startswith(("sm", "hbm")):
        return
    if isinstance(strategy, DeepSpeed):
        yield from (zero(f"stage {stage}", stage=stage) for stage in (2, 1) if strategy.zero.stage > stage)
        if strategy.zero.stage == 3 and 1 < ranks < case.scenario.world_size:
            yield zero("hpZ, a second shard in each node", zero_hpz_partition_size=ranks)
        if not strategy.zero.overlap_comm and strategy.zero.stage > 0:
            yield zero("overlap_comm", overlap_comm=True)
    elif isinstance(strategy, Fsdp) and strategy.version == 1 and not strategy.hybrid:
        yield fsdp("shards within a node", sharding_strategy="HYBRID_SHARD")


def _without(case: Case, worst: Wait) -> Iterator[Candidate]:
    """A run that leaves the slow node out, where it is the last one."""
    nodes = {host for each in case.simulation.classes if each.name in worst.classes for host in each.hosts}
    last = len(case.scenario.topology.hosts) - 1
    if nodes == {last} and last > 0:
        fewer: Changes = (f"nodes={last}", "gpus=null")
        kept = json.dumps(_elsewhere(case, last))
        yield Candidate(f"without node {last}", (fewer, (*fewer, f"topology.overrides={kept}")), (SMALLER,))


def _elsewhere(case: Case, node: int) -> list[Any]:
    """The overrides of the topology that are not of this node."""
    given = case.scenario.text["topology"]
    rows = given.get("overrides") if isinstance(given, Mapping) else None
    return [row for row in rows or () if row.get("node") != node and not str(row.get("gpu", "")).startswith(f"{node}.")]


def _mended() -> Candidate:
    return Candidate("all ranks as fast as the usual ones", (("topology.overrides=[]",),), machine=True)
