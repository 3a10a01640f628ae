"""What grew between two steps: by hand, and what holds for any two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim.studies.rung_growth import COMPUTE, Growth, Part, Spent, extended, growth, losses, parts
from zerosim.views.contention import Loss
from zerosim.views.stalls import Stall

NIC, DRAM, SMS = "NIC 25 Gb/s", "host memory 100 GB/s", "SMs 312 TFLOP/s"
WAITS = (Part("all_gather", NIC), Part("all_reduce", NIC), Part("host_compute", DRAM), Part("host"), Part(COMPUTE))


def spent(waits: dict[Part, float], tokens: float = 100.0, compute: float = 1.0, **more: object) -> Spent:
    lost = more.get("losses", {})
    assert isinstance(lost, dict)
    return Spent(tokens, {Part(COMPUTE): compute, **waits}, lost, str(more.get("checkpointing", "none")))


def stall(cause: str, seconds: float, label: str, phase: str = "backward") -> Stall:
    return Stall(cause, phase, label, seconds, label)  # type: ignore[arg-type]  # a phase


def loss(loser: str, winner: str, seconds: float) -> Loss:
    return Loss("sm", SMS, loser, winner, seconds, 1, 1.0, 1.0)


def test_parts_are_compute_and_stalls_of_all_phases() -> None:
    stalls = [stall("all_gather", 2.0, NIC, "forward"), stall("all_gather", 1.0, NIC), stall("host", 0.5, "host")]
    assert parts(5.0, stalls) == {Part(COMPUTE): 1.5, Part("all_gather", NIC): 3.0, Part("host"): 0.5}


def test_kernels_lose_to_collectives_but_not_to_each_other() -> None:
    found = losses([loss("matmul", "all_gather", 1.0), loss("attention", "all_gather", 0.5),
                    loss("matmul", "memory_bound", 9.0), loss("all_gather", "matmul", 9.0)])  # fmt: skip
    assert found == {("all_gather", SMS): 1.5}


def test_a_step_is_drawn_out_by_what_it_is_longer_than_a_shorter_one() -> None:
    wait = Part("all_gather", NIC)
    long = extended({wait: 3.0, Part(COMPUTE): 8.0}, {wait: 3.0, Part(COMPUTE): 4.0}, times=2.0)
    assert long == {wait: 3.0, Part(COMPUTE): 16.0}  # 8 + 2 x (8 - 4)


def test_the_network_is_named_with_what_grew_on_it() -> None:
    gather, reduce = WAITS[:2]
    grown = growth(spent({gather: 3.0, reduce: 0.5, WAITS[2]: 1.0}), spent({reduce: 1.5}))
    assert grown == Growth(NIC, 2.0, f"exposed all-gather +3 s, exposed all-reduce -1 s, limited by {NIC}")


def test_a_tier_is_named_where_it_grew_more_than_the_network() -> None:
    grown = growth(spent({WAITS[0]: 3.0, WAITS[1]: 0.0, WAITS[2]: 1.0}), spent({WAITS[1]: 2.5}))
    assert grown == Growth(DRAM, 1.0, f"CPU compute +1 s, limited by {DRAM}")


def test_the_host_is_no_resource() -> None:
    assert growth(spent({Part("host"): 0.4}), spent({})) == Growth("host not ready", 0.4, "host not ready +400 ms")


def test_steps_are_compared_for_equal_tokens() -> None:
    """A GPU that has eight times the tokens to itself: an eighth of its step is as long as the other."""
    alone, one_of_eight = spent({}, tokens=800.0, compute=8.0), spent({WAITS[1]: 0.2}, compute=1.0)
    assert growth(one_of_eight, alone).text == f"exposed all-reduce +200 ms, limited by {NIC}"


def test_recomputation_and_shared_processors() -> None:
    assert growth(spent({}, compute=1.3, checkpointing="full"), spent({})).text == "compute +300 ms, recomputation"
    shared = spent({}, compute=1.3, losses={("all_gather", SMS): 0.25})
    assert growth(shared, spent({})).text == f"compute +300 ms, sharing {SMS} with all-gather"
    hardly = spent({}, compute=1.3, losses={("all_gather", SMS): 0.02})
    assert growth(hardly, spent({})).text == "compute +300 ms"


def test_nothing_grew() -> None:
    assert growth(spent({WAITS[0]: 1.0}), spent({WAITS[0]: 1.0})) == Growth()


SECONDS = st.floats(0.0, 100.0).map(lambda seconds: round(seconds, 3))
STEPS = st.dictionaries(st.sampled_from(WAITS), SECONDS, min_size=1)


@given(STEPS, STEPS, st.floats(0.1, 10.0))
def test_what_is_slower_has_a_cause_that_is_no_larger_than_all_that_grew(
    now: dict[Part, float], before: dict[Part, float], scale: float
) -> None:
    later, first = (Spent(tokens, each, {}, "none") for tokens, each in ((scale, now), (1.0, before)))
    grown = growth(later, first)
    more = [now.get(part, 0.0) - scale * before.get(part, 0.0) for part in {*now, *before}]
    assert grown.seconds <= sum(each for each in more if each > 0) * (1 + 1e-9)
    if sum(more) > 0:
        assert grown.text
        assert grown.seconds >= sum(more) / len(more) * (1 - 1e-9)  # the largest is no less than the mean


@given(STEPS, SECONDS)
def test_parts_sum_to_the_step(waits: dict[Part, float], compute: float) -> None:
    stalls = [stall(part.cause, seconds, part.limit) for part, seconds in waits.items() if part.cause != COMPUTE]
    whole = compute + sum(each.seconds for each in stalls)
    assert sum(parts(whole, stalls).values()) == pytest.approx(whole)
