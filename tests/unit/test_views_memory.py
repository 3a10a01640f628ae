"""Memory of a step: both curves, the peak and its parts, the caching allocator, and what is said when it overflows."""

from dataclasses import replace

import pytest

from tests.timelines import FORWARD_SECONDS, MATMUL, MB, many, played, supply, tiny
from zerosim.errors import Finding
from zerosim.report.text import render
from zerosim.resources import Supply
from zerosim.step import Buffer, Op, Step
from zerosim.timeline import Timeline
from zerosim.views import Choices, Facts, Summary, memory, summarize
from zerosim.views.allocator import CachingAllocator, rounded, segment_size

MIB, GIB = 1 << 20, 1 << 30


def test_peak_of_tiny() -> None:
    gpu = memory(tiny())["gpu"]
    # 50 overhead + 160 resident + 2 x 40 gathered + 2 x 100 activations + 60 gradients
    assert gpu.peak == 550 * MB
    assert (gpu.peak_seconds, gpu.peak_op) == (2, 4)  # the host is far ahead: backward 1 is issued at 2 s
    assert {name: size / MB for name, size in gpu.parts.items()} == {
        "parameters": 40,
        "gradients": 60,
        "optimizer": 120,
        "activations": 200,
        "buffers": 80,
        "overhead": 50,
    }
    assert [(each.name, each.count) for each in gpu.held[:3]] == [("activations", 2), ("adam", 1), ("gathered", 2)]


def test_buffers_are_grouped_by_the_stem_of_their_names() -> None:
    names = ("fp32 copy", "layer.3.weight", "layer.12.weight", "grad[7]", "7")
    buffers = tuple(Buffer(name, "buffers", 1.0) for name in names)
    step = Step((), buffers, frozenset(range(5)), {}, micro_batches=1).check()
    held = memory(played(step, ()))["gpu"].held
    assert {each.name: each.count for each in held} == {"fp32 copy": 1, "layer.weight": 2, "grad": 1, "7": 1}


def test_a_block_is_free_at_once_on_its_own_stream_only() -> None:
    gpu = memory(tiny())["gpu"]
    levels = dict(zip(gpu.busy.seconds.tolist(), (gpu.busy.bytes / MB).tolist(), strict=True))
    # activations (compute to compute) fall when backward is issued; gathered (nccl to compute) when it ends;
    # gradients.1 (compute to nccl) when its reduction ends; gradients.0 at once, for adam on compute waits for that
    assert levels == {0: 290, 1: 490, 2: 450, 4: 410, 5: 350, 14: 310, 17: 250, 20: 210}
    freed = dict(zip(gpu.allocated.seconds.tolist(), (gpu.allocated.bytes / MB).tolist(), strict=True))
    assert freed == {0: 290, 1: 490, 2: 410, 3: 350, 4: 270, 5: 210}


def test_host_tiers_are_shared_by_the_ranks_of_a_node() -> None:
    assert memory(tiny())["dram"].peak == 40 * MB
    assert memory(tiny(), ranks_per_node=8)["dram"].peak == 320 * MB
    assert memory(tiny(), ranks_per_node=8)["gpu"].peak == 550 * MB


