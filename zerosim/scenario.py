"""A scenario: one question. Topology, model, training and strategy, resolved, with what was found and assumed.

`load` reads a scenario file and the files it names, makes the changes of `--set`, and tells all mistakes of all files
at once. A Scenario is a value: `replace` makes another; `text` is plain data that reproduces it. Nothing here knows
how a step is built, priced or played.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerosim.errors import Finding, InputError, Problem, nearest
from zerosim.spec.calibration import Calibration
from zerosim.spec.launch import Launch, usual_launch
from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Pipeline, Strategy
from zerosim.spec.tiers import lacking_tier
from zerosim.spec.training import MOST_PASSES, Training

if TYPE_CHECKING:  # networkx, pydantic and yaml are loaded when a file is read, not before
    from zerosim.spec.changes import Change
    from zerosim.spec.document import Document
    from zerosim.spec.topology import Topology

__all__ = ["Scenario", "from_document", "from_mapping", "load"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question, everything resolved.

    `topology` is what the run uses of `machine`, the whole of what was described. `text` reproduces the scenario when
    read with `from_mapping` in the directory of its file (a model or topology set from Python stands there by name).
    """

    title: str
    machine: Topology
    nodes: int | None
    gpus: int | None
    topology: Topology
    model: Model
    training: Training
    strategy: Strategy
    text: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[str, ...] = ()
    source: str = ""
    calibration: Calibration | None = None
    launch: Launch = dataclasses.field(default_factory=Launch)

    def __post_init__(self) -> None:
        """What no scenario may be, however it was made."""
        longest, length = self.model.max_positions, self.training.sequence_length
        wrong = []
        if longest is not None and length > longest:
            expected = f"at most {longest}, the learnt positions of {self.model.name}"
            wrong.append(Problem(self.source, "training.sequence_length", str(length), expected))
        most, micro_steps = MOST_PASSES // self.model.layers, self.training.gradient_accumulation_steps
        if micro_steps > most:
            expected = f"at most {most} for {self.model.layers} layers, which is the longest step that can be played"
            wrong.append(Problem(self.source, "training.gradient_accumulation_steps", str(micro_steps), expected))
        if isinstance(self.strategy, Ddp) and self.strategy.parameter_dtype not in ("fp32", self.training.precision):
            expected = f"fp32 or {self.training.precision}, the precision of training"
            wrong.append(Problem(self.source, "strategy.ddp.parameter_dtype", self.strategy.parameter_dtype, expected))
        lacking = lacking_tier(self.strategy, self.topology)
        if lacking:
            wrong.append(Problem(self.source, "topology", *lacking))
        wrong += _misfits(self)
        if wrong:
            raise InputError(wrong)

    @property
    def world_size(self) -> int:
        """Ranks of the run: one a GPU."""
        return len(self.topology.gpus)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the first node; the last may have fewer."""
        return len(self.topology.nodes[0].gpus)

    @property
    def replicas(self) -> int:
        """Ranks, or pipelines, that each have their own part of the batch."""
        return self.world_size // (self.strategy.stages if isinstance(self.strategy, Pipeline) else 1)

    def replace(self, **changes: Any) -> Scenario:
        """Another scenario: `title`, `nodes`, `gpus`, `topology`, `model`, `training`, `strategy`, `launch` or
        `calibration` changed.

        All of them values; `training` and `launch` may also be mappings of the fields that change. The batch per GPU
        stays as it is when the number of GPUs changes, and bucket sizes stay when the model does. Where nobody said how
        processes are started, another strategy is started in its own usual way.
        """
        _known(changes)
        values = dict(changes)
        if isinstance(values.get("training"), Mapping):
            values["training"] = _changed_training(self.training, values["training"])
        strategy = values.get("strategy", self.strategy)
        if isinstance(values.get("launch"), Mapping):
            values["launch"] = _changed_launch(self.launch, values["launch"], strategy)
        elif "launch" not in self.text and "strategy" in values:
            values = {"launch": usual_launch(strategy), **values}
        if "topology" in values:
            values["machine"] = values["topology"]
        if values.keys() & {"nodes", "topology"}:  # a number of GPUs says nothing about other nodes
            values = {"gpus": None, **values}
        machine = values.get("machine", self.machine)
        values["topology"] = machine.select(values.get("nodes", self.nodes), values.get("gpus", self.gpus))
        changed = dataclasses.replace(self, **values)
        said = changed.launch if "launch" in changes or "launch" in self.text else None
        names: dict[str, Any] = {key: changes[key].name for key in ("topology", "model") if key in changes}
        if "calibration" in changes:
            names["calibration"] = _calibration_text(changes["calibration"])
        return dataclasses.replace(changed, text=_text(changed, {**self.text, **names}, said))


def load(path: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """The scenario in a file, after `changes` ("nodes=4", "strategy.deepspeed.zero_optimization.stage=2")."""
    from zerosim.spec import loading

    return from_document(loading.read(path), Path(path).parent, changes)


def from_mapping(
    mapping: Mapping[str, Any], base_directory: str | Path = ".", changes: Sequence[str | Change] = ()
) -> Scenario:
    """The scenario in a mapping; paths in it are relative to `base_directory`."""
    from zerosim.spec import loading

    document = loading.inline(dict(mapping), str(mapping.get("title") or "scenario"))
    return from_document(document, Path(base_directory), changes)


def from_document(document: Document, base_directory: Path, changes: Sequence[str | Change] = ()) -> Scenario:
    """The scenario in a document, which may be read with many different changes."""
    from zerosim.spec import scenario_file

    return Scenario(**scenario_file.read(document, base_directory, changes))


def _misfits(scenario: Scenario) -> Iterator[Problem]:
    """What of the strategy does not go with the rest."""
    strategy, precision, world = scenario.strategy, scenario.training.precision, scenario.world_size
    if isinstance(strategy, Fsdp):
        from zerosim.spec import fsdp_misfits

        for wrong in fsdp_misfits.misfits(strategy, precision, world, scenario.ranks_per_node):
            yield Problem(scenario.source, f"strategy.fsdp.{wrong.key}", wrong.found, wrong.expected)
    sizes = sorted({len(node.gpus) for node in scenario.topology.nodes})
    if len(sizes) > 1 and (path := _groups_within_nodes(strategy)):
        found = f"nodes of {', '.join(map(str, sizes))} GPUs"
        yield Problem(scenario.source, path, found, "as many GPUs on every node")
    if isinstance(strategy, Pipeline):
        from zerosim.spec import pipeline

        for wrong in pipeline.misfits(strategy, precision, world, scenario.model):
            yield Problem(scenario.source, f"strategy.pipeline.{wrong.key}", wrong.found, wrong.expected)


def _groups_within_nodes(strategy: Strategy) -> str:
    """The key that makes groups of the ranks of a node; empty where none does."""
    section = "strategy.deepspeed.zero_optimization"
    if isinstance(strategy, DeepSpeed) and strategy.zero.exchanges_gradients:
        return f"{section}.zero_quantized_gradients"
    if isinstance(strategy, DeepSpeed) and strategy.zero.mics_hierarchical_params_gather:
        return f"{section}.mics_hierarchical_params_gather"
    if isinstance(strategy, Fsdp) and strategy.hybrid and strategy.shard_size is None:
        return f"strategy.fsdp.{'sharding_strategy' if strategy.version == 1 else 'shard_size'}"
    return ""


def _known(changes: Mapping[str, Any]) -> None:
    known = ("title", "nodes", "gpus", "topology", "model", "training", "strategy", "launch", "calibration")
    wrong = [
        Problem("replace", name, f'the unknown name "{name}"', f"one of {', '.join(known)}", nearest(name, known))
        for name in changes
        if name not in known
    ]
    if wrong:
        raise InputError(wrong)


def _changed_training(training: Training, changes: Mapping[str, Any]) -> Training:
    from zerosim.spec.loading import inline, validated
    from zerosim.spec.training_file import TrainingSchema

    document = inline({**dataclasses.asdict(training), **changes}, "replace: training")
    return Training(**validated(document, TrainingSchema).model_dump())


def _changed_launch(launch: Launch, changes: Mapping[str, Any], strategy: Strategy) -> Launch:
    from zerosim.spec.launch_file import launch_text, read_launch
    from zerosim.spec.loading import inline

    return read_launch(inline({**launch_text(launch), **changes}, "replace: launch"), strategy).launch


def _text(scenario: Scenario, names: Mapping[str, Any], launch: Launch | None) -> dict[str, Any]:
    from zerosim.spec.scenario_text import scenario_text

    return scenario_text(
        scenario.title, names["topology"], scenario.nodes, scenario.gpus, names["model"], scenario.training,
        scenario.strategy, names.get("calibration"), launch,
    )  # fmt: skip


def _calibration_text(calibration: Calibration | None) -> dict[str, Any] | None:
    from zerosim.spec.calibration_file import calibration_mapping

    return None if calibration is None else calibration_mapping(calibration)
