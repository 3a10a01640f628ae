"""Checkpoints that are sharded by the number of ranks: what making one whole costs, and who can load them.

Saving, consolidating and loading are programs, played like a step (`studies.saving`). Stage 3 writes weights as shards
alone: save_16bit_model writes nothing unless stage3_gather_16bit_weights_on_model_save is set (runtime/engine.py), and
zero_to_fp32.py has to put them together in the memory of one host. Shards of optimizer states load on the same number
of ranks only, but for stages 1 and 2 with elastic_checkpoint; ds_to_universal.py makes what loads on any
(deepspeed/checkpoint/ds_to_universal.py), from masters that it finds in the optimizer files: not from swap files.
"""

from __future__ import annotations

from zerosim.simulation import Simulation
from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import stage3
from zerosim.studies.doctor.trouble import Candidate, Measured, Trouble
from zerosim.studies.saving import SavingCost, saving_cost
from zerosim.units import show_seconds, show_size

CONSOLIDATE, OFFLINE = "save weights", "zero_to_fp32.py"


def sharded_files(case: Case) -> Trouble | str:
    """Weights that nobody writes whole, or that no host can put together."""
    strategy, world = case.scenario.strategy, case.scenario.world_size
    if not isinstance(strategy, DeepSpeed):
        return "not known for this strategy"
    if world == 1 or strategy.zero.stage == 0:
        return "one file has all weights"
    seen = _seen(case.simulation)
    if not seen.troubled:
        return f"{_shards(seen)}, {seen.words}; {_elsewhere(strategy, world)}"
    return Trouble(
        code="sharded-checkpoints",
        severity="warning" if not seen.numbers["whole_weights_fit"] else "note",
        symptom=f"{_shards(seen)}, {seen.words}{_offline_words(seen)}.",
        cause=_why(strategy, world),
        candidates=_remedies(strategy),
        aim="measured",
        measure=_seen,
    )


def _seen(played: Simulation) -> Measured:
    """What is written, and what it costs to have the weights in one piece; troubled where they are in none."""
    cost = saving_cost(played)
    whole = next(each for each in cost.operations if each.operation == CONSOLIDATE)
    shards = [file for file in cost.files if file["count"] > 1]
    strategy = played.scenario.strategy
    split = isinstance(strategy, DeepSpeed) and strategy.zero.stage == 3
    written = cost.gather_16bit_weights_on_model_save or not split
    each = max((file["bytes"] for file in shards), default=0.0)
    numbers = {
        "checkpoint_files": sum(file["count"] for file in cost.files),
        "save_seconds": cost.operations[0].seconds,
        "whole_weights_seconds": whole.seconds,
        "whole_weights_host_bytes": whole.host_peak_bytes,
        "whole_weights_fit": whole.fits,
        "offline_host_bytes": _offline(cost),
        "writes_whole_weights": written,
    }
    words = "no file of whole weights"
    if written:
        words = f"whole weights in {show_seconds(whole.seconds)} with {show_size(whole.host_peak_bytes)} of host memory"
    count = shards[0]["count"] if shards else 0
    return Measured(numbers | {"shards": count, "shard_bytes": each}, words, not (written and whole.fits))


def _offline(cost: SavingCost) -> float | None:
    """Host memory that zero_to_fp32.py takes; None where it cannot convert."""
    return next((each.host_peak_bytes for each in cost.loading if each.way == OFFLINE), None)


def _shards(seen: Measured) -> str:
    return f"{seen.numbers['shards']} shards of up to {show_size(seen.numbers['shard_bytes'])} a checkpoint"


def _offline_words(seen: Measured) -> str:
    """What it takes to put weights together that nobody wrote whole."""
    offline = seen.numbers["offline_host_bytes"]
    if seen.numbers["writes_whole_weights"]:
        return ""
    return f"; {OFFLINE} takes {show_size(offline)} of host memory" if offline else f"; {OFFLINE} cannot make one"


def _elsewhere(strategy: DeepSpeed, world: int) -> str:
    """On which numbers of ranks the optimizer's states load."""
    zero = strategy.zero
    if zero.elastic_checkpoint and zero.stage in (1, 2):
        return "elastic_checkpoint: they load on any number of ranks"
    swapped = "nvme" in (zero.offload_optimizer.device, zero.offload_param.device) and zero.stage == 3
    other = "and can not be converted, as they are swap files" if swapped else "on others after ds_to_universal.py"
    return f"they load on {world} ranks only, {other}"


def _why(strategy: DeepSpeed, world: int) -> str:
    if strategy.zero.stage == 3 and not strategy.zero.gather_16bit_weights_on_model_save:
        return f"Stage 3 saves what each rank has, and save_16bit_model writes nothing; {_elsewhere(strategy, world)}."
    return f"Rank 0 gathers all weights in the memory of its host, which is too small; {_elsewhere(strategy, world)}."


def _remedies(strategy: DeepSpeed) -> tuple[Candidate, ...]:
    if strategy.zero.stage == 3 and not strategy.zero.gather_16bit_weights_on_model_save:
        return (stage3("weights gathered when the model is saved", gather_16bit_weights_on_model_save=True),)
    return ()
