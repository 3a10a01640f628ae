"""FSDP settings to a value: `strategy: {fsdp: ...}`, as accelerate's file, its `fsdp_config`, or torch's arguments.

Who writes accelerate's keys (the prefix `fsdp_`, or a whole file) gets accelerate's defaults: no prefetch in backward,
nothing wrapped, gradients reduced in the last micro-step only. Who writes torch's gets torch's, with each transformer
block wrapped. Sources: accelerate 1.15 (commands/launch.py, utils/dataclasses.py, utils/fsdp_utils.py), torch 2.13
(torch/distributed/fsdp). All problems are told at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from zerosim.errors import Finding, InputError, Problem, nearest
from zerosim.spec.changes import Change
from zerosim.spec.ddp import OptimizerSchema, read_optimizer
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.document import Document, by_place, shown
from zerosim.spec.fsdp_accelerate import SECTION, TOP, is_whole, read_whole
from zerosim.spec.fsdp_misfits import misfits
from zerosim.spec.fsdp_precision import Precisions, read_precision
from zerosim.spec.fsdp_schema import OF_VERSION, PREFIX, SCRIPT, named, spellings
from zerosim.spec.fsdp_settings import INLINE, Beside, Settings
from zerosim.spec.fsdp_wrap import read_wrap
from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.loading import validated
from zerosim.spec.strategy import Optimizer

__all__ = ["Beside", "FsdpRead", "read_fsdp", "unknown_change"]

FEW = 4  # keys: in a file of more, most of which nobody knows, it is not one key that is wrong
_PLAIN = (  # keys that are a field of the value, unchanged
    "cpu_offload", "no_sync", "gradient_clipping", "shard_size", *OF_VERSION[1], *OF_VERSION[2],
)  # fmt: skip
_OF_ACCELERATE: Mapping[str, Any] = {"backward_prefetch": "NO_PREFETCH", "use_orig_params": True}


@dataclass(frozen=True, slots=True)
class FsdpRead:
    """The strategy, the values it shares with `training`, what is worth knowing, and what was taken unsaid."""

    fsdp: Fsdp
    training_values: Mapping[str, Any]
    findings: tuple[Finding, ...]
    assumptions: tuple[str, ...]


def read_fsdp(document: Document, beside: Beside | None = None, own: Document | None = None) -> FsdpRead:
    """The settings, or an InputError with all their problems; `own`: what the scenario says beside a file."""
    beside = beside or Beside()
    if not isinstance(document.data, Mapping):
        raise InputError([document.problem((), shown(document.data), "a mapping of FSDP's keys")])
    settings = Settings(Log())
    _collect(document, own, settings, beside)
    read = _read(document, settings, beside)
    if settings.log.problems or read is None:
        raise InputError(sorted(settings.log.problems, key=by_place))
    return read


def unknown_change(change: Change) -> list[Problem]:
    """What is wrong with a change of a key that nobody knows; in a file it may be anything."""
    inside = [key for key in change.path[2:] if key != "config_file"]
    if change.path[:2] != INLINE or not inside:
        return []
    key = inside[1] if inside[0] == SECTION and len(inside) > 1 else inside[0]
    if named(key) or key in TOP:
        return []
    found, close = f'unknown key "{key}"', nearest(key, spellings())
    return [Problem(change.source, ".".join(change.path), found, "a key of FSDP", close)]


def _collect(document: Document, own: Document | None, settings: Settings, beside: Beside) -> None:
    """Every key that was written."""
    whole = is_whole(document.data)
    settings.accelerate = whole or any(str(key).startswith(PREFIX) for key in document.data)
    known = sum(bool(named(key)) for key in document.data)
    if not document.at and not whole and 2 * known < len(document.data) > FEW:  # a file of something else
        expected = "a file of accelerate (distributed_type: FSDP), or the keys of its fsdp_config"
        raise InputError([document.problem((), "neither", expected)])
    if whole:
        read_whole(document, settings, beside)
    else:
        settings.read(document)
    if own is not None:
        settings.read(own, SCRIPT)


def _read(document: Document, settings: Settings, beside: Beside) -> FsdpRead | None:
    version = _version(settings)
    settings.tell(version)
    assumptions: list[str] = []
    precision = read_precision(settings, beside, assumptions, whole=is_whole(document.data))
    checkpointing = _checkpointing(settings, beside)
    wrap = read_wrap(settings, beside, version, assumptions)
    optimizer = _optimizer(settings)
    if settings.log.problems or precision is None:
        return None
    fsdp = Fsdp(
        version=version,
        wrap=wrap,
        parameter_dtype=precision.parameter,
        param_dtype=precision.param,
        reduce_dtype=precision.reduce,
        optimizer=optimizer,
        **_values(settings, version),
    )
    fsdp = _resharding(_mesh(fsdp, settings, beside), settings, beside)
    _check(fsdp, settings, beside, precision)
    _say(fsdp, settings, beside, assumptions)
    training = {"precision": precision.name, **checkpointing}
    return FsdpRead(fsdp, training, tuple(settings.log.findings), tuple(assumptions))


def _version(settings: Settings) -> Literal[1, 2]:
    """1 where nobody says it, as in accelerate and as torch's constructor is called; keys of `fully_shard` say 2."""
    of_torch = not settings.accelerate and any(name in settings for name in OF_VERSION[2])
    return 2 if settings.get("version", 2 if of_torch else 1) == 2 else 1


