"""Layers spread over GPUs: the cut, the programs of the stages, who meets whom, and a step by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.costs_machines import machine, switched
from tests.engine_programs import Program, supply, takes
from tests.programs import variant
from tests.quick_host import quick_host
from tests.toy import toy, toy_training
from zerosim.costs import Priced, price
from zerosim.engine import play
from zerosim.errors import DeadlockError, InputError
from zerosim.report.bands import phases as bands_of
from zerosim.resources import RankClass
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import Simulation, simulate
from zerosim.spec.loading import inline
from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.model_file import read_model
from zerosim.spec.strategy import Pipeline, Schedule
from zerosim.step import COMPUTE, Buffer, Collective, Group, Op, Step, communicator
from zerosim.strategies import build
from zerosim.strategies.stages import cut, spread
from zerosim.studies.ladder import ladder
from zerosim.timeline import Call, Span, Timeline
from zerosim.views import critical_path, memory, phases, stalls, utilization

MODEL = {"layers": 8, "hidden": 256, "heads": 4, "ffn": 512, "gated": True, "vocab": 1000}


def programs(stages: int, ranks: int = 0, model: Model | None = None, **training: object) -> tuple[Step, ...]:
    return build(Pipeline(stages), model or toy(blocks=stages), toy_training(**training), ranks or stages)


def question(stages: int = 8, pipeline: dict[str, Any] | None = None, **more: Any) -> Scenario:
    training = {"sequence_length": 128, "gradient_accumulation_steps": 2} | more.pop("training", {})
    strategy = {"pipeline": {"stages": stages, **(pipeline or {})}}
    return from_mapping({"topology": "dgx-a100-80", "model": MODEL, "training": training, "strategy": strategy} | more)


# --- the cut ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "stages", "first", "last", "counts"),
    [
        ([1] * 8, 4, 0, 0, (2, 2, 2, 2)),
        ([1] * 7, 3, 0, 0, (3, 2, 2)),  # of equal sums of squares the one that fills early stages
        ([1] * 8, 3, 2, 2, (2, 4, 2)),  # four everywhere
        ([1] * 3, 3, 9, 0, (1, 1, 1)),  # each has a block, however heavy the embedding
        ([5, 1, 1, 1, 1, 1], 2, 0, 0, (1, 5)),
        ([1, 2], 1, 3, 4, (2,)),
    ],
)
def test_blocks_are_spread_by_weight(
    blocks: list[int], stages: int, first: int, last: int, counts: tuple[int, ...]
) -> None:
    assert spread(blocks, stages, first, last) == counts


def test_a_model_is_cut_into_runs_of_blocks() -> None:
    model = toy(blocks=3)
    first, last = cut(model, 2)
    assert [p.name for p in (*first.parameters, *last.parameters)] == [p.name for p in model.parameters]
    assert [module.name for module in first.root.walk() if module.block] == ["b0", "b1"]
    assert [part.name for part in last.root.body] == ["b2", "lnf", "head"]
    assert (first.layers, last.layers) == (2, 1)
    assert first.parameters[0].name == "emb.weight"


def test_a_tied_embedding_is_on_both_ends() -> None:
    parts = cut(variant(toy(blocks=4), tied=True), 4)
    assert [any(p.name == "emb.weight" for p in part.parameters) for part in parts] == [True, False, False, True]
    assert sum(part.numel for part in parts) == toy(blocks=4).numel  # as many as untied: the table stands twice


# --- programs --------------------------------------------------------------------------------------------------------


def sends(step: Step) -> list[tuple[int, str, str]]:
    """Micro-batch, name and group of what a stage sends and receives, in issue order."""
    return [
        (op.micro_batch, op.name, op.work.group)
        for op in step.ops
        if isinstance(op.work, Collective) and op.work.kind == "send_recv"
    ]


def test_each_micro_batch_goes_forth_and_back_before_the_next() -> None:
    first, middle, last = programs(3, gradient_accumulation_steps=2)
    left, right = "stages 0 and 1", "stages 1 and 2"
    assert sends(first) == [
        row for m in (0, 1) for row in ((m, "send activation", left), (m, "receive gradient", left))
    ]
    assert sends(middle) == [
        row
        for m in (0, 1)
        for row in (
            (m, "receive activation", left), (m, "send activation", right),
            (m, "receive gradient", right), (m, "send gradient", left),
        )
    ]  # fmt: skip
    assert sends(last) == [
        row for m in (0, 1) for row in ((m, "receive activation", right), (m, "send gradient", right))
    ]


def test_neighbours_call_for_the_same_in_the_same_order() -> None:
    steps = programs(4, 8, gradient_accumulation_steps=5)
    for k, (one, other) in enumerate(pairwise(steps)):
        calls = [
            [op.work for op in step.ops if op.stream == communicator(f"stages {k} and {k + 1}")]
            for step in (one, other)
        ]
        assert calls[0] == calls[1]
        assert len(calls[0]) == 2 * 5


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_programs_are_clean(checkpointing: str, precision: str, tied: bool) -> None:
    training = {"activation_checkpointing": checkpointing, "precision": precision, "gradient_accumulation_steps": 5}
    for stages, ranks in ((1, 2), (2, 2), (4, 8)):
        for step in programs(stages, ranks, variant(toy(blocks=4), tied=tied), **training):
            assert step.lint() == []


def listed(names: list[str], frozen: int = 0) -> Model:
    """Matrices of 8 x 8; the first `frozen` of them are not trained."""
    tensors = [{"name": name, "shape": [8, 8], "trainable": place >= frozen} for place, name in enumerate(names)]
    return read_model(inline({"name": "listed", "parameters": tensors}, "list"))


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_a_frozen_stage_lets_go_of_what_it_received(schedule: Schedule) -> None:
    model = listed([f"layers.{k}.weight" for k in range(4)], frozen=2)
    assert all(not step.lint() for step in build(Pipeline(2, schedule), model, toy_training(), 2))


def test_only_the_two_ends_may_share_a_weight() -> None:
    shared = Parameter("shared.weight", (8, 8))
    body = [Module(f"layers.{k}", "linear", (shared,), inputs=8, outputs=8, layer=k, block=True) for k in range(3)]
    model = Model("shared", Module("root", "container", body=tuple(body)), (shared,), 3, 8, 1, 8)
    with pytest.raises(InputError, match=r"stages: found shared\.weight on stages 0, 1, 2"):
        build(Pipeline(3), model, toy_training(), 3)


def test_what_is_sent_is_the_residual_stream() -> None:
    """16 tokens of 64: fp32 under autocast, 16 bit in a pure 16-bit model."""
    for dtype, width in (("fp32", 4), ("bf16", 2)):
        pipeline = Pipeline(2, parameter_dtype=dtype)  # type: ignore[arg-type]  # one of its dtypes
        for step in build(pipeline, toy(), toy_training(), 2):
            sent = [op.work for op in step.ops if isinstance(op.work, Collective)]
            assert {work.bytes for work in sent} == {16 * 64 * width}


def test_replicas_reduce_once_and_ends_share_the_tied_gradient() -> None:
    steps = programs(2, 6, variant(toy(), tied=True), gradient_accumulation_steps=3)
    for step in steps:
        reduced = [op for op in step.ops if isinstance(op.work, Collective) and op.work.kind == "all_reduce"]
        assert [(op.name, op.micro_batch, op.phase) for op in reduced] == [
            ("all-reduce gradients", 2, "backward"),
            ("all-reduce tied gradients", 2, "backward"),
        ]
        sizes = [op.work.elements for op in reduced if isinstance(op.work, Collective)]
        assert sizes == [sum(step.parameters), 512 * 64]
        assert step.groups["dp"] == Group("dp", 3, stride=2)
        assert step.groups["tied"].members(1) == range(2)
        assert step.reductions == (2,)
    assert all(op.name != "all-reduce gradients" for step in programs(2) for op in step.ops)


def test_a_stage_holds_its_own_parameters_and_its_own_activations() -> None:
    scenario = question()
    whole, *steps = [s for k in (1, 4) for s in build(Pipeline(k), scenario.model, scenario.training, k)]
    for names in (("parameters",), ("optimizer states",), ("gradient",), ("saved activation",)):
        held = [sum(b.bytes for b in step.buffers if b.name in names) for step in (whole, *steps)]
        assert held[0] == sum(held[1:])
        assert held[2] == held[3]  # stages without an end: two blocks each
    moved = {b.name for step in steps for b in step.buffers} - {b.name for b in whole.buffers}
    assert moved == {f"{way} {what}" for way in ("sent", "received") for what in ("activation", "gradient")}


# --- groups and pricing ----------------------------------------------------------------------------------------------


def test_members_of_groups() -> None:
    pair = Group("pair", 2, first=3, period=8)
    assert [list(pair.members(rank)) for rank in (3, 4, 11, 5)] == [[3, 4], [3, 4], [11, 12], []]
    assert list(Group("dp", 3, stride=2).members(3)) == [1, 3, 5]
    assert list(Group("ends", 2, stride=7, period=8).members(15)) == [8, 15]
    assert list(Group("node", 4).members(6)) == [4, 5, 6, 7]


HDR = {"device": "infiniband_hdr", "count": 8}
SENT = Collective("send_recv", 10**9, "uint8", "pair")


def priced_pair(stages: int, first: int, topology: Any) -> Priced:
    """A program a stage, of which stages `first` and `first + 1` send one buffer."""
    group = {"pair": Group("pair", 2, first=first, period=stages)}
    op = Op(0, "send", communicator("pair"), SENT)
    steps = [Step((op,) if k in (first, first + 1) else (), (), frozenset(), group, 1) for k in range(stages)]
    return price(steps, topology)


def flow(found: Priced, stage: int) -> float:
    demand = found.demands[found.classes[stage].name][0]
    return demand.alone(found.supply) - demand.latency


def test_a_pair_between_nodes_has_the_ports_of_its_gpus_and_shares_them_with_nobody() -> None:
    rails = priced_pair(16, 7, switched("a100_sxm_80", 8, 2, HDR))
    assert flow(rails, 7) == flow(rails, 8) == pytest.approx(1e9 / (25e9 * 0.9))  # one of the eight ports
    one = priced_pair(16, 7, switched("a100_sxm_80", 8, 2, {"device": "ethernet_10", "count": 1}))
    each = one.demands["stage 7"][0]
    assert {use.resource: use.amount for use in each.uses if use.resource.startswith("nic")} == {
        "nic.stages 0-7": 1e9,
        "nic.stages 8-15": 1e9,
    }
    nic = one.supply.rates["nic.stages 0-7"]
    step = Step((Op(0, "send", communicator("pair"), SENT),), (), frozenset(), {"pair": Group("pair", 2, stride=8)}, 1)
    spmd = price([step], switched("a100_sxm_80", 8, 2, {"device": "ethernet_10", "count": 1}))
    assert flow(spmd, 0) == pytest.approx(8 * flow(one, 7))  # eight pairs at once, each with an eighth
    assert flow(one, 7) >= 1e9 / nic


def test_replicas_of_a_pair_share_the_ports_of_their_node() -> None:
    """Pipelines of two nodes with a GPU each in the pair: ranks 0-3 on node 0 and 4-7 on node 1, stages 2 and 2."""
    ethernet = machine("a100_sxm_80", 4, 2, nics={"device": "ethernet_10", "count": 1})
    alone = priced_pair(8, 3, ethernet)
    assert [c.ranks for c in alone.classes] == [(k,) for k in range(8)]
    # two stages over nodes of one GPU: every node has one rank of either
    nodes = machine("a100_sxm_80", 1, 4, nics={"device": "ethernet_10", "count": 1})
    found = priced_pair(2, 0, nodes)
    assert [(c.name, c.ranks, c.program) for c in found.classes] == [("stage 0", (0, 2), 0), ("stage 1", (1, 3), 1)]
    assert flow(found, 0) == pytest.approx(flow(alone, 3))


def test_stages_share_what_they_are_joined_to() -> None:
    node = machine(
        "a100_sxm_80", 8,
        pcie={"switches": [{"gpus": [i, i + 1], "socket": i // 4} for i in (0, 2, 4, 6)]},
        sockets=[{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2,
    )  # fmt: skip
    found = priced_pair(8, 0, node)
    named = {name for name in found.supply.rates if name.partition(".")[0] in ("sm", "uplink", "dram")}
    assert {f"sm.stage {k}" for k in range(8)} <= named
    assert {f"uplink.h2d.stages {k}-{k + 1}" for k in (0, 2, 4, 6)} <= named
    assert "dram" in named  # unbound processes use the memory of both sockets
    assert "shared by 2 GPUs (stages 2-3)" in found.supply.labels["uplink.h2d.stages 2-3"]
    assert "shared by 8 GPUs" in found.supply.labels["dram"]


def test_stages_share_the_uplinks_of_leaf_and_spine() -> None:
    """Two pipelines of four stages, a GPU with a port of its own each; two nodes of two GPUs on each leaf, and a spine
    for each leaf: the stages of a pipeline share both."""
    fabric = {"kind": "fat_tree", "leaf_nodes": 2, "spine_nodes": 2}
    nodes = switched("a100_sxm_80", 2, 4, {"device": "infiniband_hdr", "count": 2}, fabric=fabric)
    groups = {"dp": Group("dp", 2, stride=4)}
    op = Op(0, "reduce", communicator("dp"), Collective("all_reduce", 10**9, "uint8", "dp"))
    found = price([Step((op,), (), frozenset(), groups, 1)] * 4, nodes)
    assert {"nic.stage 0", "nic.stage 1", "leaf", "spine"} <= found.supply.rates.keys()
    above = [{u.resource: u.amount for u in found.demands[f"stage {k}"][0].uses} for k in range(4)]
    assert [uses["leaf"] for uses in above] == [uses["spine"] for uses in above] == pytest.approx([10**9] * 4)


def test_pipelines_that_differ_are_played_apart() -> None:
    slow = switched("a100_sxm_80", 4, 3, HDR, overrides=[{"gpu": "1.2", "compute": 0.5}])
    found = priced_pair(4, 0, slow)
    named = {c.name: c.ranks for c in found.classes if c.program == 2}
    assert named == {"stage 2 of pipeline 0 and 1 more": (2, 10), "stage 2 of pipeline 1": (6,)}
    across = priced_pair(4, 1, switched("a100_sxm_80", 6, 2, HDR))  # the second of three pipelines lies on both nodes
    assert [c.ranks for c in across.classes if c.program == 0] == [(0, 8), (4,)]


def test_a_gpu_has_the_communicators_of_its_own_stage() -> None:
    """A middle stage has two neighbours; of two stages with a tied embedding each has one, and the other end."""
    ends, middle, tied = (
        price(programs(stages, model=variant(toy(blocks=8), tied=tied)), switched("a100_sxm_80", stages))
        for stages, tied in ((2, False), (8, False), (2, True))
    )
    taken = [found.supply.overheads["gpu"] for found in (ends, middle, tied)]
    assert taken[0] < taken[1] == taken[2]


# --- the engine ------------------------------------------------------------------------------------------------------


class _Stage(Program):
    """Seconds by hand: `gpu` of the stage, one second on the link a send."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.gpu, self.last = f"gpu__{name}", -1

    def compute(self, seconds: float) -> None:
        after = [self.last] if self.last >= 0 and self.ops[self.last].stream != COMPUTE else []
        self.last = self.add(COMPUTE, takes(**{self.gpu: seconds}), after)

    def meet(self, seconds: float = 1.0, waits: bool = True) -> None:
        work = Collective("send_recv", 1, "bf16", "pair")
        number = self.add(communicator("pair"), takes(link=seconds), [self.last] if self.last >= 0 else [], work=work)
        if waits:
            self.last = number


