"""The verb `topology`: a machine as text or picture, what is wrong with it, and where it comes from.

Libraries are imported inside the verbs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerosim.cli.printing import Verbs, changes_option, json_option, print_json, print_text, width
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.simulation import Simulation
    from zerosim.spec.topology import Topology


@click.group(cls=Verbs)
def topology() -> None:
    """Look at a machine."""


@topology.command()
@click.argument("name", required=False)
@click.option("--svg", metavar="FILE", help="Draw it: a picture whose name ends in .svg.")
@click.option("--nodes", type=click.IntRange(1), metavar="COUNT", help="So many nodes of it.")
@click.option("--run", "scenario", metavar="SCENARIO", help="Play this, and draw how busy its own machine was.")
@changes_option
@json_option
def show(
    name: str | None,
    svg: str | None,
    nodes: int | None,
    scenario: str | None,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print a topology, by name or path, in words; draw it with --svg.

    With --run SCENARIO the topology is that of the scenario, as far as it is used; NAME may be left out.
    """
    from zerosim.spec.topology_facts import as_data, describe

    if nodes is not None and scenario is not None:
        raise InputError([Problem("--nodes", "", "--run beside it", "--set nodes=COUNT, which is of the scenario")])
    played = _played(name, svg, scenario, changes)
    found = read_machine(name or "") if played is None else played.scenario.topology
    if nodes is not None:
        found = found.select(nodes)
    if svg is not None:
        _draw(found, played, svg)
    if as_json:
        print_json(as_data(found))
    else:
        print_text("".join(f"{line}\n" for line in describe(found)))


def _played(name: str | None, svg: str | None, scenario: str | None, changes: tuple[str, ...]) -> Simulation | None:
    """The step whose traffic is drawn, if one is; what does not go together is told before anything is read."""
    if scenario is None and name is None:
        raise InputError([Problem("show", "", "no topology", "a name or path, or --run SCENARIO")])
    if scenario is not None and svg is None:
        raise InputError([Problem("--run", "", "no --svg", "--svg FILE, on which how busy everything was is drawn")])
    if svg is not None and Path(svg).suffix.lower() != ".svg":
        raise InputError([Problem("--svg", "", f'"{svg}"', "a name that ends in .svg")])
    if changes and scenario is None:
        raise InputError([Problem("--set", "", "no --run", "--run SCENARIO, whose values it changes")])
    if scenario is None:
        return None
    from zerosim.scenario import load
    from zerosim.simulation import simulate

    asked = load(scenario, changes)
    if name is not None and read_machine(name).name != asked.machine.name:
        expected = f'"{asked.machine.name}", the topology of the scenario, or none'
        raise InputError([Problem("show", "", f'"{name}"', expected)])
    return simulate(asked)


def _draw(machine: Topology, played: Simulation | None, svg: str) -> None:
    from zerosim.report import files, machine_svg
    from zerosim.studies.drawing import drawing, drawing_of_run

    told = drawing(machine) if played is None else drawing_of_run(played)
    files.write_text(Path(svg), machine_svg.render(told))
    click.echo(f"picture written to {svg}", err=True)


@topology.command()
@click.argument("name", metavar="TOPOLOGY")
@click.option(
    "--collective",
    "kinds",
    multiple=True,
    metavar="NAMES",
    help="E.g. all_reduce,all_gather; by default all but reduce.",
)
@click.option("--gpus", metavar="COUNTS", help="How many take part: 16, or for scaling 2,4,8 or 2-64; else all.")
@click.option("--nodes", type=click.IntRange(1), metavar="COUNT", help="On so many nodes.")
@click.option(
    "--sizes", default="1KiB-4GiBx4", metavar="SIZES", help='"1KiB,1MiB"; in doublings "1K-4G", fourfold "1K-4Gx4".'
)
@click.option(
    "--per-node",
    type=click.IntRange(1),
    metavar="COUNT",
    help="So many ranks of each node in a group, all groups at once.",
)
@click.option("--calibration", metavar="FILE", help="What zerosim calibrate wrote: times as they were measured.")
@json_option
def check(
    name: str,
    kinds: tuple[str, ...],
    gpus: str | None,
    nodes: int | None,
    sizes: str,
    per_node: int | None,
    calibration: str | None,
    as_json: bool,
) -> None:
    """Print what collectives take on a machine, and what is wrong with it.

    Names, sizes and bandwidths are those of nccl-tests: the gathered buffer of an all-gather, the input of a
    reduce-scatter; GB/s of 1e9 bytes. With --json the findings go to standard error.
    """
    from zerosim.cli.lists import Options
    from zerosim.report.collectives_check import Place, finding_in_a_line, render_check
    from zerosim.spec.calibration_file import read_calibration
    from zerosim.spec.loading import read
    from zerosim.studies.collectives_check import KINDS, USUAL, examined, sweeps
    from zerosim.studies.machine import machine_findings

    options = Options()
    wanted = options.names("--collective", kinds, KINDS) or USUAL
    lengths = options.sizes("--sizes", sizes)
    counts = options.counts("--gpus", gpus) if gpus is not None else []
    options.check()
    machine = read_machine(name)
    measured = None if calibration is None else read_calibration(read(calibration))
    found = sweeps(machine, wanted, lengths, counts, nodes, per_node, measured)
    findings = machine_findings(examined(machine, found, nodes))
    rows = [row.as_json() for sweep in found for row in sweep.rows]
    notes = list(dict.fromkeys(note for sweep in found for note in sweep.notes))
    if as_json:
        print_json(rows)
        for line in (*map(finding_in_a_line, findings), *(f"assumed: {note}" for note in notes)):
            click.echo(line, err=True)
    else:
        places = [Place(sweep.gpus, sweep.nodes, sweep.siblings) for sweep in found]
        print_text(render_check(machine.name, places, rows, findings, notes, width()))


@topology.command("import")
@click.argument("file")
@click.option("--gpu", metavar="DEVICE", help="Which GPU it is (zerosim list devices), as most texts do not say.")
@click.option("--name", metavar="NAME", help="Name of the topology; else that of the file.")
@click.option("--nodes", type=click.IntRange(1, 100_000), default=1, metavar="COUNT", help="So many equal nodes.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the topology there.")
def import_(file: str, gpu: str | None, name: str | None, nodes: int, out: Path | None) -> None:
    """Make a topology file of what nvidia-smi topo -m prints, or of an NCCL topology XML.

    FILE may be - for standard input, e.g. nvidia-smi topo -m | zerosim topology import - --gpu h100_sxm. What the text
    does not say is taken from the catalogue, and a comment beside each such figure says so.
    """
    from zerosim.report.files import write_text
    from zerosim.spec.files import read_bytes
    from zerosim.spec.importers import STANDARD_INPUT, import_topology

    given = click.open_file("-", "rb").read() if file == "-" else read_bytes(file)
    imported = import_topology(given, STANDARD_INPUT if file == "-" else file, gpu, name, nodes)
    for warning in imported.warnings:
        click.echo(warning, err=True)
    if out is None:
        print_text(imported.text)
    else:
        write_text(out, imported.text)
        click.echo(f"topology written to {out}", err=True)


def read_machine(name: str) -> Topology:
    """The topology of that name, or in that file."""
    from zerosim.spec.loading import read
    from zerosim.spec.topology_file import find_topology, read_topology

    path = Path(name) if name.endswith((".yaml", ".yml", ".json")) else find_topology(name)
    return read_topology(read(path))
