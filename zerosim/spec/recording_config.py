"""`config` of a recording: what the script of a run was told, key by key.

`ds` is DeepSpeed's own configuration and read elsewhere; `ddp` and `fsdp` hold arguments of torch's classes. A key that
stands in no class here changes nothing, and `unread` names it: a comparison then tells whether it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zerosim.spec.fully_sharded import BackwardPrefetch, FloatType, Sharding
from zerosim.spec.training import MOST_PASSES, Precision

Count = Annotated[int, Field(ge=1)]

_IDLE = (  # what it is called, how it was made and watched; `model` and `freeze` stand in the parameter list
    "id", "model", "model_opts", "freeze", "copies", "nvme", "timeout", "mics_init", "seed", "steps", "lr", "seq", "mb",
    "micro_batch", "backend",
)  # fmt: skip
_OF_STRATEGY: Mapping[str, tuple[str, ...]] = {  # keys that mean something to one strategy only
    "ds": ("deepspeed",), "ddp": ("ddp",), "fsdp": ("fsdp1", "fsdp2"), "plain": ("fsdp2",),
    "keep_unsharded": ("fsdp2",),
}  # fmt: skip
BACKWARD_PREFETCHES: Mapping[str, BackwardPrefetch] = {  # of version 1
    "BACKWARD_PRE": "BACKWARD_PRE", "BACKWARD_POST": "BACKWARD_POST", "NO_PREFETCH": "NO_PREFETCH",
    "PRE": "BACKWARD_PRE", "POST": "BACKWARD_POST", "NONE": "NO_PREFETCH",
}  # fmt: skip
_OF_VERSION: Mapping[str, str] = {
    "sharding": "fsdp1", "limit_all_gathers": "fsdp1", "use_orig_params": "fsdp1", "reshard_after_forward": "fsdp2",
    "root_reshard_after_forward": "fsdp2",
}  # fmt: skip


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    @property
    def more(self) -> Mapping[str, Any]:
        """Keys that stand in no class."""
        return self.model_extra or {}


class DdpKeys(_Keys):
    """Arguments of DistributedDataParallel."""

    bucket_cap_mb: Annotated[float, Field(gt=0)] | None = None
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False


class FsdpKeys(_Keys):
    """Arguments of FullyShardedDataParallel (`fsdp1`) or `fully_shard` (`fsdp2`). `mesh`: replicas x shards, or shards.

    Of version 2, `forward_prefetch` and `backward_prefetch` are how many modules the script names to prefetch.
    """

    sharding: Sharding = "FULL_SHARD"
    wrap: Any = None
    mesh: list[Count] = []
    param_dtype: FloatType | None = None
    reduce_dtype: FloatType | None = None
    cpu_offload: bool = False
    forward_prefetch: bool | int | list[Any] | None = None
    backward_prefetch: bool | int | str | list[Any] | None = None
    limit_all_gathers: bool = True
    use_orig_params: bool = False
    reshard_after_forward: bool | Count | None = None
    root_reshard_after_forward: bool | Count | None = None

    @field_validator("backward_prefetch")
    @classmethod
    def _is_named(cls, given: bool | int | str | list[Any] | None) -> bool | int | str | list[Any] | None:
        if isinstance(given, str) and given.upper() not in BACKWARD_PREFETCHES:
            raise ValueError(f"{', '.join(BACKWARD_PREFETCHES)}, or null")
        return given


class Config(_Keys):
    """`ga`: micro-steps. `plain`: the script does not say which backward is the last. `keep_unsharded`: it calls
    set_reshard_after_backward(False)."""

    strategy: Literal["deepspeed", "ddp", "fsdp1", "fsdp2"]
    world: Count = 2
    local_size: Count | None = None
    ga: Annotated[int, Field(ge=1, le=MOST_PASSES)] = 1
    dtype: Precision = "fp32"
    clip: Annotated[float, Field(ge=0)] | None = None
    ckpt: bool | str | None = None
    no_sync: bool = False
    plain: bool = False
    keep_unsharded: bool = False
    ds: dict[str, Any] = {}
    ddp: DdpKeys = DdpKeys()
    fsdp: FsdpKeys = FsdpKeys()

    @property
    def leaves(self) -> Any:
        """What set_z3_leaf_modules was given, whatever the key is called."""
        return next((value for key, value in self.more.items() if "leaf" in key), None)

    def prefetched(self) -> tuple[int, int]:
        """Modules that version 2 is told to prefetch, forward and backward; a key without a direction says both."""
        given = {key: _number(value) for key, value in self._prefetches()}
        ahead = [count for key, count in given.items() if not key.startswith(("backward", "bwd"))]
        back = [count for key, count in given.items() if not key.startswith(("forward", "fwd"))]
        return max(ahead, default=0), max(back, default=0)

    def _prefetches(self) -> Iterator[tuple[str, Any]]:
        own = {"forward_prefetch": self.fsdp.forward_prefetch, "backward_prefetch": self.fsdp.backward_prefetch}
        for key, value in (*own.items(), *self.fsdp.more.items(), *self.more.items()):
            if "prefetch" in key:
                yield key, value

    def unread(self) -> Iterator[str]:
        """Keys that change nothing here."""
        for key in self.model_fields_set | self.more.keys():
            mine = self.strategy in _OF_STRATEGY.get(key, (self.strategy,))
            if not mine or (key in self.more and key not in _IDLE and not self._meant(key)):
                yield key
        if self.strategy == "ddp":
            yield from (f"ddp.{key}" for key in self.ddp.more if key != "broadcast_buffers")
        elif self.strategy != "deepspeed":
            for key in self.fsdp.model_fields_set | self.fsdp.more.keys():
                mine = _OF_VERSION.get(key, self.strategy) == self.strategy
                if not mine or (key in self.fsdp.more and not self._meant(key)):
                    yield f"fsdp.{key}"

    def _meant(self, key: str) -> bool:
        """Whether a key is one of those that have no fixed name."""
        return (self.strategy, True) in (("deepspeed", "leaf" in key), ("fsdp2", "prefetch" in key))


def _number(given: Any) -> int:
    return len(given) if isinstance(given, list) else int(given) if isinstance(given, int) else 0
