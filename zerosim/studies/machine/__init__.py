"""What is wrong with a machine, from its topology alone: told with numbers, and only where something is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from zerosim.errors import Finding
from zerosim.spec.topology import Topology
from zerosim.studies.machine.kinds import WHERE, Kind, kinds_of, numbered
from zerosim.studies.machine.network import network_findings, port_findings
from zerosim.studies.machine.peers import peer_findings
from zerosim.studies.machine.slots import slot_findings
from zerosim.studies.machine.uneven import uneven_findings

__all__ = ["machine_findings"]


def machine_findings(topology: Topology) -> tuple[Finding, ...]:
    """Warnings first; each in the order from what differs between nodes over the network into a node."""
    kinds = kinds_of(topology)
    found = [*uneven_findings(kinds), *network_findings(topology), *_inside(kinds)]
    return tuple(sorted(found, key=lambda finding: finding.severity == "note"))


def _inside(kinds: Sequence[Kind]) -> Iterator[Finding]:
    """What is found in each kind of server; what is the same in several of them once."""
    hosts: defaultdict[Finding, list[int]] = defaultdict(list)
    for look in (port_findings, peer_findings, slot_findings):
        for kind in kinds:
            for finding in look(kind):
                hosts[finding] += kind.hosts
    everywhere = sum(len(kind.hosts) for kind in kinds)
    for finding, those in hosts.items():
        whose = "" if len(those) == everywhere else f" of {numbered('node', those)}"
        yield replace(finding, message=finding.message.replace(WHERE, whose))
