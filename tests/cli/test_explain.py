"""`zerosim explain` on scenarios that ship: sums, what it names, its screen, and what it says of wrong input."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.cli.asking import ROOT, ask
from zerosim.report.explanation import layers, render_explanation
from zerosim.studies.explanation import ranges

SHIPPED = {  # what most of the time without compute hangs on, and what to buy
    "gpt2-large-ddp-4090.yaml": ("all_reduce", "pcie"),
    "llama-2-7b-fsdp-offload-4090.yaml": ("cpu_optimizer", "cpu"),
    "llama-2-7b-hybrid-two-nodes-10g.yaml": ("all_reduce", "nic"),
}


@cache
def explained(name: str, *changes: str) -> dict[str, Any]:
    answer: dict[str, Any] = ask("explain", ROOT / "scenarios" / name, "--json", *changes).json
    return answer


@cache
def run(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = ask("run", ROOT / "scenarios" / name, "--json").json
    return answer


@pytest.mark.parametrize("name", SHIPPED)
def test_the_rows_sum_to_the_step_without_its_compute(name: str) -> None:
    found, played = explained(name), run(name)
    step = played["step_seconds"]
    rest = step - played["breakdown"]["compute"]
    assert (found["step_seconds"], found["fits"]) == (step, played["fits"])
    assert sum(row["seconds"] for row in found["attribution"]) == pytest.approx(rest, rel=1e-9)
    assert sum(stall["seconds"] for stall in played["stalls"]) == pytest.approx(rest, rel=1e-9)
    assert sum(run["seconds"] for run in found["critical_path"]) == pytest.approx(step, rel=1e-9)
    assert min(row["least_seconds"] for row in found["slack"]["kinds"]) == 0


@pytest.mark.parametrize(("name", "what"), SHIPPED.items())
def test_the_largest_row_and_the_best_buy(name: str, what: tuple[str, str]) -> None:
    found = explained(name)
    largest, best = found["attribution"][0], found["sensitivity"][0]
    assert (largest["op"], best["resource"]) == what
    assert largest["label"]
    assert largest["rate"] > 0
    assert best["free_seconds"] <= best["twice_as_fast_seconds"] <= best["faster_10_percent_seconds"]
    assert best["twice_as_fast_gain"] == pytest.approx(1 - best["twice_as_fast_seconds"] / found["step_seconds"])


def test_a_step_twice_as_fast_is_that_of_the_scenario_with_twice_the_rate() -> None:
    """Ports of 10 and 20 Gb/s, of which other parts are reached, and PCIe 4 and 5; free is what `require` calls so."""
    for name, thing, faster, path in (
        ("llama-2-7b-hybrid-two-nodes-10g.yaml", "nic", "nics.bandwidth=20 Gbps", "node.nics.bandwidth"),
        ("gpt2-large-ddp-4090.yaml", "pcie", "pcie.generation=5", "node.pcie.bandwidth"),
    ):
        file = ROOT / "scenarios" / name
        row = next(row for row in explained(name)["sensitivity"] if row["resource"] == thing)
        twice = ask("run", file, "--json", "--set", f"topology.node.{faster}").json
        assert row["twice_as_fast_seconds"] == pytest.approx(twice["step_seconds"], rel=1e-9)
        required = ask("require", file, "--resource", path, "--slowdown", "100%", "--json").json
        answer = required[0] if isinstance(required, list) else required
        assert row["free_seconds"] == pytest.approx(answer["free_seconds"], rel=1e-9)
        assert (row["bounded"], row["same_share"]) == ("", False)


def test_what_a_port_may_not_be_and_what_is_played_with_the_share_of_today_is_said() -> None:
    answer = explained("gpt2-large-ddp-4090.yaml")
    first = answer["sensitivity"][0]
    bounded = first | {"bounded": "at most 121 GB/s, as PCIe 6 x16"}
    ports = first | {"words": "network ports", "same_share": True}
    text = render_explanation(answer | {"sensitivity": [bounded, ports]})
    assert "\n  2x faster PCIe lanes: at most 121 GB/s, as PCIe 6 x16\n  network ports: played with the " in text


def test_the_screen() -> None:
    answer = explained("llama-2-7b-fsdp-offload-4090.yaml")
    text = render_explanation(answer)
    assert max(map(len, text.splitlines())) <= 100
    for said in (
        "why the GPU did not compute, by what it hung on in the end\n  the CPU optimizer, optimizer ",
        "CPU, 64 cores, ",
        "\n    issued when the host had waited for copies from the GPU\n",
        "all-gather, backward, layers 0-31 ",
        "\nthe critical path: ",
        "\n  slack (how much later ",
        "\nthe step with one thing faster: ",
        "\n  PCIe lanes ",
        "\n  nothing changes with faster ",
    ):
        assert said in text
    assert ask("explain", ROOT / "scenarios" / "llama-2-7b-fsdp-offload-4090.yaml").out == text


def test_stages_wait_for_what_other_stages_compute() -> None:
    small = ROOT / "scenarios" / "seven-b" / "pipeline-1f1b.yaml"
    model = "model={layers: 4, hidden: 512, heads: 8, vocab: 1000}"
    found = ask("explain", small, "--json", "--set", model, "--set", "training.sequence_length=512").json
    waits = [row for row in found["attribution"] if row["cause"] == "wait_for_stage"]
    assert waits
    assert all(row["rank_class"] != found["slowest"] for row in waits)
    assert {run["rank_class"] for run in found["critical_path"]} > {found["slowest"]}
    text = render_explanation(found)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "stages: SMs 312 TFLOP/s bf16\n" in text  # and below it of which stage
    assert "NVLink 300 GB/s per GPU" in text


def test_wrong_input_is_told_as_elsewhere() -> None:
    (line,) = ask("explain", ROOT / "scenarios" / "no-such.yaml").refused()
    assert "no-such.yaml" in line


def test_layers_in_words() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == [[0, 2], [5, 5], [7, 8]]
    assert [layers(found) for found in ([], [[3, 3]], [[0, 2], [7, 8]])] == ["", "layer 3", "layers 0-8"]


def test_a_faster_thing_that_makes_the_step_longer_is_shown_with_a_note() -> None:
    answer = explained("gpt2-large-ddp-4090.yaml")
    first = answer["sensitivity"][0]
    longer = first | {"words": "NVLink", "faster_10_percent_gain": -0.012, "slower": True}
    text = render_explanation(answer | {"sensitivity": [first, longer]})
    assert "\n  NVLink " in text
    assert "+1.2 %" in text
    assert "longer with faster NVLink: ops that keep their order on shared links may meet at a worse" in text
