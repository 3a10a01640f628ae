"""Collectives as they were measured: the curve of a calibration in the place of the model's time.

Exactly as measured on as many GPUs of as many nodes; on other numbers the model's own latency and bandwidth, each times
what was measured / modelled where it was measured, so that hops and links still count. A kind without a curve of its
own takes these ratios from the kind most like it. Inside an island and between islands are two regimes: no ratio is
carried from the one to the other. What a collective moves over which link stays as the model has it; the link that
limits it is busy for w = S x bus factor / bandwidth, and the rest of the time is latency, which nobody shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zerosim.costs.bounds import bus_factor, wire_bytes
from zerosim.costs.collectives import collective
from zerosim.costs.groups import Spread, layout
from zerosim.costs.machine import Machine
from zerosim.costs.site import survey
from zerosim.costs.supply import supply
from zerosim.errors import InputError, Problem
from zerosim.resources import Demand, Supply, Use
from zerosim.spec.calibration import Curve
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.step import Collective, CollectiveKind, Group
from zerosim.units import show_rate

ALIKE: Mapping[str, tuple[str, ...]] = {  # whose ratios a kind takes, the nearest first: rings with rings
    "all_reduce": ("all_reduce", "reduce_scatter", "all_gather"),
    "all_gather": ("all_gather", "reduce_scatter", "all_reduce"),
    "reduce_scatter": ("reduce_scatter", "all_gather", "all_reduce"),
    "broadcast": ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"),
    "reduce": ("reduce", "broadcast", "reduce_scatter", "all_gather", "all_reduce"),
    "all_to_all": ("all_to_all", "send_recv"),
    "send_recv": ("send_recv", "all_to_all"),
    "exchange": ("send_recv", "all_to_all"),
}
ENDLESS = 2**50  # bytes of a message whose time is all transfer
BEYOND = 1.25  # of a bandwidth that a fit leads to, beyond the largest size, before a link is said to be too slow


class Line(NamedTuple):
    """T = alpha + w + 2 kappa sqrt(alpha w); seconds and bytes/s on the bus."""

    alpha: float
    bandwidth: float
    kappa: float

    def waits(self, w: float) -> float:
        """All but the transfer itself."""
        return self.alpha + 2 * self.kappa * math.sqrt(self.alpha * w)


class Model(NamedTuple):
    """What the model says of a kind on a spread: empty, without end, and where transfer and latency are equal."""

    alpha: float
    bandwidth: float
    kappa: float
    islands: int


class Applied(NamedTuple):
    """How a curve was used: `exact`, or for which kind and how many GPUs on how many nodes."""

    curve: Curve
    line: Line
    exact: bool
    kind: str
    gpus: int
    nodes: int


@dataclass(slots=True)
class Curves:
    """Curves on a machine; `whole` has all of its nodes. The sizes for which a curve is used are noted as they come."""

    given: Sequence[Curve]
    whole: Topology
    launch: Launch
    origin: str
    chosen: dict[tuple[str, int], Applied | None] = field(default_factory=dict)  # by identity of spreads, kept alive
    models: dict[Curve, Model | None] = field(default_factory=dict)
    sizes: dict[Applied, tuple[float, float]] = field(default_factory=dict)
    moved: bool = False  # to a machine that was changed since

    def move(self) -> None:
        """From here on the machine is another than was measured, so that measured / modelled is carried over to it;
        what the model says of the one that was measured is asked before that."""
        self.models = {curve: self._model_of(curve) for curve in self.given}
        self.moved = True

    def corrected(self, demand: Demand, work: Collective, spread: Spread, given: Supply) -> Demand:
        """The demand with the time that was measured; as it is where nothing was that bears on it."""
        if not demand.uses:
            return demand
        key = (work.kind, id(spread))
        if key not in self.chosen:
            self.chosen[key] = self._choice(work.kind, spread, given)
        applied = self.chosen[key]
        if applied is None:
            return demand
        least, most = self.sizes.get(applied, (work.bytes, work.bytes))
        self.sizes[applied] = min(least, work.bytes), max(most, work.bytes)
        w = bus_factor(work.kind, spread.size) * work.bytes / applied.line.bandwidth
        latency = applied.line.waits(w)
        filling = latency - applied.line.alpha
        return demand._replace(latency=latency, filling=filling, uses=paced(demand.uses, w, given))

    def _choice(self, kind: CollectiveKind, spread: Spread, given: Supply) -> Applied | None:
        """The nearest curve: of the kind, or of one like it, and of its numbers of GPUs and nodes."""
        gpus, nodes = spread.size, hosts_of(spread)
        for like in ALIKE[kind]:
            near = sorted(
                (curve for curve in self.given if curve.collective == like),
                key=lambda curve: (_far(curve.gpus, gpus) + _far(curve.nodes, nodes), -curve.gpus),
            )
            for curve in near:
                exact = timed(curve) == kind and (curve.gpus, curve.nodes) == (gpus, nodes) and has_ports_alone(spread)
                if exact and not self.moved:
                    line: Line | None = self._exact(curve, spread, given)
                else:
                    line = self._carried(curve, kind, spread, given, BEYOND if exact else 1.0)
                if line is not None:
                    return Applied(curve, line, exact, kind, gpus, nodes)
        return None

    def _exact(self, curve: Curve, spread: Spread, given: Supply) -> Line:
        """The curve; the model's where it does not say something. What no link could carry is a mistake."""
        kind = timed(curve)
        own = modelled(kind, spread, given)
        line = Line(
            curve.alpha if curve.alpha is not None else own.alpha,
            curve.bandwidth if curve.bandwidth is not None else own.bandwidth,
            curve.kappa if curve.kappa is not None else own.kappa,
        )
        most, link = carried_at_most(kind, spread, given)
        if line.bandwidth > BEYOND * most:
            found = f"bus bandwidth {show_rate(line.bandwidth)}"
            expected = f"at most {show_rate(most)}, which {link} can carry: was it measured on this machine?"
            raise InputError([Problem(self.origin, f"collectives: {curve.name}", found, expected)])
        return line

    def _carried(self, curve: Curve, kind: CollectiveKind, spread: Spread, given: Supply, beyond: float) -> Line | None:
        """The model's line times what was measured / modelled, at most `beyond` what links carry; None from the other
        regime, or from another machine."""
        if curve not in self.models:
            self.models[curve] = self._model_of(curve)
        there = self.models[curve]
        if there is None or (there.islands == 1) != (spread.islands == 1):
            return None
        here = modelled(kind, spread, given)
        slower = 1.0 if curve.alpha is None else curve.alpha / there.alpha
        faster = 1.0 if curve.bandwidth is None else curve.bandwidth / there.bandwidth
        most, _ = carried_at_most(kind, spread, given)
        kappa = here.kappa if curve.kappa is None else curve.kappa
        return Line(slower * here.alpha, min(faster * here.bandwidth, beyond * most), kappa)

    def _model_of(self, curve: Curve) -> Model | None:
        """The model where the curve was measured; None where the machine has not so many GPUs and nodes."""
        try:
            spread, given = spread_on(self.whole, curve.gpus, curve.nodes, self.launch)
        except InputError:
            return None
        return modelled(timed(curve), spread, given)


