"""The verbs that ask about scenarios: run, compare, ops. Each plays or reads, and prints one answer.

Files are written before an answer is printed, so that a path that cannot be written leaves standard output empty.
Libraries are imported inside the verbs: `--help` loads none.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zerosim.cli.printing import DOES_NOT_FIT, Verb, changes_option, json_option, print_json, print_text, width
from zerosim.cli.ranging import Drawing, range_options
from zerosim.cli.reporting import check_files, html_option, shown, shown_measured, write_page
from zerosim.errors import InputError, Problem, printable

if TYPE_CHECKING:
    from zerosim.report.page import Said, Shown
    from zerosim.scenario import Scenario
    from zerosim.simulation import Simulation
    from zerosim.views import Summary

STEPS = click.IntRange(1, 1_000_000_000)


def _scenario(path: str, changes: tuple[str, ...]) -> Scenario:
    from zerosim.scenario import load

    return load(path, changes)


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
@click.option(
    "--trace",
    metavar="FILE",
    help="Write a Perfetto / HTA trace: .json, .json.gz, or a folder (a file for each class of equal ranks).",
)
@click.option("--svg", metavar="FILE", help="Write a picture of the timeline.")
@html_option
@click.option("--strict", is_flag=True, help="Exit with 3 if it does not fit in memory.")
@click.option("--save-cost", is_flag=True, help="Add what it costs to save and to load checkpoints.")
@click.option(
    "--save-rate", metavar="RATE", help="Save to a file system of all nodes, e.g. 2 GB/s; else to the drives."
)
@click.option(
    "--save-every", type=STEPS, default=500, metavar="STEPS", help="Steps between checkpoints; 500 by default."
)
@range_options
def run(
    scenario: str,
    changes: tuple[str, ...],
    as_json: bool,
    trace: str | None,
    svg: str | None,
    html: str | None,
    strict: bool,
    save_cost: bool,
    save_rate: str | None,
    save_every: int,
    ranged: bool,
    samples: int | None,
    seed: int | None,
) -> None:
    """Play one step: how long, how much memory, what is exposed, why."""
    from zerosim.simulation import simulate

    check_files(trace=trace, svg=svg, html=html)
    drawing = Drawing.asked(ranged, samples, seed)
    asked = _scenario(scenario, changes)
    timeline = simulate(asked)
    summary = timeline.summary()
    _draw(timeline, trace, svg)
    saving = _saving(timeline, save_rate, save_every) if save_cost or save_rate is not None else None
    more = _More(saving, drawing.sample(asked).as_json() if drawing else None)
    if html is not None:
        write_page(html, [shown(timeline, changes, summary)], more.told())
    _answer(summary, more, as_json)
    if strict and not summary.fits:
        sys.exit(DOES_NOT_FIT)


def _draw(timeline: Simulation, trace: str | None, svg: str | None) -> None:
    """The files that show the timeline alone."""
    if trace is not None:
        from zerosim.report import trace as chrome

        for path in chrome.write(timeline, trace):
            click.echo(f"trace written to {path}", err=True)
    if svg is not None:
        from zerosim.report import files
        from zerosim.report import svg as picture

        files.write_text(Path(svg), picture.render(timeline, title=timeline.scenario.title))
        click.echo(f"picture written to {svg}", err=True)


def _answer(summary: Summary, more: _More, as_json: bool) -> None:
    from zerosim.report import bars, text

    if as_json:
        print_json(summary.as_json() | {name: each for name, each in more._asdict().items() if each is not None})
    else:
        below = "".join(said.text for said in more.told(width()))
        print_text(text.render(summary, width(), bars.colour_wanted(sys.stdout)) + below)


class _More(NamedTuple):
    """What was asked beside the step, as `--json` has it."""

    saving: dict[str, Any] | None
    range: dict[str, Any] | None

    def told(self, width: int = 100) -> list[Said]:
        """The same in words."""
        from zerosim.report.page import Said
        from zerosim.report.ranges import render_range
        from zerosim.report.saving import render_saving

        found = [] if self.range is None else [Said("Range", render_range(self.range, width))]
        return found + ([] if self.saving is None else [Said("Saving", render_saving(self.saving, width))])


def _saving(played: Simulation, rate: str | None, every: int) -> dict[str, Any]:
    from zerosim.studies.saving import saving_cost
    from zerosim.units import UnitError, parse_rate

    try:
        shared = None if rate is None else parse_rate(rate)
    except UnitError as error:
        raise InputError([Problem("--save-rate", "", f'"{error.found}"', error.expected, error.nearest)]) from None
    if shared is not None and not 0 < shared < math.inf:
        raise InputError([Problem("--save-rate", "", f'"{rate}"', "a rate above 0")])
    return saving_cost(played, shared, every).as_json()


@click.command(cls=Verb)
@click.argument("scenarios", nargs=-1, required=True)
@changes_option
@json_option
@html_option
@range_options
def compare(
    scenarios: tuple[str, ...],
    changes: tuple[str, ...],
    as_json: bool,
    html: str | None,
    ranged: bool,
    samples: int | None,
    seed: int | None,
) -> None:
    """Play several scenarios side by side; the first is the baseline. A profiler's trace stands for a measured step."""
    from zerosim.report import text

    check_files(html=html)
    traces, drawing = _several(scenarios, changes), Drawing.asked(ranged, samples, seed)
    if traces and drawing:
        raise InputError([Problem(traces[0], found="a measured step with --range", expected="scenarios only")])
    asked = all_scenarios(tuple(path for path in scenarios if path not in traces), changes)
    _one_currency(asked)
    answers = _answers(scenarios, traces, asked, changes)
    summaries = [each.summary for each in answers]
    rows = [summary.as_json() for summary in summaries]
    if drawing:
        rows = [row | {"range": spread} for row, spread in zip(rows, drawing.compare(asked), strict=True)]
    orders = "".join(said.text for said in _ranges(rows, width())) if drawing else ""
    if html is not None:
        write_page(html, answers, _ranges(rows) if drawing else ())
    if as_json:
        print_json(rows)
    else:
        print_text(text.render_comparison(summaries, width()) + orders)