TWO = supply(gpu__a=1, gpu__b=1, link=1)


def played(one: Program, other: Program) -> Timeline:
    classes = [RankClass("a", (0,), 0), RankClass("b", (1,), 1)]
    return play([one.step(), other.step()], classes, {"a": one.demands, "b": other.demands}, TWO)


def micro_batch(first: _Stage, last: _Stage) -> None:
    """3 s forward, sent in 1 s, 4 s forward and 5 s backward, sent back in 1 s, 2 s backward: 16 s."""
    first.compute(3)
    first.meet(waits=False)
    first.meet()
    first.compute(2)
    last.meet()
    last.compute(4)
    last.compute(5)
    last.meet(waits=False)


def test_two_stages_by_hand() -> None:
    first, last = _Stage("a"), _Stage("b")
    micro_batch(first, last)
    timeline = played(first, last)
    assert timeline.makespan == pytest.approx(16)
    assert [(span.start, span.end) for span in timeline.spans["a"]] == [(0, 3), (3, 4), (13, 14), (14, 16)]
    assert [(span.start, span.end) for span in timeline.spans["b"]] == [(3, 4), (4, 8), (8, 13), (13, 14)]
    assert timeline.spans["a"][2].ready == 4  # it waits nine seconds for the gradient
    assert timeline.slowest.name == "a"
    assert timeline.step is timeline.program("a") is timeline.steps[0]
    assert timeline.collectives()[Call("a", 2)] == (Call("a", 2), Call("b", 3))


