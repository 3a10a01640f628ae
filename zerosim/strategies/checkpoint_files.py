"""The files of a checkpoint: who writes them, and the storages in each, in the order in which torch.save writes them.

Source: DeepSpeed runtime/engine.py (`_configure_checkpointing`, `_save_checkpoint`, `_save_zero_checkpoint`,
`_common_checkpoint_state`) and the `state_dict` of its optimizers. What surprises: on stage 3 the model file of a rank
holds names and shapes only, for the parameters are partitioned when it is written: the weights are in the checkpoint
once, as fp32 masters. On stages 0 to 2 rank 0 writes the 16-bit weights, and frozen ones on stage 2 twice. With the
optimizer on NVMe nothing is serialised: each rank copies its swap files. Nothing here knows how long a write takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES, Tier
from zerosim.strategies.flat import flat_layout
from zerosim.strategies.placement import MASTER, placement_of

STATE = 4  # bytes of an element of an optimizer state (fp32)


class Storage(NamedTuple):
    """A block of memory that is written as a whole, and the tier in which training keeps it."""

    bytes: float
    tier: Tier = "gpu"


class File(NamedTuple):
    """A file that rank 0 writes, or (`sharded`) one of equal files, each written by its rank."""

    name: str
    storages: tuple[Storage, ...]
    sharded: bool = False

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
    optimizer = f"{prefix}_{rank}_mp_rank_00_optim_states.pt"
    states = File(optimizer, tuple(_optimizer_states(strategy, model, world_size)), sharded=True)
    frozen = [p.numel for p in model.parameters if not p.trainable]
    if stage == 3:
        fragments = tuple(Storage(float(width * -(-numel // world_size))) for numel in frozen)
        return File(f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", fragments, sharded=True), states
    weights = float(width * flat_layout(_trainable(model), world_size, strategy.zero.round_robin_gradients).padded)
    again = 2 if stage == 2 else 1  # `frozen_param_fragments` beside the module's own
    kept = tuple(Storage(float(width * numel)) for numel in frozen for _ in range(again))
    return File("mp_rank_00_model_states.pt", (Storage(weights), *kept)), states


def weights_file(strategy: Ddp | DeepSpeed, model: Model, training: Training) -> File:
    """What `save_16bit_model` and `model.state_dict()` write: every parameter in the dtype of training, by rank 0."""
    own = strategy.parameter_dtype if isinstance(strategy, Ddp) else training.precision
    width = DTYPE_BYTES[own]
    return File("pytorch_model.bin", tuple(Storage(float(width * p.numel)) for p in model.parameters))


def shard_elements(strategy: DeepSpeed, model: Model, world_size: int) -> int:
    """Trainable elements whose optimizer states a rank keeps (padding included)."""
    if strategy.zero.stage == 3:
        return sum(-(-numel // world_size) for numel in _trainable(model) if numel)
    return flat_layout(_trainable(model), world_size, strategy.zero.round_robin_gradients).share


def _trainable(model: Model) -> tuple[int, ...]:
    return tuple(p.numel if p.trainable else 0 for p in model.parameters)


def _replicated(strategy: Ddp, model: Model) -> File:
    """Plain torch.save of model and optimizer: a storage for each parameter and each of its states. The file's name is
    that of many training scripts."""
    width, states = DTYPE_BYTES[strategy.parameter_dtype], strategy.optimizer.state_bytes
    weights = [Storage(float(width * p.numel)) for p in model.parameters]
    kept = [Storage(float(size * p.numel)) for p in model.parameters if p.trainable for size in _sizes(states)]
    masters = [Storage(float(MASTER * p.numel)) for p in model.parameters if p.trainable and width < MASTER]
    return File("checkpoint.pt", (*weights, *kept, *masters))


def _stage0(strategy: DeepSpeed, model: Model, training: Training) -> File:
    """runtime/fp16/fused_optimizer.py: flat 16-bit weights, flat fp32 masters, flat states, all by rank 0."""
    width, elements = DTYPE_BYTES[training.precision], sum(_trainable(model))
    frozen = [Storage(float(width * p.numel)) for p in model.parameters if not p.trainable]
    masters = [Storage(float(MASTER * elements))] if width < MASTER else []
    states = [Storage(float(size * elements)) for size in _sizes(strategy.optimizer.state_bytes)]
    weights = Storage(float(width * elements))
    return File("mp_rank_00_model_states.pt", (weights, *frozen, *states, *masters))


def _optimizer_states(strategy: DeepSpeed, model: Model, world_size: int) -> Iterator[Storage]:
    """fp32 master and states of a rank's shard; on stage 3 sub-group by sub-group."""
    tier = placement_of(strategy.zero).optimizer
    left = shard_elements(strategy, model, world_size)
    most = strategy.zero.sub_group_size if strategy.zero.stage == 3 else left
    while left > 0:
        elements = min(left, max(1, most)) if left > most else left
        for size in (MASTER, *_sizes(strategy.optimizer.state_bytes)):
            yield Storage(float(size * elements), tier)
        left -= elements


def _sizes(state_bytes: int) -> list[int]:
    """Bytes an element of each state tensor: the 8 of Adam are two of fp32."""
    whole, rest = divmod(state_bytes, STATE)
    return [STATE] * whole + ([rest] if rest else [])
