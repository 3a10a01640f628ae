"""The verbs. Each reads its input, asks one question of the rooms below, and prints the answer.

The only room that prints. Answers go to standard output, everything else to standard error. Exit codes: 0 done, 2 the
input is wrong, 3 with --strict if it does not fit, 130 interrupted. Files are written before an answer is printed, so
that a path that cannot be written leaves standard output empty. Libraries are imported inside the verbs: `--help` loads
none.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerosim.errors import InputError, Problem, ZerosimError

if TYPE_CHECKING:
    from zerosim.scenario import Scenario

WRONG_INPUT, DOES_NOT_FIT, INTERRUPTED = 2, 3, 130  # 130: as shells report SIGINT
MOST_PARAMETERS, GPUS = 1e18, click.IntRange(1, 1_000_000)
KINDS = ["models", "topologies", "devices", "strategies"]
Command = Callable[..., Any]


@contextmanager
def _told() -> Iterator[None]:
    """Errors that users can mend are told in one line each, without a traceback."""
    try:
        yield
    except ZerosimError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)


class _Verb(click.Command):
    """A command whose expected errors end with exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


class _Verbs(click.Group):
    """Commands in the order in which they stand here, which is that of a first visit."""

    command_class = _Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("zerosim")
        except PackageNotFoundError:
            number = "(not installed)"
        click.echo(f"zerosim {number}")
        ctx.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def main() -> None:
    """Play one training step of a large model on hardware that may not have been bought yet: how long it takes, how
    much memory it needs, what part of the communication is exposed, and why.

    \b
    zerosim run scenarios/seven-b/zero3.yaml
    zerosim run scenarios/seven-b/zero3.yaml --set nodes=2 --set training.micro_batch_size=2
    zerosim ladder scenarios/seven-b/zero1.yaml
    zerosim list topologies
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that an old terminal lacks becomes "?", not an error
        sys.stdout.reconfigure(errors="replace")


def _changes(command: Command) -> Command:
    text = "Change a value of each scenario, e.g. nodes=4, strategy.deepspeed.zero_optimization.stage=2. Repeatable."
    return click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help=text)(command)


def _json(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")(command)


def _scenario(path: str, changes: tuple[str, ...]) -> Scenario:
    from zerosim.scenario import load

    return load(path, changes)


def _print(text: str) -> None:
    """An answer, whole: what cannot be written shows here and not while Python shuts down."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # `zerosim ops ... | head`: who reads has enough
            return
        problem = Problem("standard output", found=(error.strerror or "an error").lower(), expected="room for it")
        raise InputError([problem]) from None


