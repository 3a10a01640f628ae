"""The file of `--html`: what the page of `run` and `compare` is made of, and where it is written."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zerosim.cli.printing import Command, package_version
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.measured import Measured
    from zerosim.report.page import Said, Shown
    from zerosim.simulation import Simulation
    from zerosim.views import Summary

ELSEWHERE = frozenset({"as_json", "trace", "svg", "html", "strict"})  # change nothing of what a page tells
NAMED = (("topology",), ("model",), ("calibration",), ("strategy", "deepspeed"), ("strategy", "fsdp"),
         ("strategy", "fsdp", "config_file"))  # fmt: skip  # what a scenario may leave to another file


def html_option(command: Command) -> Command:
    text = "Write a page of it: the timeline to zoom into, every number, the scenario. One file."
    return click.option("--html", metavar="FILE", help=text)(command)


def check_files(**named: str | None) -> None:
    """Refuses files of options that have no name, or the same as another's, before any is written."""
    problems, seen = [], dict[Path, str]()
    for option, path in named.items():
        if path is None:
            continue
        if path in ("", "-"):
            problems.append(Problem(f"--{option}", "", f'"{path}"', "the name of a file"))
            continue
        place = Path(path).absolute()
        if place in seen:
            problems.append(Problem(f"--{option}", "", f'"{path}", as --{seen[place]}', "a file of its own"))
        seen.setdefault(place, option)
    if problems:
        raise InputError(problems)


def write_page(path: str, shown: Sequence[Shown], more: Sequence[Said] = ()) -> None:
    """The page, whole or not at all; `more` was asked beside it. The name of the file is no part of it."""
    from zerosim.report import files, page
    from zerosim.report.page import Origin

    command = shlex.join([*_asked(click.get_current_context()), "--html", "report.html"])
    files.write_text(Path(path), page.render(shown, Origin(command, package_version()), more))
    click.echo(f"page written to {path}", err=True)


def _asked(context: click.Context) -> Iterator[str]:
    """The words of the command, but for those that say where its answer goes."""
    yield from ("zerosim", *context.command_path.split()[1:])
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params[str(parameter.name)]
        if name in ELSEWHERE or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            yield from values
        else:
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            yield from (word for each in values for word in (parameter.opts[-1], *([] if flag else [str(each)])))


def shown(played: Simulation, changes: Sequence[str] = (), summary: Summary | None = None) -> Shown:
    """What a page tells about a scenario that was played; its `summary` if it is at hand."""
    from zerosim.cli.further import further
    from zerosim.report.page import Shown
    from zerosim.spec.topology_facts import describe

    scenario, summary = played.scenario, summary or played.summary()
    return Shown(
        timeline=played,
        summary=summary,
        settings=scenario.text,
        changes=tuple(changes),
        given=tuple(_given(scenario.source)),
        machine=tuple(describe(scenario.topology)),
        ranks_per_node=scenario.topology.fullest,
        further=tuple(further(scenario, summary, changes)),
    )


def shown_measured(timeline: Measured) -> Shown:
    """What a page tells about a trace that was read."""
    from zerosim.report.page import Shown

    return Shown(timeline, timeline.summary())


def _given(source: str) -> Iterator[Said]:
    """The files of a scenario as the user wrote them, itself first; nothing of what can be read but once."""
    from zerosim.report.page import Said
    from zerosim.spec.files import is_file, read_text
    from zerosim.spec.loading import parse

    path = Path(source)
    if not is_file(path):
        return
    text = read_text(path)
    yield Said(source, text)
    data = parse(text, source, is_json=path.suffix.lower() == ".json").data
    for place in NAMED:
        named = _at(data, place)
        beside = path.parent / named if isinstance(named, str) else path.parent
        if is_file(beside):
            yield Said(str(beside), read_text(beside))


def _at(data: Any, place: Sequence[str]) -> Any:
    for key in place:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
