"""Prefetch that is starved: weights are asked for too late, although the network would have had the time.

Stage 3 asks ahead for stage3_prefetch_bucket_size elements, and for nothing while stage3_max_live_parameters are
gathered; FSDP for one unit, and in forward only as far as the host is ahead. The sign: gathers are waited for, though
all gathers of the step together, one after the other, take less than the kernels they could hide behind. Whether
something is wrong is known only when more was played.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import Fsdp
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import fsdp, stage3, zero
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_count, show_seconds, show_share

LEAST = 0.02  # of the step, exposed; a choice
GATHERS = ("all_gather",)
PASSES = ("forward", "backward")
BUCKETS = (50_000_000, 200_000_000, 500_000_000)  # elements: DeepSpeed's default, four and ten times as much
LIVE = 3_000_000_000  # elements


def starved(case: Case) -> Trouble | str:
    """Gathers that are waited for although they could be hidden."""
    gathers = [done for done in case.collectives(GATHERS) if done.op.phase in PASSES]
    if not gathers:
        return "nothing is gathered in forward and backward"
    exposed, carried = case.waiting(GATHERS, PASSES), case.summary.breakdown.compute
    busy = sum(done.demand.alone(case.simulation.supply) for done in gathers)
    said = f"{show_seconds(exposed)} of {len(gathers)} gathers ({show_seconds(busy)} of network time) is exposed"
    if case.share(exposed) < LEAST:
        return said
    if busy > carried:
        return f"{said}; more than there is compute to hide: it is the network"
    return Trouble(
        code="prefetch-starved",
        severity=weight(case, exposed),
        symptom=f"{said}, {show_share(case.share(exposed))} of the step, beside {show_seconds(carried)} of compute.",
        cause=_why(case),
        candidates=tuple(_remedies(case)),
        lost=exposed,
        confirmed=True,
        clear=f"{said}; nothing that asks earlier makes the step faster",
    )


def _why(case: Case) -> str:
    given = case.zero
    if given is None:
        return "A unit is gathered when it is needed, or one before: too late for the network."
    ahead, live = show_count(given.prefetch_bucket_size), show_count(given.max_live_parameters)
    return f"Stage 3 looks {ahead} elements ahead, while at most {live} are gathered: too late for the network."


def _remedies(case: Case) -> Iterator[Candidate]:
    strategy = case.scenario.strategy
    if isinstance(strategy, Fsdp):
        yield from _of_fsdp(strategy)
    given = case.zero
    if given is None:
        return
    larger = [size for size in BUCKETS if size > given.prefetch_bucket_size]
    live = {} if given.max_live_parameters >= LIVE else {"max_live_parameters": LIVE}
    for size in larger:
        yield stage3(f"a prefetch bucket of {show_count(size)} elements", prefetch_bucket_size=size)
    for size in (*larger, given.prefetch_bucket_size) if live else ():
        what = f"a prefetch bucket of {show_count(size)} elements, {show_count(LIVE)} live"
        yield stage3(what, prefetch_bucket_size=size, **live)
    if given.max_reuse_distance < LIVE:
        what = f"{show_count(LIVE)} live elements, kept for as long"
        yield stage3(what, max_live_parameters=LIVE, max_reuse_distance=LIVE)
    if not given.overlap_comm:
        yield zero("overlap_comm", overlap_comm=True)
    if given.allgather_sequential:
        yield stage3("gathers of several parameters", allgather_sequential=False)


def _of_fsdp(given: Fsdp) -> Iterator[Candidate]:
    if given.version == 2:
        yield fsdp("two units named ahead", prefetch_forward=2, prefetch_backward=2)
        return
    if given.backward_prefetch != "BACKWARD_PRE":
        yield fsdp("backward_prefetch BACKWARD_PRE", backward_prefetch="BACKWARD_PRE")
    if not given.forward_prefetch:
        yield fsdp("forward_prefetch", forward_prefetch=True)
    if given.limit_all_gathers:
        yield fsdp("no limit to gathers ahead", limit_all_gathers=False)
    if given.backward_prefetch != "BACKWARD_PRE":
        yield fsdp("all of it", backward_prefetch="BACKWARD_PRE", forward_prefetch=True, limit_all_gathers=False)
