"""What stands on the screens: they keep to their width, numbers have four digits at most, and words stand once."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SCENARIOS, SMALL, ask
from zerosim.report.tables import cell_width
from zerosim.report.text import render, render_comparison
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.views import Summary

SEVEN_B = ROOT / "scenarios" / "seven-b"
EXPONENT = re.compile(r"\d[eE][+-]?\d")
LONG_NUMBER = re.compile(r"(?<![\w.])\d*\.?\d+ (?:s|ms|us|ns|h|%|k?B|[MGT]B|TFLOP/s)(?!\w)")  # with its unit
TWICE = re.compile(r"\b([a-z]+) \1\b")
ONE = re.compile(r"\b1 (nodes|ranks|GPUs|drives|steps)\b")

SLOW_PORT = ("topology=ethernet-10g-a100", "topology.overrides=[{node: 1, nics: {bandwidth: 1 Gbps}}]")
V100 = ("topology=dgx-v100-16", "training.precision=fp16", "strategy.deepspeed.bf16.enabled=false",
        "strategy.deepspeed.fp16.enabled=true")  # fmt: skip
BOX = (
    "topology={name: box, node: {count: 1, gpus: {device: rtx4090, count: 2}, pcie: {generation: 4, lanes: 8}, "
    "sockets: [{device: desktop_ddr5, dram: {capacity: 128 GB, bandwidth: 89.6 GB/s}}], "
    "nvme: [{count: 1, device: nvme_gen4, cache: 42 GB, capacity: 2 TB}]}}",
    "gpus=2", "model=llama-2-13b", "training.micro_batch_size=4", "training.activation_checkpointing=full",
)  # fmt: skip
FULL_GPU = (
    "strategy.deepspeed.zero_optimization.sub_group_size=1e8",
    "strategy.deepspeed.zero_optimization.offload_param={device: none}",
)
QUESTIONS: dict[str, tuple[Path, tuple[str, ...]]] = {
    **{str(path.relative_to(ROOT / "scenarios")): (path, ()) for path in SCENARIOS},
    "a slow port": (SEVEN_B / "zero3.yaml", SLOW_PORT),
    "V100 and fp16": (SEVEN_B / "zero2.yaml", V100),
    "GPT-2": (ROOT / "scenarios" / "gpt2-xl-zero2-4090.yaml", ("model=gpt2",)),
    "too little host memory": (SEVEN_B / "zero3-offload-param.yaml", BOX),
    "room in pieces": (SEVEN_B / "zero3-nvme.yaml", (*BOX, *FULL_GPU)),
    "one GPU": (SEVEN_B / "zero2.yaml", ("gpus=1",)),
}


@cache
def played(question: str) -> Summary:
    path, changes = QUESTIONS[question]
    return simulate(load(path, changes)).summary()


def well_written(screen: str, width: int) -> None:
    assert screen.endswith("\n")
    for line in screen.splitlines():
        assert cell_width(line) <= width, line
        assert line == line.rstrip(), line
        assert not EXPONENT.search(line), line
        assert not TWICE.search(line), line
        assert not ONE.search(line), line
        for number in LONG_NUMBER.findall(line):
            assert len(number.split()[0].replace(".", "").lstrip("0")) <= 4, line


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_step(question: str) -> None:
    for width in (80, 100, 120):
        screen = render(played(question), width)
        well_written(screen, width)
        assert len(screen.splitlines()) <= 45


def test_a_comparison_of_two_and_of_four() -> None:
    summaries = [played(f"seven-b/{name}.yaml") for name in ("zero1", "zero3", "ddp", "zero3-two-nodes-10g")]
    for width in (80, 100, 120):
        two, four = render_comparison(summaries[:2], width), render_comparison(summaries, width)
        well_written(two, width)
        well_written(four, width)
        assert two.count("step time") == 1
        assert four.count("step time") == {80: 3, 100: 2, 120: 1}[width]  # tables that repeat the baseline
    assert re.search(r"\b2\d{3}x", four)  # exposed communication, over 10 Gb/s Ethernet


def test_a_ladder_beside_measurements(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "measured.yaml").write_text(
        "one GPU: {fits: false, peak_bytes: 1 GB, step_seconds: 2 ms, tokens_per_second: 1e5, relative_throughput: 1}\n"
        "ZeRO-3: {fits: true, model_states_bytes: 3 MB, peak_bytes: 2 GB, relative_throughput: 3}\n"
    )
    plain = ask("ladder", tmp_path / "small.yaml").out
    beside = ask("ladder", tmp_path / "small.yaml", "--reference", tmp_path / "measured.yaml").out
    well_written(plain, 100)
    well_written(beside, 100)
    assert beside.splitlines()[0].split() == plain.splitlines()[0].split()
    assert (beside.count("  measured"), beside.count("  deviation"), beside.count("differs")) == (2, 2, 1)
    known = ask("ladder", tmp_path / "small.yaml", "--reference", tmp_path / "measured.yaml", "--json").json
    measured = {(rung["rung"], rung["checkpointing"]): rung["measured"] for rung in known if "measured" in rung}
    assert {place: each["peak_bytes"] for place, each in measured.items()} == {
        ("one GPU", "none"): 1e9,  # as the scenario has it
        ("ZeRO-3", "none"): 2e9,
    }


@pytest.mark.parametrize(
    "words",
    [
        ("memory", "--params", "7e9", "--gpus", "8"),
        ("memory", "--params", "1.8t", "--gpus", "16384"),
        ("list", "models"),
        ("list", "topologies"),
        ("list", "devices"),
        ("list", "strategies"),
        ("topology", "show", "dgx-a100-80"),
        ("topology", "show", "gh200"),
        ("topology", "show", "pcie-2x-rtx3090"),
    ],
)
def test_what_needs_no_scenario(words: tuple[str, ...]) -> None:
    well_written(ask(*words).out, 100)


def test_help_names_the_verbs_in_the_order_of_a_first_visit() -> None:
    screen = ask("--help").out
    verbs = re.findall(r"^  (\w+) {2,}\S", screen[screen.index("Commands:") :], re.MULTILINE)
    assert verbs[:3] == ["run", "compare", "ladder"]
    assert "..." not in screen[screen.index("Commands:") :]  # no line is cut
    for verb in verbs:
        assert ask(verb, "--help").out.startswith(f"Usage: main {verb}")