def spread_on(whole: Topology, gpus: int, nodes: int, launch: Launch) -> tuple[Spread, Supply]:
    """All of so many GPUs on so many nodes of a machine as one group, which has the machine alone."""
    part = whole.select(nodes, gpus)
    machine = Machine(part)
    classes, sites = survey(machine, launch)
    spread = layout(machine, classes, sites).spread(Group("measured", gpus), 0)
    return spread, supply(part, sites, [[spread] for _ in sites])


def modelled(kind: CollectiveKind, spread: Spread, given: Supply) -> Model:
    """Latency of the smallest message, bus bandwidth of the largest, and kappa from one between."""

    def seconds(size: float) -> float:
        return collective(Collective(kind, max(1, round(size)), "uint8", "measured"), spread).alone(given)

    factor, alpha = bus_factor(kind, spread.size), seconds(1)
    bandwidth = factor * ENDLESS / seconds(ENDLESS)
    mixed = seconds(alpha * bandwidth / factor) - 2 * alpha  # T - a - w = 2 kappa a where w = a
    return Model(alpha, bandwidth, max(0.0, mixed / (2 * alpha)), spread.islands)


def carried_at_most(kind: CollectiveKind, spread: Spread, given: Supply) -> tuple[float, str]:
    """Bus bandwidth that the links carry on paper, and which of them allows no more.

    Where sums are made in switches an all-reduce moves S where a ring moves 2 S (n-1)/n, so that its bus bandwidth may
    be so much above the rates of links: in an NVSwitch where its GPUs can (NVLS), in the network always (SHARP).
    """
    demand = collective(Collective(kind, ENDLESS, "uint8", "measured"), spread)
    inside, between = _sums(demand.algorithm, spread) if kind == "all_reduce" else (1.0, 1.0)
    times = {
        use.resource: use.amount / given.rates[use.resource] / (between if _outward(use, spread) else inside)
        for use in demand.uses
        if not _memory(use)
    }
    if not times:
        return math.inf, ""
    slowest = max(times, key=lambda name: times[name])
    moved = bus_factor(kind, spread.size) * ENDLESS
    return moved / times[slowest], given.labels.get(slowest, slowest)


