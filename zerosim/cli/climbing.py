"""The verb `ladder`: one scenario on every rung from one GPU to drives, or its states on every tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zerosim.cli.one_scenario import all_scenarios
from zerosim.cli.printing import Verb, changes_option, json_option, print_json, print_text, width
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.scenario import Scenario


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
@click.option("--reference", metavar="FILE", help="Measured values by rung (YAML), shown with the deviation from them.")
@click.option(
    "--with", "others", multiple=True, metavar="FILE", help="A scenario that stands for its rung. Repeatable."
)
@click.option(
    "--checkpointing",
    type=click.Choice(["both", "given"]),
    default="both",
    help="Each rung without and with activation checkpointing (the default), or as the scenario has it.",
)
@click.option("--tiers", is_flag=True, help="Instead: the same step with its states in HBM, DRAM, NVMe.")
@click.option("--accumulation", metavar="N,...", help="The curve over gradient accumulation steps; implies --tiers.")
@click.option("--micro-batch", metavar="N,...", help="The curve over micro-batch sizes; implies --tiers.")
def ladder(
    scenario: str,
    changes: tuple[str, ...],
    as_json: bool,
    reference: str | None,
    others: tuple[str, ...],
    checkpointing: str,
    tiers: bool,
    accumulation: str | None,
    micro_batch: str | None,
) -> None:
    """Climb from one GPU over DDP to ZeRO-3 and offload: what fits."""
    curve = {
        "--accumulation": _counts("--accumulation", accumulation),
        "--micro-batch": _counts("--micro-batch", micro_batch),
    }
    if tiers or any(curve.values()):
        if others or reference is not None:
            raise InputError([Problem("--tiers", "", "--with or --reference beside it", "one or the other")])
        (asked,) = all_scenarios((scenario,), changes)
        _ladder_of_tiers(asked, as_json, *curve.values())
    else:
        _ladder_of_strategies((scenario, *others), changes, as_json, reference, checkpointing == "both")


def _ladder_of_strategies(
    scenarios: tuple[str, ...], changes: tuple[str, ...], as_json: bool, reference: str | None, both: bool
) -> None:
    from zerosim.report.ladder import render_ladder
    from zerosim.studies.ladder import climb
    from zerosim.studies.reference import read_reference

    measured = read_reference(reference) if reference is not None else {}
    first, *others = all_scenarios(scenarios, changes)
    rows = [rung.as_json() for rung in climb(first, others, both)]
    if as_json:
        known = [measured.get(row["rung"]) if row["as_given"] else None for row in rows]
        beside = [{"measured": each} if each else {} for each in known]
        print_json([row | more for row, more in zip(rows, beside, strict=True)])
    else:
        print_text(render_ladder(rows, measured, width()))


def _ladder_of_tiers(asked: Scenario, as_json: bool, accumulations: list[int], micro_batches: list[int]) -> None:
    from zerosim.report.tiers import render_amortised, render_tiers
    from zerosim.studies import tiers as study

    rows = [rung.as_json() for rung in study.tiers(asked)]
    curve = accumulations or micro_batches
    points = [point.as_json() for point in study.amortised(asked, accumulations, micro_batches)] if curve else []
    instead = study.instead(asked)
    if as_json:
        print_json({"tiers": rows, "amortised": points})
        if instead:
            click.echo(instead, err=True)
    else:
        below = f"\n{render_amortised(points, width())}" if points else ""
        print_text(render_tiers(rows, width(), instead) + below)


def _counts(option: str, text: str | None) -> list[int]:
    """Numbers from 1, set apart by commas."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not part.isdecimal() or int(part) < 1]
    if wrong:
        raise InputError([Problem(option, "", f'"{part}"', "whole numbers from 1, such as 1,4,16") for part in wrong])
    return [int(part) for part in parts]
