"""The calibration file: strict reading, writing that reads as the same, and scenarios that name one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.asking import SMALL
from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.simulation import simulate
from zerosim.spec.calibration import Calibration, Compute, Curve, MeasuredRate
from zerosim.spec.calibration_file import (
    calibration_json,
    calibration_mapping,
    calibration_text,
    comments,
    read_calibration,
)
from zerosim.spec.loading import inline, parse

WHOLE = Calibration(
    "mine",
    curves=(
        Curve("all_reduce", 16, 2, 44.3e-6, 228e9, 0.72, (1024, 2**32), 0.06, "all: reduce # 1.log"),
        Curve("all_gather", 8, 1, None, 230e9, None, (2**30, 2**30), 0.0, 'a "quoted" \\ name\nof two lines'),
    ),
    compute=(Compute("a100_sxm_80", 0.93, "step"), Compute("all", 1.1, "yes")),
    rates=(
        MeasuredRate("copies.h2d", 24.1e9, "1e5"), MeasuredRate("nvme.read", 6.1e9, "fio"),
        MeasuredRate("nvme.write", 3.9e9, "fio"), MeasuredRate("dram.adam", 110e9, "Größe"),
    ),
)  # fmt: skip


def read(text: str) -> Calibration:
    return read_calibration(parse(text, "mine.yaml"))


def test_what_is_written_is_read_again() -> None:
    back = read(calibration_text(WHOLE))
    assert (back.name, back.curves, back.compute, back.rates) == (WHOLE.name, WHOLE.curves, WHOLE.compute, WHOLE.rates)
    assert back.origin == "mine.yaml"
    assert read_calibration(inline(calibration_mapping(WHOLE), "x")).curves == WHOLE.curves


def test_comments_stay() -> None:
    text = calibration_text(WHOLE, "# of rack 7\n# ask Ada")
    assert comments(text) == "# of rack 7\n# ask Ada"
    assert comments("name: x\n").startswith("# Written by zerosim calibrate")
    below = (
        '# head\n\nname: "a # b"\n# of copies\ncopies:\n  h2d: 20 GB/s  # by Bob\n'
        '  d2h: "1 # no GB/s"\nnvme: {read: 5#}\n'
    )
    assert comments(below) == "# head\n\n# of copies\n# h2d: 20 GB/s  # by Bob"
    assert comments(calibration_text(WHOLE, comments(below))) == comments(below)


def test_json_is_read_again() -> None:
    back = read_calibration(parse(calibration_json(WHOLE), "mine.json"))
    assert (back.name, back.curves, back.compute, back.rates) == (WHOLE.name, WHOLE.curves, WHOLE.compute, WHOLE.rates)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "collectives: [{collective: reduce, gpus: 8, alpha: 44.3}]",
            'found 44.3 s; expected at most 1 s, such as "44',
        ),
        ("collectives: [{collective: reduce, gpus: 8, bandwidth: 228}]", "found 228 B/s; expected from 1 MB/s"),
        ("copies: {h2d: 24}", "copies.h2d: found 24 B/s; expected from 1 MB/s to 1 PB/s"),
        ("nvme: {read: {rate: 6.5}}", "nvme.read: found 6.5 B/s"),
        ("dram: {adam: 1e30}", "dram.adam: found"),
    ],
)
def test_numbers_without_a_unit_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read(text)


def test_what_is_measured_again_stands_in_its_place() -> None:
    again = Calibration("", (WHOLE.curves[0]._replace(alpha=50e-6),), (Compute("all", 0.9, "new"),))
    merged = WHOLE.merged(again)
    assert [curve.alpha for curve in merged.curves] == [50e-6, None]
    assert [entry.factor for entry in merged.compute] == [0.93, 0.9]
    assert (merged.rates, merged.name) == (WHOLE.rates, "mine")


def test_a_plain_rate_may_stand_for_a_mapping() -> None:
    assert read("copies: {h2d: 24 GB/s}").rates == (MeasuredRate("copies.h2d", 24e9, "not said"),)


CURVE = "collective: all_reduce, gpus: 8"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("copys: {h2d: 1 GB/s}", 'copys: found unknown key "copys"; expected one of'),
        ("copies: {h2d: 24 GBs}", 'found "24 GBs"; expected a rate such as "25 GB/s"'),
        ("copies: {h2d: {rte: 24 GB/s}}", "nearest rate"),
        ("copies: {h2d: 0}", "found 0; expected a number greater than 0"),
        ("nvme: {reed: 1 GB/s}", "nearest read"),
        ("collectives: [{collective: allreduce, gpus: 8, alpha: 1 us}]", 'nearest "all_reduce"'),
        (
            f"collectives: [{{{CURVE}}}]",
            "collectives.0: found neither alpha nor bandwidth; expected one of them, or both",
        ),
        (f"collectives: [{{{CURVE}, alpha: 1 us, kapa: 1}}]", "nearest kappa"),
        (
            f"collectives: [{{{CURVE}, alpha: 1 us, kappa: -1}}]",
            "found -1; expected a number greater than or equal to 0",
        ),
        (f"collectives: [{{{CURVE}, alpha: 1 us, nodes: 9}}]", "collectives.0.nodes: found 9; expected at most 8"),
        (f"collectives: [{{{CURVE}, alpha: 1 us, sizes: [2 MB, 1 MB]}}]", "expected the smaller first"),
        (f"collectives: [{{{CURVE}, alpha: 1 us}}, {{{CURVE}, alpha: 2 us}}]", "all_reduce of 8 GPUs on 1 again"),
        (
            "compute: [{gpu: all, factor: 1}, {gpu: all, factor: 1}]",
            'compute.1.gpu: found "all" again; expected each GPU',
        ),
        ("compute: [{gpu: all, factor: 2}]", "found 2; expected a number less than or equal to 1.3"),
        ("[1]", "found a list; expected a mapping"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        read(text)
    lines = str(told.value).splitlines()
    assert any(line.startswith("mine.yaml:1:") and said in line for line in lines), lines


# --- in a scenario ---------------------------------------------------------------------------------------------------


@pytest.fixture
def calibrated(tmp_path: Path) -> Scenario:
    (tmp_path / "mine.yaml").write_text(calibration_text(WHOLE))
    (tmp_path / "small.yaml").write_text(SMALL + "calibration: mine.yaml\n")
    return load(tmp_path / "small.yaml")


def test_a_scenario_names_it_relative_to_itself(calibrated: Scenario, tmp_path: Path) -> None:
    assert calibrated.calibration is not None
    assert calibrated.calibration.curves == WHOLE.curves
    assert calibrated.text["calibration"] == "mine.yaml"
    again = from_mapping(calibrated.text, tmp_path)
    assert again.calibration == calibrated.calibration
    assert not any(finding.code == "not-modelled" for finding in calibrated.findings)


def test_replace_keeps_it_or_takes_another(calibrated: Scenario, tmp_path: Path) -> None:
    other = calibrated.replace(nodes=1, title="other")
    assert (other.calibration, other.text["calibration"]) == (calibrated.calibration, "mine.yaml")
    assert "calibration" not in calibrated.replace(calibration=None).text
    fewer = Calibration("few", compute=(Compute("all", 0.5, "x"),))
    changed = calibrated.replace(calibration=fewer)
    assert from_mapping(changed.text, tmp_path).calibration == Calibration("few", (), fewer.compute, (), origin="small")


def test_a_run_shows_what_it_used(calibrated: Scenario) -> None:
    plain = simulate(calibrated.replace(calibration=None))
    found = simulate(calibrated)
    assert plain.summary().calibration == ()
    used = {each.entry: each.used for each in found.summary().calibration}
    assert used == {
        "all_reduce of 16 GPUs on 2 nodes": False, "all_gather of 8 GPUs on 1 node": True,
        "compute of a100_sxm_80": True, "compute of all": False, "copies.h2d": False, "nvme.read": False,
        "nvme.write": False, "dram.adam": False,
    }  # fmt: skip
    assert found.makespan != plain.makespan


def test_a_missing_file_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(calibration_text(WHOLE))
    (tmp_path / "small.yaml").write_text(SMALL + "calibration: mime.yaml\n")
    with pytest.raises(
        InputError, match=r'small.yaml:7:14: calibration: found "mime.yaml"; expected a file .*nearest mine.yaml'
    ):
        load(tmp_path / "small.yaml")
