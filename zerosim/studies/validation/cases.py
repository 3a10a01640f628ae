"""A row made into a case: a scenario, what was measured of it, what had to be assumed; or the reason why not.

Its framework says how it is trained (assumptions.yaml), its words and numbers the rest. Rule: nothing here raises; a
row that asks for what cannot be built is Refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.errors import ZerosimError
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.measured_row import Row
from zerosim.studies.validation.asked import Plan
from zerosim.studies.validation.assumptions import CannotError, Ledger, program_of, unread
from zerosim.studies.validation.case import Case, Refused
from zerosim.studies.validation.metrics import Run, metrics_of
from zerosim.studies.validation.row_machine import Machine, machine_of
from zerosim.studies.validation.row_model import Sized, model_of, multiple
from zerosim.studies.validation.row_strategy import strategy_of
from zerosim.studies.validation.row_training import batch_of, computed_length, optimizer_of, precision_of, training_of


def case_of(row: Row) -> Case | Refused:
    """The case of a row."""
    try:
        return _case(row)
    except CannotError as reason:
        return Refused(row, _with_unread(row, str(reason)))
    except ZerosimError as error:
        return Refused(row, _with_unread(row, " ".join(str(error).split())))


def _with_unread(row: Row, reason: str) -> str:
    """The reason, and what the row may have said of it that nobody understood."""
    return "; ".join((reason, *(unread(row, column) for column in row.unread)))


def _case(row: Row) -> Case:
    ledger, program = Ledger(row), program_of(row)
    sized = model_of(row, program, ledger)
    machine = machine_of(row, ledger)
    precision, optimizer = precision_of(row, ledger), optimizer_of(row, program, ledger)
    plan = strategy_of(row, program, machine, precision, optimizer, ledger)
    sized = _divisible(sized, plan, machine, ledger)
    stages = row.pipeline_parallel or 1
    if machine.gpus % stages:
        raise CannotError(f"{machine.gpus} GPUs in pipelines of {stages}")
    replicas = machine.gpus // stages
    batch = batch_of(row, sized.sequence_length, replicas, ledger, sized.shape.family)
    length = computed_length(program, sized.sequence_length, ledger)
    training = training_of(row, program, length, batch, precision, machine.device, ledger)
    recomputed = training["activation_checkpointing"] == "full"
    arithmetic = "tf32" if precision.tf32 else precision.name
    run = Run(sized, batch, machine.gpus, replicas, recomputed, arithmetic, machine.device)
    metrics = metrics_of(row, run, ledger)
    scenario = _scenario(row, machine, sized.given, training, plan.strategy, plan.versions)
    other = None
    if any(metric.name == "speedup" for metric in metrics):
        if plan.other is None:
            raise CannotError("a run without overlap and prefetch")
        other = _scenario(row, machine, sized.given, training, plan.other, plan.versions)
    return Case(row, scenario, metrics, ledger.told, other, ledger.doubts)


def _divisible(sized: Sized, plan: Plan, machine: Machine, ledger: Ledger) -> Sized:
    """Quantized gradients are cut by rows into as many parts as there are GPUs (runtime/comm/coalesced_collectives.py):
    a table of words that cannot be cut has been padded, or the run would have stopped."""
    zero = plan.strategy.get("deepspeed", {}).get("zero_optimization", {})
    rows = sized.shape.vocabulary
    if not zero.get("zero_quantized_gradients") or isinstance(sized.given, str) or rows % machine.gpus == 0:
        return sized
    key = "vocab" if "vocab" in sized.given else "vocab_size"
    padded = multiple(rows, machine.gpus)
    ledger.note(f"vocabulary padded to {padded}, a multiple of the GPUs, which quantized gradients need")
    return sized._replace(given={**sized.given, key: padded})


def _scenario(
    row: Row,
    machine: Machine,
    model: str | Mapping[str, Any],
    training: Mapping[str, Any],
    strategy: Mapping[str, Any],
    versions: Mapping[str, str] | None,
) -> Scenario:
    scenario = from_mapping(
        {
            "title": row.id if row.id.isprintable() else "row",
            "topology": dict(machine.described),
            "gpus": machine.gpus,
            "model": model if isinstance(model, str) else dict(model),
            "training": dict(training),
            "strategy": dict(strategy),
            **({"versions": dict(versions)} if versions else {}),
        }
    )
    for finding in scenario.findings:
        if finding.code == "not-modelled":
            raise CannotError(finding.message.partition(";")[0])
    return scenario