def _print_json(value: Any) -> None:
    """Strict JSON: a number that JSON does not have would be a defect here."""
    _print(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _width() -> int:
    """Columns to write in: those of the terminal, within reason; 100 where there is none, so that files are alike."""
    import shutil

    return max(60, min(shutil.get_terminal_size((100, 40)).columns, 120)) if sys.stdout.isatty() else 100


# --- one scenario --------------------------------------------------------------------------------------------------


@main.command()
@click.argument("scenario")
@_changes
@_json
@click.option(
    "--trace",
    metavar="FILE",
    help="Write a Perfetto / HTA trace: .json, .json.gz, or a folder (a file for each class of equal ranks).",
)
@click.option("--svg", metavar="FILE", help="Write a picture of the timeline.")
@click.option("--strict", is_flag=True, help="Exit with 3 if it does not fit in memory.")
def run(
    scenario: str, changes: tuple[str, ...], as_json: bool, trace: str | None, svg: str | None, strict: bool
) -> None:
    """Play one step: how long, how much memory, what is exposed, why."""
    from zerosim.report import bars, text
    from zerosim.simulation import simulate

    asked = _scenario(scenario, changes)
    timeline = simulate(asked)
    summary = timeline.summary()
    if trace is not None:
        from zerosim.report import trace as chrome

        for path in chrome.write(timeline, trace):
            click.echo(f"trace written to {path}", err=True)
    if svg is not None:
        from zerosim.report import files
        from zerosim.report import svg as picture

        files.write_text(Path(svg), picture.render(timeline, title=asked.title))
        click.echo(f"picture written to {svg}", err=True)
    if as_json:
        _print_json(summary.as_json())
    else:
        _print(text.render(summary, _width(), bars.colour_wanted(sys.stdout)))
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
    summaries = [simulate(asked).summary() for asked in _all_scenarios(scenarios, changes)]
    if as_json:
        _print_json([summary.as_json() for summary in summaries])
    else:
        _print(text.render_comparison(summaries, _width()))


def _all_scenarios(paths: tuple[str, ...], changes: tuple[str, ...]) -> list[Scenario]:
    """All are read before the first is played, and what is wrong in any of them is told at once."""
    asked: list[Scenario] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            asked.append(_scenario(path, changes))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(dict.fromkeys(problems))
    return asked


@main.command()
@click.argument("scenario")
@_changes
@_json
@click.option("--reference", metavar="FILE", help="Measured values by rung (YAML), shown with the deviation from them.")
def ladder(scenario: str, changes: tuple[str, ...], as_json: bool, reference: str | None) -> None:
    """Climb from one GPU over DDP to ZeRO-3: what fits, how fast."""
    from zerosim.report.ladder import render_ladder
    from zerosim.studies.ladder import ladder as climb
    from zerosim.studies.reference import read_reference

    measured = read_reference(reference) if reference is not None else {}
    rows = [rung.as_json() for rung in climb(_scenario(scenario, changes))]
    if as_json:
        beside = [{"measured": measured[row["rung"]]} if row["rung"] in measured else {} for row in rows]
        _print_json([row | more for row, more in zip(rows, beside, strict=True)])
    else:
        _print(render_ladder(rows, measured, _width()))


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
        _print(listing.render(step, _width() if sys.stdout.isatty() else None))


# --- without a scenario --------------------------------------------------------------------------------------------


@main.command()
@click.option("--params", required=True, metavar="COUNT", help="Parameters of the model, e.g. 7e9 or 7b.")
@click.option("--gpus", required=True, type=GPUS, metavar="COUNT", help="GPUs that share the states.")
@click.option("--gpus-per-node", type=GPUS, metavar="COUNT", help="For DRAM per node; at most 8 by default.")
@_json
def memory(params: str, gpus: int, gpus_per_node: int | None, as_json: bool) -> None:
    """Print the bill of model states of each ZeRO stage, by formula.

    Stage 0 has no offload: DeepSpeed reads offload_optimizer on stages 1 to 3 only.
    """
    from zerosim.report.ladder import render_ledger
    from zerosim.studies.ledger import ledger

    rows = [entry.as_json() for entry in ledger(_parameters(params), gpus, gpus_per_node)]
    if as_json:
        _print_json(rows)
    else:
        _print(render_ledger(rows))


def _parameters(text: str) -> float:
    from zerosim.units import UnitError, parse_count

    try:
        count = parse_count(text)
    except UnitError as error:
        raise InputError([Problem("--params", "", f'"{error.found}"', error.expected, error.nearest)]) from None
    if not 1 <= count <= MOST_PARAMETERS:
        raise InputError([Problem("--params", "", text, f"a count from 1 to {MOST_PARAMETERS:.0e}")])
    return count


@main.command(name="list")
@click.argument("what", type=click.Choice(KINDS))
@_json
def list_(what: Any, as_json: bool) -> None:
    """Print what there is to choose from, a line each. With --json: the names alone."""
    from zerosim.report.tables import Column, clip, table
    from zerosim.studies import inventory

    if as_json:
        _print_json(inventory.names(what))
        return
    lines = table([Column(""), Column("")], inventory.inventory(what)).split("\n")[1:]
    _print("".join(f"{clip(line, _width())}\n" for line in lines))


@main.group(cls=_Verbs)
def topology() -> None:
    """Look at a machine."""


@topology.command()
@click.argument("name")
@_json
def show(name: str, as_json: bool) -> None:
    """Print a topology, by name or path, in words."""
    from zerosim.spec.loading import read
    from zerosim.spec.topology_facts import as_data, describe
    from zerosim.spec.topology_file import find_topology, read_topology

    path = Path(name) if name.endswith((".yaml", ".yml", ".json")) else find_topology(name)
    found = read_topology(read(path))
    if as_json:
        _print_json(as_data(found))
    else:
        _print("".join(f"{line}\n" for line in describe(found)))