def _values(settings: Settings, version: int) -> dict[str, Any]:
    """Fields that are written as they are; those of the other version keep their defaults."""
    others = OF_VERSION[3 - version]
    values = {name: settings.written[name].value for name in _PLAIN if name in settings and name not in others}
    if settings.accelerate:
        unsaid = {**_OF_ACCELERATE, "no_sync": True}
        values = {name: value for name, value in unsaid.items() if name not in others} | values
    return values


def _mesh(fsdp: Fsdp, settings: Settings, beside: Beside) -> Fsdp:
    """A mesh is the size of its shard groups; one of a single dimension is all ranks."""
    if "mesh" not in settings:
        return fsdp
    mesh, world = settings.written["mesh"].value, beside.world_size
    *replicas, shards = mesh
    if world is not None and math.prod(mesh) != world:
        settings.wrong("mesh", f"{list(mesh)}, a mesh of {math.prod(mesh)} ranks", f"one over the {world} GPUs")
    if "shard_size" in settings:
        settings.wrong("shard_size", f"{fsdp.shard_size} beside a mesh", "one of the two")
    return replace(fsdp, shard_size=shards if replicas and replicas[0] > 1 else None)


def _resharding(fsdp: Fsdp, settings: Settings, beside: Beside) -> Fsdp:
    """What `reshard_after_forward` comes to: 1 rank is false, all ranks true (_fsdp_init.py of fully_shard)."""
    sizes: dict[str, Any] = {}
    for name in ("reshard_after_forward", "root_reshard_after_forward"):
        value, shards = getattr(fsdp, name), fsdp.shard_size or beside.world_size
        if isinstance(value, str):
            settings.wrong(name, f'"{value}"', "true, false, or a number of ranks in version 2")
        elif isinstance(value, bool) or fsdp.version == 1:
            continue
        elif settings.accelerate:
            settings.wrong(name, str(value), "true or false, the only values that accelerate hands on")
        elif value in (1, shards):
            sizes[name] = value != 1
            said = (
                f"{name}: {value} is {shown(value != 1)}: that is {'each rank alone' if value == 1 else 'all ranks'}."
            )
            settings.log.say("key-no-effect", "note", said)
    return replace(fsdp, **sizes)


# --- training, wrapping, optimizer ------------------------------------------------------------------------------------


def _checkpointing(settings: Settings, beside: Beside) -> dict[str, Any]:
    """`activation_checkpointing` wraps what FSDP wraps, without reentrance (accelerator.py, CheckpointImpl)."""
    if not settings.get("activation_checkpointing", False):
        return {}
    if beside.activation_checkpointing not in (None, "full"):
        settings.wrong("activation_checkpointing", "true", beside.said("activation_checkpointing"))
    if beside.reentrant:
        settings.wrong("activation_checkpointing", "true, which is not reentrant", beside.said("reentrant"))
    return {"activation_checkpointing": "full", "reentrant": False}


def _optimizer(settings: Settings) -> Optimizer:
    if "optimizer" not in settings:
        return Optimizer()
    each = settings.written["optimizer"]

    def read() -> Optimizer:
        given = each.value
        if not isinstance(given, str):
            given = validated(each.document.below(each.key), OptimizerSchema)
        return read_optimizer(each.document, given)

    return settings.attempt(read) or Optimizer()


# --- what does not go together ----------------------------------------------------------------------------------------


def _check(fsdp: Fsdp, settings: Settings, beside: Beside, precision: Precisions) -> None:
    for wrong in misfits(fsdp, precision.name, beside.world_size, beside.ranks_per_node):
        place = next((name for name in (wrong.key, *_ALSO.get(wrong.key, ())) if name in settings), "")
        if place and not (place == "mesh" and settings.log.problems):  # one that is told already
            found = str(list(settings.written[place].value)) if place == "mesh" else wrong.found
            settings.wrong(place, found, wrong.expected)


_ALSO = {  # where a misfit may stand if not under its own key
    "shard_size": ("mesh", "sharding_strategy"),
    "mixed_precision": ("parameter_dtype",),
}


def _say(fsdp: Fsdp, settings: Settings, beside: Beside, assumptions: list[str]) -> None:
    """What an answer rests on and nobody said."""
    if settings.accelerate and "no_sync" not in settings and beside.micro_steps > 1:
        assumptions.append(
            "Gradients are reduced in the last micro-step only and accumulate unsharded until then (no_sync: true), as "
            "accelerate's accumulate() and the Trainer do."
        )
    world, shards = beside.world_size, fsdp.shard_size or beside.ranks_per_node
    if fsdp.version == 1 and fsdp.hybrid and world == shards is not None:
        plain = "FULL_SHARD" if fsdp.sharding_strategy == "HYBRID_SHARD" else "SHARD_GRAD_OP"
        message = f"{fsdp.sharding_strategy} on {shards} GPUs has no replicas: it does what {plain} does."
        settings.log.say("key-no-effect", "note", message)
