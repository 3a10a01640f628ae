"""What timelines are called in pictures, and whose memory ranks share."""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.errors import InputError, Problem
from zerosim.simulation import Simulation, facts
from zerosim.studies.rung_names import rung_name
from zerosim.timeline import Timeline


def title_of(played: Timeline, more: str = "") -> str:
    """The title of its scenario, with more; "" of a timeline that was measured."""
    return f"{played.scenario.title}{more}" if isinstance(played, Simulation) else ""


def labelled(played: Sequence[Timeline], labels: Sequence[str]) -> list[str]:
    """The labels that are given; else strategies where these differ, else titles, else numbers."""
    if labels:
        if len(labels) != len(played):
            raise InputError([Problem("plot", "labels", f"{len(labels)} labels", f"{len(played)}, one a timeline")])
        return list(labels)
    strategies = [rung_name(each.scenario.strategy) if isinstance(each, Simulation) else "" for each in played]
    titles = [title_of(each) for each in played]
    for names in (strategies, titles):
        if "" not in names and len(set(names)) == len(names):
            return names
    return [f"step {number}" for number in range(1, len(played) + 1)]


def ranks_per_node(played: Timeline) -> int:
    """Ranks of the fullest node; of a measured timeline, which does not know its nodes, 1."""
    return facts(played.scenario).ranks_per_node if isinstance(played, Simulation) else 1
