"""What a reader of a page asks next: the commands that play what would change a step, with the run's own changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zerosim.errors import InputError

if TYPE_CHECKING:
    from zerosim.report.page import Said
    from zerosim.scenario import Scenario
    from zerosim.views.summary import Summary

SLOWDOWN = "10%"  # against a free resource: what `doctor` asks for too
RATES = {  # the path of `require` for a resource of the machine, by the first word of its name
    "nic": "node.nics.bandwidth", "leaf": "node.nics.bandwidth", "spine": "node.nics.bandwidth",
    "nvlink": "node.nvlink.bandwidth", "pcie": "node.pcie.bandwidth", "uplink": "node.pcie.bandwidth",
    "c2c": "node.c2c.bandwidth", "sockets": "node.sockets.interconnect", "dram": "node.sockets.dram.bandwidth",
    "nvme": "node.nvme.read", "hbm": "node.gpus.hbm", "sm": "node.gpus.flops",
}  # fmt: skip


def further(scenario: Scenario, summary: Summary, changes: Sequence[str]) -> Iterator[Said]:
    """What each answers, and the command; nothing where the scenario is no file that can be read again."""
    from zerosim.report.page import Said
    from zerosim.spec.files import is_file

    if not is_file(Path(scenario.source)):
        return
    same = [scenario.source, *(word for change in changes for word in ("--set", change))]
    yield Said("The classic troubles of this step, each with the remedy that helped most of those played:",
               shlex.join(["zerosim", "doctor", *same]))  # fmt: skip
    yield Said("The waits down to their roots, and the step with one part of the machine faster, or free:",
               shlex.join(["zerosim", "explain", *same]))  # fmt: skip
    yield Said("The best settings at the same global batch, micro-batch and accumulation among them:",
               shlex.join(["zerosim", "tune", *same]))  # fmt: skip
    limit = _limit(scenario, summary)
    if limit:
        label, path = limit
        yield Said(f"The least rate of what limits it most ({label}) for at most 10 % more than with a free one:",
                   shlex.join(["zerosim", "require", *same, "--resource", path, "--slowdown", SLOWDOWN]))  # fmt: skip


def _limit(scenario: Scenario, summary: Summary) -> tuple[str, str] | None:
    """The resource behind most of the time without compute that `require` knows in this machine, else the busiest one;
    with its path."""
    lost: dict[str, float] = {}
    for stall in summary.stalls:
        lost[stall.resource] = lost.get(stall.resource, 0.0) + stall.seconds
    labels = {stall.resource: stall.label for stall in summary.stalls}
    labels |= {name: use.label for name, use in summary.resources.items()}
    ordered = [*sorted(lost, key=lambda name: -lost[name]), *summary.resources]
    known = ((name, RATES.get(name.partition(".")[0], "")) for name in ordered)
    return next(((labels[name], path) for name, path in known if path and _is_rate(scenario, path)), None)


def _is_rate(scenario: Scenario, path: str) -> bool:
    """Whether the topology says it so that it can be turned."""
    from zerosim.studies.resource import Resource

    try:
        Resource.of(scenario, path)
    except InputError:
        return False
    return True