def test_micro_batches_follow_each_other() -> None:
    first, last = _Stage("a"), _Stage("b")
    for _ in range(3):
        micro_batch(first, last)
    assert played(first, last).makespan == pytest.approx(3 * 16)


def test_the_path_goes_through_both_stages_and_the_stall_names_the_other() -> None:
    first, last = _Stage("a"), _Stage("b")
    micro_batch(first, last)
    timeline = played(first, last)
    path = [(link.rank_class, link.op, link.end - link.start) for link in critical_path(timeline)]
    assert [(name, op) for name, op, _ in path] == [
        ("a", 0), ("b", 0), ("b", 1), ("b", 2), ("a", 2), ("a", 3),
    ]  # fmt: skip
    assert sum(seconds for *_, seconds in path) == pytest.approx(16)
    waited = {stall.resource: stall.seconds for stall in stalls(timeline) if stall.cause == "wait_for_stage"}
    assert waited == pytest.approx({"b": 9})
    assert {s.label for s in stalls(timeline) if s.cause == "wait_for_stage"} == {"one stage works at a time"}
    carried = utilization(timeline)
    assert {name: use.busy_seconds for name, use in carried.items()} == {"gpu.a": 5, "gpu.b": 9, "link": 2}


def test_a_stage_that_never_comes_is_named() -> None:
    first, blocked = _Stage("a"), _Stage("b")
    first.meet()
    blocked.add("other", takes(link=1), waits=[1])
    blocked.add(communicator("pair"), takes(link=1), work=Collective("send_recv", 1, "bf16", "pair"))
    with pytest.raises(DeadlockError, match="has been reached by a; not by b"):
        played(first, blocked)