def test_room_made_in_the_same_instant_counts() -> None:
    """The host waits for the op that releases, then acquires: never both at once."""
    ops = (
        Op(0, "first", "side", MATMUL, acquires=(0,)),
        Op(1, "last use", "compute", MATMUL, after=(0,), releases=(0,)),
        Op(2, "next", "compute", MATMUL, host_waits=(1,), acquires=(1,), releases=(1,)),
    )
    buffers = (Buffer("a", "buffers", 30 * MB), Buffer("b", "buffers", 30 * MB))
    step = Step(ops, buffers, frozenset(), {}, micro_batches=1).check()
    assert memory(played(step, [FORWARD_SECONDS] * 3))["gpu"].peak == 80 * MB


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (11 * MIB, 11 * MIB, 12 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(size: int, block: int, segment: int) -> None:
    assert rounded(size) == block
    assert segment_size(rounded(size)) == segment


def test_two_blocks_share_a_large_segment() -> None:
    allocator = CachingAllocator()
    allocator.allocate(9 * MIB, "compute")
    allocator.allocate(9 * MIB, "compute")
    assert allocator.reserved == 20 * MIB
    allocator.allocate(9 * MIB, "compute")
    assert allocator.reserved == 40 * MIB


def test_a_remainder_of_one_mebibyte_is_not_cut_off() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB, "compute"))
    assert allocator.allocate(11 * MIB, "compute").size == 12 * MIB
    allocator.free(allocator.allocate(30 * MIB, "compute"))
    assert allocator.allocate(28 * MIB, "compute").size == 28 * MIB


def test_free_neighbours_merge() -> None:
    allocator = CachingAllocator()
    a, b = allocator.allocate(8 * MIB, "compute"), allocator.allocate(8 * MIB, "compute")
    allocator.free(b)
    allocator.free(a)
    allocator.allocate(9 * MIB, "compute")
    allocator.allocate(9 * MIB, "compute")
    assert allocator.reserved == 20 * MIB


def test_streams_do_not_share_blocks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB, "compute"))
    allocator.allocate(12 * MIB, "gather")
    assert allocator.reserved == 24 * MIB


def test_flush_gives_back_what_is_wholly_free() -> None:
    allocator = CachingAllocator(limit=40 * MIB)
    allocator.free(allocator.allocate(20 * MIB, "compute"))
    held = allocator.allocate(12 * MIB, "gather")
    allocator.allocate(28 * MIB, "gather")
    assert (allocator.flushes, allocator.failures, allocator.reserved) == (1, 0, 40 * MIB)
    allocator.free(held)
    allocator.allocate(14 * MIB, "gather")  # 28 + 14 > 40 even after a flush
    assert (allocator.flushes, allocator.failures) == (2, 1)


def test_reserved_is_never_below_busy() -> None:
    gpu = memory(many(400))["gpu"]
    assert gpu.reserve is not None
    assert gpu.reserve.curve.peak >= gpu.peak


def facts(world_size: int = 2, choices: Choices = Choices()) -> Facts:  # noqa: B008 # a value
    return Facts("tiny", 1, world_size, 100.0, 4.0, 1350.0, 100.0, choices=choices)


def finding(timeline: Timeline, given: Facts | None = None) -> Finding:
    (found,) = [f for f in summarize(timeline, given or facts()).findings if f.code == "out-of-memory"]
    return found


def test_out_of_memory_names_op_tier_excess_and_what_was_held() -> None:
    found = finding(tiny(capacity=400 * MB))
    assert found.severity == "error"
    assert "gpu: 550 MB needed at backward 1" in found.message
    assert "150 MB more than the 400 MB" in found.message
    assert "activations 200 MB, optimizer 120 MB, buffers 80 MB" in found.message


def test_only_changes_that_cover_the_excess_are_named() -> None:
    remedy = finding(tiny(capacity=400 * MB)).remedy  # 150 MB are missing
    assert "full activation checkpointing (saves about 188.2 MB)" in remedy
    assert "micro-batch" not in remedy  # saves 100 MB
    remedy = finding(tiny(capacity=470 * MB)).remedy  # 80 MB are missing
    assert "half the micro-batch (saves about 100 MB)" in remedy
    assert "smaller buckets, by 40M elements over all of them or 100 %" in remedy
    assert "ZeRO stage 1" not in remedy  # saves 60 MB on two ranks


def test_what_the_scenario_does_already_is_not_named() -> None:
    choices = Choices(checkpointing=True, stage=1, offloaded=frozenset({"optimizer"}))
    remedy = finding(tiny(capacity=470 * MB), facts(choices=choices)).remedy
    assert "checkpointing" not in remedy
    assert "offload" not in remedy


