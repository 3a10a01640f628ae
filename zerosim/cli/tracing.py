"""The verb about measured steps: `trace read` prints what a profiler recorded in the words of `run`.

A folder stands for the traces in it, and several files for several ranks of one run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zerosim.cli.printing import Verb, Verbs, json_option, print_json, print_text, width
from zerosim.cli.reporting import html_option, shown_measured, write_page

STEP = click.IntRange(min=0)


@click.group(cls=Verbs)
def trace() -> None:
    """Look at a measured step: the trace that PyTorch's profiler wrote."""


@trace.command(cls=Verb)
@click.argument("files", nargs=-1, required=True)
@json_option
@click.option(
    "--step", type=STEP, metavar="N", help="Look at ProfilerStep#N; by default at the middle one, without the last."
)
@click.option("--svg", metavar="FILE", help="Write a picture of the timeline.")
@html_option
def read(files: tuple[str, ...], as_json: bool, step: int | None, svg: str | None, html: str | None) -> None:
    """Where a measured step's time went: .json or .json.gz of torch.profiler; several files, or a folder, are ranks."""
    from zerosim.measured import read_trace
    from zerosim.report import bars, recorded

    timeline = read_trace(*files, step=step)
    summary = timeline.summary()
    if svg is not None:
        from zerosim.report import files as written
        from zerosim.report import svg as picture

        written.write_text(Path(svg), picture.render(timeline, title=f"{summary.scenario}, {summary.step}"))
        click.echo(f"picture written to {svg}", err=True)
    if html is not None:
        write_page(html, [shown_measured(timeline)])
    if as_json:
        print_json(summary.as_json())
    else:
        print_text(recorded.render(summary, width(), bars.colour_wanted(sys.stdout)))
