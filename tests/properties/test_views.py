"""What holds for the views of every step, on random programs played by the toy player of tests/timelines.py."""

import math

import numpy as np
import portion
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timelines import MATMUL, NIC, PCIE, SM, played
from zerosim.resources import Demand, Use
from zerosim.step import CATEGORIES, PHASES, Buffer, Collective, Group, HostCompute, Op, Step, Tier, Transfer, Work
from zerosim.timeline import Timeline
from zerosim.views import breakdown, communication, critical_path, memory, phases, stalls
from zerosim.views.allocator import Block, CachingAllocator, rounded
from zerosim.views.intervals import Intervals, difference, intersection, length, union

LANES: tuple[tuple[str, Work | None, str], ...] = (
    ("compute", MATMUL, SM),
    ("side", MATMUL, SM),
    ("nccl.dp", Collective("all_reduce", 4, "bf16", "dp"), NIC),
    ("nccl.tp", Collective("all_gather", 4, "bf16", "tp"), NIC),
    ("d2h", Transfer(8.0, "gpu", "dram"), PCIE),
    ("host", HostCompute("optimizer", 4.0, 8.0), PCIE),
    ("compute", None, SM),
)
pairs = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), max_size=12)


def array(found: list[list[int]]) -> Intervals:
    return np.array(found, dtype=float).reshape(-1, 2)


def oracle(found: list[list[int]]) -> portion.Interval:
    return portion.Interval(*(portion.closedopen(float(start), float(end)) for start, end in found))


def plain(interval: portion.Interval) -> list[list[float]]:
    return [[piece.lower, piece.upper] for piece in interval if not piece.empty]


