"""The `launch` section of a scenario: its keys, what they rule out, what is worth saying of them, and back to text.

What they mean stands in `launch`. They matter only where the CPU computes, which it does for an offloaded optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from zerosim.errors import Finding, InputError
from zerosim.spec.document import Document
from zerosim.spec.launch import Launch, Launcher, usual_launch
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.strategy import DeepSpeed, Fsdp, Strategy


class _LaunchSchema(Schema):
    launcher: Launcher | None = None
    bind_cores_to_rank: bool = False
    omp_num_threads: Annotated[Whole, Field(ge=1, le=65_536)] | None = None


class LaunchRead(NamedTuple):
    """The value, what is worth saying of it, and what was taken because nobody said it ("" where nothing matters)."""

    launch: Launch
    findings: tuple[Finding, ...] = ()
    assumption: str = ""


def read_launch(document: Document, strategy: Strategy) -> LaunchRead:
    """The section, which may be empty, for a strategy."""
    given = validated(document, _LaunchSchema)
    launcher = given.launcher or usual_launch(strategy).launcher
    launch = Launch(launcher, given.bind_cores_to_rank, given.omp_num_threads)
    if launch.bind_cores_to_rank and launcher == "torchrun":
        expected = "false, or launcher: deepspeed; torchrun binds no cores"
        raise InputError([document.problem(("bind_cores_to_rank",), "true", expected)])
    computes = strategy.zero.optimizer_on_host if isinstance(strategy, DeepSpeed) else _offloads(strategy)
    findings = tuple(_findings(launch, given.model_fields_set, computes))
    return LaunchRead(launch, findings, _assumption(launch, given.model_fields_set) if computes else "")


def _offloads(strategy: Strategy) -> bool:
    return isinstance(strategy, Fsdp) and strategy.cpu_offload


def launch_text(launch: Launch) -> dict[str, Any]:
    """The section that reads as this value."""
    return {key: value for key, value in asdict(launch).items() if value is not None}


def _findings(launch: Launch, given: set[str], computes: bool) -> Iterator[Finding]:
    if given and not computes:
        message = f"launch ({', '.join(sorted(given))}) changes nothing in a step: no optimizer runs on the CPU."
        yield Finding("key-no-effect", "note", message)
    elif launch.bind_cores_to_rank and launch.omp_num_threads is not None:
        message = "launch.omp_num_threads changes nothing in a step: bind_cores_to_rank sets it to the cores of a rank."
        yield Finding("key-no-effect", "note", message)


def _assumption(launch: Launch, given: set[str]) -> str:
    names = [name for name in _LaunchSchema.model_fields if name not in given]
    if launch.bind_cores_to_rank:  # which says how many threads there are
        names = [name for name in names if name != "omp_num_threads"]
    taken = {name: getattr(launch, name) for name in names}
    said = ", ".join(f"{name} {'unset' if value is None else str(value).lower()}" for name, value in taken.items())
    return f"Not given in launch, so taken: {said}." if said else ""
