"""The verb `calibrate`: what was measured on a machine becomes a file that scenarios name.

Libraries are imported inside the verb. Nothing is written where something that was asked for is wrong; logs that tell
nothing are refused in a line each, and what the others tell stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerosim.cli.printing import Verb, changes_option, json_option, print_json, print_text, width
from zerosim.errors import InputError, Problem
from zerosim.spec.calibration import COLLECTIVES

if TYPE_CHECKING:
    from zerosim.spec.calibration import Compute, MeasuredRate
    from zerosim.spec.topology import Topology
    from zerosim.studies.calibration_step import Measure

RATES = {
    "h2d": ("copies.h2d", "Pinned copies from the host to one GPU, e.g. 24 GB/s."),
    "d2h": ("copies.d2h", "Pinned copies from one GPU to the host."),
    "both": ("copies.both", "Both at once, the sum of both ways."),
    "nvme_read": ("nvme.read", "Reads of all drives of a node."),
    "nvme_write": ("nvme.write", "Writes to all drives of a node."),
}
STEP: dict[Measure, str] = {"step_seconds": "seconds", "mfu": "share", "tokens_per_second": "count"}
FORMS = (".yaml", ".yml", ".json")
COUNT = click.IntRange(1, 1_000_000)


def _rate_options(command: Any) -> Any:
    for key, (_, text) in reversed(RATES.items()):
        command = click.option(f"--{key.replace('_', '-')}", key, metavar="RATE", help=text)(command)
    return command


@click.command(cls=Verb)
@click.argument("files", nargs=-1, metavar="[LOG...]")
@click.option("--out", metavar="FILE", help="Write the calibration file; what it has and this does not stays.")
@click.option("--name", default="", metavar="NAME", help="What the file calls the machine.")
@click.option("--topology", metavar="NAME", help="The machine, to hold what was measured against its links.")
@click.option("--collective", type=click.Choice(COLLECTIVES), help="What logs are of that do not say it.")
@click.option("--gpus", type=COUNT, metavar="COUNT", help="GPUs of logs that do not say it.")
@click.option("--nodes", type=COUNT, metavar="COUNT", help="Nodes of logs that do not say it.")
@click.option("--scenario", metavar="FILE", help="The scenario whose step was measured, with one of the next three.")
@click.option("--step-seconds", metavar="TIME", help="How long its step took, e.g. 5.12 s.")
@click.option("--mfu", metavar="SHARE", help="Its model FLOP utilization, e.g. 42%.")
@click.option("--tokens-per-second", metavar="COUNT", help="Its tokens a second, of all GPUs together.")
@changes_option
@_rate_options
@click.option("--cpu-adam-seconds", metavar="TIME", help="A step of DeepSpeedCPUAdam, all ranks of a node at once,")
@click.option("--cpu-adam-params", metavar="COUNT", help="of so many parameters of each rank,")
@click.option("--cpu-adam-ranks", type=COUNT, default=1, metavar="COUNT", help="on so many ranks; 1 by default.")
@click.option("--source", metavar="TEXT", help="Where numbers of this command line came from.")
@json_option
def calibrate(files: tuple[str, ...], as_json: bool, out: str | None, name: str, **given: Any) -> None:
    """Turn measurements into a calibration file.

    \b
    zerosim calibrate all_reduce.log all_gather.log --topology dgx-h100 --out my-cluster.yaml
    zerosim calibrate --scenario run.yaml --step-seconds "5.12 s" --out my-cluster.yaml
    zerosim calibrate fio.txt nvbandwidth.txt --h2d "24 GB/s" --out my-cluster.yaml

    LOGs: nccl-tests and rccl-tests, all_reduce_bench.py, nvbandwidth, bandwidthTest, fio, ds_io. A scenario uses the
    file when it has the line `calibration: my-cluster.yaml`.
    """
    from zerosim.report.calibration import render_calibration
    from zerosim.spec.calibration_file import calibration_text
    from zerosim.spec.nccl_log import Asked
    from zerosim.studies.calibrate import BY_HAND, check, from_files, write

    if out is not None and not out.lower().endswith(FORMS):
        raise InputError([Problem("--out", "", f'"{out}"', f"a name that ends in {', '.join(FORMS)}")])
    source = given["source"] or BY_HAND
    rates, wanted = _rates(given, source), _wanted(given)
    if not (files or rates or wanted):
        raise InputError([Problem("calibrate", "", "nothing measured", "logs, or rates, or a step: --help")])
    topology = _topology(given["topology"])
    each = None if topology is None else len(topology.nodes[0].gpus)
    outcome = from_files(files, Asked(given["collective"], given["gpus"], given["nodes"], each), topology)
    outcome = outcome.joined(rates=rates)
    if topology is not None:
        check(outcome.calibration, topology)
    if wanted:
        outcome = outcome.joined(compute=[_step(given, wanted)])
    entries = outcome.calibration
    if not (entries.curves or entries.compute or entries.rates):
        raise InputError(outcome.refused)
    if out is not None:
        write(Path(out), entries, name)
    for problem in outcome.refused:
        click.echo(f"refused: {problem}", err=True)
    if as_json:
        print_json(outcome.as_json() | {"wrote": out})
    else:
        below = f"written to {out}\n" if out else f"\n{calibration_text(entries, '# For a file: --out FILE')}"
        print_text(render_calibration(outcome.as_json(), width()) + below)


def _topology(name: str | None) -> Topology | None:
    from zerosim.cli.machines import read_machine

    return None if name is None else read_machine(name)


def _positive(option: str, text: str, kind: str) -> float:
    """A quantity above 0 of `units`."""
    from zerosim import units

    try:
        value: float = getattr(units, f"parse_{kind}")(text)
    except units.UnitError as error:
        raise InputError([Problem(option, "", f'"{error.found}"', error.expected, error.nearest)]) from None
    if value <= 0:
        raise InputError([Problem(option, "", f'"{text}"', "more than 0")])
    return value


def _rate(option: str, text: str) -> float:
    rate = _positive(option, text, "rate")
    _sane(option, f'"{text}"', rate)
    return rate


def _sane(option: str, found: str, rate: float) -> None:
    """Not in bytes/s because a unit is missing."""
    from zerosim.spec.calibration import SANE_RATE, is_rate

    if not is_rate(rate):
        raise InputError([Problem(option, "", found, SANE_RATE)])


def _rates(given: dict[str, Any], source: str) -> list[MeasuredRate]:
    from zerosim.studies.calibrate import adam_rate, given_rates

    rates: dict[str, float] = {}
    problems: list[Problem] = []
    for key in (key for key in RATES if given[key] is not None):
        try:
            rates[RATES[key][0]] = _rate(f"--{key.replace('_', '-')}", given[key])
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    found = given_rates(rates, source)
    adam = given["cpu_adam_seconds"], given["cpu_adam_params"]
    if any(adam) and not all(adam):
        raise InputError([Problem("--cpu-adam-seconds", "", "one of the two", "--cpu-adam-params beside it")])
    if all(adam):
        seconds = _positive("--cpu-adam-seconds", adam[0], "seconds")
        parameters = _positive("--cpu-adam-params", adam[1], "count")
        found.append(adam_rate(seconds, parameters, given["cpu_adam_ranks"], source))
        _sane("--cpu-adam-seconds", f"{adam[0]} for {adam[1]} parameters", found[-1].rate)
    return found


def _wanted(given: dict[str, Any]) -> tuple[Measure, float] | None:
    """What was measured of a step: exactly one thing, of a scenario."""
    options = [f"--{key.replace('_', '-')}" for key in STEP]
    said = {key: given[key] for key in STEP if given[key] is not None}
    if given["scenario"] is None:
        if said or given["changes"]:
            raise InputError([Problem("--scenario", "", "nothing", "the scenario whose step was measured")])
        return None
    if len(said) != 1:
        found = "several of them" if said else "nothing measured of its step"
        raise InputError([Problem("--scenario", "", found, f"one of {', '.join(options)}")])
    ((key, text),) = said.items()
    value = _positive(f"--{key.replace('_', '-')}", text, STEP[key])
    if key == "mfu" and value >= 1:
        raise InputError([Problem("--mfu", "", f'"{text}"', "a share below 100 %, such as 42%")])
    return key, value


def _step(given: dict[str, Any], wanted: tuple[Measure, float]) -> Compute:
    from zerosim.scenario import load
    from zerosim.studies.calibration_step import measured_step

    return measured_step(load(given["scenario"], given["changes"]), *wanted, given["source"] or "")
