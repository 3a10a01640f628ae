"""What an offload makes of a model of a certain size: shares of a rank, sub-groups, and the buffers they pass through.

On stage 3 the optimizer steps sub-group after sub-group; a swapped one needs a buffer for each of its tensors. Sources:
DeepSpeed 0.19 runtime/zero/stage3.py (_create_fp16_sub_groups, _create_fp32_partitions), runtime/swap_tensor
(optimizer_utils.py, partitioned_optimizer_swapper.py, pipelined_optimizer_swapper.py, partitioned_param_swapper.py).
Where the model or the number of ranks is not known, only what holds of every model is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zerosim.spec.deepspeed_batch import Given
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.document import Document
from zerosim.spec.strategy import Aio, Offload, Optimizer, Zero
from zerosim.units import show_count

SECTION = "zero_optimization"
_MASTER = 4  # bytes of a swapped element


@dataclass(frozen=True, slots=True)
class Shares:
    """Elements that a rank holds on stage 3: of each parameter, and of each sub-group of those that are trained."""

    parameters: tuple[tuple[str, int], ...]
    sub_groups: tuple[int, ...]


def shares(given: Given, sub_group_size: int) -> Shares | None:
    """None where the model or the number of ranks is not known."""
    if not given.parameters or given.world_size is None:
        return None
    held = tuple((row.name, -(-row.numel // given.world_size)) for row in given.parameters)
    trained = [size for (_, size), row in zip(held, given.parameters, strict=True) if row.trainable]
    return Shares(held, sub_groups(trained, sub_group_size))


def sub_groups(sizes: Sequence[int], limit: int) -> tuple[int, ...]:
    """A sub-group takes parameters in order until it has `limit` elements."""
    groups, room = [0], True
    for size in sizes:
        if not room:
            groups.append(0)
        groups[-1] += size
        room = groups[-1] < limit
    return tuple(group for group in groups if group)


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

    def _swapped(self, elements: int, width: int) -> bool:
        return width * elements >= self.aio.least_swapped

    @property
    def _tensors(self) -> int:
        """Of a sub-group: parameter, gradient, states."""
        return 2 + self.optimizer.state_bytes // _MASTER

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
        groups = None
        if self.shares is not None:
            groups = [size for size in self.shares.sub_groups if self._swapped(size, _MASTER)]
            if not groups:
                self._too_small("offload_optimizer", "sub-group")
                return
        wanted = 1 + offload.pipeline_read + offload.pipeline_write
        sets = min(wanted, len(groups)) if groups else 1
        self._buffers(offload, sets)
        if wanted > 1 and groups and len(groups) == 1:
            pipelined = "pipeline_read" if offload.pipeline_read else "pipeline_write"
            message = (
                f"{SECTION}.offload_optimizer.{pipelined}: a rank's {show_count(groups[0])} parameters make "
                f"{_count(groups)}: there is nothing to read ahead or to write behind."
            )
            remedy = f"Lower sub_group_size ({show_count(self.zero.sub_group_size)}), with buffer_count: "
            self.log.say("pipeline-no-effect", "warning", message, f"{remedy}{wanted * self._tensors}.")

    def _buffers(self, offload: Offload, sets: int) -> None:
        each = self._tensors
        if offload.buffer_count >= sets * each:
            return
        ahead = f", for {sets} sub-groups at once" if sets > 1 else ""
        expected = f"at least {sets * each}: {each} tensors of a sub-group of {self.optimizer.name}{ahead}"
        place = (SECTION, "offload_optimizer", "buffer_count")
        self.log.problems.append(self.top.problem(place, str(offload.buffer_count), expected))

    def _parameters(self, shares: Shares) -> None:
        offload, groups = self.zero.offload_param, shares.sub_groups
        swapped = [(size, name) for name, size in shares.parameters if self._swapped(size, self.width)]
        if not swapped:
            self._too_small("offload_param", "parameter")
            return
        largest, name = max(swapped)
        if largest > offload.buffer_size:
            expected = f"at least {largest}, what a rank holds of {name}"
            self._buffer_size(expected)
        elif self._made_from_swapped(groups) and max(groups) > offload.buffer_size:
            self._buffer_size(f"at least {max(groups)}, the largest sub-group, with fast_init")
        if sum(groups) <= offload.max_in_cpu:
            message = (
                f"{SECTION}.offload_param.max_in_cpu: the first {show_count(offload.max_in_cpu)} elements stay in host "
                f"memory, and a rank has {show_count(sum(groups))}: no parameter is read from NVMe."
            )
            self.log.say("parameters-stay-in-cpu", "warning", message, "Lower max_in_cpu, or write device: cpu.")

    def _made_from_swapped(self, groups: Sequence[int]) -> bool:
        """Whether fp32 masters on NVMe are made from parameters there (`fast_init`), through the same buffers."""
        offload = self.zero.offload_optimizer
        on_drive = sum(groups) > self.zero.offload_param.max_in_cpu
        swapped = any(self._swapped(size, _MASTER) for size in groups)
        return offload.device == "nvme" and offload.fast_init and on_drive and swapped

    def _buffer_size(self, expected: str) -> None:
        place = (SECTION, "offload_param", "buffer_size")
        self.log.problems.append(self.top.problem(place, str(self.zero.offload_param.buffer_size), expected))

    def _too_small(self, key: str, what: str) -> None:
        least = self.aio.least_swapped
        message = (
            f"{SECTION}.{key}.device: no {what} of a rank has {least} bytes, and smaller ones stay in host memory."
        )
        self.log.say("too-small-to-swap", "warning", message, "Write device: cpu.")


def _count(groups: Sequence[int]) -> str:
    return f"{len(groups)} sub-group{'' if len(groups) == 1 else 's'}"
