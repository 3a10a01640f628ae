"""A DeepSpeed value back to DeepSpeed's own keys: what `read_deepspeed` reads as the same value.

Keys that shape a step on the stage at hand are written out whatever their value, so that a file explains itself; the
others only where they differ from the default. Batch sizes are left out: they are the business of `training`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from zerosim.spec.deepspeed_leaves import leaf_mapping
from zerosim.spec.deepspeed_offload import OFFLOADS
from zerosim.spec.deepspeed_schema import ALIASES, ZERO, Key
from zerosim.spec.deepspeed_zeropp import REMOVED
from zerosim.spec.release import Release
from zerosim.spec.strategy import UNLIMITED, Aio, DeepSpeed, LeafModule, Offload, Optimizer, Zero


def as_mapping(deepspeed: DeepSpeed, precision: str) -> dict[str, Any]:
    """The configuration in DeepSpeed's own keys, ready for a JSON file."""
    mapping: dict[str, Any] = {
        "zero_optimization": _zero(deepspeed.zero, deepspeed.release),
        "optimizer": _optimizer(deepspeed.optimizer),
        "gradient_clipping": deepspeed.gradient_clipping,
        "communication_data_type": deepspeed.communication_data_type,
        "prescale_gradients": deepspeed.prescale_gradients or None,
        "wall_clock_breakdown": deepspeed.wall_clock_breakdown,
    }
    if precision != "fp32":
        mapping[precision] = {"enabled": True}
    if precision == "bf16" and deepspeed.release.reads_check_grad_overflow:
        mapping[precision]["check_grad_overflow"] = deepspeed.check_grad_overflow
    if precision == "fp16" and deepspeed.loss_scale:
        mapping[precision]["loss_scale"] = deepspeed.loss_scale
    if deepspeed.grad_accum_dtype:
        mapping["data_types"] = {"grad_accum_dtype": deepspeed.grad_accum_dtype}
    if not deepspeed.synchronized_timer:
        mapping["timers"] = {"throughput": {"synchronized": False}}
    if deepspeed.cpu_checkpointing:
        mapping["activation_checkpointing"] = {"cpu_checkpointing": True}
    mapping["aio"] = _aio(deepspeed.aio) or None
    return {key: value for key, value in mapping.items() if value is not None}


def _optimizer(optimizer: Optimizer) -> dict[str, Any]:
    mapping: dict[str, Any] = {"type": optimizer.name}
    if optimizer.name in ("Adam", "AdamW") and not optimizer.fused:
        mapping["params"] = {"torch_adam": True}
    if optimizer.name in ("SGD", "MuSGD") and optimizer.state_bytes:
        mapping["params"] = {"momentum": 0.9}
    return mapping


def _zero(zero: Zero, release: Release) -> dict[str, Any]:
    spelling = {name: alias for alias, name in ALIASES.items()}
    mapping: dict[str, Any] = {}
    defaulted = () if zero.overlap_comm_given else ("overlap_comm",)
    for name in (field.name for field in fields(zero) if field.name not in ("overlap_comm_given", *defaulted)):
        row, value = ZERO[name], getattr(zero, name)
        if isinstance(value, Offload):
            value = _offload(value, OFFLOADS[name], release)
        if isinstance(value, LeafModule):
            value = leaf_mapping(value)
        removed = name in REMOVED and not release.mics
        removed |= not release.knows(name)
        shapes = not row.idle and not removed and str(zero.stage) in row.stages and value != UNLIMITED
        if value is not None and (value != row.default or shapes):
            mapping[spelling.get(name, name)] = value
    return mapping


def _aio(aio: Aio) -> dict[str, Any]:
    plain = Aio()
    values = {field.name: getattr(aio, field.name) for field in fields(aio)}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}


def _offload(offload: Offload, table: Mapping[str, Key], release: Release) -> dict[str, Any] | None:
    """An offload in the keys of its section; None where nothing is offloaded."""
    if offload.device == "none":
        return None
    values = {name: getattr(offload, name) for name in table if hasattr(offload, name)}
    defaults = {name: row.default for name, row in table.items()} | {"pin_memory": release.pin_memory}
    return {name: value for name, value in values.items() if name == "device" or value != defaults[name]}
