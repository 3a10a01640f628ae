"""Sharing by hand, against textbook max-min, and as flows that come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from simpy import Environment, Event
from simpy.events import ProcessGenerator

from tests.engine_programs import supply, takes
from zerosim.engine.capacities import LEAST_CAPACITY
from zerosim.engine.fabric import LATENCY, Fabric
from zerosim.engine.footprints import Footprints, footprint
from zerosim.engine.sharing import share
from zerosim.errors import ZerosimError
from zerosim.resources import Demand, Hold, Supply, Use


def speeds(*uses: Mapping[int, float], capacities: Mapping[int, float] | None = None) -> list[float]:
    flows = [footprint(number, each) for number, each in enumerate(uses)]
    return [rate.speed for rate in share(flows, capacities or {})]


def byte_rates(routes: Sequence[Sequence[int]], links: Sequence[float]) -> list[float]:
    """Flows of one byte over links of these bytes/s: speeds are bytes/s."""
    return speeds(*({link: 1 / links[link] for link in route} for route in routes))


def raise_all_together(routes: Sequence[Sequence[int]], links: Sequence[float]) -> list[float]:
    """Textbook max-min: all rates grow alike; those on a link that fills up stay as they are."""
    rates = [0.0] * len(routes)
    growing = set(range(len(routes)))
    while growing:
        room = {}
        for link, capacity in enumerate(links):
            users = [flow for flow in growing if link in routes[flow]]
            if users:
                room[link] = (capacity - sum(rates[f] for f, r in enumerate(routes) if link in r)) / len(users)
        growth = min(room.values())
        for flow in growing:
            rates[flow] += growth
        full = {link for link, left in room.items() if left <= growth * (1 + 1e-12)}
        growing = {flow for flow in growing if not full & set(routes[flow])}
    return rates


def test_two_copies_on_one_link_get_half_each() -> None:
    assert speeds({0: 2.0}, {0: 2.0}) == [0.25, 0.25]


def test_a_copy_capped_elsewhere_leaves_the_rest() -> None:
    assert byte_rates([(0, 1), (0,)], [50.0, 5.0]) == pytest.approx([5, 45])


def test_three_flows_over_two_links() -> None:
    assert byte_rates([(0, 1), (0,), (1,)], [10.0, 1.0]) == pytest.approx([0.5, 9.5, 0.5])


def test_cpu_adam_and_copies_share_the_dram() -> None:
    dram, cores, up, down = range(4)
    rates = byte_rates([(dram, cores), (dram, up), (dram, down)], [100.0, 80.0, 25.0, 25.0])
    assert rates == pytest.approx([50, 25, 25])
    assert sum(rates) == pytest.approx(100)


@pytest.mark.parametrize(
    ("routes", "links"),
    [
        ([(0, 1), (1, 2), (2, 3), (0, 3), (1,)], [3.0, 7.0, 5.0, 11.0]),
        ([(0, 1, 2), (0,), (1,), (2,)], [1.0, 2.0, 3.0]),
        ([(0, 3), (1, 3), (2, 3), (0, 1), (4,)], [10.0, 4.0, 1.0, 9.0, 2.0]),
        ([(0,)] * 7 + [(0, 1)] * 3, [10.0, 2.0]),
    ],
)
def test_byte_flows_agree_with_raising_all_together(routes: list[tuple[int, ...]], links: list[float]) -> None:
    assert byte_rates(routes, links) == pytest.approx(raise_all_together(routes, links), rel=1e-9)


def test_kernels_with_opposite_bottlenecks_each_fill_their_own() -> None:
    # matmul: all SMs, 30 % of HBM; norm: half of the SMs, all of HBM. v + w/2 = 1 and 0.3 v + w = 1
    assert speeds({0: 1.0, 1: 0.3}, {0: 0.5, 1: 1.0}) == pytest.approx([0.5 / 0.85, 0.7 / 0.85], rel=1e-9)


def test_a_ring_of_bottlenecks_is_solved_alike_for_all() -> None:
    assert speeds({0: 1.0, 2: 0.5}, {1: 1.0, 0: 0.5}, {2: 1.0, 1: 0.5}) == pytest.approx([2 / 3] * 3, rel=1e-9)


def test_what_is_never_full_makes_no_difference() -> None:
    """Two flows, each with twice as much of one resource as of the other: both are full at 1 / (2 + 1) a second. Of
    resource 2 each needs less than of resource 0 or 1, and resource 3 could carry both at top speed."""
    crossed = speeds({0: 2.0, 1: 1.0}, {0: 1.0, 1: 2.0})
    assert crossed == pytest.approx([1 / 3, 1 / 3])
    beside = speeds({0: 2.0, 1: 1.0, 2: 1.9, 3: 0.5}, {0: 1.0, 1: 2.0, 2: 0.9, 3: 0.5})
    assert beside == crossed


def test_a_tiny_second_use_changes_little() -> None:
    without = speeds({0: 1.0, 1: 0.3}, {1: 1.0})
    assert without == pytest.approx([1.0, 0.7])
    assert speeds({0: 1.0, 1: 0.3}, {1: 1.0, 0: 1e-6}) == pytest.approx(without, rel=1e-5)


def carried(machine: Supply, *arrivals: tuple[float, Demand]) -> list[tuple[float, str]]:
    """When each demand, begun at its time, ended, and what limited it."""
    ends: list[tuple[float, str]] = [(0.0, "")] * len(arrivals)
    env, footprints = Environment(), Footprints(machine)
    fabric = Fabric(env, tuple(machine.rates))

    def one(place: int, begin: float, demand: Demand) -> ProcessGenerator:
        yield fabric.settled(env.timeout(begin), env.now)
        ends[place] = yield from fabric.carry(footprints.of(demand), env.now)
        fabric.settle(env.now)

    for place, (begin, demand) in enumerate(arrivals):
        env.process(one(place, begin, demand))
    env.run()
    return ends


def near(end: float, bottleneck: str) -> object:
    return (pytest.approx(end), bottleneck)


def test_flows_that_overlap_in_part() -> None:
    # the first is half done when the second comes; both at half speed until 1.5; then the second alone
    ends = carried(supply(link=10), (0.0, takes(link=10)), (0.5, takes(link=10)))
    assert ends == [near(1.5, "link"), near(2.0, "link")]


def test_a_matmul_beside_a_collective_that_holds_sms() -> None:
    collective = Demand(0.0, (Use("nvlink", 10),), (Hold("sm", 24 / 132),))
    ends = carried(supply(sm=1, nvlink=1), (0.0, collective), (0.0, takes(sm=1)))
    assert ends[1] == near(132 / 108, "sm")
    assert ends[0] == near(10.0, "nvlink")


def test_a_hold_begins_with_the_latency_and_ends_with_the_flow() -> None:
    collective = Demand(1.0, (Use("nvlink", 1),), (Hold("sm", 0.5),))
    # from 0 to 2 at half speed, the last third at full speed
    assert carried(supply(sm=1, nvlink=1), (0.0, collective), (0.0, takes(sm=1.5)))[1][0] == pytest.approx(2.5)


def test_holds_never_take_everything() -> None:
    holding = Demand(100.0, (), (Hold("sm", 0.7),))
    ends = carried(supply(sm=1), (0.0, holding), (0.0, holding), (0.0, takes(sm=1)))
    assert ends[2][0] == pytest.approx(1 / LEAST_CAPACITY)


def test_latency_is_not_shared_and_names_itself_where_it_dominates() -> None:
    ends = carried(supply(link=1), (0.0, takes(3.0, link=1)), (0.0, takes(link=2)), (10.0, takes(0.5, link=1)))
    assert ends == [near(4.0, LATENCY), near(2.0, "link"), near(11.5, "link")]


def test_the_bottleneck_is_what_limited_longest() -> None:
    # NIC-bound alone; from 1 to 7 three others leave it 5 of the 20 bytes/s of the bridge
    crowd = [(1.0, takes(bridge=30))] * 3
    ends = carried(supply(nic=10, bridge=20), (0.0, takes(nic=60, bridge=60)), *crowd)
    assert ends[0] == near(1 + 6 + 2.0, "bridge")
    ends = carried(supply(nic=10, bridge=20), (0.0, takes(nic=100, bridge=100)), *[(1.0, takes(bridge=10))] * 3)
    assert ends[0] == near(11.0, "nic")


def test_speed_up_wakes_the_sleeper_earlier() -> None:
    ends = carried(supply(link=1), (0.0, takes(link=1)), (0.0, takes(link=5)))
    assert [end for end, _ in ends] == pytest.approx([2.0, 6.0])


def test_a_use_named_twice_adds_up_and_no_amount_is_no_use() -> None:
    footprints = Footprints(supply(dram=2, hbm=1))
    twice = footprints.of(Demand(0.0, (Use("dram", 1), Use("dram", 1), Use("hbm", 0))))
    assert twice.uses == ((0, 1.0),)
    assert twice is footprints.of(Demand(0.0, (Use("dram", 1), Use("dram", 1), Use("hbm", 0)), (), host=7.0))


def test_an_unknown_resource_is_named() -> None:
    with pytest.raises(ZerosimError, match=r"nvlnk.*nearest 'nvlink'"):
        Footprints(supply(nvlink=1)).of(takes(nvlnk=1))


def test_nothing_asked_is_done_at_once() -> None:
    fabric = Fabric(Environment(), ("link",))
    assert list[Event](fabric.carry(footprint(0, {}), 0.0)) == []


def test_who_came_first_makes_no_difference_to_the_last_digit() -> None:
    machine = supply(sm=3, hbm=7, link=11)
    kinds = (takes(sm=1, hbm=0.7), takes(hbm=2, link=0.3), takes(link=5, sm=0.1))
    forward = carried(machine, *((0.0, kind) for kind in kinds))
    assert carried(machine, *((0.0, kind) for kind in reversed(kinds))) == forward[::-1]
