"""Findings about the network: ports in the wrong place, in the wrong number, or far slower than what is inside."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zerosim.catalog import constant
from zerosim.costs.supply import WORTH_TELLING as GOOD_PORT
from zerosim.errors import Finding
from zerosim.report.words import counted
from zerosim.spec.topology import Topology
from zerosim.studies.machine.kinds import WHERE, Kind, numbered, places, port_of
from zerosim.studies.machine.peers import SIZE_SHOWN, all_reduce
from zerosim.studies.machine.slots import WORTH_TELLING, times
from zerosim.units import show_rate, show_seconds

USUAL_OVERSUBSCRIPTION = 2.0  # more is a warning; a choice
FAR_SLOWER = 10.0  # all-reduce on two servers / on one: from here on it decides how to train; a choice


def port_findings(kind: Kind) -> Iterator[Finding]:
    """About the ports of a server."""
    if kind.ports and kind.near:
        yield from _far(kind)
        yield from _idle(kind)
        yield from _uneven(kind)
    if kind.ports:
        yield from _poor(kind)


def network_findings(topology: Topology) -> Iterator[Finding]:
    """About what lies between the servers."""
    if len(topology.nodes) > 1:
        yield from _slow(topology)
        yield from _oversubscribed(topology)


# --- ports ---------------------------------------------------------------------------------------------------------


def _far(kind: Kind) -> Iterator[Finding]:
    """GPUs that reach a port only between the sockets, and no GPU near a port by NVLink (which would pass it on)."""
    far = [gpu for gpu, nics in kind.near.items() if nics and kind.crosses(gpu, nics[0])]
    beside = set(places(kind, [gpu for gpu in kind.near if gpu not in far]))
    alone = [place for place in places(kind, far) if not beside & set(_joined(kind, place))]
    if not alone:
        return
    links = [link for link in kind.node.links if link.kind == "socket"]
    carries = constant("copies.socket_link_eff") * min((link.bandwidth for link in links), default=0.0)
    used = {nic for gpu in far for nic in kind.near[gpu]}
    moves = sum(rate * port_of(nic).efficiency for nic, rate in map(kind.ports.__getitem__, used))
    limits = moves > WORTH_TELLING * carries
    cost = f", {times(moves / carries)} less" if limits and carries else ", and the CPU is in between"
    yield Finding(
        code="nic-far",
        severity="warning" if limits else "note",
        message=(
            f"{numbered('GPU', alone)}{WHERE} {'reach' if len(alone) > 1 else 'reaches'} the network over the "
            f"link between the sockets, which carries {show_rate(carries)} of such traffic for ports that move "
            f"{show_rate(moves)}{cost}."
        ),
        remedy="A port on each socket.",
    )


def _joined(kind: Kind, gpu: int) -> tuple[int, ...]:
    return next((domain for domain in kind.domains if gpu in domain), ())


def _idle(kind: Kind) -> Iterator[Finding]:
    """Ports that are nearest to no GPU."""
    used = {nic for nics in kind.near.values() for nic in nics}
    idle = [nic for nic in kind.ports if nic not in used]
    if idle and used:
        yield Finding(
            code="nic-idle",
            severity="note",
            message=(
                f"{' and '.join(idle) if len(idle) < 3 else counted(len(idle), 'port')}{WHERE} "
                f"{'is' if len(idle) == 1 else 'are'} nearest to no GPU, and collectives do without: "
                f"{len(used)} of {len(kind.ports)} ports carry them."
            ),
            remedy="Right for storage; for training move them next to GPUs.",
        )


def _uneven(kind: Kind) -> Iterator[Finding]:
    """Ports that are not shared by equally many GPUs."""
    gpus, ports = len(kind.near), len({nic for nics in kind.near.values() for nic in nics})
    if not ports or max(gpus, ports) % min(gpus, ports) == 0:
        return
    shares: Counter[str] = Counter()
    for nics in kind.near.values():
        shares.update({nic: 1 / len(nics) for nic in nics})
    most, least = max(shares.values()), min(shares.values())
    if most > WORTH_TELLING * least:
        of = "GPU" if most == 1 else "GPUs"
        yield Finding(
            code="nic-uneven",
            severity="note",
            message=(
                f"{counted(ports, 'port')} for {counted(gpus, 'GPU')}{WHERE}: one serves {most:.3g} {of} and "
                f"another {least:.3g}. Where every GPU sends on its own, as in hybrid sharding, the first decides."
            ),
            remedy="As many ports as GPUs, or a part of that without rest.",
        )


def _poor(kind: Kind) -> Iterator[Finding]:
    """Ports that move far less than their rate."""
    kinds: defaultdict[tuple[str, float, float], list[str]] = defaultdict(list)
    for name, (nic, rate) in kind.ports.items():
        figures = port_of(nic)
        if figures.efficiency < GOOD_PORT:
            kinds[figures.transport.partition("_")[0].upper(), rate, figures.efficiency].append(name)
    for (transport, rate, efficiency), nics in kinds.items():
        yield Finding(
            code="nic-transport",
            severity="warning",
            message=(
                f"{counted(len(nics), 'port')}{WHERE} of {show_rate(rate, bits=True)} "
                f"{'moves' if len(nics) == 1 else 'move'} {show_rate(rate * efficiency, bits=True)} by {transport}."
            ),
            remedy="RDMA (RoCE, InfiniBand) where port and switch can; else more sockets, NCCL_SOCKET_NTHREADS and "
            "NCCL_NSOCKS_PERTHREAD."
            if transport == "TCP"
            else "",
        )


# --- between the servers -------------------------------------------------------------------------------------------


def _slow(topology: Topology) -> Iterator[Finding]:
    """A network that makes an all-reduce take far longer than on one server, or on those that NVLink joins."""
    few = _joined_nodes(topology)
    part = topology.select(nodes=few)
    if len(part.gpus) < 2 or 2 * few > len(topology.nodes):
        return
    one, two = all_reduce(part), all_reduce(topology.select(nodes=2 * few))
    if two.seconds > FAR_SLOWER * one.seconds:
        yield Finding(
            code="network-slow",
            severity="warning",
            message=(
                f"An all-reduce of {SIZE_SHOWN} takes {show_seconds(one.seconds)} on {counted(few, 'node')} and "
                f"{show_seconds(two.seconds)} on {2 * few}, {times(two.seconds / one.seconds)} as long: {two.label}."
            ),
            remedy="Faster ports, or less across nodes: shards within a node (hybrid sharding, MiCS, hpZ), more "
            "gradient accumulation.",
        )


def _joined_nodes(topology: Topology) -> int:
    """Servers in the NVLink domain of the first GPU."""
    domain = next(domain for domain in topology.nvlink_domains() if 0 in domain)
    return len({topology.host_of(rank) for rank in domain})


class _Level(NamedTuple):
    """Switches of one level: what they are called, and of each the rates of its links down and up."""

    name: str
    down: Mapping[str, float]
    up: Mapping[str, float]


def _oversubscribed(topology: Topology) -> Iterator[Finding]:
    """Switches whose uplinks carry less than their links down, level by level."""
    for name, down, up in _levels(topology):
        thin = {switch: down[switch] / rate for switch, rate in up.items() if down[switch] > WORTH_TELLING * rate}
        if thin:
            worst = max(thin, key=lambda switch: thin[switch])
            above, below = (show_rate(rates[worst], bits=True) for rates in (up, down))
            yield Finding(
                code=f"{name}-oversubscribed",
                severity="warning" if thin[worst] > USUAL_OVERSUBSCRIPTION else "note",
                message=(
                    f"{len(thin)} of {len(down)} {name} switches: uplinks of {above} for {below} below. Where all that "
                    f"is below talks to others each has 1/{thin[worst]:.3g} of its rate."
                ),
                remedy=f"Ranks of a group below one {name}, or more uplinks.",
            )


def _levels(topology: Topology) -> Iterator[_Level]:
    """Leaves, on which servers hang; spines, on which leaves do. What is above these is the end of it."""
    switches = {switch.name for switch in topology.fabric.switches() if switch.kind in ("leaf", "spine")}
    links = [link for link in topology.fabric.links(topology.hosts) if link.kind == "network"]
    below = {link.source for link in links} - switches
    for name in ("leaf", "spine"):
        level = {link.target for link in links if link.source in below and link.target not in below}
        higher = switches - level - below
        down: Counter[str] = Counter()
        up: Counter[str] = Counter()
        for link in links:
            if link.target in level and link.source in below:
                down.update({link.target: link.bandwidth})
            elif link.source in level and link.target in higher:
                up.update({link.source: link.bandwidth})
        yield _Level(name, down, up)
        below = below | level