def holding(dram: float, name: str) -> Step:
    """A step of a second, of a rank that has so many bytes of host memory, and 7 more during its op."""
    buffers = (Buffer("states", "optimizer", dram, "dram"), Buffer("staged", "buffers", 7.0, "dram"))
    ops = (Op(0, name, COMPUTE, None, acquires=(1,), releases=(1,)),)
    return Step(ops, buffers, frozenset({0}), {}, 1).check()


@pytest.mark.parametrize(
    ("ranks", "ranks_per_node", "peak"),
    [
        (((0, 2), (1, 3)), 4, 2 * 107 + 2 * 47),  # all on one node
        (((0, 2), (1, 3)), 2, 107 + 47),  # one of each on every node
        (((0, 1), (2, 3)), 2, 2 * 107),  # a node of two that hold 100, and one of two that hold 40
    ],
)
def test_host_memory_is_what_all_ranks_of_a_node_hold(
    ranks: tuple[tuple[int, ...], ...], ranks_per_node: int, peak: float
) -> None:
    steps = [holding(100, "first"), holding(40, "second")]
    classes = [RankClass(name, each, k) for k, (name, each) in enumerate(zip("ab", ranks, strict=True))]
    timeline = play(steps, classes, {"a": [takes(latency=1)], "b": [takes(latency=1)]}, TWO)
    assert memory(timeline, ranks_per_node)["dram"].peak == peak


