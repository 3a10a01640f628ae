"""What work needs (`Demand`) and what a machine has (`Supply`), in the same names.

Only `costs` mints resource names; everyone else passes them on. An op's flow uses several resources at once. A use
takes the share `speed x seconds` of its resource, where `seconds = amount / (rate x efficiency)` is how long the
resource would be busy with it alone: so a kernel that reaches 80 % of the peak still occupies the whole GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple


class Use(NamedTuple):
    """`amount` (FLOP or bytes) of a resource, of whose rate the fraction `efficiency` can be reached.

    `ranks`: how many ranks' equal amounts are in it, where ranks of a node that do the same share the resource.
    """

    resource: str
    amount: float
    efficiency: float = 1.0
    ranks: float = 1.0


class Hold(NamedTuple):
    """A `share` (0..1) of a resource taken from start to end, however fast the flow runs: the SMs of a NCCL kernel."""

    resource: str
    share: float


class Demand(NamedTuple):
    """What one op needs: `latency` seconds that nobody shares, then a flow through all of `uses` at once.

    `host` is the time the host thread needs to issue the op; `algorithm` names how a collective is carried out.
    `filling` is the part of the latency in which chunks fill and drain the way: it comes with the transfer, and grows
    with its square root, so that who asks what limits the op does not count it as latency.
    """

    latency: float = 0.0
    uses: tuple[Use, ...] = ()
    holds: tuple[Hold, ...] = ()
    host: float = 0.0
    algorithm: str = ""
    filling: float = 0.0

    def alone(self, supply: Supply) -> float:
        """Seconds on an idle machine: latency + max over resources of amount / (rate x efficiency)."""
        return self.latency + max(
            (use.amount / (supply.rates[use.resource] * use.efficiency) for use in self.uses), default=0.0
        )

    def bottleneck(self, supply: Supply) -> str:
        """The resource that limits the op on an idle machine; `latency` where none takes as long as that."""
        slowest = max(
            self.uses,
            key=lambda use: use.amount / (supply.rates[use.resource] * use.efficiency),
            default=None,
        )
        if slowest is None or self.alone(supply) < 2 * (self.latency - self.filling):
            return "latency"
        return slowest.resource


WayOf = Literal["read", "write", ""]


class Way(NamedTuple):
    """A resource as who uses it in one way sees it: the `share` of its rate on paper, what a person calls that."""

    share: float
    label: str


class Called(NamedTuple):
    """What a person calls a resource, and its rate (0 where it has none)."""

    label: str
    rate: float


@dataclass(frozen=True, slots=True)
class Supply:
    """Rates (FLOP/s, bytes/s) by resource, and capacities (bytes) by tier: `gpu` per GPU, `dram`, `nvme` per node.

    Of drives the rate is that of reading; `ways` are they for who reads and for who writes.
    """

    rates: Mapping[str, float]
    capacities: Mapping[str, float]
    overheads: Mapping[str, float]  # bytes by tier taken before any buffer: context, communicators
    units: Mapping[str, str]  # `FLOP/s` or `B/s`, by resource
    labels: Mapping[str, str]  # what a person calls it: `NIC 10 Gb/s Ethernet (node 0)`
    owners: Mapping[str, str] = field(default_factory=dict)  # the class whose it is, where there are several
    ways: Mapping[tuple[str, WayOf], Way] = field(default_factory=dict)

    def called(self, resource: str, way: WayOf = "") -> Called:
        """For who uses it in a way; without one, or where all have one rate, as a whole."""
        rate, used = self.rates.get(resource, 0.0), self.ways.get((resource, way))
        return Called(used.label, used.share * rate) if used else Called(self.labels.get(resource, resource), rate)

    def scaled(self, resource: str, factor: float) -> Supply:
        """Another supply in which `resource` (or every resource whose name starts with `resource.`) is faster."""
        rates = {
            name: rate * factor if name == resource or name.startswith(f"{resource}.") else rate
            for name, rate in self.rates.items()
        }
        return replace(self, rates=rates)


class RankClass(NamedTuple):
    """Ranks that no measurement could tell apart; the first of `ranks` is played for all of them.

    `program`: which of the programs they run, where there are several (the stages of a pipeline). `hosts`: the nodes
    that they are on, where there are several classes of one program.
    """

    name: str
    ranks: tuple[int, ...]
    program: int = 0
    hosts: tuple[int, ...] = ()


class Calibrated(NamedTuple):
    """A measured number behind demands and supply: of what it is, what it says, and where it came from.

    `used`: whether this step needed it; `remark`: what one should know of that use ("" where nothing).
    """

    entry: str
    value: str
    source: str
    used: bool
    remark: str = ""