def _ranges(rows: Sequence[Mapping[str, Any]], width: int = 100) -> list[Said]:
    from zerosim.report.page import Said
    from zerosim.report.ranges import render_orders

    return [Said("Ranges", render_orders(rows, width))]


def is_measured(path: str) -> bool:
    """Whether an argument is a trace, or a folder of traces; told by what stands in a file."""
    from zerosim.spec.profile_file import is_trace

    return Path(path).is_dir() or is_trace(path)


def _several(paths: Sequence[str], changes: Sequence[str]) -> list[str]:
    """The traces among what is compared; there is more than one thing, and a scenario where something is changed."""
    if len(paths) < 2:
        raise InputError([Problem("compare", "", "one scenario", "two or more")])
    traces = [path for path in paths if is_measured(path)]
    if changes and len(traces) == len(paths):
        raise InputError([Problem("--set", found="traces only", expected="a scenario to change")])
    return traces


def _answers(
    paths: Sequence[str], traces: Sequence[str], asked: Sequence[Scenario], changes: Sequence[str]
) -> list[Shown]:
    """In the order of the arguments; traces are read before the first scenario is played. Those of one name are told
    apart by their paths."""
    from zerosim.measured import read_trace
    from zerosim.simulation import simulate

    names = Counter(Path(path).name for path in dict.fromkeys(traces))
    titles = {path: printable(path) if names[Path(path).name] > 1 else "" for path in traces}
    measured = {path: shown_measured(read_trace(path, title=title)) for path, title in titles.items()}
    scenarios = iter(asked)
    return [measured[path] if path in measured else shown(simulate(next(scenarios)), changes) for path in paths]


def all_scenarios(paths: tuple[str, ...], changes: tuple[str, ...]) -> list[Scenario]:
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


def _one_currency(asked: list[Scenario]) -> None:
    """What is compared is paid in one currency, as far as it has a price."""
    priced = [(each, each.topology.price.currency) for each in asked if each.topology.price]
    wrong = [
        Problem(each.source, "topology.price.currency", f'"{own}"', f'"{priced[0][1]}", as {priced[0][0].source} has')
        for each, own in priced
        if own != priced[0][1]
    ]
    if wrong:
        raise InputError(wrong)


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
def ops(scenario: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Print the step's program, op by op, without playing it."""
    from zerosim.report import ops as listing
    from zerosim.simulation import programs

    steps = programs(_scenario(scenario, changes))
    if as_json:
        print_json(listing.rows(steps))
    else:
        print_text(listing.render(steps, width() if sys.stdout.isatty() else None))