def with_elements(timeline: Timeline, elements: int) -> Timeline:
    """The timeline of a model of so many trainable parameters."""
    return replace(timeline, steps=(replace(timeline.step, parameters=(elements,)),))


def test_offload_says_what_it_takes_and_where() -> None:
    """9M elements on 2 ranks of one node, 4.5M each: master and gradients of 18 MB in 32 MiB each, staging of 9 MB in
    16 MiB, moments of 36 MB: 119.9 MB a rank. The GPU is rid of 120 MB of optimizer and 9 MB of gradients."""
    choices = Choices(stage=2)
    remedy = finding(with_elements(tiny(capacity=470 * MB), 9_000_000), facts(choices=choices)).remedy
    assert "offload_optimizer.device cpu (saves about 129 MB, takes about 239.8 MB of DRAM per node)" in remedy
    assert remedy.index("offload_optimizer") > remedy.index("smaller buckets")  # it slows the step down: last
    assert "offload_param" not in remedy


def test_stage_1_keeps_its_gradients_on_the_gpu() -> None:
    timeline = with_elements(tiny(capacity=470 * MB), 9_000_000)
    assert (
        "offload_optimizer.device cpu (saves about 120 MB" in finding(timeline, facts(choices=Choices(stage=1))).remedy
    )
    assert "offload" not in finding(timeline, facts(choices=Choices(stage=0))).remedy
    assert "offload" not in finding(timeline, facts(choices=Choices(ddp=True))).remedy


def test_offload_needs_room_in_host_memory_and_on_stage_3_may_have_it_on_a_drive() -> None:
    """200 MB of host memory, 80 MB of it taken, and a drive of 1 GB: 16 bytes x 4.5M elements x 2 ranks."""
    machine = supply(capacity=470 * MB, dram=200 * MB)
    machine = replace(machine, capacities={**machine.capacities, "nvme": 1000 * MB})
    timeline = with_elements(replace(tiny(), supply=machine), 9_000_000)
    remedy = finding(timeline, facts(choices=Choices(stage=3))).remedy
    assert "offload_optimizer.device nvme (saves about 129 MB, takes about 144 MB of NVMe per node)" in remedy
    assert "device cpu" not in remedy
    assert "offload" not in finding(timeline, facts(choices=Choices(stage=2))).remedy


def in_host_memory(dram: float, *, pinned: bool = True) -> Timeline:
    """Per rank: master and gradients of 20 MB each, sums of 10 MB, moments of 40 MB; an op that takes no time."""
    blocks = (("fp32 master", "optimizer", 20), ("fp32 gradients", "gradients", 20), ("sum", "gradients", 10))
    buffers = [Buffer(name, part, size * MB, "dram", pinned) for name, part, size in blocks]
    buffers += [Buffer("moments", "optimizer", 40 * MB, "dram"), Buffer("parameters", "parameters", 40 * MB)]
    step = Step((), tuple(buffers), frozenset(range(5)), {}, micro_batches=1, parameters=(10_000_000,)).check()
    return played(step, (), supply(dram=dram))


def test_pinned_blocks_take_a_power_of_two() -> None:
    """32 MiB = 33.55 MB for each 20 MB, 16 MiB = 16.78 MB for 10 MB; moments are not pinned. Two ranks of a node."""
    dram = memory(in_host_memory(4000 * MB), ranks_per_node=2)["dram"]
    wasted = {"fp32 master": 2 * ((32 << 20) - 20e6), "fp32 gradients": 2 * ((32 << 20) - 20e6), "moments": 0.0}
    wasted["sum"] = 2 * ((16 << 20) - 10e6)
    assert {each.name: each.rounding_bytes for each in dram.held} == wasted
    assert dram.rounding == pytest.approx(67.77e6, rel=1e-3)
    assert dram.peak == 2 * (2 * (32 << 20) + (16 << 20) + 40e6)
    assert sum(dram.parts.values()) == dram.peak
    assert memory(in_host_memory(4000 * MB, pinned=False), ranks_per_node=2)["dram"].peak == 180e6
    assert summarize(in_host_memory(4000 * MB), facts()).memory["dram"].rounding_bytes == dram.rounding
    assert memory(tiny())["gpu"].rounding == 0


