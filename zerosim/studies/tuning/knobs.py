"""The knobs of a scenario, by its strategy, each with a default grid; and those that would do nothing, with the reason.

What a knob does is the matter of the strategies; which stage reads it is that of the tables in `spec`. Here is only
which are worth turning and how far. The global batch is the same at every point: micro-batch and accumulation are one
knob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.spec.changes import Change
from zerosim.spec.deepspeed_schema import ZERO
from zerosim.spec.places import CHECKPOINTING, Places, spelled
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, HierarchicalZero1, Pipeline, Strategy
from zerosim.spec.training import MOST_PASSES
from zerosim.studies.tuning.knob import MOST_BATCHES, Block, Knob, LeftOut, Value, clipped, spread

BATCH = "micro_batch_size"
STAGE = "stage"
OFFLOADS = ("offload_optimizer", "offload_param")
BUCKETS = (8e6, 3.2e7, 1.25e8, 5e8, 2e9)  # elements, a factor of four apart as the next ones; 5e8 is DeepSpeed's
PREFETCHES = (1.25e7, 5e7, 2e8, 8e8)
DISTANCES = (1e9, 4e9, 1.6e10)
SUB_GROUPS = (6e7, 2.5e8, 1e9, 4e9)
THRESHOLDS = (1e4, 1e5, 1e6, 1e7)  # of parameters that stay gathered: norms, biases, ... small matrices
CAPS = (1.0, 6.0, 25.0, 100.0, 400.0)  # MiB; 25 is torch's
OWNERS: dict[str, str] = {  # whose a knob is that not every strategy has
    **dict.fromkeys(
        ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size", "stage3_max_live_parameters",
         "stage3_param_persistence_threshold", "stage3_max_reuse_distance", "sub_group_size", "overlap_comm",
         "stage", *OFFLOADS), "DeepSpeed"
    ),
    **dict.fromkeys(("bucket_cap_mb", "gradient_as_bucket_view"), "DDP"),
    **dict.fromkeys(
        ("sharding_strategy", "backward_prefetch", "forward_prefetch", "limit_all_gathers", "cpu_offload",
         "reshard_after_forward", "prefetch_forward", "prefetch_backward"), "FSDP"
    ),
    **dict.fromkeys(("schedule", "zero_stage"), "pipelines"),
    **dict.fromkeys(("bucket_size", "overlap_grad_reduce", "overlap_param_gather"), "hierarchical ZeRO-1"),
    "no_sync": "DDP and FSDP",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Knobs:
    """`all` in the order in which they are shown; `left_out` would change nothing."""

    all: tuple[Knob, ...]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def of(cls, scenario: Scenario, places: Places) -> Knobs:
        """The knobs of a scenario, its own values among those of each; some have no other."""
        found = [*_of_training(scenario, places), *_TABLES[type(scenario.strategy)](scenario, places)]
        return cls(
            tuple(each for each in found if isinstance(each, Knob)),
            tuple(each for each in found if isinstance(each, LeftOut)),
        )

    def searched(self, stages: str) -> Knobs:
        """Those that have a choice and that some of the stages of ZeRO read; the others are left out."""
        left_out = list(self.left_out)
        for knob in self.all:
            if knob.stages and not set(knob.stages) & set(stages):
                left_out.append(LeftOut(knob.name, f"{_listed(stages)} does not read it"))
            elif len(knob.values) < 2:
                left_out.append(LeftOut(knob.name, "there is one value for it"))
        names = {each.name for each in left_out}
        return Knobs(tuple(knob for knob in self.all if knob.name not in names), tuple(left_out))


Found = Iterator[Knob | LeftOut]


def _of_training(scenario: Scenario, places: Places) -> Found:
    """Batch and recomputation, which every strategy has."""
    training = scenario.training
    batch = training.micro_batch_size * training.gradient_accumulation_steps
    most_steps = MOST_PASSES // scenario.model.layers
    sizes = [size for size in range(1, batch + 1) if batch % size == 0 and batch // size <= most_steps]

    def split(micro: Value) -> tuple[Change, ...]:
        size = int(micro or 0)
        if size < 1 or batch % size:
            expected = f"a divisor of {batch}, the sequences of a rank and step, which stay the same"
            raise InputError([Problem(scenario.source, BATCH, str(micro), expected)])
        return places.batch(size, batch // size)

    yield Knob(
        BATCH, tuple(spread(sizes, MOST_BATCHES, training.micro_batch_size)), training.micro_batch_size, "strategy",
        split, lambda each: each.training.micro_batch_size,
    )  # fmt: skip
    kinds: tuple[Value, ...] = ("none", "full") if training.attention == "flash" else ("none", "selective", "full")
    yield Knob(
        CHECKPOINTING, kinds, training.activation_checkpointing, "strategy",
        lambda kind: places.checkpointing(str(kind)), lambda each: each.training.activation_checkpointing,
    ).with_values(kinds)  # fmt: skip


# --- DeepSpeed --------------------------------------------------------------------------------------------------------


def _deepspeed(scenario: Scenario, places: Places) -> Found:
    strategy = scenario.strategy
    assert isinstance(strategy, DeepSpeed)
    zero, elements = strategy.zero, scenario.model.numel
    yield Knob(STAGE, (0, 1, 2, 3), zero.stage, "strategy", partial(places.in_zero, STAGE), _zero_value(STAGE))
    yield from _offloads(scenario, places)
    yield _sized(scenario, places, "reduce_bucket_size", "reduction", clipped(BUCKETS, elements))
    yield Knob(
        "overlap_comm", (False, True), zero.overlap_comm, "reduction", partial(places.in_zero, "overlap_comm"),
        _zero_value("overlap_comm"), "123", always=not zero.overlap_comm_given,
    )  # fmt: skip
    if strategy.release.list_all_gather:
        yield _sized(scenario, places, "allgather_bucket_size", "reduction", clipped(BUCKETS, elements))
    else:
        yield LeftOut("allgather_bucket_size", ZERO["allgather_bucket_size"].idle)
    largest = max((each.numel for each in scenario.model.parameters), default=1)
    yield _sized(scenario, places, "prefetch_bucket_size", "gathering", clipped(PREFETCHES, elements))
    yield _sized(scenario, places, "max_live_parameters", "gathering", clipped(DISTANCES, elements))
    yield _sized(scenario, places, "max_reuse_distance", "gathering", clipped(DISTANCES, elements))
    yield _sized(scenario, places, "param_persistence_threshold", "gathering", clipped(THRESHOLDS, largest))
    yield _sized(scenario, places, "sub_group_size", "optimizer", clipped(SUB_GROUPS, elements / scenario.world_size))


def _zero_value(name: str) -> Callable[[Scenario], Value]:
    def read(scenario: Scenario) -> Value:
        value: Value = getattr(scenario.strategy.zero, name) if isinstance(scenario.strategy, DeepSpeed) else None
        return value

    return read


def _sized(scenario: Scenario, places: Places, name: str, block: Block, values: list[int]) -> Knob:
    """A number of elements, in the spelling of configurations."""
    read = _zero_value(name)
    knob = Knob(
        spelled(name), (), read(scenario), block, partial(places.in_zero, name), read, ZERO[name].stages, ranged=True
    )
    return knob.with_values(values)


def _offloads(scenario: Scenario, places: Places) -> Found:
    """`cpu` where there is host memory; NVMe only where the scenario knows a path on it."""
    assert isinstance(scenario.strategy, DeepSpeed)
    zero = scenario.strategy.zero
    sections = {"offload_optimizer": zero.offload_optimizer, "offload_param": zero.offload_param}
    drives = any(each.nvme_path for each in sections.values()) and scenario.topology.devices("nvme")
    devices: list[Value] = ["none", *(["cpu"] if scenario.topology.devices("dram") else [])]
    for name, section in sections.items():
        if old := places.deprecated(name):
            yield LeftOut(name, f"the file says it by the deprecated {old}, beside which DeepSpeed refuses it")
            continue
        nvme: list[Value] = ["nvme"] if drives and section.nvme_path else []
        yield Knob(
            name, (), section.device, "strategy", partial(places.in_zero, name, "device"), _device(name),
            ZERO[name].stages,
        ).with_values([*devices, *nvme])  # fmt: skip


def _device(name: str) -> Callable[[Scenario], Value]:
    def read(scenario: Scenario) -> Value:
        assert isinstance(scenario.strategy, DeepSpeed)
        device: Value = getattr(scenario.strategy.zero, name).device
        return device

    return read


# --- the others -------------------------------------------------------------------------------------------------------


def _field(name: str) -> Callable[[Scenario], Value]:
    def read(scenario: Scenario) -> Value:
        value: Value = getattr(scenario.strategy, name)
        return value

    return read


def _plain(places: Places, scenario: Scenario, name: str, block: Block, values: list[Value]) -> Knob:
    read = _field(name)
    return Knob(name, (), read(scenario), block, partial(places.in_own, name), read).with_values(values)


def _ddp(scenario: Scenario, places: Places) -> Found:
    of = partial(_plain, places, scenario)
    yield _perhaps_none(of("bucket_cap_mb", "reduction", []), CAPS)
    yield of("gradient_as_bucket_view", "reduction", [False, True])
    yield from _no_sync(scenario, of("no_sync", "reduction", [True, False]))


def _perhaps_none(knob: Knob, sizes: Sequence[float]) -> Knob:
    """A size for which a framework has a rule of its own where the scenario says none."""
    own = knob.baseline is None
    return knob._replace(ranged=not own).with_values([None, *sizes] if own else sizes)


def _no_sync(scenario: Scenario, knob: Knob) -> Found:
    """Whether micro-steps before the last reduce too, which matters where there are any at some point."""
    if scenario.training.micro_batch_size * scenario.training.gradient_accumulation_steps == 1:
        yield LeftOut(knob.name, "a step is one micro-step")
    else:
        yield knob


def _fsdp(scenario: Scenario, places: Places) -> Found:
    assert isinstance(scenario.strategy, Fsdp)

    def of(name: str, block: Block, values: list[Value]) -> Knob:
        read = _field(name)
        return Knob(name, (), read(scenario), block, partial(places.in_fsdp, name), read).with_values(values)

    if scenario.topology.devices("dram"):
        yield of("cpu_offload", "strategy", [False, True])
    yield from _no_sync(scenario, of("no_sync", "strategy", [True, False]))
    if scenario.strategy.version == 2:
        yield of("reshard_after_forward", "strategy", [True, False])
        yield of("prefetch_forward", "gathering", [0, 1, 2])
        yield of("prefetch_backward", "gathering", [0, 1, 2])
        return
    hybrids: list[Value] = ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] if len(scenario.topology.hosts) > 1 else []
    yield of("sharding_strategy", "strategy", ["FULL_SHARD", "SHARD_GRAD_OP", *hybrids])
    yield of("backward_prefetch", "gathering", ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"])
    yield of("forward_prefetch", "gathering", [False, True])
    yield of("limit_all_gathers", "gathering", [True, False])


def _pipeline(scenario: Scenario, places: Places) -> Found:
    yield _plain(places, scenario, "schedule", "strategy", ["naive", "gpipe", "1f1b"])
    zero_stage = _plain(places, scenario, "zero_stage", "strategy", [0, 1])
    yield zero_stage if scenario.replicas > 1 else LeftOut("zero_stage", "there is one pipeline, with nobody to share")


def _hierarchical(scenario: Scenario, places: Places) -> Found:
    of = partial(_plain, places, scenario)
    yield _perhaps_none(of("bucket_size", "reduction", []), clipped(BUCKETS, scenario.model.numel))
    yield of("overlap_grad_reduce", "reduction", [False, True])
    yield of("overlap_param_gather", "gathering", [False, True])


_TABLES: dict[type[Strategy], Callable[[Scenario, Places], Found]] = {
    DeepSpeed: _deepspeed,
    Ddp: _ddp,
    Fsdp: _fsdp,
    Pipeline: _pipeline,
    HierarchicalZero1: _hierarchical,
}


def _listed(stages: str) -> str:
    return f"stage {' or '.join(stages)}"
