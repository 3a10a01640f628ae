"""What holds for every program on every machine, and for every division of resources among flows."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine_programs import GATHER, Program
from zerosim.engine import play
from zerosim.engine.fabric import Fabric, Flow
from zerosim.engine.footprints import Footprint, Rate, footprint
from zerosim.engine.sharing import share
from zerosim.resources import Demand, Hold, RankClass, Supply, Use
from zerosim.timeline import Span, Timeline

NEAR = 1e-9
MACHINE = Supply({"sm": 4.0, "hbm": 2.0, "link": 1.0, "dram": 3.0}, {}, {}, {}, {})
STREAMS = ("compute", "gather", "nccl.dp", "host")

amounts = st.tuples(st.sampled_from([0.0, 0.001, 0.5, 1.0, 3.0]), st.sampled_from([0.5, 1.0]))
demands = st.builds(
    Demand,
    latency=st.sampled_from([0.0, 0.0, 0.25, 2.0]),
    uses=st.dictionaries(st.sampled_from(sorted(MACHINE.rates)), amounts, max_size=3).map(
        lambda chosen: tuple(Use(name, *amount) for name, amount in chosen.items())
    ),
    holds=st.lists(st.builds(Hold, st.just("sm"), st.sampled_from([0.25, 0.75])), max_size=1).map(tuple),
    host=st.sampled_from([0.0, 0.125, 1.0]),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    program = Program()
    for number in range(draw(st.integers(0, 10))):
        earlier = st.lists(st.integers(0, number - 1), max_size=2, unique=True) if number else st.just([])
        waits = draw(earlier) if draw(st.integers(0, 3)) == 0 else []
        stream = draw(st.sampled_from(STREAMS))
        program.add(stream, draw(demands), draw(earlier), waits, GATHER if stream == "nccl.dp" else None)
    return program


def played(program: Program, machine: Supply = MACHINE) -> Timeline:
    return program.play(machine)


def times(spans: Sequence[Span]) -> list[float]:
    return [time for span in spans for time in (span.issued, span.ready, span.start, span.end)]


@given(programs())
def test_an_op_begins_when_all_it_waits_for_is_done_and_not_later(program: Program) -> None:
    spans = played(program).spans["a"]
    last: dict[str, float] = {}
    clock = 0.0
    for op, demand, span in zip(program.ops, program.demands, spans, strict=True):
        clock = max([clock, *(spans[other].end for other in op.host_waits)]) + demand.host
        assert span.issued == pytest.approx(clock, rel=NEAR)
        awaited = max([clock, last.get(op.stream, 0.0), *(spans[other].end for other in op.after)])
        assert span.ready == pytest.approx(awaited, rel=NEAR)
        assert span.issued <= span.ready == span.start <= span.end
        last[op.stream] = span.end


@given(programs())
def test_no_op_is_faster_than_alone_and_no_step_faster_than_its_busiest_resource(program: Program) -> None:
    timeline = played(program)
    busy = dict.fromkeys(MACHINE.rates, 0.0)
    for demand, span in zip(program.demands, timeline.spans["a"], strict=True):
        assert span.end - span.start >= demand.alone(MACHINE) * (1 - NEAR) - NEAR
        for use in demand.uses:
            busy[use.resource] += use.amount / (MACHINE.rates[use.resource] * use.efficiency)
    assert timeline.makespan >= max(busy.values()) * (1 - NEAR)


class Watched(Fabric):
    """Sees that no resource gives what it has not, and integrates the speeds of each flow anew."""

    def _see(self) -> None:
        taken: dict[int, float] = {}
        for flow in self.flows:
            for resource, alone in flow.footprint.uses:
                taken[resource] = taken.get(resource, 0.0) + flow.rate.speed * alone
        for resource, part in taken.items():
            assert part <= self.capacities.left.get(resource, 1.0) * (1 + NEAR)

    def settle(self, now: float) -> None:
        super().settle(now)
        self._see()

    def _join(self, flow: Flow, now: float) -> None:
        super()._join(flow, now)
        self._see()

    def _book(self, flow: Flow, now: float) -> None:
        super()._book(flow, now)
        self.history[flow] = [(flow.since, flow.rate.speed)]

    def _unbook(self, mask: int, now: float) -> None:
        booked = [flow for flow in self.flows if flow.since > now and flow.mask & mask]
        super()._unbook(mask, now)
        for flow in booked:
            self.history.pop(flow)

    def _pace(self, flow: Flow, rate: Rate, now: float) -> None:
        super()._pace(flow, rate, now)
        self.history.setdefault(flow, []).append((now, flow.rate.speed))

    def _leave(self, flow: Flow) -> None:
        super()._leave(flow)
        points = [*self.history.pop(flow), (self.env.now, 0.0)]
        done = sum(speed * (until - since) for (since, speed), (until, _) in pairwise(points))
        assert done == pytest.approx(1, rel=1e-6)

    @property
    def history(self) -> dict[Flow, list[tuple[float, float]]]:
        return self.__dict__.setdefault("_history", {})  # type: ignore[no-any-return]  # a dict by name is untyped


@given(programs())
def test_resources_give_what_they_have_and_flows_get_what_they_need(program: Program) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("zerosim.engine.play"), "Fabric", Watched)
        seen = played(program)
    assert seen == played(program)  # watching changes nothing, and playing again gives the same


@given(programs())
def test_twice_as_fast_a_machine_takes_half_the_time(program: Program) -> None:
    faster = replace(MACHINE, rates={name: 2 * rate for name, rate in MACHINE.rates.items()})
    quick = Program()
    quick.ops = program.ops
    quick.demands = [d._replace(latency=d.latency / 2, host=d.host / 2) for d in program.demands]
    assert times(quick.spans(faster)) == pytest.approx([t / 2 for t in times(program.spans(MACHINE))], rel=NEAR)


def private(demand: Demand, name: str) -> Demand:
    """The demand on the resources of class `name`."""
    uses = tuple(use._replace(resource=f"{name}.{use.resource}") for use in demand.uses)
    return demand._replace(
        uses=uses, holds=tuple(hold._replace(resource=f"{name}.{hold.resource}") for hold in demand.holds)
    )


def copies(program: Program, names: Sequence[str]) -> Mapping[str, Sequence[Demand]]:
    """The program's demands for equal classes with resources of their own; a collective takes those of all."""
    alone = {name: [private(demand, name) for demand in program.demands] for name in names}
    together = [
        demand._replace(
            uses=tuple(use for name in names for use in alone[name][number].uses),
            holds=tuple(hold for name in names for hold in alone[name][number].holds),
        )
        for number, demand in enumerate(program.demands)
    ]
    return {name: [together[op.number] if op.work else alone[name][op.number] for op in program.ops] for name in names}


