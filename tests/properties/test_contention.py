"""What holds for the losses of every program that the engine plays: nobody loses more than was lost, or to nobody."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings

from tests.engine_programs import Program
from tests.properties.test_engine import MACHINE, programs
from zerosim.resources import Use
from zerosim.step import Collective
from zerosim.timeline import Timeline
from zerosim.views import contention
from zerosim.views.flows import party

NEAR = 1e-9


def excess(timeline: Timeline) -> dict[str, float]:
    """Seconds by kind that ops took beyond their demand."""
    found: defaultdict[str, float] = defaultdict(float)
    for op, demand, span in zip(timeline.step.ops, timeline.demands["a"], timeline.spans["a"], strict=True):
        if demand.uses:
            found[party(op)] += max(0.0, span.end - span.start - demand.alone(MACHINE))
    return found


@given(programs())
@settings(max_examples=150, deadline=None)
def test_losses_are_lost_by_someone_who_uses_the_resource_to_someone_who_takes_it(program: Program) -> None:
    timeline = program.play(MACHINE)
    lost, losses = excess(timeline), contention(timeline)
    users = {(party(op), use.resource) for op, d in zip(program.ops, program.demands, strict=True) for use in d.uses}
    holders = {(party(op), h.resource) for op, d in zip(program.ops, program.demands, strict=True) for h in d.holds}
    for loss in losses:
        assert loss.seconds > 0
        assert (loss.loser, loss.resource) in users
        assert (loss.winner, loss.resource) in users | holders
        assert loss.ranks == 1
    own = {party(op) for op, d in zip(program.ops, program.demands, strict=True) if d.holds and d.uses}
    for loser, seconds in lost.items():
        charged = sum(loss.seconds for loss in losses if loss.loser == loser)
        assert charged <= seconds + NEAR * timeline.makespan
        nothing = 20 * NEAR * timeline.makespan
        assert charged > 0 or seconds <= nothing or loser in own  # who lost, lost to someone, or to its own hold
    assert [loss.seconds for loss in losses] == sorted((loss.seconds for loss in losses), reverse=True)


@given(programs())
@settings(max_examples=60, deadline=None)
def test_ranks_take_their_part_first(program: Program) -> None:
    """With two ranks' amounts in every use, what an op by itself would take is lost to the other rank once more."""
    shared = Program()
    shared.ops = program.ops
    shared.demands = [
        demand._replace(uses=tuple(Use(u.resource, 2 * u.amount, u.efficiency, 2.0) for u in demand.uses))
        for demand in program.demands
    ]
    losses = contention(shared.play(MACHINE))
    ops = zip(program.ops, program.demands, strict=True)
    alone = sum(demand.alone(MACHINE) - demand.latency for op, demand in ops if not isinstance(op.work, Collective))
    found = sum(loss.seconds for loss in losses if loss.winner == "other_ranks")
    assert abs(found - alone) <= NEAR * max(1.0, found)