def test_rounding_is_told_where_it_wastes_much() -> None:
    def codes(dram: float, *, pinned: bool = True) -> list[str]:
        return [found.code for found in summarize(in_host_memory(dram, pinned=pinned), facts()).findings]

    assert codes(700 * MB) == []  # 67.8 of 700 MB
    assert codes(600 * MB) == ["pinned-rounding"]
    assert codes(600 * MB, pinned=False) == []
    (found,) = summarize(in_host_memory(600 * MB), facts()).findings
    assert "67.77 MB per node hold nothing, 27.4 % of what is taken" in found.message
    assert "worst: fp32 gradients, 40 MB in 67.11 MB" in found.message
    assert "pin_memory false" in found.remedy
    assert "sub_group_size" not in found.remedy
    stage3 = summarize(in_host_memory(600 * MB), facts(choices=Choices(stage=3))).findings[0]
    assert "sub_group_size of a power of two" in stage3.remedy


OFFLOADED = Choices(stage=2, offloaded=frozenset({"optimizer"}), pinned=frozenset({"optimizer"}), accumulation=4)


def test_host_memory_is_judged_per_node_with_what_pinning_takes() -> None:
    """247.8 MB per node. 5M elements a rank."""
    found = finding(in_host_memory(220 * MB), facts(choices=OFFLOADED))
    assert "dram: 247.8 MB needed before the step begins" in found.message
    assert "27.77 MB more than the 220 MB" in found.message
    assert "gradient_accumulation_steps 1 (saves about 33.55 MB)" in found.remedy  # 16 MiB of sums a rank
    assert (
        "pin_memory false (saves about 67.77 MB, its copies become slower and the host waits for each)" in found.remedy
    )
    assert "pinned_max_round_threshold_mb:1 where torch knows it (saves about 67.77 MB)" in found.remedy
    assert "twice as many nodes (saves about 123.9 MB)" in found.remedy
    assert "nvme" not in found.remedy


def test_what_cannot_help_host_memory_is_not_named() -> None:
    given = OFFLOADED._replace(accumulation=1, pinned=frozenset())
    assert finding(in_host_memory(160 * MB, pinned=False), facts(choices=given)).remedy == (
        "twice as many nodes (saves about 90 MB)."
    )


def test_stage_3_may_move_from_host_memory_to_drives_and_back() -> None:
    given = OFFLOADED._replace(stage=3, accumulation=1)
    timeline = in_host_memory(220 * MB)
    roomy = replace(timeline, supply=replace(timeline.supply, capacities={**timeline.supply.capacities, "nvme": 1e9}))
    remedy = finding(roomy, facts(choices=given)).remedy
    # optimizer 2 x (33.55 + 40) MB, fp32 gradients 2 x 20 MB; 16 bytes x 5M elements x 2 ranks
    assert "offload_optimizer.device nvme (saves about 187.1 MB, takes about 160 MB of NVMe per node)" in remedy
    below = finding(roomy, facts(choices=given._replace(stage=2))).remedy  # stage 2 takes nvme for cpu
    assert "ZeRO stage 3 with offload_optimizer.device nvme (saves about 187.1 MB, takes about 160 MB" in below
    on_drives = Buffer("swapped", "optimizer", 60 * MB, "nvme")
    step = replace(timeline.step, buffers=(on_drives,), resident=frozenset({0}))
    small = replace(timeline.supply, capacities={"gpu": 1e9, "dram": 1e9, "nvme": 100 * MB})
    swapped = replace(timeline, steps=(step,), supply=small)
    choices = given._replace(on_nvme=frozenset({"optimizer"}))
    remedy = finding(swapped, facts(choices=choices)).remedy
    # master and gradients 32 MiB each, staging 16 MiB, moments 40 MB, on 2 ranks
    assert remedy.endswith("offload_optimizer.device cpu (saves about 120 MB, takes about 247.8 MB of DRAM per node).")


