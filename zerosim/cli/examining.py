"""The verb `doctor`: the classic troubles of a scenario, and what their remedies make of the step.

Libraries are imported inside the verb.
"""

from __future__ import annotations

import click

from zerosim.cli.printing import Verb, changes_option, json_option, print_json, print_text, progress, width


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
def doctor(scenario: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Find the classic troubles of a step, and play their remedies.

    Each trouble comes with what shows it, why, and the change of settings that helps most of those that were played:
    step and memory before and after. Where the step does not fit, what makes it fit is taken first: the troubles after
    it are those of the step with that remedy, and their remedies are played on top of it ("with the remedy above").
    Nothing found is an answer, too: what was looked at is told.
    """
    from zerosim.report.doctor import render_doctor
    from zerosim.scenario import load
    from zerosim.studies.doctor.examine import examine

    asked = load(scenario, changes)
    with progress("remedies") as told:
        found = examine(asked, lambda more: load(scenario, (*changes, *more)), told)
    rows = found.as_json()
    if as_json:
        print_json(rows)
    else:
        print_text(render_doctor(found.title, rows, found.clear, width()))
