"""The keys of FSDP settings as a table: kind of value, which version reads it, why it may change nothing.

A key is named as torch names its argument (FullyShardedDataParallel, fully_shard); accelerate's `fsdp_config` has the
same names with the prefix `fsdp_`, and a few of its own (`ALIASES`). `SCRIPT` is what no file of accelerate can say:
the training script's side of the matter. Adding a key is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zerosim.spec.deepspeed_values import POSITIVE, Kind, optional
from zerosim.spec.fsdp_values import (
    BOOLEAN,
    CLASSES,
    CLIPPING,
    DTYPE,
    INTEGER,
    MESH,
    OPTIMIZER,
    POLICY,
    PRECISION,
    PREFETCH,
    RESHARD,
    SHARDING,
    TEXT,
    VERSION,
    WRAP,
)  # fmt: skip

PREFIX = "fsdp_"


class Key(NamedTuple):
    """A key. `versions` read it; `idle` says why it changes nothing; `lacks` is the mechanism it would switch on."""

    kind: Kind
    versions: str = "12"
    idle: str = ""
    lacks: str = ""


_CHECKPOINT = "it concerns saving and loading of checkpoints only"
_START = "parameters are broadcast once, before the first step"

KEYS: Mapping[str, Key] = {
    "version": Key(VERSION),
    "sharding_strategy": Key(SHARDING, "1"),
    "backward_prefetch": Key(PREFETCH, "1"),
    "forward_prefetch": Key(BOOLEAN, "1"),
    "limit_all_gathers": Key(BOOLEAN, "1"),
    "use_orig_params": Key(BOOLEAN, "1"),
    "sync_module_states": Key(BOOLEAN, "1", idle=_START),
    "reshard_after_forward": Key(RESHARD, "2"),
    "root_reshard_after_forward": Key(RESHARD, "2"),
    "reshard_after_backward": Key(BOOLEAN, "2"),
    "prefetch_forward": Key(INTEGER, "2"),
    "prefetch_backward": Key(INTEGER, "2"),
    "set_is_last_backward": Key(BOOLEAN, "2"),
    "pin_memory": Key(BOOLEAN, "2"),
    "auto_wrap_policy": Key(POLICY),
    "transformer_layer_cls_to_wrap": Key(CLASSES),
    "min_num_params": Key(INTEGER),
    "wrap": Key(WRAP),
    "mixed_precision": Key(PRECISION),
    "parameter_dtype": Key(DTYPE),
    "cpu_offload": Key(BOOLEAN),
    "shard_size": Key(optional(POSITIVE)),
    "mesh": Key(MESH),
    "no_sync": Key(BOOLEAN),
    "gradient_clipping": Key(CLIPPING),
    "optimizer": Key(OPTIMIZER),
    "activation_checkpointing": Key(BOOLEAN),
    "activation_checkpointing_offload": Key(BOOLEAN, lacks="the offload of checkpointed activations"),
    "ignored_modules": Key(optional(TEXT), lacks="modules that are left out of sharding"),
    "state_dict_type": Key(TEXT, idle=_CHECKPOINT),
    "cpu_ram_efficient_loading": Key(BOOLEAN, idle="it concerns the loading of the model only"),
}
ALIASES: Mapping[str, str] = {  # other names for a key, without the prefix
    "offload_params": "cpu_offload",
    "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
    "mixed_precision_policy": "mixed_precision",
    "mp_policy": "mixed_precision",
    "device_mesh": "mesh",
}
SCRIPT: tuple[str, ...] = (
    "parameter_dtype", "no_sync", "gradient_clipping", "optimizer", "prefetch_forward", "prefetch_backward",
    "set_is_last_backward", "reshard_after_backward", "root_reshard_after_forward", "pin_memory",
)  # fmt: skip
POLICY_KEYS: Mapping[str, Key] = {  # of a mixed-precision policy
    "param_dtype": Key(DTYPE),
    "reduce_dtype": Key(DTYPE),
    "buffer_dtype": Key(DTYPE, "1", idle="buffers are few"),
    "output_dtype": Key(DTYPE, "2", idle="the output is cast once a micro-step"),
    "cast_forward_inputs": Key(BOOLEAN, idle="inputs are token numbers, which are not cast"),
    "cast_root_forward_inputs": Key(BOOLEAN, "1", idle="inputs are token numbers, which are not cast"),
    "keep_low_precision_grads": Key(BOOLEAN, "1", lacks="an optimizer on gradients of low precision"),
}
OF_VERSION: Mapping[int, tuple[str, ...]] = {  # keys that shape the step of one version only
    version: tuple(name for name, row in KEYS.items() if row.versions == str(version) and not row.idle)
    for version in (1, 2)
}


def named(key: object) -> str:
    """What a key is called in the table, whoever wrote it; "" if it is not there."""
    plain = str(key).removeprefix(PREFIX)
    name = ALIASES.get(plain, plain)
    return name if name in KEYS else ""


def spelled(name: str, like: str) -> str:
    """The key as it is written beside `like`."""
    return f"{PREFIX}{name}" if like.startswith(PREFIX) else name


def spellings() -> list[str]:
    """All ways to write a key."""
    plain = [*KEYS, *ALIASES]
    return [*plain, *(f"{PREFIX}{name}" for name in plain)]
