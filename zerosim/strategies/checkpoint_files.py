"""The files of a checkpoint: who writes them, and the storages in each, in the order in which torch.save writes them.

Source: DeepSpeed runtime/engine.py (`_configure_checkpointing`, `_save_checkpoint`, `_save_zero_checkpoint`,
`_common_checkpoint_state`) and the `state_dict` of its optimizers. What surprises: on stage 3 the model file of a rank
holds names and shapes only, for the parameters are partitioned when it is written: the weights are in the checkpoint
once, as fp32 masters. On stages 0 to 2 rank 0 writes the 16-bit weights, and frozen ones on stage 2 twice. What is on
NVMe is not serialised, for its tensors are empty then (swap_tensor/optimizer_utils.py, `release_memory`): each rank
copies its swap files into a folder beside; and sub-groups that stay in host memory then are written, but not loaded
again (`load_checkpoint`). Nothing here knows how long a write takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.spec.swap_rules import FP32, aligned
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES, Tier
from zerosim.strategies.flat import flat_layout
from zerosim.strategies.placement import MASTER_BYTES, placement_of
from zerosim.strategies.stage3_layout import Stage3Layout, stage3_layout


class Storage(NamedTuple):
    """A block of memory that is written as a whole, and the tier in which training keeps it."""

    bytes: float
    tier: Tier = "gpu"


class File(NamedTuple):
    """A file that rank 0 writes, or (`sharded`) one of equal files, each written by its rank.

    `swapped`: a folder of swap files, which are copied as they are. `loaded`: `load_checkpoint` reads it.
    """

    name: str
    storages: tuple[Storage, ...]
    sharded: bool = False
    swapped: bool = False
    loaded: bool = True

    @property
    def bytes(self) -> float:
        return sum(storage.bytes for storage in self.storages)


def checkpoint_files(strategy: Ddp | DeepSpeed, model: Model, training: Training, world_size: int) -> tuple[File, ...]:
    """Every file of a checkpoint, in the order in which rank 0 writes its own."""
    if isinstance(strategy, Ddp):
        return (_replicated(strategy, model),)
    width, stage = DTYPE_BYTES[training.precision], strategy.zero.stage
    if stage == 0:
        return (_stage0(strategy, model, training),)
    prefix = "bf16_zero_pp_rank" if training.precision == "bf16" else "zero_pp_rank"
    rank = "R" if world_size > 1 else "0"
    every = tuple(_optimizer_states(strategy, model, width, world_size))
    serialised = tuple(storage for storage in every if storage.tier != "nvme")
    swaps = placement_of(strategy.zero).optimizer == "nvme"
    states = File(f"{prefix}_{rank}_mp_rank_00_optim_states.pt", serialised, sharded=True, loaded=not swaps)
    frozen = [p.numel for p in model.parameters if not p.trainable]
    if stage == 3:
        fragments = tuple(Storage(float(width * -(-numel // world_size))) for numel in frozen)
        files = File(f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", fragments, sharded=True), states
        copied = tuple(storage for storage in every if storage.tier == "nvme")
        folder = f"offloaded_tensors/rank{rank if world_size > 1 else '00'}/*.swp"
        return (*files, File(folder, copied, sharded=True, swapped=True)) if copied else files
    weights = float(width * flat_layout(_trainable(model), world_size, strategy.zero.round_robin_gradients).padded)
    again = 2 if stage == 2 else 1  # `frozen_param_fragments` beside the module's own
    kept = tuple(Storage(float(width * numel)) for numel in frozen for _ in range(again))
    return File("mp_rank_00_model_states.pt", (Storage(weights), *kept)), states


def weights_file(strategy: Ddp | DeepSpeed, model: Model, training: Training) -> File:
    """What `save_16bit_model` and `model.state_dict()` write: every parameter in the dtype of training, by rank 0."""
    own = strategy.parameter_dtype if isinstance(strategy, Ddp) else training.precision
    width = DTYPE_BYTES[own]
    return File("pytorch_model.bin", tuple(Storage(float(width * p.numel)) for p in model.parameters))


def _trainable(model: Model) -> tuple[int, ...]:
    return tuple(p.numel if p.trainable else 0 for p in model.parameters)


def _replicated(strategy: Ddp, model: Model) -> File:
    """Plain torch.save of model and optimizer: a storage for each parameter and each of its states. The file's name is
    that of many training scripts."""
    width, states = DTYPE_BYTES[strategy.parameter_dtype], strategy.optimizer.state_bytes
    weights = [Storage(float(width * p.numel)) for p in model.parameters]
    kept = [Storage(float(size * p.numel)) for p in model.parameters if p.trainable for size in _sizes(states)]
    masters = [Storage(float(MASTER_BYTES * p.numel)) for p in model.parameters if p.trainable and width < MASTER_BYTES]
    return File("checkpoint.pt", (*weights, *kept, *masters))


def _stage0(strategy: DeepSpeed, model: Model, training: Training) -> File:
    """runtime/fp16/fused_optimizer.py: flat 16-bit weights, flat fp32 masters, flat states, all by rank 0."""
    width, elements = DTYPE_BYTES[training.precision], sum(_trainable(model))
    frozen = [Storage(float(width * p.numel)) for p in model.parameters if not p.trainable]
    masters = [Storage(float(MASTER_BYTES * elements))] if width < MASTER_BYTES else []
    states = [Storage(float(size * elements)) for size in _sizes(strategy.optimizer.state_bytes)]
    weights = Storage(float(width * elements))
    return File("mp_rank_00_model_states.pt", (weights, *frozen, *states, *masters))


def _optimizer_states(strategy: DeepSpeed, model: Model, width: int, world_size: int) -> Iterator[Storage]:
    """fp32 master and states of a rank's partition; on stage 3 sub-group by sub-group. Swap files hold whole units."""
    for elements, tier in _partitions(strategy, model, width, world_size):
        held = aligned(elements, FP32, strategy.aio) if tier == "nvme" else elements
        for size in (MASTER_BYTES, *_sizes(strategy.optimizer.state_bytes)):
            yield Storage(float(size * held), tier)


def _partitions(strategy: DeepSpeed, model: Model, width: int, world_size: int) -> list[tuple[int, Tier]]:
    """Elements that a rank's optimizer updates together, padding included, and where it does."""
    if strategy.zero.stage < 3:
        flat = flat_layout(_trainable(model), world_size, strategy.zero.round_robin_gradients)
        return [(flat.share, placement_of(strategy.zero).optimizer)]
    return [(group.elements, group.optimizer) for group in layout_of(strategy, model, width, world_size).groups]


def layout_of(strategy: DeepSpeed, model: Model, width: int, world_size: int) -> Stage3Layout:
    """The layout of a model's parameters on stage 3; `width`: bytes of an element."""
    numels, trainable = [p.numel for p in model.parameters], [p.trainable for p in model.parameters]
    ranks = strategy.zero.mics_shard_size if strategy.zero.mics_shard_size > 0 else world_size
    return stage3_layout(strategy, numels, trainable, ranks, width)


def _sizes(state_bytes: int) -> list[int]:
    """Bytes an element of each state tensor: the 8 of Adam are two of fp32."""
    whole, rest = divmod(state_bytes, FP32)
    return [FP32] * whole + ([rest] if rest else [])
