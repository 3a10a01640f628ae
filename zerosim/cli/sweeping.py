"""The verb `sweep`: one scenario with many changes, all rows to a file, and a table.

Libraries are imported inside the verb.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerosim.cli.printing import (
    Verb,
    changes_option,
    json_option,
    package_version,
    print_json,
    print_text,
    progress,
    width,
)
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.studies.sweep import Swept

JOURNAL = ".journal.jsonl"  # beside the result


@click.command(cls=Verb)
@click.argument("file", metavar="SWEEP")
@changes_option
@json_option
@click.option(
    "--out", metavar="FILE", help="Write all rows: .csv, .jsonl or .parquet. A sweep that was killed goes on."
)
@click.option(
    "--processes", type=click.IntRange(1, 1024), metavar="COUNT", help="As many as there are cores by default."
)
@click.option(
    "--dask", metavar="ADDRESS", help="Play on the workers of this Dask scheduler instead, e.g. tcp://10.0.0.1:8786."
)
def sweep(
    file: str, changes: tuple[str, ...], as_json: bool, out: str | None, processes: int | None, dask: str | None
) -> None:
    """Play a scenario with many changes; one row each.

    SWEEP is a YAML file with a scenario and the axes along which it varies, each a path as for --set and its values.
    Changes of axes, points, against, table and require are of the sweep, others of its scenario.
    """
    from zerosim.report.rows import check_format, write_rows
    from zerosim.report.sweep import render_sweep
    from zerosim.spec.sweep_file import read_sweep
    from zerosim.studies.cluster import Cluster
    from zerosim.studies.processes import cores
    from zerosim.studies.sweep import sweep as play_all
    from zerosim.studies.sweep_tables import legend, sheets

    if dask is not None and processes is not None:
        raise InputError(
            [Problem("--processes", found="--dask, too", expected="one of them: Dask has its own workers")]
        )
    asked = read_sweep(file, changes)
    journal = None
    if out is not None:
        check_format(Path(out))
        journal = Path(f"{out}{JOURNAL}")

    def keep(swept: Swept) -> None:
        if out is not None:
            write_rows(Path(out), swept.rows)

    with progress("sweep") as told:
        swept = play_all(
            asked, processes or cores(), journal, package_version(), told, keep, None if dask is None else Cluster(dask)
        )
    if out is not None:
        click.echo(f"{len(swept.rows)} rows written to {out}", err=True)
    if as_json:
        print_json(swept.as_json())
    else:
        print_text(render_sweep(asked.title, sheets(asked, swept), legend(asked), width()))
    for error in swept.errors:
        click.echo(error, err=True)
    if journal is not None and journal.exists():
        click.echo(f"{journal} has all other answers: the same command asks for what was lost.", err=True)
    if all(row["error"] for row in swept.rows):
        raise InputError([Problem(file, found="no point without an error", expected="at least one")])
