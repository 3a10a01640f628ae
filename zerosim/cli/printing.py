"""What every verb shares: how errors end, how an answer is printed, and the two flags that most of them have.

Answers go to standard output, everything else to standard error. Exit codes: 0 done, 2 the input is wrong, 3 with
--strict if it does not fit, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from zerosim.errors import InputError, Problem, ZerosimError

WRONG_INPUT, DOES_NOT_FIT, INTERRUPTED = 2, 3, 130  # 130: as shells report SIGINT
Command = Callable[..., Any]


@contextmanager
def told() -> Iterator[None]:
    """Errors that users can mend are told in one line each, without a traceback."""
    try:
        yield
    except ZerosimError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)


class Verb(click.Command):
    """A command whose expected errors end with exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        with told():
            return super().invoke(ctx)


class Verbs(click.Group):
    """Commands in the order in which they stand here, which is that of a first visit."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def changes_option(command: Command) -> Command:
    text = "Change a value of each scenario, e.g. nodes=4, strategy.deepspeed.zero_optimization.stage=2. Repeatable."
    return click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help=text)(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")(command)


def print_text(text: str) -> None:
    """An answer, whole: what cannot be written shows here and not while Python shuts down."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # `zerosim ops ... | head`: who reads has enough
            return
        problem = Problem("standard output", found=(error.strerror or "an error").lower(), expected="room for it")
        raise InputError([problem]) from None


def print_json(value: Any) -> None:
    """Strict JSON: a number that JSON does not have would be a defect here."""
    print_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, to be told how much is done, of how much; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, show_pos=True) as bar:

        def told(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        yield told


def package_version() -> str:
    """The version that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("zerosim")
    except PackageNotFoundError:
        return "(not installed)"


def width() -> int:
    """Columns to write in: those of the terminal, within reason; 100 where there is none, so that files are alike."""
    import shutil

    return max(60, min(shutil.get_terminal_size((100, 40)).columns, 120)) if sys.stdout.isatty() else 100
