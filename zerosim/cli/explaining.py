"""The verb `explain`: where each millisecond went, the critical path, and the step with one thing faster."""

from __future__ import annotations

import click

from zerosim.cli.printing import Verb, changes_option, json_option, print_json, print_text, progress, width


@click.command(cls=Verb)
@click.argument("scenario")
@changes_option
@json_option
def explain(scenario: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Where each millisecond went, and what would change it.

    Time without compute is attributed along the chain of waits to its root: an op, a phase, layers, a resource. The
    rows sum to the step without its compute, as the stalls of `run` do. A stall names what was in flight while the GPU
    waited, a row here what it waited for: the two may differ.

    The step is played anew with one thing at a time 10 % faster, twice as fast, and free. It is priced on the faster
    machine, so that collectives may choose another algorithm; everything else stays as it is. Network ports and PCIe
    are faster, and free, as `run --set` and `require` make them, wherever one rate of the topology says it.
    """
    from zerosim.report.explanation import render_explanation
    from zerosim.scenario import load
    from zerosim.simulation import simulate
    from zerosim.studies.explanation import explain as study

    played = simulate(load(scenario, changes))
    with progress("steps") as told:
        answer = study(played, told).as_json()
    if as_json:
        print_json(answer)
    else:
        print_text(render_explanation(answer, width()))
