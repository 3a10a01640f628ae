"""Groups of equal switches in words, and cables to them from each kind of server and from group to group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Literal

from zerosim.report.machine import Cable, End, Switches
from zerosim.spec.fabric import LeafFabric
from zerosim.studies.drawing_network import Network
from zerosim.units import show_rate

WORDS = {"leaf": "leaf switch", "spine": "spine switch", "nvswitch": "NVSwitch"}
CORE = "core switch"  # a spine above spines
DIRECT = "no switch: cables from node to node"
Kind = Literal["leaf", "spine", "nvswitch"]
KINDS: Mapping[str, Kind] = {"leaf": "leaf", "spine": "spine", "nvswitch": "nvswitch"}
Bundle = tuple[int, int, str]  # from a kind of server or group, to a group, kind of link


def switches_and_cables(
    network: Network, servers: Sequence[Sequence[int]]
) -> tuple[tuple[Switches, ...], tuple[Cable, ...]]:
    """Of a network with these kinds of server (the hosts of each)."""
    kind_of = {host: number for number, hosts in enumerate(servers) for host in hosts if host in network.down}
    groups = _groups(network, kind_of)
    group_of = {name: number for number, names in enumerate(groups) for name in names}
    told = [_told(network, names) for names in groups]
    loose = {link.target for links in network.down.values() for link in links} - group_of.keys()
    if loose:
        group_of |= dict.fromkeys(loose, len(told))
        told.append(Switches("cable", ("direct",), DIRECT))
    cables = [*_from_servers(network, kind_of, group_of, list(map(len, servers))), *_upward(network, groups, group_of)]
    return tuple(told), tuple(cables)


def _groups(network: Network, kind_of: Mapping[int, int]) -> list[list[str]]:
    """Switches that offer the same to the same."""
    ways: defaultdict[str, Counter[Hashable]] = defaultdict(Counter)
    for link in network.between:
        ways[link.source][network.kinds[link.target], network.levels[link.target], link.bandwidth] += 1
    for host, links in network.down.items() if network.all_asked else ():
        for link in links:
            ways[link.target][kind_of[host], link.kind, link.bandwidth] += 1
    found: dict[Hashable, list[str]] = {}
    for name, kind in network.kinds.items():
        hanging = 0 if network.all_asked else network.nodes_on(name)
        found.setdefault((kind, network.levels[name], hanging, frozenset(ways[name].items())), []).append(name)
    return list(found.values())


# --- cables ---


def _from_servers(
    network: Network, kind_of: Mapping[int, int], group_of: Mapping[str, int], sizes: Sequence[int]
) -> Iterator[Cable]:
    """Where several servers of a kind were asked, the cables of that which has most."""
    most: dict[Bundle, Counter[float]] = {}
    hosts: Counter[Bundle] = Counter()
    asked = Counter(kind_of[host] for host in network.down)
    for host, links in network.down.items():
        own: defaultdict[Bundle, Counter[float]] = defaultdict(Counter)
        for link in links:
            own[kind_of[host], group_of[link.target], link.kind][link.bandwidth] += 1
        hosts.update(own.keys())
        for bundle, rates in own.items():
            most[bundle] = max(most.get(bundle, rates), rates, key=Counter.total)
    for bundle in sorted(most):
        kind, group, wire = bundle
        each = _each(hosts[bundle], asked[kind], sizes[kind])
        yield Cable(End("server", kind), End("switches", group), wire, _sorted(most[bundle]), each)


def _each(found: int, asked: int, size: int) -> str:
    """From how many of the servers of a kind."""
    if found == asked:
        return "from each" if size > 1 else ""
    return f"from {found:,} node{'s' * (found > 1)}" if asked == size else "from some nodes"


def _upward(network: Network, groups: Sequence[Sequence[str]], group_of: Mapping[str, int]) -> Iterator[Cable]:
    """Up from a switch of each group; between switches of one level once."""
    found: defaultdict[Bundle, Counter[float]] = defaultdict(Counter)
    first = {names[0]: number for number, names in enumerate(groups)}
    for link in network.between:
        here, there = network.levels[link.source], network.levels[link.target]
        if link.source in first and (here, link.source) < (there, link.target):
            found[first[link.source], group_of[link.target], link.kind][link.bandwidth] += 1
    for (one, other, wire), rates in found.items():
        each = "from each" if len(groups[one]) > 1 else ""
        yield Cable(End("switches", one), End("switches", other), wire, _sorted(rates), each)


def _sorted(rates: Counter[float]) -> tuple[tuple[float, int], ...]:
    return tuple(sorted(rates.items(), reverse=True))


# --- words ---


def _told(network: Network, names: Sequence[str]) -> Switches:
    """How many, what hangs on each, and what goes up from it."""
    name, several = names[0], len(names) > 1
    kind, level = network.kinds[name], network.levels[name]
    word = CORE if kind == "spine" and level > 2 else WORDS.get(kind, kind)
    said = [f"{len(names):,} {word}{'es' * several}"]
    hosts = network.nodes_on(name) if level == 1 else 0
    if hosts:
        said.append(f"{hosts:,} node{'s' * (hosts > 1)} on {'each' if several else 'it'}")
    return Switches(
        KINDS.get(kind, "spine"),
        tuple(names),
        ", ".join([*said, *_rails(network, kind), *_spread(network, name)]),
        level,
    )


def _rails(network: Network, kind: str) -> Iterator[str]:
    fabric = network.topology.fabric
    if kind == "leaf" and isinstance(fabric, LeafFabric) and fabric.rails > 1:
        yield f"{fabric.rails} rails, each NIC of a node on its own"


def _spread(network: Network, name: str) -> Iterator[str]:
    """The rate upward, and how much more may come from below."""
    up, fabric = network.up(name), network.topology.fabric
    if not up:
        return
    yield f"{show_rate(up, bits=True)} up"
    if isinstance(fabric, LeafFabric):
        leaf = network.kinds[name] == "leaf"
        yield f"oversubscription {fabric.oversubscription if leaf else fabric.spine_oversubscription:g}"
    elif network.below(name):
        yield f"oversubscription {network.below(name) / up:.3g}"
