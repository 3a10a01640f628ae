"""`--range`, `--samples`, `--seed`: what verbs that play scenarios share when they are asked for ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zerosim.cli.printing import progress
from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.scenario import Scenario
    from zerosim.studies.uncertainty import Sampled

LEAST, MOST = 2, 100_000  # samples
MOST_SEED = 2**63 - 1


def range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the three options, as `ranged`, `samples` and `seed`."""
    for option in (
        click.option("--seed", type=click.IntRange(0, MOST_SEED), metavar="N", help="Seed of --range; 0 by default."),
        click.option(
            "--samples", type=click.IntRange(LEAST, MOST), metavar="N", help="Samples of --range; 64 by default."
        ),
        click.option(
            "--range", "ranged", is_flag=True, help="Add P10-P90 over what the catalogue's grades leave open."
        ),
    ):
        command = option(command)
    return command


class Drawing(NamedTuple):
    """How many samples are drawn, and with which seed."""

    samples: int
    seed: int

    @classmethod
    def asked(cls, ranged: bool, samples: int | None, seed: int | None) -> Drawing | None:
        """What the options say; None where no range is wanted."""
        from zerosim.studies.uncertainty import SAMPLES, SEED

        given = {"--samples": samples, "--seed": seed}
        idle = [
            Problem(name, "", str(value), "--range beside it") for name, value in given.items() if value is not None
        ]
        if idle and not ranged:
            raise InputError(idle)
        return cls(samples or SAMPLES, SEED if seed is None else seed) if ranged else None

    def sample(self, scenario: Scenario) -> Sampled:
        """The samples of a scenario."""
        from zerosim.studies.uncertainty import sample

        with progress("samples") as told:
            return sample(scenario, self.samples, self.seed, told)

    def compare(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        """What `compare --json` has under `range` for each; the first is the baseline."""
        from zerosim.studies.uncertainty import compared

        first, *others = [self.sample(scenario) for scenario in scenarios]
        against = [other.as_json() | {"slower_than_baseline": compared(other, first).as_json()} for other in others]
        return [first.as_json(), *against]
