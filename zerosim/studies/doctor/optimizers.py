"""An optimizer that has no partitioned form.

ZeRO gives each rank a slice of a flat vector, which suits what is element by element (Adam, Lion, Adagrad, SGD). LAMB
scales by norms of whole layers, which no rank has; 1-bit optimizers compress what ZeRO reduces already. DeepSpeed
refuses the latter on any stage (runtime/engine.py, _configure_basic_optimizer: "not compatible with ZeRO"), and what is
not in ZERO_SUPPORTED_OPTIMIZERS (runtime/zero/utils.py) unless zero_allow_untested_optimizer is set.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.simulation import Simulation
from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import DEEPSPEED, ZERO
from zerosim.studies.doctor.trouble import Candidate, Measured, Price, Trouble, weight
from zerosim.units import show_seconds, show_size

MASTER = 4  # bytes of an fp32 master weight
WHOLE = 0.75  # of all elements' states: nobody has partitioned them
COMPRESSED = frozenset({"OneBitAdam", "ZeroOneAdam", "OneBitLamb"})
BY_LAYER = frozenset({"Lamb", "OneBitLamb"})
UNTESTED = "untested-optimizer"  # minted by spec/deepspeed_optimizer
ANOTHER = Price("another optimizer, and so another training", 1.2)
ADAM = (f"{DEEPSPEED}.optimizer.type=AdamW",)  # its parameters, such as lr, stay


def not_partitioned(case: Case) -> Trouble | str:
    """An optimizer that DeepSpeed refuses to partition, or whose states the step holds whole on every GPU."""
    strategy, world = case.scenario.strategy, case.scenario.world_size
    if not isinstance(strategy, DeepSpeed):
        return f"{strategy.optimizer.name}, as the strategy has it"
    name = strategy.optimizer.name
    seen = _seen(case.simulation)
    if not seen.troubled:
        return f"{name}, {seen.words}"
    alone, taken = strategy.zero.stage == 0, case.summary.phases["optimizer"]
    return Trouble(
        code="optimizer-not-partitioned",
        severity=weight(case, taken) if alone else "error",
        symptom=f"{name}: {seen.words}; the optimizer takes {show_seconds(taken)} of a step.",
        cause=_why(name, strategy.zero.stage, world),
        candidates=tuple(_remedies(case, name, strategy.zero.stage)),
        lost=taken,
        aim="measured",
        measure=_seen,
    )


def _seen(played: Simulation) -> Measured:
    """States of the optimizer on a GPU; whether the framework would stop, or they are whole because of their kind."""
    scenario, step = played.scenario, played.step
    strategy = scenario.strategy
    held = sum(b.bytes for b in (step.buffers[i] for i in step.resident) if b.category == "optimizer")
    numbers = {"optimizer_states_bytes": held, "refused": False}
    if not isinstance(strategy, DeepSpeed):
        return Measured(numbers, f"states of {show_size(held)} a rank", False)
    name, stage = strategy.optimizer.name, strategy.zero.stage
    untested = any(each.code == UNTESTED for each in scenario.findings)
    refused = stage > 0 and (untested or name in COMPRESSED)
    wrong = stage > 0 and name in BY_LAYER
    whole = held > WHOLE * (MASTER + strategy.optimizer.state_bytes) * sum(step.parameters)
    kept = stage == 0 and whole and scenario.world_size > 1 and name in COMPRESSED | BY_LAYER
    words = f"states of {show_size(held)} a rank"
    if kept:
        words = f"states of {show_size(held)} whole on each of {scenario.world_size} GPUs"
    if refused:
        words = f"{words} on paper, but DeepSpeed stops at it on stage {stage}"
    return Measured(numbers | {"refused": refused}, words, refused or wrong or kept)


def _why(name: str, stage: int, world: int) -> str:
    if name in COMPRESSED:
        why = f"{name} compresses its own all-reduce and is not compatible with ZeRO"
    elif name in BY_LAYER:
        why = f"{name} scales each layer by its norm, which a rank with a slice of it does not know"
    else:
        return (
            f"{name} is not in DeepSpeed's list of optimizers that were tested with ZeRO; slices are no matter to it."
        )
    return f"{why}: {f'no stage can shard its states over {world} GPUs' if stage == 0 else 'its states stay whole'}."


def _remedies(case: Case, name: str, stage: int) -> Iterator[Candidate]:
    if name not in COMPRESSED | BY_LAYER:
        yield Candidate("allow it", ((f"{DEEPSPEED}.zero_allow_untested_optimizer=true",),))
        yield Candidate("AdamW", (ADAM,), (ANOTHER,))
        return
    if stage == 0:
        yield Candidate("AdamW on stage 1", ((*ADAM, f"{ZERO}.stage=1", f"{ZERO}.overlap_comm=true"),), (ANOTHER,))
        yield Candidate("AdamW on stage 2", ((*ADAM, f"{ZERO}.stage=2", f"{ZERO}.overlap_comm=true"),), (ANOTHER,))
    else:
        yield Candidate("AdamW", (ADAM,), (ANOTHER,))
