"""The way that bytes take between two devices of a graph.

A way costs what one message of 1 MiB would take on it, link after link, so that bandwidth decides and latency breaks
ties. Only switches, sockets and network ports pass traffic on: a GPU does not forward what is not for it, nor does
memory. The same graph always gives the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import networkx as nx

from zerosim.spec.devices import Device, Link

PASSES_ON = frozenset({"nvswitch", "pcie_switch", "socket", "nic", "leaf", "spine"})
MESSAGE_BYTES = 2.0**20


def device_at(graph: nx.DiGraph[str], name: str) -> Device:
    """The device of a vertex."""
    device: Device = graph.nodes[name]["device"]
    return device


def link_at(graph: nx.DiGraph[str], source: str, target: str) -> Link:
    """The link of an edge."""
    link: Link = graph.edges[source, target]["link"]
    return link


def seconds(link: Link) -> float:
    """What one message takes on a link."""
    return link.latency + MESSAGE_BYTES / link.bandwidth


def shortest(
    graph: nx.DiGraph[str], source: str, target: str, closed: Collection[str] = frozenset()
) -> tuple[Link, ...] | None:
    """The quickest way from `source` to `target` around the `closed` devices; None when there is none."""

    def cost(a: str, b: str, edge: dict[str, Any]) -> float | None:
        if (a != source and device_at(graph, a).kind not in PASSES_ON) or (b in closed and b != target):
            return None
        return seconds(edge["link"])

    try:
        path = nx.dijkstra_path(graph, source, target, weight=cost)
    except nx.NetworkXNoPath:
        return None
    return tuple(link_at(graph, a, b) for a, b in pairwise(path))
