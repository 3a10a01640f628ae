"""Ranges: what is drawn and by how much, the range of a step that one can work out by hand, and comparisons."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from tests.cli.asking import SMALL, ask
from zerosim import catalog
from zerosim.catalog import all_constants, constant, grades, reading, using
from zerosim.report.ranges import order, render_range
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate
from zerosim.spec.calibration import Calibration, Compute
from zerosim.spec.topology import Gpu, Topology
from zerosim.step import Matmul
from zerosim.studies.uncertain import CERTAIN, Figure, drawn_constants, figures_of_constants, is_share, spread, weakest
from zerosim.studies.uncertain_machine import drawn_machine, figures_of_machine
from zerosim.studies.uncertainty import compared, draw, drivers, interval, sample

P90 = NormalDist().inv_cdf(0.9)  # 1.2816
SPREADS = [path for path in all_constants() if path.startswith("uncertainty.")]
ERRORS = [path for path in all_constants() if path.startswith("collectives.relative_error.")]


def scenario(gpu: dict[str, Any] | None = None, count: int = 1, nodes: int = 1, **training: Any) -> Scenario:
    node = {"count": nodes, "gpus": {"count": count, **(gpu or {"device": "a100_sxm_80"})}, "nvlink": {"kind": "none"}}
    if nodes > 1:
        node["nics"] = {"count": 1, "bandwidth": "100 Gbps", "kind": "ethernet"}
    said = {
        "title": "test",
        "topology": {"name": "test", "node": node, "fabric": {"kind": "switch", "latency": "2 us"}},
        "model": {"layers": 2, "hidden": 2048, "heads": 16, "vocab": 1000},
        "training": {"sequence_length": 2048, "precision": "bf16", "attention": "flash", **training},
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}},
    }
    return from_mapping(said)


@contextmanager
def known_but(**spreads: float) -> Iterator[None]:
    """Nothing is uncertain but what is named, below the group `uncertainty`."""
    with using(dict.fromkeys([*SPREADS, *ERRORS], 0.0) | {f"uncertainty.{name}": s for name, s in spreads.items()}):
        yield


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_every_constant_is_drawn_or_said_to_be_certain() -> None:
    figures = figures_of_constants()
    left = {path for path in all_constants() if path not in figures and all_constants()[path].value}
    assert left == {path for path in all_constants() if any(f"{path}.".startswith(f"{top}.") for top in CERTAIN)}
    for top in CERTAIN:
        assert any(f"{path}.".startswith(f"{top}.") for path in left), top


def test_a_spread_is_that_of_the_grade_or_of_the_kind() -> None:
    figures = figures_of_constants()
    assert figures["copies.h2d_eff.pcie4"] == Figure("copies.h2d_eff.pcie4", "R", 0.25)
    assert figures["copies.h2d_eff.pcie5"].sigma == 0.02
    assert figures["attention.flash.forward.hopper"] == Figure("attention.flash", "F", 0.20)
    assert figures["attention.flash.backward.hopper"].name == "attention.flash"
    assert figures["attention.flash.forward.volta"].sigma == 0.25  # recalled: no surer than that
    assert {figures[path].name for path in figures if path.startswith("host.")} == {"host"}
    large = math.sqrt(math.pi / 2) * math.log(1.12)
    assert figures["collectives.ring_eff_nvlink"].sigma == pytest.approx(large)
    assert figures["collectives.launch_us"].sigma == pytest.approx(math.sqrt(math.pi / 2) * math.log(1.15))


def test_what_was_derived_or_recalled_is_never_surer_than_its_grade() -> None:
    assert [spread(grade, 0.06) for grade in "EAFDR"] == [0.06, 0.06, 0.06, 0.10, 0.25]
    assert spread("R", 0.40) == 0.40


def test_of_a_figure_of_several_grades_the_weakest_is_told() -> None:
    parts = [Figure("a", "F", 0.2), Figure("a", "R", 0.25), Figure("b", "E", 0.02)]
    assert weakest(parts) == {"a": parts[1], "b": parts[2]}


def test_fractions_stay_fractions_and_others_do_not_stop_at_one() -> None:
    high = drawn_constants({figure.name: 3.0 for figure in figures_of_constants().values()})
    assert high["copies.h2d_eff.pcie4"] == 1.0
    assert high["files.checksum"] == pytest.approx(1.264 * math.exp(0.3))
    assert not is_share("gemm.t0_us")
    assert all(0 < value <= 1 for path, value in high.items() if is_share(path))


def test_nothing_that_a_topology_reads_when_it_is_made_is_drawn_as_a_constant() -> None:
    catalog.gpus()
    with reading() as read:
        scenario(nodes=2)
        scenario({"flops": "100 TFLOPS", "memory": "80 GB", "hbm": "2 TB/s"})
    assert read
    hops = {path for path in read if path.startswith("collectives.hop_us.")}  # of links, for the graph; drawn in use
    assert not (read - hops) & figures_of_constants().keys()


def test_reading_notes_what_is_read_and_not_what_stands_beside_it() -> None:
    with reading() as read:
        constant("gemm.tile_m")
        group = catalog.constants("collectives.hop_us")
        assert "nvlink" in group
        assert dict(group)["nvlink"] == group["nvlink"] == 1.0
    assert {"gemm.tile_m", "collectives.hop_us.nvlink"} <= read
    with reading() as read:
        assert catalog.constants("host")["scalar_read_us"]
        assert "collective_call_us" in catalog.constants("host")
    assert read == {"host.scalar_read_us"}
    constant("gemm.tile_n")
    assert read == {"host.scalar_read_us"}


# --- of machines -----------------------------------------------------------------------------------------------------


def names(asked: Scenario) -> dict[str, tuple[str, float]]:
    found = figures_of_machine(asked.topology, asked.calibration)
    return {figure.name: (figure.grade, figure.sigma) for figure in found}


def test_of_a_catalogue_machine_products_copies_and_ports_are_drawn() -> None:
    found = names(scenario(nodes=2))
    assert found["gpus.a100_sxm_80.products"] == ("F", 0.06)
    assert found["gpus.a100_sxm_80.copies"] == ("A", 0.08)
    assert found["nics.ethernet_100.efficiency"][0] == "F"
    assert found["nics.ethernet_100.latency"] == ("R", 0.25)
    assert [grades.sustained_grade(gpu) for gpu in ("a100_sxm_80", "v100_sxm2_32", "l40s", "t4")] == [
        "F",
        "D",
        "R",
        "R",
    ]


def test_what_a_user_said_is_exact() -> None:
    said = {"device": "a100_sxm_80", "matmul_efficiency": 0.8}
    assert list(names(scenario(said))) == ["gpus.a100_sxm_80.copies"]
    assert "gpus.a100_sxm_80.products" in names(scenario({"device": "a100_sxm_80", "power": "300 W"}))  # still a guess
    assert "gpus.a100_sxm_80.products" in names(scenario({"device": "a100_sxm_80", "memory": "40 GB"}))
    measured = Calibration("c", compute=(Compute("a100_sxm_80", 0.9, "log"),))
    assert list(names(scenario().replace(calibration=measured))) == ["gpus.a100_sxm_80.copies"]


def test_a_drawn_machine_has_both_rates_of_products_and_none_above_the_peak() -> None:
    asked = scenario()
    drawn = drawn_machine(asked.topology, {"gpus.a100_sxm_80.products": 1.0, "gpus.a100_sxm_80.copies": 0.0})
    before, after = gpu(asked.topology), gpu(drawn)
    factor = math.exp(0.06)
    assert after == dataclasses.replace(
        before,
        matmul_efficiency=before.matmul_efficiency * factor,
        sustained=before.sustained * factor,
        fp32_efficiency=before.fp32_efficiency * factor,
    )
    most = gpu(drawn_machine(asked.topology, {"gpus.a100_sxm_80.products": 9.0, "gpus.a100_sxm_80.copies": 9.0}))
    assert most.matmul_efficiency == most.sustained == most.stream_efficiency == 1.0


def gpu(topology: Topology) -> Gpu:
    figures = topology.gpus[0].figures
    assert isinstance(figures, Gpu)
    return figures


# --- of steps --------------------------------------------------------------------------------------------------------


def test_a_draw_hangs_on_seed_number_and_name_alone() -> None:
    one = draw("host", 64, 0)
    assert one.tolist() == draw("host", 64, 0).tolist()
    assert one.tolist() != draw("host", 64, 1).tolist()
    assert one.tolist() != draw("gemm.t0_us", 64, 0).tolist()
    levels = sorted(NormalDist().cdf(value) for value in one)
    assert [int(64 * level) for level in levels] == list(range(64))  # one in each of 64 equally likely ranges


def test_same_seed_same_samples() -> None:
    asked = scenario()
    assert sample(asked, 6, 3) == sample(asked, 6, 3)
    assert sample(asked, 6, 3).seconds != sample(asked, 6, 4).seconds


def test_nothing_uncertain_gives_a_point() -> None:
    asked = scenario(nodes=2, count=2)
    with known_but():
        found = sample(asked, 4)
    assert set(found.seconds) == {simulate(asked).makespan}
    assert not found.draws
    assert found.as_json()["drivers"] == []


def test_a_step_of_products_by_hand() -> None:
    """Products take m of the step T; with a spread of 0.06 of their rate alone the step's P10 and P90 are
    T - m + m exp(-+1.2816 x 0.06). On one GPU nothing runs beside them, and large batches keep the host ahead."""
    asked = scenario(micro_batch_size=8)
    played = simulate(asked)
    (spans,) = played.spans.values()
    ops = [(op, span) for op, span in zip(played.steps[0].ops, spans, strict=True) if isinstance(op.work, Matmul)]
    launches = 1e-6 * constant("gemm.t0_us") * sum(len(op.work.shapes) for op, _ in ops if isinstance(op.work, Matmul))
    flow = sum(span.end - span.start for _, span in ops) - launches
    assert flow > 0.5 * played.makespan
    with known_but(arithmetic=0.06):
        found = interval(asked, 64)
    rest = played.makespan - flow
    for seconds, z in zip(found, (-P90, 0, P90), strict=True):
        assert seconds == pytest.approx(rest + flow * math.exp(0.06 * z), rel=5e-3)


def test_wider_spreads_give_a_wider_range() -> None:
    asked = scenario()
    with known_but(arithmetic=0.03, host=0.1):
        narrow = interval(asked, 16)
    with known_but(arithmetic=0.12, host=0.4):
        wide = interval(asked, 16)
    assert wide.p10 < narrow.p10 <= narrow.p50 <= narrow.p90 < wide.p90


def test_a_scenario_beside_itself_is_as_fast() -> None:
    found = sample(scenario(), 4)
    assert set(compared(found, found).longer) == {0.0}
    assert order(compared(found, found).interval._asdict(), "A") == "as fast as A"


def test_figures_that_two_scenarios_share_cancel() -> None:
    """Twice the micro-steps take about twice as long, whatever products do: the comparison is surer than its parts."""
    with known_but(arithmetic=0.2):
        once, twice = (sample(scenario(micro_batch_size=8, gradient_accumulation_steps=n), 16) for n in (1, 2))
    beside = compared(twice, once).interval
    assert once.interval.p90 / once.interval.p10 > 1.2
    assert (1 + beside.p90) / (1 + beside.p10) < 1.06
    assert 0.7 < beside.p10 < beside.p90 < 1.0


def test_drivers_are_those_that_matter_in_order_and_not_chance() -> None:
    draws = {Figure(name, "F", 0.1): draw(name, 64, 0).tolist() for name in "abcdefghijklmnop"}
    a, b = (draws[Figure(name, "F", 0.1)] for name in "ab")
    found = drivers([3 * x - y for x, y in zip(a, b, strict=True)], draws)
    assert [each.figure.name for each in found] == ["a", "b"]
    assert found[0].correlation > 0.9 > -0.1 > found[1].correlation
    assert drivers([1.0] * 64, draws) == ()


def test_only_what_a_step_uses_can_be_told_to_drive_it() -> None:
    used = {figure.name for figure in sample(scenario(), 2).draws}
    assert {"host", "attention.flash", "gpus.a100_sxm_80.products", "gemm.t0_us"} <= used
    assert not {"attention.flash3", "cpu_adam.dram_eff", "copies.h2d_eff.pcie5", "gemm.k0.sm90_plus"} & used


# --- in words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.18, 0.31, "slower than A by 18-31 % (P10-P90)"),
        (0.031, 0.124, "slower than A by 3.1-12 % (P10-P90)"),
        (0.102, 0.104, "slower than A by 10 % (P10-P90)"),
        (-0.21, -0.05, "faster than A by 5.0-21 % (P10-P90)"),
        (-0.03, 0.05, "between 3.0 % faster and 5.0 % slower than A: no clear order"),
        (0.0, 0.0, "as fast as A"),
        (37.2, 58.42, "takes 38.2-59.4 times as long as A (P10-P90)"),
    ],
)
def test_orders(low: float, high: float, words: str) -> None:
    assert order({"p10": low, "p90": high}, "A") == words


def test_a_range_in_words() -> None:
    found = {
        "samples": 64,
        "seed": 0,
        "step_seconds": {"p10": 3.7, "p50": 4.1, "p90": 4.6},
        "tokens_per_second": {"p10": 9.1e3, "p50": 1e4, "p90": 1.1e4},
        "drivers": [{"name": "host", "grade": "A", "spread": 0.4, "correlation": 0.91}],
    }
    assert render_range(found).split("\n") == [
        "",
        "range: step 4.1 s (3.7-4.6 s: P10-P90 of 64 samples, seed 0), 10k tokens/s (9.1k - 11k)",
        "  hangs most on (grade, spread; rank correlation): host (A, +-40 %) +0.91",
        "",
    ]


def test_the_verbs(tmp_path: Path) -> None:
    path, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    path.write_text(SMALL)
    other.write_text(SMALL.replace("steps: 2", "steps: 4"))
    options = ("--range", "--samples", "4", "--seed", "7")
    ran = [ask("run", str(path), *options, "--json").out for _ in range(2)]
    assert ran[0] == ran[1]
    found = json.loads(ran[0])["range"]
    assert (found["samples"], found["seed"]) == (4, 7)
    assert found["step_seconds"]["p10"] < found["step_seconds"]["p90"]
    assert "P10-P90 of 4 samples, seed 7" in ask("run", str(path), *options).out
    beside = json.loads(ask("compare", str(path), str(other), str(path), *options, "--json").out)
    assert beside[0]["range"] == found
    assert beside[1]["range"]["slower_than_baseline"]["p10"] > 0.5
    assert beside[2]["range"]["slower_than_baseline"]["p90"] == 0
    words = ask("compare", str(path), str(other), *options).out
    assert ", slower than A by " in " ".join(words.split()) or " times as long as A" in words


def test_samples_without_a_range_are_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SMALL)
    answer = ask("run", str(path), "--samples", "4", "--seed", "1")
    assert answer.code == 2
    assert "--samples: found 4; expected --range beside it" in answer.err
