"""The verb `require`: the least rate of a resource that a step needs, and the step by rate.

Libraries are imported inside the verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from zerosim.cli.printing import Verb, changes_option, json_option, print_json, print_text, progress, width
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.scenario import Scenario
    from zerosim.studies.require import Wish

STAGE = "strategy.deepspeed.zero_optimization.stage"


@click.command(cls=Verb)
@click.argument("scenario")
@click.option("--resource", required=True, metavar="PATH", help="A rate of the topology, e.g. node.nics.bandwidth.")
@click.option("--slowdown", metavar="SHARE", help="At most so much longer than with a free resource, e.g. 10%.")
@click.option("--mfu", metavar="SHARE", help="Or: at least this MFU, e.g. 40%.")
@click.option("--seconds", metavar="TIME", help="Or: at most this long, e.g. 1.5 or 800ms.")
@click.option("--stages", metavar="N,...", help="ZeRO stages to ask for, instead of the scenario's own: 1,2,3.")
@click.option("--with", "others", multiple=True, metavar="FILE", help="Another scenario to ask. Repeatable.")
@changes_option
@json_option
def require(
    scenario: str,
    resource: str,
    slowdown: str | None,
    mfu: str | None,
    seconds: str | None,
    stages: str | None,
    others: tuple[str, ...],
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the least rate of a resource that a step needs.

    \b
    zerosim require SCENARIO --resource node.nics.bandwidth --slowdown 10%
    zerosim require SCENARIO --resource node.sockets.dram.bandwidth --mfu 40%
    zerosim require SCENARIO --resource node.pcie.bandwidth --seconds 1.5 --stages 1,2,3

    PATH is a rate in the topology: of ports, NVLink, PCIe, host memory, drives, HBM, or FLOP/s of the GPUs; or the
    oversubscription of a fabric with uplinks. A list left out means all in it: node.sockets.dram.bandwidth.
    """
    from zerosim.report.require import render_required
    from zerosim.studies.require import require_all

    wish = _wish(slowdown, mfu, seconds)
    asked = _scenarios(scenario, stages, others, changes)
    with progress("strategies") as told:
        rows = [each.as_json() for each in require_all(asked, resource, wish, told)]
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    else:
        print_text(render_required(rows, width()))


def _wish(slowdown: str | None, mfu: str | None, seconds: str | None) -> Wish:
    from zerosim.studies.require import Wish
    from zerosim.units import parse_seconds

    given = {"--slowdown": slowdown, "--mfu": mfu, "--seconds": seconds}
    named = [name for name, text in given.items() if text is not None]
    if len(named) != 1:
        found = " and ".join(named) or "no wish"
        raise InputError([Problem("require", "", found, f"one of {', '.join(given)}")])
    if slowdown is not None:
        return Wish("slowdown", _share("--slowdown", slowdown, most=100))
    if mfu is not None:
        return Wish("mfu", _share("--mfu", mfu, most=1))
    amount = _read("--seconds", seconds or "", parse_seconds)
    if not amount:
        raise InputError([Problem("--seconds", "", f'"{seconds}"', "a time above 0")])
    return Wish("seconds", amount)


def _share(option: str, text: str, most: float) -> float:
    """A share above 0; a number of 1 or more has most likely lost its sign."""
    from zerosim.units import parse_share, show_share

    share = _read(option, text, parse_share)
    if share >= 1 and "%" not in text:
        raise InputError([Problem(option, "", f'"{text}"', 'a share such as "10%" or 0.1', f'"{text.strip()}%"')])
    if not 0 < share <= most:
        raise InputError([Problem(option, "", f'"{text}"', f"a share above 0, of at most {show_share(most)}")])
    return share


def _read(option: str, text: str, parse: Callable[[object], float]) -> float:
    from zerosim.units import UnitError

    try:
        return parse(text)
    except UnitError as error:
        raise InputError([Problem(option, "", f'"{error.found}"', error.expected, error.nearest)]) from None


def _scenarios(path: str, stages: str | None, others: tuple[str, ...], changes: tuple[str, ...]) -> list[Scenario]:
    """All that are asked, read before any is played; what is wrong in any of them is told at once."""
    from zerosim.scenario import load

    asked: list[Scenario] = []
    problems: list[Problem] = []
    for file, more in _files(path, stages, others, changes):
        try:
            asked.append(load(file, (*changes, *more)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(dict.fromkeys(problems))
    return asked


def _files(
    path: str, stages: str | None, others: tuple[str, ...], changes: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Files, and the changes that make a stage of them."""
    if stages is None:
        yield path, ()
    else:
        for stage in _stages(path, stages, changes):
            yield path, (f"{STAGE}={stage}",)
    for other in others:
        yield other, ()


def _stages(path: str, text: str, changes: tuple[str, ...]) -> list[str]:
    from zerosim.scenario import load
    from zerosim.spec.strategy import DeepSpeed

    stages = [part.strip() for part in text.split(",")]
    wrong = [part for part in stages if part not in ("0", "1", "2", "3")]
    if wrong:
        raise InputError([Problem("--stages", "", f'"{part}"', "stages from 0 to 3, such as 1,2,3") for part in wrong])
    if not isinstance(load(path, changes).strategy, DeepSpeed):
        raise InputError([Problem("--stages", "", path, "a scenario whose strategy is deepspeed, which has stages")])
    return list(dict.fromkeys(stages))
