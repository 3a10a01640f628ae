"""Where on the picture of a machine a resource of a run is: from its name to a place and the classes of ranks there.

Resources are named by `costs.supply` (its head lists them); a name that is not known here has no place, and is told in
words alone. Places are counted by class: what several classes share is hot for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """What is drawn (`sm`, `hbm`, `nvlink`, `pcie`, `uplink`, `uplink2`, `sockets`, `dram`, `cpu`, `nic`, `nvme`,
    `leaf`, `spine`), as the class of that number uses it."""

    what: str
    mark: int


Busy = Mapping[Place, float] | None  # shares of the step; None before a run
LINKS = {"c2c": "pcie"}  # a GPU has one link to its host, of either kind
KNOWN = {"sm", "hbm", "nvlink", "pcie", "sockets", "dram", "cpu", "nic", "nvme", "leaf", "spine"}
UPLINK = re.compile(r"uplink\d*")
WAYS = {"h2d", "d2h", "both", "into", "out", "read", "write"}
STAGES = re.compile(r"stages (\d+)-(\d+)(.*)")
STEPS = (0.25, 0.5, 0.8)  # from where a link is warm, busy, hot; a choice


def place_of(resource: str) -> tuple[str, str]:
    """What it is, or nothing, and whose: `uplink.h2d.node 3` is `uplink` of `node 3`; no owner is everyone."""
    what, _, rest = resource.partition(".")
    way, _, owner = rest.partition(".")
    if way not in WAYS:
        owner = rest
    what = LINKS.get(what, what)
    return (what if what in KNOWN or UPLINK.fullmatch(what) else ""), owner


def placed(shares: Mapping[str, float], classes: Sequence[str], used: Sequence[Collection[str]]) -> dict[Place, float]:
    """The busiest resource of each place. `used`: the resources that the ops of each class use."""
    found: dict[Place, float] = {}
    for resource, share in shares.items():
        what, owner = place_of(resource)
        for mark in _owners(resource, owner, classes, used) if what else ():
            place = Place(what, mark)
            found[place] = max(share, found.get(place, 0.0))
    return found


def _owners(resource: str, owner: str, classes: Sequence[str], used: Sequence[Collection[str]]) -> Iterable[int]:
    """The classes that an owner's name stands for: all, itself, the stages from one to another, or who uses it."""
    if not owner:
        return range(len(classes))
    if owner in classes:
        return [classes.index(owner)]
    stages = STAGES.fullmatch(owner)
    if stages:
        names = {f"stage {stage}{stages[3]}" for stage in range(int(stages[1]), int(stages[2]) + 1)}
        return [mark for mark, name in enumerate(classes) if name in names]
    return [mark for mark, resources in enumerate(used) if resource in resources]


def hottest(busy: Busy, what: str, marks: Iterable[int]) -> float | None:
    """How busy a place is: the most that one of these classes sees; None where nothing is known."""
    shares = [busy[Place(what, mark)] for mark in marks if Place(what, mark) in busy] if busy is not None else []
    return max(shares, default=None)


def heat(share: float) -> int:
    """0 for cool to 3 for hot."""
    return sum(share >= step for step in STEPS)


def warmth(share: float | None, busy: Busy) -> str:
    """The class of its colour; none before a run."""
    if busy is None:
        return ""
    return "idle" if share is None else f"heat{heat(share)}"


def percent(share: float) -> str:
    """Whole percent, as the label of a line has little room."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
