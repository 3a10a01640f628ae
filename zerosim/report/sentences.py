"""Sentences about a step that the screen and the page both say, so that no report words a fact in its own way.

Rule: what belongs together keeps on one line (`unbroken`); shares are the only numbers computed here.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.report.words import counted, share, size, unbroken
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.memory_findings import FRAGMENTATION
from zerosim.views.recorded import Answer
from zerosim.views.summary import Summary, TierUse
from zerosim.views.waits import Wait


def verdict(summary: Summary) -> str:
    """What stands above all other numbers: that the step cannot be run, or maybe not; nothing where it can."""
    missing = {name: tier.peak_bytes - tier.capacity_bytes for name, tier in summary.memory.items()}
    short = ", ".join(unbroken(f"{name} {show_size(each)}") for name, each in missing.items() if each > 0)
    if short:
        return f"DOES NOT FIT: {short} too much (see findings)"
    broken = any(finding.code == FRAGMENTATION for finding in summary.findings)
    return "MAY NOT FIT: gpu, no room in one piece (see findings)" if broken else ""


def machine(summary: Summary) -> str:
    """What it runs on, and the seed."""
    return f"{counted(summary.world_size, 'GPU')} on {counted(summary.nodes, 'node')}, seed {summary.seed}"


def rates(summary: Summary) -> tuple[str, ...]:
    """How long and how much a second."""
    return (
        f"step {show_seconds(summary.step_seconds)}",
        f"{show_count(summary.tokens_per_second)} tokens/s",
        f"{show_count(summary.tokens_per_second_per_gpu)} tokens/s/GPU",
        f"{show_flops(1e12 * summary.model_tflops_per_gpu)} per GPU",
        f"MFU {show_share(summary.mfu)}",
    )


def pipeline(summary: Summary) -> tuple[str, ...]:
    """With stages: how much of the step is bubble, and would be with equal stages and sends that take no time."""
    known = summary.pipeline
    if known is None:
        return ()
    bubble = f"bubble {show_seconds(known.bubble_seconds)} ({share(known.bubble_share, 1.0)}"
    return (
        f"pipeline {known.schedule}: {counted(known.stages, 'stage')}",
        counted(known.micro_batches, "micro-batch"),
        f"{bubble}, ideally {show_share(known.ideal_share)})",
    )


def hidden(summary: Answer) -> str:
    """How much of the communication is hidden; nothing where there is none."""
    known = summary.communication
    return f"{show_share(known.overlap)} of {show_seconds(known.total_seconds)} hidden" if known.total_seconds else ""


def fill(tier: TierUse) -> str:
    """ "22.49 GB of 85.04 GB, 26.4 %"."""
    filled = share(tier.peak_bytes, tier.capacity_bytes)
    return f"{show_size(tier.peak_bytes)} of {show_size(tier.capacity_bytes)}, {filled}"


def moment(tier: TierUse) -> str:
    """When the host's program is at the peak: it issues ops ahead of the GPU that runs them."""
    at = tier.peak_at
    issued = f"peak when the host issued {at.op} ({at.phase}), {show_seconds(at.seconds)} into the step"
    reserved = f", reserved {size(tier.reserved_bytes)}" if tier.reserved_bytes is not None else ""
    rounded = f", {size(tier.rounding_bytes)} of it lost to rounding of pinned blocks" if tier.rounding_bytes else ""
    return f"{issued if at.op else 'held all along'}; allocated {size(tier.allocated_bytes)}{reserved}{rounded}"


def waited(alike: Sequence[Wait], summary: Summary) -> str:
    """Waits of several classes for the same; the longest of them is told."""
    longest = alike[0]
    everyone = len(alike) == len(summary.classes) - len(longest.classes) > 1
    who = "all others" if everyone else ", ".join(wait.waiting for wait in alike)
    for_whom, label = awaited(longest)
    exposed = max(wait.exposed_seconds for wait in alike)
    open_to_sight = f"{show_seconds(exposed)} of it exposed" if exposed else "all of it hidden"
    why = f": {label}" if label else ""
    return f"{who}: {show_seconds(longest.seconds)} of waiting for {for_whom}, {open_to_sight}{why}"


def awaited(wait: Wait) -> tuple[str, str]:
    """Who is waited for, and what of theirs is behind it."""
    for_whom, label = wait.waited_for, wait.label
    if wait.node is not None:
        for_whom, label = f"node {wait.node}", label.removesuffix(f" ({wait.resource.partition('.')[2]})")
    return for_whom + (", which comes late" if wait.cause == "late" else ""), label