def _sums(algorithm: str, spread: Spread) -> tuple[float, float]:
    """What an all-reduce moves in an island and between islands, in what it would with all sums made in switches."""
    moved = wire_bytes("all_reduce", ENDLESS, spread.size, spread.islands, algorithm)
    return max(1.0, moved.gpu / ENDLESS if spread.nvls else 1.0), max(1.0, moved.island / ENDLESS)


def _outward(use: Use, spread: Spread) -> bool:
    """Whether it is for other islands."""
    return spread.islands > 1 and use.resource.partition(".")[0] != "nvlink"


def _memory(use: Use) -> bool:
    """HBM and host memory: what a byte on the wire costs there is less sure than the rates of links are."""
    return use.resource.partition(".")[0] in ("hbm", "dram")


def hosts_of(spread: Spread) -> int:
    """Nodes that hold the group."""
    return spread.islands * max(reach.hosts for reach in spread.reaches)


def has_ports_alone(spread: Spread) -> bool:
    """Whether no group like it sends from the same nodes at the same time, as in a run of nccl-tests."""
    return all(reach.siblings == 1 for reach in spread.reaches)


def paced(uses: Sequence[Use], w: float, given: Supply) -> tuple[Use, ...]:
    """The same traffic, of which what limits it takes `w` seconds, and nothing longer.

    What would need more than a resource has moves less than was thought (sums in a switch): it then fills it.
    """
    times = [use.amount / (given.rates[use.resource] * use.efficiency) for use in uses]
    longest = max(times) * (1 - 1e-9)
    return tuple(
        use if time < longest and time <= w else _exactly(use, w, given.rates[use.resource])
        for use, time in zip(uses, times, strict=True)
    )


def _exactly(use: Use, w: float, rate: float) -> Use:
    needed = use.amount / (rate * w)
    return use._replace(efficiency=needed) if needed <= 1 else use._replace(amount=rate * w, efficiency=1.0)


def timed(curve: Curve) -> CollectiveKind:
    """What nccl-tests times: sendrecv_perf has each GPU send to the next, so that of a pair both send at once."""
    if curve.collective == "send_recv" and curve.gpus == 2:
        return "exchange"
    return curve.collective


def _far(one: int, other: int) -> float:
    return abs(math.log(one / other))