@given(programs())
def test_one_representative_stands_for_equal_classes(program: Program) -> None:
    names = ("a", "b", "c", "d")
    rates = {f"{name}.{resource}": rate for name in names for resource, rate in MACHINE.rates.items()}
    classes = [RankClass(name, (rank,)) for rank, name in enumerate(names)]
    timeline = play([program.step()], classes, copies(program, names), replace(MACHINE, rates=rates))
    one = times(played(program).spans["a"])
    for name in names:
        assert times(timeline.spans[name]) == pytest.approx(one, rel=1e-7, abs=NEAR)


@given(programs())
def test_the_same_program_written_down_for_each_class_is_one_program(program: Program) -> None:
    names = ("a", "b", "c")
    rates = {f"{name}.{resource}": rate for name in names for resource, rate in MACHINE.rates.items()}
    machine, demands = replace(MACHINE, rates=rates), copies(program, names)
    one = play([program.step()], [RankClass(name, (rank,)) for rank, name in enumerate(names)], demands, machine)
    steps = [program.step() for _ in names]
    several = play(steps, [RankClass(name, (rank,), rank) for rank, name in enumerate(names)], demands, machine)
    assert several.spans == one.spans
    assert several.collectives() == one.collectives()


@given(programs(), programs())
def test_programs_that_share_nothing_do_not_disturb_each_other(program: Program, other: Program) -> None:
    rates = {f"{name}.{resource}": rate for name in ("a", "b") for resource, rate in MACHINE.rates.items()}
    demands = {name: [private(d, name) for d in each.demands] for name, each in (("a", program), ("b", other))}
    classes = [RankClass("a", (0,), 0), RankClass("b", (1,), 1)]
    timeline = play([program.step(), other.step()], classes, demands, replace(MACHINE, rates=rates))
    alone = {id(each): times(played(each).spans["a"]) for each in (program, other)}
    if not any(len(calls) > 1 for calls in timeline.collectives().values()):
        assert times(timeline.spans["a"]) == pytest.approx(alone[id(program)], rel=1e-7, abs=NEAR)
        assert times(timeline.spans["b"]) == pytest.approx(alone[id(other)], rel=1e-7, abs=NEAR)


seconds = st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0, 2.0])
flows = st.lists(st.dictionaries(st.integers(0, 4), seconds, min_size=1, max_size=3), min_size=1, max_size=6)
capacities = st.dictionaries(st.integers(0, 4), st.sampled_from([0.05, 0.5, 0.8]), max_size=2)


def footprints(uses: Sequence[Mapping[int, float]]) -> list[Footprint]:
    return [footprint(number, each) for number, each in enumerate(uses)]


@settings(max_examples=300)
@given(flows, capacities)
def test_every_flow_is_at_its_top_speed_or_has_a_full_bottleneck_where_none_takes_more(
    uses: list[dict[int, float]], capacity: dict[int, float]
) -> None:
    rates = share(footprints(uses), capacity)
    taken = [{r: rate.speed * u for r, u in each.items()} for each, rate in zip(uses, rates, strict=True)]
    full, most = {}, {}
    for resource in range(5):
        shares = [each[resource] for each in taken if resource in each]
        assert sum(shares) <= capacity.get(resource, 1.0) * (1 + NEAR)
        full[resource] = sum(shares) >= capacity.get(resource, 1.0) * (1 - 1e-6)
        most[resource] = max(shares, default=0.0)
    for each, rate, mine in zip(uses, rates, taken, strict=True):
        top = rate.speed >= (1 - 1e-6) / max(each.values())
        assert top or any(full[r] and mine[r] >= most[r] * (1 - 1e-6) for r in each)
        assert top or (full[rate.bottleneck] and mine[rate.bottleneck] >= most[rate.bottleneck] * (1 - 1e-6))


@given(flows, capacities, st.randoms(use_true_random=False))
def test_the_order_of_the_flows_does_not_matter(
    uses: list[dict[int, float]], capacity: dict[int, float], chance: random.Random
) -> None:
    order = list(range(len(uses)))
    chance.shuffle(order)
    straight = [rate.speed for rate in share(footprints(uses), capacity)]
    mixed = [rate.speed for rate in share(footprints([uses[place] for place in order]), capacity)]
    assert mixed == pytest.approx([straight[place] for place in order], rel=1e-6)