# --- whole steps -----------------------------------------------------------------------------------------------------


def busy(timeline: Simulation, name: str) -> list[tuple[float, float]]:
    """When a stage computes its micro-batches."""
    ops, spans = timeline.program(name).ops, timeline.spans[name]
    return [
        (spans[op.number].start, spans[op.number].end)
        for op in ops
        if op.stream == COMPUTE and op.phase != "optimizer" and spans[op.number].end > spans[op.number].start
    ]


def test_one_stage_works_at_a_time() -> None:
    timeline = simulate(question())
    runs = sorted(run for rank_class in timeline.classes for run in busy(timeline, rank_class.name))
    assert len(timeline.classes) == 8
    assert all(before[1] <= after[0] + 1e-12 for before, after in pairwise(runs))


def test_a_step_is_the_work_of_all_stages_and_their_sends() -> None:
    """Of a host that takes no time; then a step of two micro-batches is twice one, but for the optimizer."""
    with quick_host():
        timeline = simulate(question(training={"micro_batch_size": 64, "gradient_accumulation_steps": 1}))
    last = timeline.spans["stage 0"]
    forth_and_back = max(
        span.end for op, span in zip(timeline.steps[0].ops, last, strict=True) if op.phase != "optimizer"
    )
    work = sum(end - start for c in timeline.classes for start, end in busy(timeline, c.name))
    sent = sum(
        span.end - span.start
        for rank_class in timeline.classes[1:]
        for op, span in zip(timeline.program(rank_class).ops, timeline.spans[rank_class.name], strict=True)
        if op.name in ("receive activation", "send gradient")
    )
    assert forth_and_back == pytest.approx(work + sent, rel=0.02)  # the rest is the host's launches


