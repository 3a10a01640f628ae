"""Who was starved by whom, on programs played by the engine whose sharing can be worked out with a pencil."""

from __future__ import annotations

import pytest

from tests.engine_programs import GATHER, Program, supply, takes
from tests.timelines import MATMUL, played, tiny
from zerosim.resources import Demand, Hold, Supply, Use
from zerosim.step import HostCompute, Op, Pass, Step, Transfer, Work
from zerosim.timeline import Timeline
from zerosim.views import Loss, contention

UP, DOWN = Transfer(40.0, "gpu", "dram"), Transfer(40.0, "dram", "gpu")
ADAM = HostCompute("optimizer", 10.0, 100.0)


def told(losses: tuple[Loss, ...]) -> list[tuple[str, str, str, float]]:
    return [(loss.loser, loss.winner, loss.resource, round(loss.seconds, 9)) for loss in losses]


def in_flight(*works: tuple[Work, Demand], **rates: float) -> Timeline:
    """All at once, each on a stream of its own."""
    program = Program()
    for number, (work, demand) in enumerate(works):
        program.add(f"stream {number}", demand, work=work)
    return program.play(supply(**rates))


def test_two_copies_on_one_link_lose_to_each_other() -> None:
    """Each needs 2 s of the link; together they take 4 s: each loses 2 s to the other."""
    timeline = in_flight((DOWN, takes(link=40.0)), (DOWN, takes(link=40.0)), link=20.0)
    (loss,) = contention(timeline)
    assert told((loss,)) == [("copy_to_gpu", "copy_to_gpu", "link", 4.0)]
    assert (loss.ops, loss.alone_seconds, loss.ranks, loss.label) == (2, 4.0, 1.0, "link")


def test_the_cpu_optimizer_against_a_copy_for_host_memory() -> None:
    """100 B/s of memory. The copy alone moves at its link's 40 B/s, 2 s for 80 B; Adam alone takes 3 s for 300 B.

    Adam could take all of the memory, so both are offered half of it: the copy needs no more than 40 B/s and loses
    nothing; Adam goes at 60 B/s while the copy is there, has moved 120 B after 2 s, and ends at 2 + 180 / 100 = 3.8 s.
    """
    timeline = in_flight((UP, takes(lane=80.0, dram=80.0)), (ADAM, takes(dram=300.0)), lane=40.0, dram=100.0)
    assert told(contention(timeline)) == [("cpu_optimizer", "copy_from_gpu", "dram", 0.8)]


def test_a_copy_that_could_be_faster_loses_to_the_cpu() -> None:
    """A link of 80 B/s: both get 50 B/s. The copy takes 80 / 50 = 1.6 s instead of 1 s; Adam loses 0.8 s as before."""
    timeline = in_flight((UP, takes(lane=80.0, dram=80.0)), (ADAM, takes(dram=300.0)), lane=80.0, dram=100.0)
    assert told(contention(timeline)) == [
        ("cpu_optimizer", "copy_from_gpu", "dram", 0.8),
        ("copy_from_gpu", "cpu_optimizer", "dram", 0.6),
    ]


def test_a_loss_is_divided_by_what_each_took() -> None:
    """1, 2 and 2 s of a link in thirds: the first ends at 3 s; the others, in halves from then on, at 5 s."""
    works = ((UP, 10.0), (DOWN, 20.0), (Pass(1.0, "stream"), 20.0))
    timeline = in_flight(*((work, takes(link=amount)) for work, amount in works), link=10.0)
    assert [span.end for span in timeline.spans["a"]] == [3, 5, 5]
    losses = {(loss.loser, loss.winner): loss.seconds for loss in contention(timeline)}
    assert losses["copy_to_gpu", "copy_from_gpu"] == pytest.approx(1.0)  # all that it moved
    assert losses["copy_to_gpu", "memory_bound"] == pytest.approx(2.0)
    # the first loses 2 s, to both alike
    assert losses["copy_from_gpu", "copy_to_gpu"] == pytest.approx(1.0)
    assert losses["copy_from_gpu", "memory_bound"] == pytest.approx(1.0)


def test_a_collective_takes_processors_from_a_matmul() -> None:
    """It holds a quarter of them for 3 s: the matmul of 3 s has done 2.25 s of its work and ends at 3.75 s."""
    gather = takes(nic=30.0)._replace(holds=(Hold("sm", 0.25),))
    timeline = in_flight((MATMUL, takes(sm=30.0)), (GATHER, gather), sm=10.0, nic=10.0)
    assert timeline.spans["a"][0].end == pytest.approx(3.75)
    assert told(contention(timeline)) == [("matmul", "all_gather", "sm", 0.75)]


def test_other_ranks_are_in_the_use() -> None:
    """Four ranks copy 40 B each through an uplink of 20 B/s: 8 s. One would need 2 s of it, and 4 s of its own lane."""
    demand = Demand(0.5, (Use("lane", 40.0), Use("uplink", 160.0, 1.0, 4.0)))
    timeline = in_flight((DOWN, demand), lane=10.0, uplink=20.0)
    (loss,) = contention(timeline)
    assert told((loss,)) == [("copy_to_gpu", "other_ranks", "uplink", 4.0)]
    assert (loss.ops, loss.alone_seconds, loss.ranks) == (1, 4.5, 4.0)


def test_what_ranks_share_without_needing_it_costs_nothing() -> None:
    demand = Demand(0.0, (Use("lane", 40.0), Use("uplink", 160.0, 1.0, 4.0)))
    assert contention(in_flight((DOWN, demand), lane=10.0, uplink=40.0)) == ()


def test_ranks_and_ops_together_are_all_that_was_lost() -> None:
    """Adam of two ranks, 4 s by itself and 8 s with the other's; a copy beside it takes 2 s of the memory: 10 s."""
    adam = Demand(0.0, (Use("dram", 800.0, 1.0, 2.0),))
    timeline = in_flight((ADAM, adam), (UP, takes(lane=200.0, dram=200.0)), lane=20.0, dram=100.0)
    assert timeline.spans["a"][0].end == pytest.approx(10.0)
    assert told(contention(timeline)) == [
        ("cpu_optimizer", "other_ranks", "dram", 4.0),
        ("cpu_optimizer", "copy_from_gpu", "dram", 2.0),
    ]


def test_a_collective_loses_nothing_to_its_own_ranks() -> None:
    demand = Demand(0.0, (Use("nic", 80.0, 1.0, 8.0),))
    assert contention(in_flight((GATHER, demand), nic=10.0)) == ()


def test_the_latency_of_a_flow_takes_nothing() -> None:
    """The second copy begins to move when the first, 2 s, is over."""
    assert contention(in_flight((UP, takes(link=20.0)), (UP, takes(2.0, link=20.0)), link=10.0)) == ()


def test_who_is_alone_loses_nothing() -> None:
    assert contention(tiny()) == ()


def test_slowness_that_nobody_caused_is_left_out() -> None:
    """As in a measured step: an op that took longer than its demand says, with nobody on its resources."""
    ops = (Op(0, "forward", "compute", MATMUL),)
    step = Step(ops, (), frozenset(), {}, micro_batches=1).check()
    machine: Supply = supply(sm=100.0)
    slow = played(step, (Demand(uses=(Use("sm", 100.0),)),), machine, slowdown={"all": 3.0})
    assert slow.makespan == 3.0
    assert contention(slow) == ()
