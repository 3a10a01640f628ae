"""A small sweep for tests: two layers on two nodes, as a file in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

SCENARIO = """\
scenario:
  title: small
  topology: roce-100g-a100
  nodes: 2
  model: {layers: 2, hidden: 256, heads: 4, vocab: 1000}
  training: {sequence_length: 128, gradient_accumulation_steps: 2, attention: flash}
  strategy:
    deepspeed: {bf16: {enabled: true}, zero_optimization: {stage: 2, reduce_bucket_size: 500000}}
"""
STAGE = "strategy.deepspeed.zero_optimization.stage"
GRID = f"""\
axes:
  stage: {{path: {STAGE}, values: [1, 2, 3]}}
  nodes: [1, 2]
"""
AGAINST = "against: {name: NVLink, changes: {topology.node.nvlink.hosts: 2, nodes: 2}}\n"


def written(folder: Path, *parts: str, scenario: str = SCENARIO) -> Path:
    """The path of a sweep file made of a scenario and more parts."""
    path = folder / "sweep.yaml"
    path.write_text(scenario + "".join(parts), encoding="utf-8")
    return path
