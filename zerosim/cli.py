"""The verbs. Each reads its input, asks one question of the rooms below, and prints the answer.

The only room that prints. Answers go to standard output, everything else to standard error. Exit codes: 0 done, 2 the
input is wrong, 3 with --strict if it does not fit. Libraries are imported inside the verbs: `--help` loads none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerosim.errors import InputError, Problem, ZerosimError

if TYPE_CHECKING:
    from zerosim.scenario import Scenario

WRONG_INPUT, DOES_NOT_FIT = 2, 3
Command = Callable[..., Any]


@contextmanager
def _told() -> Iterator[None]:
    """Errors that users can mend are told in one line each, without a traceback."""
    try:
        yield
    except ZerosimError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG_INPUT)
    except BrokenPipeError:  # `zerosim ops ... | head`
        sys.stderr.close()
        sys.exit(0)


class _Verb(click.Command):
    """A command whose expected errors end with exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


class _Verbs(click.Group):
    command_class = _Verb


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="zerosim")
def main() -> None:
    """Simulate one training step of a large model: how long, how much memory, what is exposed, and why."""


def _changes(command: Command) -> Command:
    text = "Change a value of the scenario, e.g. nodes=4 or strategy.deepspeed.zero_optimization.stage=2. Repeatable."
    return click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help=text)(command)


def _json(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")(command)


def _scenario(path: str, changes: tuple[str, ...]) -> Scenario:
    from zerosim.scenario import load

    return load(path, changes)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def _write(path: str, text: str) -> None:
    """Atomically: the file is as before or whole."""
    from zerosim.report.files import write_text

    write_text(Path(path), text)


def _screen() -> tuple[int, bool]:
    """Columns of the terminal (100 elsewhere) and whether colours are welcome."""
    import os
    import shutil

    terminal = sys.stdout.isatty()
    width = max(60, min(shutil.get_terminal_size((100, 40)).columns, 120)) if terminal else 100
    return width, terminal and not os.environ.get("NO_COLOR")


# --- one scenario --------------------------------------------------------------------------------------------------


@main.command()
@click.argument("scenario")
@_changes
@_json
@click.option(
    "--trace", metavar="FILE", help="Write a Perfetto / HTA trace (.json or .json.gz; a folder for all ranks)."
)
@click.option("--svg", metavar="FILE", help="Write a picture of the timeline.")
@click.option("--strict", is_flag=True, help="Exit with 3 if it does not fit in memory.")
def run(
    scenario: str, changes: tuple[str, ...], as_json: bool, trace: str | None, svg: str | None, strict: bool
) -> None:
    """Play one step: how long, how much memory, what is exposed, why."""
    from zerosim.report import svg as picture
    from zerosim.report import text
    from zerosim.report import trace as chrome
    from zerosim.simulation import simulate

    timeline = simulate(_scenario(scenario, changes))
    summary = timeline.summary()
    if as_json:
        _print_json(summary.as_json())
    else:
        width, colour = _screen()
        click.echo(text.render(summary, width, colour), nl=False)
    if trace:
        for path in chrome.write(timeline, trace):
            click.echo(f"trace written to {path}", err=True)
    if svg:
        _write(svg, picture.render(timeline))
        click.echo(f"picture written to {svg}", err=True)
    if strict and not summary.fits:
        sys.exit(DOES_NOT_FIT)


@main.command()
@click.argument("scenarios", nargs=-1, required=True)
@_changes
@_json
def compare(scenarios: tuple[str, ...], changes: tuple[str, ...], as_json: bool) -> None:
    """Play several scenarios side by side; the first is the baseline."""
    from zerosim.report import text
    from zerosim.simulation import simulate

    if len(scenarios) < 2:
        raise InputError([Problem("compare", "", "one scenario", "two or more")])
    summaries = [simulate(_scenario(path, changes)).summary() for path in scenarios]
    if as_json:
        _print_json([summary.as_json() for summary in summaries])
    else:
        click.echo(text.render_comparison(summaries, _screen()[0]), nl=False)


@main.command()
@click.argument("scenario")
@_changes
@_json
def ops(scenario: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Print the step's program, op by op, without playing it."""
    from zerosim.report import ops as listing
    from zerosim.strategies import build

    asked = _scenario(scenario, changes)
    step = build(asked.strategy, asked.model, asked.training, asked.world_size)
    if as_json:
        _print_json(listing.rows(step))
    else:
        click.echo(listing.render(step), nl=False)


@main.command()
@click.argument("scenario")
@_changes
@_json
@click.option("--reference", metavar="FILE", help="Measured values by rung (YAML), shown beside with the deviation.")
def ladder(scenario: str, changes: tuple[str, ...], as_json: bool, reference: str | None) -> None:
    """Climb from one GPU over DDP to ZeRO-3: what fits, how fast, and why."""
    from zerosim.report.ladder import render_ladder
    from zerosim.studies.ladder import ladder as climb
    from zerosim.studies.reference import read_reference

    measured = read_reference(reference) if reference else {}
    rows = [rung.as_json() for rung in climb(_scenario(scenario, changes))]
    if as_json:
        _print_json(
            [{**row, **({"measured": measured[row["rung"]]} if row["rung"] in measured else {})} for row in rows]
        )
    else:
        click.echo(render_ladder(rows, measured), nl=False)


# --- without a scenario --------------------------------------------------------------------------------------------


@main.command()
@click.option("--params", required=True, metavar="COUNT", help="Parameters of the model, e.g. 7e9 or 7b.")
@click.option("--gpus", required=True, type=click.IntRange(min=1), help="GPUs that share the states.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), help="For DRAM per node; at most 8 by default.")
@_json
def memory(params: str, gpus: int, gpus_per_node: int | None, as_json: bool) -> None:
    """Print the bill of model states of every ZeRO stage, from formulas."""
    from zerosim.report.ladder import render_ledger
    from zerosim.studies.ledger import ledger
    from zerosim.units import UnitError, parse_count

    try:
        count = parse_count(params)
    except UnitError as error:
        raise InputError([Problem("--params", "", f'"{params}"', str(error))]) from None
    if count < 1:
        raise InputError([Problem("--params", "", params, "a count of at least 1")])
    rows = [entry.as_json() for entry in ledger(count, gpus, gpus_per_node)]
    if as_json:
        _print_json(rows)
    else:
        click.echo(render_ledger(rows), nl=False)


@main.command(name="list")
@click.argument("what", type=click.Choice(["models", "topologies", "devices", "strategies"]))
@_json
def list_(what: str, as_json: bool) -> None:
    """Print what there is."""
    from zerosim.studies.inventory import inventory

    names = inventory(what)
    if as_json:
        _print_json(names)
    else:
        click.echo("\n".join(names))


@main.group(cls=_Verbs)
def topology() -> None:
    """Look at a machine."""


@topology.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a topology, by name or path, in words."""
    from zerosim.spec.loading import read
    from zerosim.spec.topology_facts import describe
    from zerosim.spec.topology_file import find_topology, read_topology

    path = Path(name) if name.endswith((".yaml", ".yml", ".json")) else find_topology(name)
    click.echo("\n".join(describe(read_topology(read(path)))))
