"""Who waits for whom, on timelines whose numbers can be checked with a pencil."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine_programs import GATHER
from tests.timelines import DP, MATMUL, NIC, SM, skewed, supply, tiny
from zerosim.engine import play
from zerosim.report.waits import unequal
from zerosim.resources import Demand, RankClass, Supply, Use
from zerosim.step import Group, Op, Step
from zerosim.timeline import Timeline
from zerosim.views.summary import Facts, summarize
from zerosim.views.waits import Wait, waits

FACTS = Facts("test", 1, 2, 1.0, 1.0, 1.0, 1.0)
CLASSES = (RankClass("fast", (0,)), RankClass("slow", (1,)))


def machine() -> Supply:
    """A port of 20 B/s for each class, and one of 5 B/s for the slow one."""
    base = supply()
    rates = {**base.rates, "nic.fast": 20.0, "nic.slow": 5.0}
    labels = {**base.labels, "nic.fast": "NIC 20 B/s", "nic.slow": "NIC 5 B/s"}
    return replace(base, rates=rates, labels=labels, owners={"nic.fast": "fast", "nic.slow": "slow"})


def gathered(latency: float = 0.0, compute: float = 0.0) -> Timeline:
    """A gather of 20 B of each class's port, 1 s for the fast and 4 s for the slow one; `compute` seconds beside it."""
    ops = [Op(0, "gather", DP, GATHER)]
    demands = [Demand(latency, (Use("nic.fast", 20.0), Use("nic.slow", 20.0)))]
    if compute:
        ops.append(Op(1, "forward", "compute", MATMUL))
        demands.append(Demand(uses=(Use(SM, 100.0 * compute),)))
    step = Step(tuple(ops), (), frozenset(), {"dp": Group("dp", 2)}, 1)
    return play([step], CLASSES, dict.fromkeys(("fast", "slow"), demands), machine())


def test_equals_do_not_wait() -> None:
    assert waits(tiny()) == ()
    assert waits(skewed(1.0)) == ()


def test_all_take_the_time_of_the_slowest_port() -> None:
    """1 s of latency, then 4 s, of which 3 are for the slow port."""
    (wait,) = waits(gathered(latency=1.0))
    assert wait == Wait("fast", "slow", "slow", 3.0, 3.0, 1, "nic.slow", "NIC 5 B/s", classes=("slow",))


@pytest.mark.parametrize(("compute", "exposed"), [(1.0, 3.0), (2.5, 1.5), (4.0, 0.0)])
def test_the_time_in_which_it_computes_is_hidden(compute: float, exposed: float) -> None:
    """The gather ends at 4 s; the waiting is the last 3 of them. (The classes' matmuls share one `sm` here.)"""
    (wait,) = waits(gathered(compute=compute / 2))
    assert wait.seconds == 3.0
    assert wait.exposed_seconds == pytest.approx(exposed)


def test_the_late_one_is_waited_for_and_what_made_it_late_is_named() -> None:
    """Products of 3 and 6 s take `slow` 6 and 12. It ends backward 1 at 26 s, `fast` at 14: 12 s at the first
    reduction, which is over at 29. Backward 0 is done at 38 s, and at 20: 9 s at the second. From 14 to 20 `fast`
    computes."""
    (wait,) = waits(skewed(2.0))
    assert (wait.waiting, wait.waited_for, wait.cause, wait.label) == ("fast", "slow", "late", "SMs")
    assert (wait.seconds, wait.exposed_seconds, wait.collectives) == (21.0, 15.0, 2)


def test_the_screen_says_it_in_a_line() -> None:
    summary = summarize(gathered(latency=1.0), FACTS)
    assert list(unequal(summary, 100, 2)) == ["fast: 3 s of waiting for slow, 3 s of it exposed: NIC 5 B/s"]
    assert list(unequal(summary, 100, 0)) == ["and 1 such wait more"]
    assert list(unequal(summarize(tiny(), FACTS), 100, 2)) == []
    little, hardly = (list(unequal(replace(summary, step_seconds=s), 100, 2)) for s in (2000.0, 4000.0))
    assert little == ["fast: 3 s of waiting for slow, 3 s of it exposed: NIC 5 B/s"]  # 0.15 %, the largest
    assert hardly == []
    late = summarize(skewed(2.0), FACTS)
    assert next(unequal(late, 100, 2)).startswith("fast: 21 s of waiting for slow, which comes late, ")
    assert late.as_json()["waits"][0]["label"] == "SMs"
    assert NIC in late.resources
