"""The verb `validate`: predictions beside published measurements.

Libraries are imported inside the verb.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerosim.cli.printing import Verb, json_option, print_json, print_text, progress, width
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PUBLISHED = ("published", "training.csv")  # of the catalogue
FILTERS = {
    "study": "Only rows of this dataset. Repeatable, as the next three.",
    "strategy": "Only of this strategy; ZeRO-1 has ZeRO-1 hierarchical, too.",
    "gpu": "Only of this GPU; A100 is every A100.",
    "quality": "Only rows of this quality, A or B.",
}
SAMPLES = 24  # of a row: a tenth and a ninetieth percentile, in minutes for a table
COUNT = click.IntRange(1, 1024)


def _filter_options(command: Any) -> Any:
    for name, text in reversed(FILTERS.items()):
        command = click.option(f"--{name}", name, multiple=True, metavar="NAME", help=text)(command)
    return command


@click.command(cls=Verb)
@click.argument("file", metavar="[CSV]", required=False)
@click.option("--calibrated", is_flag=True, help="One row of each study and GPU sets the rate of its kernels.")
@click.option("--peers", is_flag=True, help="What other estimators say of the same rows, too.")
@_filter_options
@click.option(
    "--worst", type=click.IntRange(0), default=10, metavar="COUNT", help="So many of the worst; 10 by default."
)
@click.option("--out", metavar="FILE", help="Write all rows with signed errors: .csv, .jsonl or .parquet.")
@click.option("--table", "as_table", is_flag=True, help="Print the groups as a table in Markdown, and nothing else.")
@click.option("--range", "ranged", is_flag=True, help="P10 to P90 of each step by the grades of the catalogue; slow.")
@click.option(
    "--samples", type=click.IntRange(2), default=SAMPLES, metavar="COUNT", help=f"Of each; {SAMPLES} by default."
)
@click.option(
    "--columns", is_flag=True, help="Show the columns of a CSV, their units and an example, and nothing else."
)
@click.option("--processes", type=COUNT, metavar="COUNT", help="As many as there are cores by default.")
@json_option
def validate(file: str | None, **given: Any) -> None:
    """Hold predictions against published measurements.

    \b
    zerosim validate
    zerosim validate --calibrated --peers
    zerosim validate my-runs.csv --quality A --gpu H100 --out errors.csv
    zerosim validate --columns

    CSV has the columns of the table that comes with zerosim, which is taken where none is named; --columns tells them.
    What a row does not say is assumed, and told; so is what it says and nobody understands.
    """
    from zerosim.report.rows import check_format

    if given["columns"]:
        _print_columns()
        return
    if given["as_json"] and given["as_table"]:
        raise InputError([Problem("--table", "", "--json beside it", "one of the two")])
    if given["out"] is not None:
        check_format(Path(given["out"]))
    answer = _answer(file, given)
    if given["out"] is not None:
        _write(Path(given["out"]), answer["rows"])
    _print(answer, given["as_json"], given["as_table"])
    if not answer["rows"]:
        raise InputError([Problem(file or PUBLISHED[-1], found="no row that can be played", expected="at least one")])


def _answer(file: str | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """All rows that are asked for, as --json has them."""
    from zerosim.spec.measured_row import read_rows
    from zerosim.studies.processes import cores
    from zerosim.studies.validation.lines import labels
    from zerosim.studies.validation.validate import validate as validate_all
    from zerosim.studies.validation.wanted import check, wanted

    rows = read_rows(_path(file), lambda problem: click.echo(str(problem), err=True))
    asked = {name: given[name] for name in FILTERS}
    check(asked, map(labels, rows))
    with progress("validate") as told:
        found = validate_all(
            rows,
            file or PUBLISHED[-1],
            given["calibrated"],
            partial(wanted, asked),
            given["processes"] or cores(),
            told,
            given["samples"] if given["ranged"] else 0,
        )
    return found.as_json(given["worst"], given["peers"])


def _print_columns() -> None:
    from zerosim.report.validation import render_columns
    from zerosim.spec.measured_columns import COLUMNS, NEEDED

    print_text(render_columns([column._asdict() for column in COLUMNS], NEEDED, width()))


def _path(file: str | None) -> Path:
    from importlib.resources import files

    return Path(file) if file is not None else Path(str(files("zerosim.catalog").joinpath(*PUBLISHED)))


def _print(answer: Mapping[str, Any], as_json: bool, as_table: bool) -> None:
    from zerosim.report.validation import markdown, render_validation

    if as_json:
        print_json(answer)
    else:
        print_text(markdown(answer) if as_table else render_validation(answer, width()))


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from zerosim.report.rows import write_rows

    write_rows(path, [{**row, "assumptions": "; ".join(row["assumptions"])} for row in rows])
    click.echo(f"{len(rows)} rows written to {path}", err=True)