def test_the_summary_of_a_pipeline() -> None:
    timeline = simulate(question())
    summary, whole = timeline.summary(), simulate(question(1, gpus=1)).summary()
    assert summary.world_size == 8
    assert summary.tokens_per_second * summary.step_seconds == pytest.approx(128 * 2)  # one micro-batch in flight
    assert summary.mfu * summary.step_seconds == pytest.approx(whole.mfu * whole.step_seconds / 8)
    bubble = sum(stall.seconds for stall in summary.stalls if stall.cause == "wait_for_stage")
    assert bubble > 0.75 * summary.step_seconds
    assert {stall.resource for stall in summary.stalls if stall.cause == "wait_for_stage"} == {"stage 1"}
    assert [c.name for c in summary.classes] == [f"stage {k}" for k in range(8)]
    peaks = [memory(replace(timeline, classes=(c,)))["gpu"].peak for c in timeline.classes]
    assert summary.memory["gpu"].peak_bytes == max(peaks)
    assert memory(timeline)["gpu"].rank_class == f"stage {peaks.index(max(peaks))}"
    assert len(set(peaks)) > 1
    assert any(said.startswith("Stages hold one block each") for said in summary.assumptions)


def test_a_slow_stage_slows_the_step_by_its_own_work() -> None:
    slow = {"name": "slow", "node": {"gpus": {"device": "a100_sxm_80", "count": 2}, "nvlink": {"kind": "switch"},
            "pcie": {"switches": [{"gpus": [0, 1], "socket": 0}]},
            "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}]},
            "overrides": [{"gpu": "0.1", "compute": 0.5}]}  # fmt: skip
    even = {**slow, "overrides": []}
    large = {"micro_batch_size": 64, "gradient_accumulation_steps": 1}
    with quick_host():
        first, second = (simulate(question(2, topology=t, training=large)) for t in (even, slow))
    longer = [sum(end - start for start, end in busy(t, "stage 1")) for t in (first, second)]
    assert longer[1] > longer[0]
    assert second.makespan - first.makespan == pytest.approx(longer[1] - longer[0], rel=0.01)


def test_a_ladder_can_be_climbed_from_a_pipeline() -> None:
    rungs = ladder(question(2, gpus=2, training={"gradient_accumulation_steps": 1}))
    assert rungs[0].rung == "one GPU"
    assert all(rung.step_seconds > 0 for rung in rungs)


# --- what users say --------------------------------------------------------------------------------------------------


def complaint(stages: Any = 8, pipeline: dict[str, Any] | None = None, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        question(stages, pipeline, **more)
    return str(caught.value)


def test_what_does_not_fit_together_is_told() -> None:
    assert "strategy.pipeline.stages: found 3; expected a number that divides the 8 GPUs" in complaint(3)
    two_nodes = complaint(16, nodes=2)
    assert "strategy.pipeline.stages: found 16; expected at most 8, the blocks of " in two_nodes
    assert 'strategy.pipeline.schedule: found "1b1f"; expected "naive", "gpipe" or "1f1b"' in complaint(
        8, {"schedule": "1b1f"}
    )
    assert "strategy.pipeline.zero_stage: found 2; expected 0 or 1" in complaint(8, {"zero_stage": 2})
    assert "strategy.pipeline.stages" in complaint(0)
    assert "nearest stages" in complaint(8, {"stage": 8})
    assert "expected fp32, or bf16 as training.precision" in complaint(8, {"parameter_dtype": "fp16"})
    assert "2 stacks of blocks" in complaint(8, model="t5-3b")


def test_what_is_changed_is_held_to_the_same() -> None:
    scenario = question(4)
    with pytest.raises(InputError, match=r"strategy\.pipeline\.stages: found 4; expected a number that divides the 6"):
        scenario.replace(gpus=6)
    with pytest.raises(InputError, match="at most 2"):
        scenario.replace(model=toy(blocks=2))


def test_a_pipeline_reads_as_it_was_said() -> None:
    said = {"schedule": "1f1b", "zero_stage": 1, "parameter_dtype": "bf16"}
    scenario = question(4, {**said, "optimizer": {"type": "SGD", "momentum": 0.9}})
    assert {key: getattr(scenario.strategy, key) for key in said} == said
    assert from_mapping(scenario.text).strategy == scenario.strategy
    assert scenario.text["strategy"]["pipeline"]["stages"] == 4


def test_phases_are_those_of_all_stages() -> None:
    """A naive schedule goes forward through all stages, then back; no stage has seen the whole."""
    played = simulate(
        question(2, gpus=2, training={"gradient_accumulation_steps": 3, "activation_checkpointing": "full"})
    )
    seconds, bands = phases(played), bands_of(played, played.classes[0])
    assert sum(seconds.values()) == pytest.approx(played.makespan)
    forward = [span.end for each in played.classes for span in forward_spans(played, each, micro_batch=0)]
    assert bands[0].label == "forward"
    assert bands[0].end == pytest.approx(max(forward))  # of the last stage, whichever stage the picture shows
    assert bands == bands_of(played, played.classes[1])


def forward_spans(played: Simulation, rank_class: RankClass, micro_batch: int) -> list[Span]:
    ops = played.program(rank_class).ops
    chosen = [op.number for op in ops if op.phase == "forward" and op.micro_batch == micro_batch]
    return [played.spans[rank_class.name][number] for number in chosen]