def test_a_combination_takes_each_part_once() -> None:
    remedy = finding(tiny(capacity=200 * MB)).remedy  # 350 MB are missing
    assert remedy.startswith("No single change is enough")
    assert "full activation checkpointing (saves about 188.2 MB); ZeRO stage 3 (saves about 110 MB); smaller" in remedy
    assert "micro-batch" not in remedy


def test_what_cannot_be_saved_is_said() -> None:
    assert finding(tiny(capacity=51 * MB)).remedy.startswith("Nothing that acts on what is held saves 499 MB")


def busy_step(ops: tuple[Op, ...], *sizes: float) -> Summary:
    """On a GPU with room for 1.5 GiB, 50 MB of which are overhead."""
    buffers = tuple(Buffer(f"b{index}", "buffers", size) for index, size in enumerate(sizes))
    step = Step(ops, buffers, frozenset(), {}, micro_batches=1).check()
    return summarize(played(step, [FORWARD_SECONDS] * len(ops), supply(capacity=1.5 * GIB)), facts())


def test_room_in_pieces_may_end_the_run() -> None:
    """2 MiB are cut from the cached 1 GiB, whose rest is too small for the next one, and no other segment fits."""
    ops = (
        Op(0, "a", "compute", MATMUL, acquires=(0,), releases=(0,)),
        Op(1, "b", "compute", MATMUL, acquires=(1,)),
        Op(2, "c", "compute", MATMUL, acquires=(2,), releases=(1, 2), phase="backward"),
    )
    summary = busy_step(ops, GIB, 2 * MIB, GIB)
    (found,) = [each for each in summary.findings if each.code == "fragmentation"]
    assert summary.fits
    assert found.severity == "warning"
    assert found.message.startswith("gpu: the run may stop at c (backward), out of memory: 1.126 GB of 1.611")
    assert "no room in one piece for one request of the step" in found.message
    assert render(summary).split("\n")[1] == "MAY NOT FIT: gpu, no room in one piece (see findings)"


def test_before_it_gives_up_the_allocator_waits_for_the_streams() -> None:
    """The host has given back what `side` still uses for 3 s: it waits, flushes and goes on."""
    ops = (
        Op(0, "a", "compute", MATMUL, acquires=(0,)),
        Op(1, "b", "side", MATMUL, after=(0,), releases=(0,)),
        Op(2, "c", "compute", MATMUL, acquires=(1,), releases=(1,)),
    )
    summary = busy_step(ops, GIB, GIB)
    assert summary.memory["gpu"].allocator_flushes == 1
    assert summary.memory["gpu"].reserved_bytes == GIB + 50 * MB
    assert [each.code for each in summary.findings if each.severity != "note"] == ["allocator-flush"]


def test_the_cache_is_flushed_before_memory_is_short() -> None:
    """1.2 GB busy at most, but segments of two streams together need more than there is."""
    ops = (
        Op(0, "a", "compute", MATMUL, acquires=(0,), releases=(0,)),
        Op(1, "b", "side", MATMUL, host_waits=(0,), acquires=(1,), releases=(1,)),
    )
    buffers = (Buffer("a", "buffers", GIB), Buffer("b", "buffers", GIB))
    step = Step(ops, buffers, frozenset(), {}, micro_batches=1).check()
    machine: Supply = supply(capacity=1.5 * GIB)
    summary = summarize(played(step, [FORWARD_SECONDS] * 2, machine), facts())
    assert summary.fits
    assert [f.code for f in summary.findings if f.severity == "warning"] == ["allocator-flush"]
    assert summary.memory["gpu"].allocator_flushes == 1