@given(pairs, pairs)
def test_sets_of_intervals_agree_with_portion(a: list[list[int]], b: list[list[int]]) -> None:
    assert union(array(a), array(b)).tolist() == plain(oracle(a) | oracle(b))
    assert intersection(array(a), array(b)).tolist() == plain(oracle(a) & oracle(b))
    assert difference(array(a), array(b)).tolist() == plain(oracle(a) - oracle(b))
    assert length(array(a)) == sum(piece[1] - piece[0] for piece in plain(oracle(a)))


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """A random program of up to 25 ops on random lanes, with buffers, on one class or two."""
    count = draw(st.integers(1, 25))
    ops, demands, buffers = [], [], []
    held: list[int] = [0]
    buffers.append(Buffer("resident", "parameters", float(draw(st.integers(0, 10**8)))))
    for number in range(count):
        lane, work, resource = draw(st.sampled_from(LANES))
        earlier = st.lists(st.integers(0, number - 1), max_size=2, unique=True) if number else st.just([])
        acquires = []
        for _ in range(draw(st.integers(0, 2))):
            tier: Tier = draw(st.sampled_from(("gpu", "gpu", "dram")))
            size = float(draw(st.integers(0, 10**8)))
            acquires.append(len(buffers))
            buffers.append(Buffer(f"b.{number}", draw(st.sampled_from(CATEGORIES)), size, tier))
        held += acquires
        last = number == count - 1
        releases = [b for b in held if b and (last or draw(st.booleans()))]
        held = [b for b in held if b not in releases]
        ops.append(
            Op(
                number,
                f"op {number}",
                lane,
                work,
                after=tuple(draw(earlier)),
                host_waits=tuple(draw(earlier)) if draw(st.booleans()) else (),
                acquires=tuple(acquires),
                releases=tuple(releases),
                phase=PHASES[3 * number // count],
            )
        )
        seconds = 0.0 if work is None else draw(st.floats(0.0, 4.0))
        amount = seconds * {SM: 100.0, NIC: 20.0, PCIE: 40.0}[resource]
        demands.append(Demand(uses=(Use(resource, amount),), host=draw(st.sampled_from((0.0, 0.1, 1.0)))))
    groups = {"dp": Group("dp", 2), "tp": Group("tp", 2)}
    step = Step(tuple(ops), tuple(buffers), frozenset({0}), groups, micro_batches=1).check()
    slowdown = draw(st.sampled_from(({"all": 1.0}, {"fast": 1.0, "slow": 1.7})))
    return played(step, demands, slowdown=slowdown)


def same(a: float, b: float, scale: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * max(scale, 1e-30))


@given(timelines())
@settings(max_examples=150, deadline=None)
def test_every_second_is_counted_once(timeline: Timeline) -> None:
    step = timeline.makespan
    parts = breakdown(timeline)
    waits = stalls(timeline)
    total = parts.compute + parts.exposed_communication + parts.exposed_transfer + parts.host_compute + parts.idle
    assert same(total, step, step)
    assert same(sum(phases(timeline).values()), step, step)
    assert same(sum(stall.seconds for stall in waits), step - parts.compute, step)
    collective = sum(stall.seconds for stall in waits if stall.cause in {"all_reduce", "all_gather"})
    assert same(collective, parts.exposed_communication, step)
    nothing = sum(stall.seconds for stall in waits if stall.cause in {"host", "wait_for_rank", "idle"})
    assert same(nothing, parts.idle, step)
    assert [stall.seconds for stall in waits] == sorted((stall.seconds for stall in waits), reverse=True)
    for phase, seconds in phases(timeline).items():
        assert sum(stall.seconds for stall in waits if stall.phase == phase) <= seconds + 1e-9 * step


@given(timelines())
@settings(max_examples=80, deadline=None)
def test_exposed_is_part_of_all_communication(timeline: Timeline) -> None:
    found = communication(timeline)
    assert 0 <= found.exposed_seconds <= found.total_seconds * (1 + 1e-12)
    assert 0 <= found.overlap <= 1 + 1e-12
    assert same(found.total_seconds * (1 - found.overlap) if found.total_seconds else 0, found.exposed_seconds, 1.0)
    assert same(breakdown(timeline).exposed_communication, found.exposed_seconds, timeline.makespan)


@given(timelines())
@settings(max_examples=100, deadline=None)
def test_the_critical_path_has_no_hole(timeline: Timeline) -> None:
    links = critical_path(timeline)
    ends = [0.0, *(link.end for link in links)]
    assert [link.start for link in links] == ends[:-1]
    assert ends[-1] == (timeline.makespan if links else 0.0)
    assert all(link.why != "wait" for link in links)  # the toy player never waits without a cause


@given(timelines())
@settings(max_examples=150, deadline=None)
def test_memory_returns_to_the_resident_level(timeline: Timeline) -> None:
    for tier in memory(timeline, ranks_per_node=2).values():
        resident = tier.overhead + (timeline.step.buffers[0].bytes if tier.tier == "gpu" else 0.0)
        for curve in (tier.busy, tier.allocated):
            assert curve.bytes[0] == curve.bytes[-1] == resident
            assert curve.bytes.min() >= resident
            assert (np.diff(curve.seconds) >= 0).all()
        assert tier.busy.peak >= tier.allocated.peak
        judged = tier.allocated if tier.tier == "gpu" else tier.busy
        assert sum(tier.parts.values()) == tier.peak == judged.peak
        assert same(sum(holding.bytes for holding in tier.held) + tier.overhead, tier.peak, tier.peak)
        if tier.reserve is not None and not tier.reserve.failures:
            assert tier.reserve.curve.peak >= tier.peak


requests = st.lists(st.tuples(st.integers(1, 40 << 20), st.sampled_from("ab"), st.integers(0, 100)), max_size=60)


@given(requests)
@settings(max_examples=100, deadline=None)
def test_blocks_never_overlap_and_everything_merges_again(found: list[tuple[int, str, int]]) -> None:
    allocator = CachingAllocator()
    held: list[Block] = []
    peak = 0
    for size, stream, choice in found:
        block = allocator.allocate(size, stream)
        assert block.size >= rounded(size)
        assert all(block.address + block.size <= b.address or b.address + b.size <= block.address for b in held)
        held.append(block)
        if choice < 40:
            allocator.free(held.pop(choice % len(held)))
        assert sum(b.size for b in held) <= allocator.reserved
        peak = max(peak, allocator.reserved)
    assert allocator.reserved == peak  # nothing is given back without a flush
    for block in held:
        allocator.free(block)
    allocator.flush()
    assert allocator.reserved == 0  # every segment is whole again
