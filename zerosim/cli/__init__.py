"""The verbs. Each reads its input, asks one question of the rooms below, and prints the answer.

The only room that prints. Verbs stand in the order of a first visit: those that play a scenario (`one_scenario`,
`climbing`, `explaining`, `examining`), those that search (`tuning`, `requiring`, `sweeping`), those about machines
(`machines`, `calibrating`), about measured steps (`tracing`) and published measurements (`validating`), the page to
play with (`playing`), and the others (`without_scenario`); how an answer is printed and an error ends is in `printing`,
how lists of sizes and names are read in `lists`.
"""

from __future__ import annotations

import io
import sys

import click

from zerosim.cli import (
    calibrating,
    climbing,
    examining,
    explaining,
    machines,
    one_scenario,
    playing,
    requiring,
    sweeping,
    tracing,
    tuning,
    validating,
    without_scenario,
)
from zerosim.cli.printing import Verbs, package_version


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"zerosim {package_version()}")
        ctx.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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


for _verb in (
    one_scenario.run,
    one_scenario.compare,
    climbing.ladder,
    explaining.explain,
    examining.doctor,
    tuning.tune,
    requiring.require,
    sweeping.sweep,
    one_scenario.ops,
    without_scenario.memory,
    without_scenario.list_,
    machines.topology,
    validating.validate,
    without_scenario.conform,
    calibrating.calibrate,
    tracing.trace,
    playing.play,
):
    main.add_command(_verb)
