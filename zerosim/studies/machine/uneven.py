"""Findings about what is not equal: a slow port, a throttled or other GPU, a node with fewer of them.

A synchronous step goes at the pace of the slowest. The measure is what most have; of two as frequent the faster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from zerosim.errors import Finding
from zerosim.report.words import counted
from zerosim.studies.machine.kinds import Kind, gpu_of, numbered, port_of
from zerosim.studies.machine.slots import times
from zerosim.units import show_flops, show_rate, show_share

ALIKE = 1.01  # what differs less is equal


def uneven_findings(kinds: Sequence[Kind]) -> Iterator[Finding]:
    yield from _ports(kinds)
    yield from _counts(kinds)
    yield from _gpus(kinds)


def _usual(values: Mapping[float, int]) -> float:
    """The most frequent value, by how often there is each."""
    return max(values, key=lambda value: (values[value], value))


def _often(pairs: Iterable[tuple[float, int]]) -> Counter[float]:
    found: Counter[float] = Counter()
    for value, number in pairs:
        found[value] += number
    return found


def _ports(kinds: Sequence[Kind]) -> Iterator[Finding]:
    """Nodes whose ports together move less than those of the others."""
    moved = {kind.hosts: sum(rate * port_of(nic).efficiency for nic, rate in kind.ports.values()) for kind in kinds}
    usual = _usual(_often((moved[kind.hosts], len(kind.hosts)) for kind in kinds))
    for kind in kinds:
        has = moved[kind.hosts]
        if has and usual > ALIKE * has:
            rates = Counter(show_rate(rate, bits=True) for _, rate in kind.ports.values())
            listed = ", ".join(f"{number} x {rate}" for rate, number in rates.items())
            yield Finding(
                code="node-network",
                severity="warning",
                message=(
                    f"The ports of {numbered('node', kind.hosts)} ({listed}) move {show_rate(has)}, those of other "
                    f"nodes {show_rate(usual)}: collectives over all nodes go at the pace of the slower, "
                    f"{times(usual / has)} less."
                ),
                remedy="Mend or replace them, or leave the node out.",
            )


def _counts(kinds: Sequence[Kind]) -> Iterator[Finding]:
    """Nodes with fewer GPUs than the others."""
    usual = int(_usual(_often((len(kind.node.gpus), len(kind.hosts)) for kind in kinds)))
    for kind in kinds:
        has = len(kind.node.gpus)
        if has < usual:
            each = "has" if len(kind.hosts) == 1 else "have"
            yield Finding(
                code="node-gpus",
                severity="warning",
                message=(
                    f"{numbered('node', kind.hosts).capitalize()} {each} {counted(has, 'GPU')}, other nodes {usual}: "
                    f"groups that take the same GPU of each node leave {usual - has} out."
                ),
                remedy="All nodes alike, or the node left out.",
            )


def _gpus(kinds: Sequence[Kind]) -> Iterator[Finding]:
    """GPUs that compute slower than the others, of their model or of another."""
    rates = {
        (kind.hosts, place): gpu_of(gpu).peak_flops["fp16"] * gpu.compute
        for kind in kinds
        for place, gpu in enumerate(kind.node.gpus)
    }
    often = _often((rate, len(hosts)) for (hosts, _), rate in rates.items())
    usual = _usual(often)
    slow: defaultdict[tuple[str, float, float], list[str]] = defaultdict(list)
    for kind in kinds:
        for place, gpu in enumerate(kind.node.gpus):
            rate = rates[kind.hosts, place]
            if usual > ALIKE * rate:
                slow[gpu_of(gpu).name, gpu.compute, rate] += [f"{host}.{place}" for host in kind.hosts]
    for (name, compute, rate), gpus in slow.items():
        which = f"GPU {gpus[0]}" if len(gpus) == 1 else f"GPU {gpus[0]} and {len(gpus) - 1} more"
        why = f" at {show_share(compute)} of its rate" if compute != 1 else ""
        yield Finding(
            code="gpu-slow",
            severity="warning",
            message=(
                f"{which} ({name}{why}): {show_flops(rate)}, where {counted(often[usual], 'GPU')} have "
                f"{show_flops(usual)}. All wait for the slowest: {times(usual / rate)} slower where compute decides."
            ),
            remedy="Mend the cooling or power of it, or leave it out."
            if compute < 1
            else "One model of GPU in a group.",
        )
