"""The verb `tune`: the best settings of a scenario's strategy, and the file that has them.

Libraries are imported inside the verb.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from zerosim.studies.tuning import Asked, Tuned

JOURNAL = ".journal.jsonl"  # beside the result
SUFFIXES = (".json", ".yaml", ".yml")


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
@click.option(
    "--out",
    metavar="FILE",
    help="Write the best: .json the scenario's DeepSpeed file with what was tuned changed; .yaml, or another strategy: "
    "a scenario. A search that was killed goes on.",
)
@click.option(
    "--knob",
    "knobs",
    multiple=True,
    metavar="NAME[=V,...]",
    help="Turn only the knobs that are named so. With values: these and the scenario's own; without: the default ones. "
    "Repeatable.",
)
@click.option("--pareto", is_flag=True, help="All points than which none is both faster and smaller in GPU memory.")
@click.option("--optimizer", type=click.Choice(["grid", "optuna"]), default="grid", show_default=True)
@click.option(
    "--limit", type=click.IntRange(1), metavar="COUNT", help="Points of a grid that are looked at (1000); a larger "
    "grid is searched block by block. The curves around the best come on top."
)  # fmt: skip
@click.option("--trials", type=click.IntRange(1), metavar="COUNT", help="Of Optuna (200); a grid has none.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, metavar="NUMBER",
    help="Of Optuna (0); a grid has no chance in it."
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 1024), metavar="COUNT", help="As many as there are cores by default."
)
def tune(
    scenario: str,
    changes: tuple[str, ...],
    as_json: bool,
    out: str | None,
    knobs: tuple[str, ...],
    processes: int | None,
    **options: Any,
) -> None:
    """Search the best buckets and other knobs that fit.

    At the same global batch. Nothing is guessed: what wins was played. The knobs, for --knob:

    \b
    all           micro_batch_size (accumulation follows), activation_checkpointing
    DeepSpeed     stage, offload_optimizer, offload_param, overlap_comm, reduce_bucket_size,
                  allgather_bucket_size, sub_group_size, stage3_prefetch_bucket_size,
                  stage3_max_live_parameters, stage3_max_reuse_distance,
                  stage3_param_persistence_threshold (also without stage3_)
    DDP           bucket_cap_mb, gradient_as_bucket_view, no_sync
    FSDP          cpu_offload, no_sync; 1: sharding_strategy, backward_prefetch,
                  forward_prefetch, limit_all_gathers; 2: reshard_after_forward,
                  prefetch_forward, prefetch_backward
    pipelines     schedule, zero_stage
    hierarchical  bucket_size, overlap_grad_reduce, overlap_param_gather
    """
    from zerosim.report.files import write_text
    from zerosim.studies.processes import cores
    from zerosim.studies.tuning import tune as search

    asked = _asked(scenario, changes, knobs, options)
    target = None if out is None else _target(out)
    journal = None if out is None else Path(f"{out}{JOURNAL}")

    def keep(tuned: Tuned) -> None:
        if target is not None and tuned.config is not None:
            write_text(target, tuned.config.text(target))

    with progress("tune") as told:
        tuned = search(asked, processes or cores(), journal, package_version(), told, keep)
    beside = _written(scenario, tuned, target, asked.base) if target is not None else []
    _print(tuned, beside, as_json)
    if target is not None and tuned.config is not None:
        click.echo(f"{_kind(tuned, target)} written to {target}", err=True)
    if journal is not None and journal.exists():
        click.echo(f"{journal} has all other answers: the same command asks for what was lost.", err=True)


def _print(tuned: Tuned, beside: list[str], as_json: bool) -> None:
    """The answer; `beside` is about the file that was to be written."""
    from zerosim.report.tune import render_tune

    if not as_json:
        print_text(render_tune(tuned.as_json(), width(), beside))
        return
    print_json(tuned.as_json())
    for line in beside if tuned.config is None else ():
        click.echo(line, err=True)


def _asked(scenario: str, changes: tuple[str, ...], knobs: tuple[str, ...], options: dict[str, Any]) -> Asked:
    from zerosim.spec import loading
    from zerosim.spec.changes import parse_change
    from zerosim.studies.tuning import Asked

    given = {name: value for name, value in options.items() if value is not None}
    return Asked(
        document=loading.read(scenario),
        base=Path(scenario).parent,
        changes=tuple(map(parse_change, changes)),
        knobs=_knobs(knobs),
        **given,
    )


def _knobs(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Names, each with its values; none where the default ones are meant."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        listed = tuple(value.strip() for value in values.split(","))
        if not name or name in found or (equals and not all(listed)):
            again = f'"{name}" again' if name in found else f'"{text}"'
            raise InputError([Problem("--knob", "", again, "NAME or NAME=V,V, such as reduce_bucket_size=2e8,5e8")])
        found[name] = listed if equals else ()
    return found


def _target(out: str) -> Path:
    """Where the best is written; refused before anything is played."""
    from zerosim.report.files import is_folder

    path = Path(out)
    if is_folder(path):
        raise InputError([Problem("--out", "", f'"{path.name}", a folder', "the name of a file")])
    if path.suffix.lower() not in SUFFIXES:
        raise InputError([Problem("--out", "", f'"{path.name}"', f"a name that ends in {', '.join(SUFFIXES)}")])
    return path


def _kind(tuned: Tuned, target: Path) -> str:
    return "scenario" if tuned.config is None or tuned.config.is_scenario(target) else "DeepSpeed configuration"


def _written(scenario: str, tuned: Tuned, target: Path, base: Path) -> list[str]:
    """What the file is, and how the predicted step is run with it."""
    if tuned.config is None:
        return ["Nothing was written: no point fits."]
    if tuned.config.is_scenario(target):
        return [f"{target} is a scenario: zerosim run {shlex.quote(str(target))}"]
    sets = " ".join(f"--set {shlex.quote(each)}" for each in tuned.config.sets(target, base))
    said = [f"{target} has what DeepSpeed reads. The same step:", f"  zerosim run {shlex.quote(scenario)} {sets}"]
    outside = [each for each in tuned.config.beside if each.path[-1] == "activation_checkpointing"]
    if outside:
        said.insert(0, f"Not in the file, but in the script: activation checkpointing {outside[0].value}.")
    return said
