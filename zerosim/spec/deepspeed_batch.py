"""Batch sizes: what the DeepSpeed file and the `training` section say together.

DeepSpeed's identity (runtime/config.py, _set_batch_related_parameters): train_batch_size = micro-batch x accumulation
x world size, integer division first, the product checked afterwards. `"auto"` takes the value of `training`. Two
places that say different things are a problem that shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zerosim.errors import Problem
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.deepspeed_values import AUTO, POSITIVE
from zerosim.spec.document import Document
from zerosim.spec.model import Parameter
from zerosim.spec.training import CheckpointFunction, Checkpointing, Precision
from zerosim.spec.training_file import as_said


@dataclass(frozen=True, slots=True)
class Given:
    """What is known beside the DeepSpeed file. None: nobody said it; `places` tell where it was said.

    `hidden`: the model's width, from which Hugging Face fills in `"auto"`; None for plain DeepSpeed. `parameters`: the
    model's, on which the sizes of sub-groups and buffers depend. The last two are as in `training`.
    """

    world_size: int | None = None
    hidden: int | None = None
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    precision: Precision | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    activation_checkpointing: Checkpointing = "none"
    checkpoint_function: CheckpointFunction = "torch"

    def said(self, name: str) -> str:
        """A value of `training` with its place, as a message shows it."""
        return as_said(name, getattr(self, name), self.places)


class Batch(NamedTuple):
    """Sequences per GPU and micro-step, and micro-steps."""

    micro: int
    accumulation: int


TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
BATCH_KEYS = (TRAIN, MICRO, STEPS)
_TRAINING_NAMES = {MICRO: "micro_batch_size", STEPS: "gradient_accumulation_steps"}


def read_batch(top: Document, log: Log, given: Given) -> Batch:
    """Micro-batch and accumulation; 1 where nobody says anything."""
    written = {key: log.value(top, key, POSITIVE, None) for key in BATCH_KEYS if top.data.get(key, AUTO) != AUTO}
    faults = len(log.problems)
    micro = _agreed(top, MICRO, written.get(MICRO), log, given)
    steps = _agreed(top, STEPS, written.get(STEPS), log, given)
    train = written.get(TRAIN)
    if micro is None and train is None:
        log.say("batch-assumed", "note", "Nobody gives a micro-batch size; it is taken as 1.")
    if steps is None and train is None and top.data.get(STEPS) == AUTO:
        log.say("batch-assumed", "note", f'{STEPS}: "auto" is taken as 1; training gives no number of micro-steps.')
    if train is None or given.world_size is None or len(log.problems) > faults:
        return Batch(micro or 1, steps or 1)
    batch = _derived(train, micro, steps, given.world_size)
    if min(batch) < 1 or batch.micro * batch.accumulation * given.world_size != train:
        log.problems.append(_product(top, train, batch, given))
    return Batch(max(batch.micro, 1), max(batch.accumulation, 1))


def _agreed(top: Document, key: str, written: int | None, log: Log, given: Given) -> int | None:
    name = _TRAINING_NAMES[key]
    said: int | None = getattr(given, name)
    if written is not None and said is not None and written != said:
        log.problems.append(top.problem((key,), str(written), given.said(name)))
    return written if written is not None else said


def _derived(train: int, micro: int | None, steps: int | None, world: int) -> Batch:
    if micro is not None:
        return Batch(micro, train // micro // world if steps is None else steps)
    if steps is not None:
        return Batch(train // world // steps, steps)
    return Batch(train // world, 1)


def _product(top: Document, train: int, batch: Batch, given: Given) -> Problem:
    world = given.world_size or 1
    product = f"{batch.micro} * {batch.accumulation} * {world} = {batch.micro * batch.accumulation * world}"
    places = [f"{name} {given.said(name)}" for name in _TRAINING_NAMES.values() if getattr(given, name) is not None]
    from_training = f"; {'; '.join(places)}" if places else ""
    return top.problem((TRAIN,), str(train), f"micro-batch * accumulation * world size = {product}{from_training}")
