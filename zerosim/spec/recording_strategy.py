"""The configuration of a recording as strategy, training and ranks: what the framework was told, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zerosim.errors import InputError
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_leaves import leaf_mapping
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import inline, validated
from zerosim.spec.recording_config import Config
from zerosim.spec.recording_events import Event
from zerosim.spec.recording_fsdp import fsdp_of
from zerosim.spec.recording_model import Network, called_whole
from zerosim.spec.release import CURRENT, release_of
from zerosim.spec.strategy import Ddp, DeepSpeed, LeafModule, Strategy
from zerosim.spec.training import Training

TOKENS = 16  # of a sequence; no collective depends on it


@dataclass(frozen=True, slots=True)
class Run:
    """How a recording was made. `rebuilds_late`: DDP's buckets in the third step, not in the second."""

    strategy: Strategy
    training: Training
    world: int
    ranks_per_node: int
    notes: tuple[str, ...] = ()

    @property
    def rebuilds_late(self) -> bool:
        return isinstance(self.strategy, Ddp) and self.strategy.static_graph


def run_of(
    document: Document,
    extra: Mapping[str, Any],
    versions: Mapping[str, str | None],
    network: Network,
    events: Sequence[Event],
) -> Run:
    """What `config` says. InputError with what cannot be read."""
    config = validated(document, Config)
    training = Training(
        sequence_length=TOKENS,
        gradient_accumulation_steps=config.ga,
        precision=config.dtype,
        activation_checkpointing="full" if config.ckpt else "none",
        reentrant=bool(config.ckpt) and called_whole(events),
    )
    if config.strategy == "ddp":
        strategy: Strategy = _ddp(config)
    elif config.strategy == "deepspeed":
        strategy = _deepspeed(document, config, versions.get("deepspeed") or CURRENT, network)
    else:
        strategy = fsdp_of(config, extra)
    unread = sorted(f"config.{key}" for key in config.unread())
    notes = (f"not read: {', '.join(unread)}",) if unread else ()
    return Run(strategy, training, config.world, config.local_size or config.world, notes)


def _ddp(config: Config) -> Ddp:
    """A model in 16 bits is one whose parameters are: the runs use no autocast."""
    keys = {name: getattr(config.ddp, name) for name in type(config.ddp).model_fields}
    return Ddp(**keys, no_sync=config.no_sync, parameter_dtype=config.dtype)


def _deepspeed(document: Document, config: Config, version: str, network: Network) -> DeepSpeed:
    """The configuration as DeepSpeed reads it, with what the script adds to it."""
    try:
        release = release_of(version)
    except ValueError:
        raise InputError([document.problem((), shown(version), "a release of DeepSpeed")]) from None
    keys = {key: value for key, value in config.ds.items() if key != "train_batch_size"}
    keys |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": config.ga}
    if config.clip is not None:
        keys["gradient_clipping"] = config.clip
    if config.dtype != "fp32":
        keys.setdefault(config.dtype, {"enabled": True})
    zero = _mapping(keys.get("zero_optimization"))
    given = zero.get("leaf_module")
    leaves = _leaves(config.leaves, _mapping(given), network)
    if given is not None:  # by name, for classes are not known to a model; a release that lacks the key refuses it
        keys["zero_optimization"] = {**zero, "leaf_module": leaf_mapping(leaves)}
    read = read_deepspeed(inline(keys, document.source), Given(world_size=config.world), release).deepspeed
    return replace(read, zero=replace(read.zero, leaf_module=leaves))


def _leaves(said: Any, section: Mapping[str, Any], network: Network) -> LeafModule:
    """The leaf modules, by name: those of the classes that the section or `set_z3_leaf_modules` was given, and what
    else the section picks."""
    classes = {called.rpartition(".")[2] for called in (*_texts(section.get("classes")), *_texts(said))}
    wanted = {*_texts(section.get("names")), *_texts(said)}
    names = [module.name for module in network.modules if module.cls in classes or module.name in wanted]
    return LeafModule(tuple(dict.fromkeys(names)), tuple(_texts(section.get("name_suffixes"))))


def _texts(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else [*map(str, given)] if isinstance(given, list) else []


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}
