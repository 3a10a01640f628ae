"""The verbs that need no scenario: memory, list, conform. Libraries are imported inside the verbs."""

from __future__ import annotations

import sys
from typing import Any

import click

from zerosim.cli.printing import DOES_NOT_FIT, Verb, json_option, print_json, print_text, width
from zerosim.errors import InputError, Problem

MOST_PARAMETERS, GPUS = 1e18, click.IntRange(1, 1_000_000)
KINDS = ["models", "topologies", "devices", "strategies"]


@click.command(cls=Verb)
@click.option("--params", required=True, metavar="COUNT", help="Parameters of the model, e.g. 7e9 or 7b.")
@click.option("--gpus", required=True, type=GPUS, metavar="COUNT", help="GPUs that share the states.")
@click.option("--gpus-per-node", type=GPUS, metavar="COUNT", help="For DRAM per node; at most 8 by default.")
@json_option
def memory(params: str, gpus: int, gpus_per_node: int | None, as_json: bool) -> None:
    """Print the bill of model states of each ZeRO stage, by formula.

    Stage 0 has no offload: DeepSpeed reads offload_optimizer on stages 1 to 3 only.
    """
    from zerosim.report.ladder import render_ledger
    from zerosim.studies.ledger import ledger

    rows = [entry.as_json() for entry in ledger(_parameters(params), gpus, gpus_per_node)]
    if as_json:
        print_json(rows)
    else:
        print_text(render_ledger(rows))


def _parameters(text: str) -> float:
    from zerosim.units import UnitError, parse_count

    try:
        count = parse_count(text)
    except UnitError as error:
        raise InputError([Problem("--params", "", f'"{error.found}"', error.expected, error.nearest)]) from None
    if not 1 <= count <= MOST_PARAMETERS:
        raise InputError([Problem("--params", "", text, f"a count from 1 to {MOST_PARAMETERS:.0e}")])
    return count


@click.command(name="list", cls=Verb)
@click.argument("what", type=click.Choice(KINDS))
@json_option
def list_(what: Any, as_json: bool) -> None:
    """Print what there is to choose from, a line each. With --json: the names alone."""
    from zerosim.report.tables import Column, clip, table
    from zerosim.studies import inventory

    if as_json:
        print_json(inventory.names(what))
        return
    lines = table([Column(""), Column("")], inventory.inventory(what)).split("\n")[1:]
    print_text("".join(f"{clip(line, width())}\n" for line in lines))


@click.command(cls=Verb)
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@json_option
@click.option("--strict", is_flag=True, help="Exit with 3 if one does not match.")
def conform(recordings: tuple[str, ...], as_json: bool, strict: bool) -> None:
    """Compare programs with recorded collectives, one by one.

    A RECORDING is a JSON of one run of a real framework: config, model, and the events of its steps, the third of which
    is compared. What is read of it stands in zerosim/spec/recording.py.
    """
    from zerosim.report.conformity import render_conformity
    from zerosim.studies.conform import conform as compare

    verdicts = compare(recordings)
    if as_json:
        print_json([verdict.as_json() for verdict in verdicts])
        for verdict in verdicts:
            for note in verdict.notes:
                click.echo(f"{verdict.recording}: {note}", err=True)
    else:
        beside = [{"collectives": verdict.collectives, "notes": verdict.notes} for verdict in verdicts]
        rows = [verdict.as_json() | more for verdict, more in zip(verdicts, beside, strict=True)]
        print_text(render_conformity(rows, width()))
    if strict and not all(verdict.match for verdict in verdicts):
        sys.exit(DOES_NOT_FIT)
