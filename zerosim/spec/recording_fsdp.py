"""FSDP of a recording: the `fsdp` section, what the script did beside it, and which modules were wrapped.

What was wrapped is told by what FSDP made of it (`extra.fsdp_units`), without the wrappers' names in between. Of sizes
only how many ranks share a unit is taken from there, where nothing else says it: HYBRID_SHARD's groups of a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.spec.fully_sharded import HYBRIDS, Fsdp, Wrap
from zerosim.spec.recording_config import BACKWARD_PREFETCHES, Config, FsdpKeys
from zerosim.spec.recording_model import ROOT

Units = Sequence[Mapping[str, Any]]

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def fsdp_of(config: Config, extra: Mapping[str, Any]) -> Fsdp:
    """The strategy of a run with one of the two versions."""
    given, keys = extra.get("fsdp_units"), config.fsdp
    units = [unit for unit in given if isinstance(unit, Mapping)] if isinstance(given, list) else []
    mixed = keys.param_dtype or (config.dtype if config.dtype != "fp32" else None)
    common: dict[str, Any] = {
        "wrap": _wrap(keys, units),
        "shard_size": _shard_size(config, units),
        "param_dtype": mixed,
        "cpu_offload": keys.cpu_offload,
        "no_sync": config.no_sync,
        "gradient_clipping": config.clip or 0.0,
    }
    if config.strategy == "fsdp1":
        return Fsdp(1, **common, **_version_1(keys))
    # The scripts reduce in fp32 where they compute in 16 bits.
    return Fsdp(2, **common, reduce_dtype=keys.reduce_dtype or ("fp32" if mixed else None), **_version_2(config))


def _version_1(keys: FsdpKeys) -> dict[str, Any]:
    said = keys.backward_prefetch if "backward_prefetch" in keys.model_fields_set else "BACKWARD_PRE"
    return {
        "reduce_dtype": keys.reduce_dtype,
        "sharding_strategy": keys.sharding,
        "backward_prefetch": BACKWARD_PREFETCHES.get(str(said).upper(), "NO_PREFETCH"),
        "forward_prefetch": bool(keys.forward_prefetch),
        "limit_all_gathers": keys.limit_all_gathers,
        "use_orig_params": keys.use_orig_params,
    }


def _version_2(config: Config) -> dict[str, Any]:
    """None reshards blocks after their forward, and not the root (fully_shard's own default)."""
    keys, (forward, backward) = config.fsdp, config.prefetched()
    return {
        "reshard_after_forward": keys.reshard_after_forward is None or keys.reshard_after_forward,
        "root_reshard_after_forward": keys.root_reshard_after_forward or False,
        "reshard_after_backward": not config.keep_unsharded,
        "prefetch_forward": forward,
        "prefetch_backward": backward,
        "set_is_last_backward": not config.plain,
    }


def _wrap(keys: FsdpKeys, units: Units) -> Wrap:
    if not units:
        return Wrap(blocks=keys.wrap != "none")
    return Wrap(blocks=False, modules=tuple(name for name in _names(units) if name not in ("", ROOT)))


def _names(units: Units) -> Iterator[str]:
    for unit in units:
        parts = str(unit.get("name", ROOT)).split(".")
        yield ".".join(part for part in parts if part not in _WRAPPERS)


def _shard_size(config: Config, units: Units) -> int | None:
    """Ranks over which parameters are sharded; None: all of them."""
    mesh = config.fsdp.mesh
    if len(mesh) > 1:
        return mesh[-1]
    if config.strategy == "fsdp1" and config.fsdp.sharding in HYBRIDS:
        found = next(filter(None, map(_ranks, units)), config.local_size)
        return found if found != config.world else None
    return None


def _ranks(unit: Mapping[str, Any]) -> int:
    """That share a unit; 0 where it holds nothing. The padding is not in what recordings call `flat_numel_padded`."""
    whole, part = unit.get("flat_numel_padded"), unit.get("sharded_numel")
    return -(-whole // part) if isinstance(whole, int) and isinstance(part, int) and part else 0
