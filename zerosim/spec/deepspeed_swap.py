"""What is said of an offload on stage 3 for a model of a certain size; the rules themselves stand in `swap_rules`.

The optimizer steps sub-group after sub-group; a swapped one needs a buffer for each of its tensors. Where the model or
the number of ranks is not known, only what holds of every model is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from zerosim.spec.deepspeed_batch import Given
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.document import Document
from zerosim.spec.strategy import UNLIMITED, Aio, Optimizer, Zero
from zerosim.spec.swap_rules import (
    FP32,
    Refused,
    few_buffers,
    is_swapped,
    small_buffers,
    sub_groups,
    sub_groups_at_once,
    tensors_of,
)
from zerosim.units import show_count, show_size

SECTION = "zero_optimization"


@dataclass(frozen=True, slots=True)
class Shares:
    """Elements that a rank holds on stage 3: of each parameter, and of each sub-group of those that are trained.

    `members`: the parameters of a sub-group, by place.
    """

    parameters: tuple[tuple[str, int], ...]
    members: tuple[tuple[int, ...], ...]

    @property
    def sub_groups(self) -> tuple[int, ...]:
        return tuple(sum(self.parameters[p][1] for p in group) for group in self.members)

    def outside(self, max_in_cpu: int) -> list[int]:
        """Elements of each parameter that is not in the buffer of the first sub-groups, which stay in host memory."""
        passed = zip(self.members, accumulate(self.sub_groups), strict=True)
        inside = {p for group, elements in passed if elements <= max_in_cpu for p in group}
        return [size for p, (_, size) in enumerate(self.parameters) if p not in inside]


def shares(given: Given, sub_group_size: int) -> Shares | None:
    """None where the model or the number of ranks is not known."""
    if not given.parameters or given.world_size is None:
        return None
    sizes = [-(-row.numel // given.world_size) for row in given.parameters]
    groups = sub_groups(sizes, [row.trainable for row in given.parameters], sub_group_size)
    held = tuple((row.name, size) for row, size in zip(given.parameters, sizes, strict=True))
    return Shares(held, tuple(map(tuple, groups)))


@dataclass(frozen=True, slots=True)
class Swapping:
    """What is said of a configuration of stage 3 and a model."""

    top: Document
    zero: Zero
    optimizer: Optimizer
    aio: Aio
    width: int  # bytes of an element of the model
    shares: Shares | None
    log: Log

    def tell(self) -> None:
        """All that the sizes make worth saying, and the buffers that are too few or too small."""
        if self.zero.offload_optimizer.device == "nvme":
            self._optimizer()
        if self.shares is None:
            return
        if self.zero.optimizer_on_host and self.zero.offload_optimizer.ratio < 1:
            self._ratio(self.shares.sub_groups)
        if self.zero.offload_param.device == "nvme":
            self._parameters(self.shares)

    def _ratio(self, groups: Sequence[int]) -> None:
        """Whole sub-groups, counted down, are for torch's AdamW (Twin-Flow), which is meant to run on the GPU."""
        share, name = self.zero.offload_optimizer.ratio, f"{SECTION}.offload_optimizer.ratio"
        kept = int((1 - share) * len(groups))
        if kept == 0:
            message = (
                f"{name}: {share} keeps int((1 - {share}) x {len(groups)}) = 0 sub-groups on the GPU: a rank's "
                f"{show_count(sum(groups))} parameters make {_count(groups)}."
            )
            remedy = f"Lower sub_group_size ({show_count(self.zero.sub_group_size)})."
            self.log.say("ratio-no-effect", "warning", message, remedy)
        elif self.zero.offload_optimizer.device == "nvme":
            message = f"{name}: {kept} of {_count(groups)} are swapped like the others, and stepped by torch's AdamW."
            self.log.say("ratio-on-cpu", "warning", message, "Leave ratio at 1, or write device: cpu.")

    def _optimizer(self) -> None:
        """A set of buffers holds a sub-group. Reading ahead and writing behind take further sets, where there are
        further sub-groups."""
        offload = self.zero.offload_optimizer
        if self.shares is None:
            self._refuse(few_buffers(offload, self.optimizer, groups=1))
            return
        groups = [size for size in self.shares.sub_groups if is_swapped(FP32 * size, self.aio)]
        if not groups:
            self._too_small("offload_optimizer", "sub-group")
            return
        self._refuse(few_buffers(offload, self.optimizer, len(groups)))
        if len(groups) == 1 and (offload.pipeline_read or offload.pipeline_write):
            self._tell_alone(groups)

    def _tell_alone(self, groups: Sequence[int]) -> None:
        offload = self.zero.offload_optimizer
        pipelined = "pipeline_read" if offload.pipeline_read else "pipeline_write"
        message = (
            f"{SECTION}.offload_optimizer.{pipelined}: a rank's {show_count(groups[0])} parameters make "
            f"{_count(groups)}: there is nothing to read ahead or to write behind."
        )
        remedy = f"Lower sub_group_size ({show_count(self.zero.sub_group_size)}), with buffer_count: "
        wanted = sub_groups_at_once(offload, UNLIMITED) * tensors_of(self.optimizer)
        self.log.say("pipeline-no-effect", "warning", message, f"{remedy}{wanted}.")

    def _parameters(self, shares: Shares) -> None:
        offload, groups = self.zero.offload_param, shares.sub_groups
        if "pin_memory" in self.top.data[SECTION]["offload_param"]:
            self._pinned(shares.outside(offload.max_in_cpu))
        swapped = [(size, name) for name, size in shares.parameters if is_swapped(self.width * size, self.aio)]
        if not swapped:
            self._too_small("offload_param", "parameter")
            return
        largest, name = max(swapped)
        self._refuse(small_buffers(self.zero, self.aio, largest, f"what a rank holds of {name}", groups))
        if sum(groups) <= offload.max_in_cpu:
            message = (
                f"{SECTION}.offload_param.max_in_cpu: the first {show_count(offload.max_in_cpu)} elements stay in host "
                f"memory, and a rank has {show_count(sum(groups))}: no parameter is read from NVMe."
            )
            self.log.say("parameters-stay-in-cpu", "warning", message, "Lower max_in_cpu, or write device: cpu.")

    def _pinned(self, outside: Sequence[int]) -> None:
        """partition_parameters.py pins a shard alone; stage3.py and partitioned_param_swapper.py lock their buffers
        anyway."""
        small = [self.width * size for size in outside if not is_swapped(self.width * size, self.aio)]
        name = f"{SECTION}.offload_param.pin_memory"
        why = "what is swapped, and what max_in_cpu keeps in host memory, is in buffers that are locked anyway"
        if not small:
            self.log.idle(name, why)
        elif len(small) < len(outside):
            message = f"{name}: {why}; it is about the {len(small)} shards that are too small to swap, "
            self.log.say("pin-small-shards", "note", f"{message}{show_size(sum(small))} of a rank.")

    def _refuse(self, refused: Refused | None) -> None:
        if refused is not None:
            place = (SECTION, refused.section, refused.key)
            self.log.problems.append(self.top.problem(place, refused.found, refused.expected))

    def _too_small(self, key: str, what: str) -> None:
        least = self.aio.least_swapped
        message = (
            f"{SECTION}.{key}.device: no {what} of a rank has {least} bytes, and smaller ones stay in host memory."
        )
        self.log.say("too-small-to-swap", "warning", message, "Write device: cpu.")


def _count(groups: Sequence[int]) -> str:
    return f"{len(groups)} sub-group{'' if len(groups) == 1 else 's'}"
