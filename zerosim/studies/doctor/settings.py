"""Remedies as changes of `--set`: batches, keys of ZeRO, other strategies.

Batch sizes stand in `training`, in the DeepSpeed file, or in both; both then say the same. The first spelling changes
`training` alone, which the file refuses where it has numbers of its own; the others change the file, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.trouble import Candidate, Changes, Price

DEEPSPEED = "strategy.deepspeed"
ZERO = f"{DEEPSPEED}.zero_optimization"
FSDP = "strategy.fsdp"

# Choices. The global batch is a part of the training, which may need another learning rate with another one.
LOSSY = Price("int8 weights and int4 gradients on the wire", 1.2)
ANOTHER_BATCH = Price("another global batch", 2.0)


def written(value: object) -> str:
    """A value as YAML has it; whole numbers without an exponent, as DeepSpeed wants them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def zero(what: str, **keys: object) -> Candidate:
    """Keys of zero_optimization; a dot in a name is written as two underscores."""
    changes = tuple(f"{ZERO}.{key.replace('__', '.')}={written(value)}" for key, value in keys.items())
    return Candidate(what, (changes,))


def stage3(what: str, **keys: object) -> Candidate:
    """Keys of stage 3, which a file may have with its prefix or without."""
    prefixed = tuple(f"{ZERO}.stage3_{key}={written(value)}" for key, value in keys.items())
    return Candidate(what, (prefixed, tuple(change.replace("stage3_", "") for change in prefixed)))


def fsdp(what: str, **keys: object) -> Candidate:
    """Keys of FSDP."""
    return Candidate(what, (tuple(f"{FSDP}.{key}={written(value)}" for key, value in keys.items()),))


def training(what: str, **keys: object) -> Candidate:
    """Keys of `training`."""
    return Candidate(what, (tuple(f"training.{key}={written(value)}" for key, value in keys.items()),))


def checkpointing() -> Candidate:
    """Full activation checkpointing, also where accelerate's file has the word."""
    own = ("training.activation_checkpointing=full",)
    file = f"{FSDP}.fsdp_activation_checkpointing=true"
    return Candidate("full activation checkpointing", (own, (file,), (*own, file)))


def batch(case: Case, micro_batch: int, accumulation: int) -> Candidate:
    """Another micro-batch and accumulation; the price is told where the global batch is another."""
    given = case.scenario.training
    same = micro_batch * accumulation == given.micro_batch_size * given.gradient_accumulation_steps
    own: Changes = (f"training.micro_batch_size={micro_batch}", f"training.gradient_accumulation_steps={accumulation}")
    if accumulation == given.gradient_accumulation_steps:
        own = own[:1]
    spellings = [own]
    if isinstance(case.scenario.strategy, DeepSpeed):
        both = (
            f"training.micro_batch_size={micro_batch}",
            f"training.gradient_accumulation_steps={accumulation}",
            f"{DEEPSPEED}.train_micro_batch_size_per_gpu={micro_batch}",
            f"{DEEPSPEED}.gradient_accumulation_steps={accumulation}",
        )
        whole = f"{DEEPSPEED}.train_batch_size={micro_batch * accumulation * case.scenario.world_size}"
        spellings += [both] if same else [(*both, whole)]
    what = f"micro-batch {micro_batch} with {accumulation} micro-step{'' if accumulation == 1 else 's'}"
    return Candidate(what, tuple(spellings), () if same else (ANOTHER_BATCH,))


def larger_batches(case: Case) -> Iterator[Candidate]:
    """Larger micro-batches at the same global batch: twice, four times ... as large."""
    now, steps = case.scenario.training.micro_batch_size, case.scenario.training.gradient_accumulation_steps
    factor = 2
    while steps % factor == 0:
        yield batch(case, now * factor, steps // factor)
        factor *= 2


def smaller_batches(case: Case) -> Iterator[Candidate]:
    """Smaller micro-batches at the same global batch: half, a quarter ..."""
    now, steps = case.scenario.training.micro_batch_size, case.scenario.training.gradient_accumulation_steps
    factor = 2
    while now % factor == 0:
        yield batch(case, now // factor, steps * factor)
        factor *= 2


def deepspeed_instead(case: Case, stage: int) -> Candidate:
    """DeepSpeed's ZeRO where another strategy runs."""
    precision = case.scenario.training.precision
    enabled = "" if precision == "fp32" else f"{precision}: {{enabled: true}}, "
    section = f"{{stage: {stage}, overlap_comm: true}}"
    value = f"{{deepspeed: {{{enabled}optimizer: {{type: AdamW}}, zero_optimization: {section}}}}}"
    return Candidate(f"ZeRO stage {stage}", ((f"strategy={value}",),))
