"""What can be turned on the page: a table of controls, in the order in which they stand there.

A control is a value of a scenario file: its path, what may be chosen or how its slider is divided, and the strategies
that it belongs to. Ranges are those of sliders; a box beside each takes any value, and whether that is right is for the
readers of scenarios to say, in their words. Adding a control is adding a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from zerosim.spec.fsdp_values import STRATEGIES as SHARDINGS

Kind = Literal["choice", "number", "switch"]
Place = tuple[str, ...]

GIVEN = "given"  # what the scenario of the command line describes itself, and no catalogue has
ZERO: Place = ("strategy", "deepspeed", "zero_optimization")
SHARDED = ("zero1", "zero2", "zero3")
STRATEGIES = {
    "ddp": "DDP",
    "zero0": "ZeRO-0",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
    "pipeline": "pipeline",
}
FAMILY = {"ddp": "ddp", "fsdp": "fsdp", "pipeline": "pipeline"} | {f"zero{n}": "deepspeed" for n in range(4)}
R10 = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)  # ISO 3, Renard: ten steps a decade, each about 26 %


@dataclass(frozen=True, slots=True)
class Control:
    """One knob. `stops`: where its slider may stand. `strategies`: which it belongs to, all if none is named. `null`:
    what no value means, where that may be."""

    name: str
    label: str
    kind: Kind
    path: Place
    about: str = ""
    unit: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    stops: tuple[float, ...] = ()
    strategies: tuple[str, ...] = ()
    null: str = ""

    def belongs(self, strategy: object) -> bool:
        """Whether a strategy has this knob."""
        return not self.strategies or strategy in self.strategies


def _decades(least: int, most: int) -> tuple[float, ...]:
    """Stops from 10^least to 10^most; whole numbers as such, as JSON and DeepSpeed have them."""
    stops = [part * 10**n for n in range(least, most) for part in R10]
    return (*(int(stop) if stop == int(stop) else stop for stop in stops), 10**most)


def _same(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


_BUCKETS = _decades(6, 9)
_COUNTS = (1.0, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_SEQUENCES = (128.0, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072)
_DEVICES = (("none", "none: on the GPU"), ("cpu", "cpu: host memory"), ("nvme", "nvme: drives"))

CONTROLS: tuple[Control, ...] = (
    Control("model", "Model", "choice", ("model",)),
    Control("topology", "Machine", "choice", ("topology",)),
    Control("nodes", "Nodes", "number", ("nodes",), stops=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
            null="as many as the machine has"),
    Control("gpus", "GPUs", "number", ("gpus",), "The world size: ranks of the run, spread evenly over the nodes.",
            null="all of these nodes"),
    Control("network", "Network", "number", ("topology", "node", "nics", "bandwidth"),
            "Rate of each port, one direction.", "Gb/s", stops=_decades(0, 3), null="as the machine has it"),
    Control("strategy", "Strategy", "choice", ("strategy",)),
    Control("offload_optimizer", "Optimizer states in", "choice", (*ZERO, "offload_optimizer", "device"),
            "Where they are kept; the CPU runs the optimizer unless they are on the GPU.", choices=_DEVICES,
            strategies=SHARDED),
    Control("offload_param", "Parameters in", "choice", (*ZERO, "offload_param", "device"),
            "Where each GPU keeps its shard.", choices=_DEVICES, strategies=("zero3",)),
    Control("overlap", "overlap_comm", "choice", (*ZERO, "overlap_comm"),
            "Whether gradients are reduced beside the backward pass. DeepSpeed's default: on for stage 3, else off.",
            choices=(("default", "default"), ("on", "on"), ("off", "off")), strategies=SHARDED),
    Control("reduce_bucket", "reduce_bucket_size", "number", (*ZERO, "reduce_bucket_size"),
            "Gradients that are reduced together.", "elements", stops=_BUCKETS, strategies=SHARDED),
    Control("gather_bucket", "allgather_bucket_size", "number", (*ZERO, "allgather_bucket_size"),
            "Updated parameters that are gathered together after the step.", "elements", stops=_BUCKETS,
            strategies=("zero1", "zero2")),
    Control("prefetch_bucket", "stage3_prefetch_bucket_size", "number", (*ZERO, "stage3_prefetch_bucket_size"),
            "Parameters that are gathered ahead of their use.", "elements", stops=(0, *_BUCKETS),
            strategies=("zero3",)),
    Control("persistence", "stage3_param_persistence_threshold", "number",
            (*ZERO, "stage3_param_persistence_threshold"),
            "Parameters below so many elements stay gathered on every GPU.", "elements", stops=(0, *_decades(3, 9)),
            strategies=("zero3",)),
    Control("ddp_bucket", "bucket_cap_mb", "number", ("strategy", "ddp", "bucket_cap_mb"),
            "Gradients that are reduced together.", "MiB", stops=_decades(0, 3), strategies=("ddp",),
            null="1 MiB for the first, 25 for the others"),
    Control("sharding", "sharding_strategy", "choice", ("strategy", "fsdp", "sharding_strategy"),
            "What is sharded, and over which ranks.", choices=_same(SHARDINGS), strategies=("fsdp",)),
    Control("fsdp_offload", "cpu_offload", "switch", ("strategy", "fsdp", "cpu_offload"),
            "Shards, gradients and the optimizer in host memory.", strategies=("fsdp",)),
    Control("stages", "Stages", "number", ("strategy", "pipeline", "stages"),
            "GPUs over which the layers are spread; accumulation steps are its micro-batches.",
            stops=(1, 2, 4, 8, 16, 32), strategies=("pipeline",)),
    Control("schedule", "Schedule", "choice", ("strategy", "pipeline", "schedule"),
            choices=_same(("naive", "gpipe", "1f1b")), strategies=("pipeline",)),
    Control("micro_batch", "Micro-batch", "number", ("training", "micro_batch_size"),
            "Sequences a GPU computes at once.", "sequences", stops=_COUNTS),
    Control("accumulation", "Accumulation", "number", ("training", "gradient_accumulation_steps"),
            "Micro-steps whose gradients are summed before the optimizer runs.", "micro-steps", stops=_COUNTS),
    Control("sequence", "Sequence length", "number", ("training", "sequence_length"), "", "tokens", stops=_SEQUENCES),
    Control("checkpointing", "Activation checkpointing", "choice", ("training", "activation_checkpointing"),
            "What the backward pass computes again instead of keeping it.",
            choices=(("none", "none"), ("selective", "selective: attention scores"),
                     ("alternate", "alternate: every second block"), ("operators", "operators: but for large products"),
                     ("full", "full: every block"))),
)  # fmt: skip
BY_NAME = {control.name: control for control in CONTROLS}
