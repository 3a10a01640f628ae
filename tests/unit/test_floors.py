"""What a single step does not show: a rate of writing that drives do not keep up, step after step."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerosim import load, simulate
from zerosim.step import Transfer
from zerosim.units import show_seconds

SWAPPED = Path(__file__).parents[2] / "scenarios" / "seven-b" / "zero3-nvme.yaml"
SHORT = (
    "training.gradient_accumulation_steps=1",
    "model.parameters=1e9",
    "strategy.deepspeed.zero_optimization.offload_param=null",
)
DRIVE = "topology.node.nvme.0"


@pytest.mark.parametrize(("lasting", "told"), [("5 GB/s", False), ("2 GB/s", False), ("50 MB/s", True)])
def test_the_long_run_is_told_where_it_is_slower_than_the_step(lasting: str, told: bool) -> None:
    """Eight drives with a cache for one step; the rate that they keep up is not in the step, but told if it is too low
    for one such step after the other."""
    figures = f"{DRIVE}={{count: 8, device: nvme_gen4, capacity: 2 TB, sustained_write: {lasting}}}"
    played = simulate(load(SWAPPED, [*SHORT, figures]))
    (step,) = played.steps
    written = 8 * sum(op.work.bytes for op in step.ops if isinstance(op.work, Transfer) and op.work.target == "nvme")
    least = written / (8 * 0.75 * {"5 GB/s": 5e9, "2 GB/s": 2e9, "50 MB/s": 5e7}[lasting])
    assert (least > played.makespan) is told
    messages = [finding.message for finding in played.findings if finding.code == "drive-cache"]
    assert len(messages) == told
    assert all(f"With full caches a step takes at least {show_seconds(least)}." in message for message in messages)
    assert played.summary().step_seconds == played.makespan
