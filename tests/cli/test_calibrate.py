"""The verb `calibrate`: what it prints and writes, what it refuses, and a run that uses what was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.asking import SMALL, ask
from tests.cli.test_contract import NUMBER, holds
from tests.cli.test_screens import well_written
from tests.nccl_logs import HEADS, Line, log, rows
from tests.unit.test_bench_logs import COMMS, FIO, NVBANDWIDTH
from zerosim.report.text import render
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.spec.calibration_file import read_calibration
from zerosim.spec.loading import read

LINE = Line(25e-6, 180e9, 0.4)
MAYBE = (*NUMBER, type(None))
FIT: dict[str, Any] = {
    "collective": str, "gpus": int, "nodes": int, "alpha_seconds": MAYBE, "bandwidth_bytes_per_second": MAYBE,
    "kappa": MAYBE, "sizes_bytes": [NUMBER], "points": int, "error": NUMBER,
    "worst": dict.fromkeys(("size_bytes", "error"), NUMBER), "source": str, "remarks": [str],
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "calibration": dict, "fits": [FIT], "compute": [{"gpu": str, "factor": NUMBER, "source": str}],
    "rates": [{"name": str, "rate": NUMBER, "source": str, "of": str}], "refused": [str], "wrote": (str, type(None)),
}  # fmt: skip
LOGS = ("ar.log", "ag.log", "fio.txt", "nvb.txt")
STEP = SMALL.replace("hidden: 256, heads: 4", "hidden: 4096, heads: 32").replace("length: 128", "length: 2048")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with logs."""
    texts = {
        "ar.log": log(LINE), "ag.log": log(LINE, "all_gather", 16, 2), "fio.txt": FIO, "nvb.txt": NVBANDWIDTH,
        "comms.log": COMMS, "two.log": HEADS + rows(LINE, "all_gather", 8), "step.yaml": STEP, "small.yaml": SMALL,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_logs_and_rates_become_a_file(folder: Path) -> None:
    by_hand = ("--both", "60 GB/s", "--cpu-adam-seconds", "2 s", "--cpu-adam-params", "1e9", "--cpu-adam-ranks", "8")
    answer = ask("calibrate", *LOGS, *by_hand, "--source", "rack 7", "--out", "mine.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("written to mine.yaml\n")
    assert all(len(line) <= 100 for line in answer.out.splitlines())
    found = read_calibration(read("mine.yaml"))
    assert [curve.name for curve in found.curves] == [
        "all_reduce of 8 GPUs on 1 node",
        "all_gather of 16 GPUs on 2 nodes",
    ]
    for curve in found.curves:
        assert curve.alpha == pytest.approx(LINE.alpha, rel=0.02)
        assert curve.bandwidth == pytest.approx(LINE.bandwidth, rel=0.02)
        assert curve.source.startswith("nccl-tests a")
    rates = {each.name: (each.rate, each.source) for each in found.rates}
    assert rates["nvme.read"] == (6501e6, "fio.txt")
    assert rates["copies.h2d"] == (55.1e9, "nvb.txt")
    assert rates["copies.both"] == (60e9, "rack 7")
    # 28 bytes of each of 1e9 parameters of 8 ranks in 2 s
    assert rates["dram.adam"] == (112e9, "rack 7: 1B parameters of each of 8 ranks in 2 s")


def test_json(folder: Path) -> None:
    answer = ask("calibrate", "ar.log", "--h2d", "24 GB/s", "--json").json
    holds(answer, ANSWER)
    assert answer["wrote"] is None
    assert answer["refused"] == []
    (fitted,) = answer["fits"]
    assert (fitted["points"], fitted["error"] < 0.01) == (23, True)


def test_without_a_file_the_answer_shows_what_would_stand_in_it(folder: Path) -> None:
    out = ask("calibrate", "ar.log").out
    shown = yaml.safe_load(out.partition("# For a file: --out FILE\n")[2])
    assert shown["collectives"][0]["collective"] == "all_reduce"


def test_a_file_is_updated_entry_by_entry(folder: Path) -> None:
    (folder / "mine.yaml").write_text("# ask Ada\nname: rack7\ncopies: {d2h: 20 GB/s, h2d: 21 GB/s}\n")
    assert ask("calibrate", "--h2d", "24 GB/s", "--out", "mine.yaml").code == 0
    assert ask("calibrate", "ar.log", "--out", "mine.yaml").code == 0
    text = (folder / "mine.yaml").read_text()
    assert text.startswith("# ask Ada\nname: rack7\n")
    found = read_calibration(read("mine.yaml"))
    assert {each.name: each.rate for each in found.rates} == {"copies.d2h": 20e9, "copies.h2d": 24e9}
    assert len(found.curves) == 1
    assert ask("calibrate", "ar.log", "--out", "mine.yaml").code == 0
    assert (folder / "mine.yaml").read_text() == text  # the same again changes nothing


def test_comments_of_a_file_stay(folder: Path) -> None:
    (folder / "mine.yaml").write_text("# ask Ada\nname: rack7\n# of node 3\ncopies:\n  h2d: 21 GB/s  # by Bob\n")
    assert ask("calibrate", "--h2d", "24 GB/s", "--out", "mine.yaml").code == 0
    text = (folder / "mine.yaml").read_text()
    assert text.startswith("# ask Ada\n# of node 3\n# h2d: 21 GB/s  # by Bob\nname: rack7\n")


def test_json_stays_json(folder: Path) -> None:
    (folder / "mine.json").write_text('{"name": "rack7", "copies": {"d2h": "20 GB/s"}}')
    assert ask("calibrate", "ar.log", "--h2d", "24 GB/s", "--out", "mine.json").code == 0
    found = read_calibration(read("mine.json"))
    assert {each.name: each.rate for each in found.rates} == {"copies.d2h": 20e9, "copies.h2d": 24e9}
    assert (found.name, len(found.curves)) == ("rack7", 1)


def test_files_that_disagree_about_a_rate_do_not_mix(folder: Path) -> None:
    (folder / "slow.txt").write_text(FIO.replace("6501MB/s", "3000MB/s"))
    (folder / "near.txt").write_text(FIO.replace("6501MB/s", "6600MB/s"))
    answer = ask("calibrate", "fio.txt", "slow.txt", "near.txt")
    assert answer.err.startswith("refused: slow.txt: nvme.read: found 3 GB/s; expected about the 6.501 GB/s of fio.txt")
    assert "nvme.read: 6.6 GB/s, reads of all drives of a node (near.txt)" in answer.out


def test_a_machine_without_so_many_gpus_cannot_hold_a_log_against_its_links(folder: Path) -> None:
    (fitted,) = ask("calibrate", "ag.log", "--topology", "pcie-4x-rtx4090", "--json").json["fits"]
    assert fitted["remarks"][0].startswith("not held against the links of ")


def test_a_wrong_file_is_not_written_over(folder: Path) -> None:
    (folder / "mine.yaml").write_text("copys: 1\n")
    (problem,) = ask("calibrate", "--h2d", "24 GB/s", "--out", "mine.yaml").refused()
    assert problem.startswith('mine.yaml:1:1: copys: found unknown key "copys"')
    assert (folder / "mine.yaml").read_text() == "copys: 1\n"


def test_a_log_that_tells_nothing_is_refused_in_a_line_and_the_others_stand(folder: Path) -> None:
    answer = ask("calibrate", "ar.log", "comms.log", "two.log")
    assert answer.code == 0
    assert [line.split(":")[:2] for line in answer.err.splitlines()] == [
        ["refused", " comms.log"], ["refused", " two.log"],
    ]  # fmt: skip
    assert "expected --collective" in answer.err
    assert ask("calibrate", "two.log", "--collective", "all_gather").code == 0
    (problem,) = ask("calibrate", "comms.log").refused()
    assert problem.startswith("comms.log: found a summary of DeepSpeed's comms logger")


@pytest.mark.parametrize(
    "content", [log(LINE).encode("utf-16"), log(LINE).encode("utf-16-le"), log(LINE).encode() + b"\xe4\xff\n"]
)
def test_logs_are_read_whatever_shell_wrote_them(content: bytes, folder: Path) -> None:
    (folder / "odd.log").write_bytes(content)
    assert ask("calibrate", "odd.log", "--json").json["fits"][0]["points"] == 23
    (folder / "odd.log").write_bytes(bytes(range(256)))
    (problem,) = ask("calibrate", "odd.log").refused()
    assert "found no log of a known benchmark" in problem


def test_logs_of_two_machines_do_not_mix(folder: Path) -> None:
    (folder / "other.log").write_text(log(Line(50e-6, 90e9, 0.4)))
    answer = ask("calibrate", "ar.log", "other.log")
    assert answer.err.startswith("refused: other.log: found 2 times the times; expected those of ar.log at the same ")
    (folder / "again.log").write_text(log(LINE, noise=0.02))
    assert "nccl-tests ar.log, again.log: 23 sizes" in ask("calibrate", "ar.log", "again.log").out.replace(
        "\n    ", " "
    )


def test_what_no_link_of_the_topology_carries_is_refused(folder: Path) -> None:
    fast = Line(25e-6, 900e9, 0.4)
    (folder / "fast.log").write_text(log(fast, "all_gather"))
    (problem,) = ask("calibrate", "fast.log", "--topology", "dgx-a100-80").refused()
    assert "found bus bandwidth of 8" in problem
    assert problem.endswith("can carry: is the log of this machine?")
    (problem,) = ask("calibrate", "--h2d", "60 GB/s", "--topology", "dgx-a100-80").refused()
    assert "found 60 GB/s; expected at most 31.5 GB/s" in problem


def test_only_switches_that_sum_carry_more_than_links_do(folder: Path) -> None:
    """385 GB/s of an all-reduce: no NVSwitch of A100 makes sums, on links of 300 GB/s; those of eight H100 do."""
    (folder / "nvls.log").write_text(log(Line(25e-6, 385e9, 0.1)))
    (problem,) = ask("calibrate", "nvls.log", "--topology", "dgx-a100-80").refused()
    assert "expected at most 300 GB/s, which NVLink 300 GB/s per GPU and direction can carry" in problem
    (folder / "nvls.log").write_text(log(Line(25e-6, 500e9, 0.1)))
    assert ask("calibrate", "nvls.log", "--topology", "dgx-h100").code == 0
    (folder / "four.log").write_text(log(Line(25e-6, 500e9, 0.1), gpus=4))
    (problem,) = ask("calibrate", "four.log", "--topology", "dgx-h100").refused()
    assert "expected at most 450 GB/s" in problem


def test_a_log_of_other_gpus_than_the_topology_has_is_told(folder: Path) -> None:
    (folder / "h100.log").write_text(log(LINE).replace("NVIDIA", "NVIDIA H100 80GB HBM3"))
    remark = "its GPUs are H100-SXM5-80GB, those of dgx-a100-80 A100-SXM4-80GB"
    assert remark in " ".join(ask("calibrate", "h100.log", "--topology", "dgx-a100-80").out.split())
    assert "its GPUs are" not in ask("calibrate", "h100.log", "--topology", "dgx-h100").out
    assert "its GPUs are" not in ask("calibrate", "h100.log").out
    (folder / "h100.log").write_text(log(Line(25e-6, 385e9, 0.1)).replace("NVIDIA", "NVIDIA H100 80GB HBM3"))
    (problem,) = ask("calibrate", "h100.log", "--topology", "dgx-a100-80").refused()
    assert remark in problem


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "found nothing measured"),
        (["--h2d", "24"], '--h2d: found "24"; expected from 1 MB/s to 1 PB/s, such as "25 GB/s"'),
        (["--cpu-adam-seconds", "1e-300", "--cpu-adam-params", "1e300"], "--cpu-adam-seconds: found 1e-300 for 1e300"),
        (["ar.log", "--out", "mine.txt"], '--out: found "mine.txt"; expected a name that ends in .yaml, .yml, .json'),
        (["ar.log", "--out", ""], "expected a name that ends in .yaml"),
        (["--h2d", "24 GBs"], '--h2d: found "24 GBs"; expected a rate'),
        (["--nvme-read", "0"], '--nvme-read: found "0"; expected more than 0'),
        (["--cpu-adam-seconds", "2 s"], "expected --cpu-adam-params beside it"),
        (["--mfu", "42%"], "--scenario: found nothing; expected the scenario whose step was measured"),
        (["--scenario", "step.yaml"], "found nothing measured of its step; expected one of --step-seconds, --mfu"),
        (["--scenario", "step.yaml", "--mfu", "42%", "--step-seconds", "1 s"], "found several of them"),
        (["--scenario", "step.yaml", "--mfu", "42"], "expected a share below 100 %"),
        (["--scenario", "no.yaml", "--mfu", "42%"], "no.yaml: found no such file"),
        (["no.log", "ar.log"], "no.log: found no such file"),
        (["ar.log", "--topology", "dgx-a100"], "found \"dgx-a100\"; expected a name"),
        (["ar.log", "--gpus", "16"], "found 16 GPUs, as --gpus says, and busbw / algbw of 8 GPUs"),
    ],
)  # fmt: skip
def test_wrong_questions(words: list[str], said: str, folder: Path) -> None:
    lines = ask("calibrate", *words).refused()
    assert any(said in line for line in lines), lines


def test_a_measured_step_is_reproduced(folder: Path) -> None:
    usual = ask("run", "step.yaml", "--json").json["step_seconds"]
    target = 1.15 * usual
    assert ask("calibrate", "--scenario", "step.yaml", "--step-seconds", f"{target} s", "--out", "mine.yaml").code == 0
    (entry,) = read_calibration(read("mine.yaml")).compute
    assert entry.gpu == "a100_sxm_80"
    assert entry.source.startswith("step.yaml: a step of ")
    summary = ask("run", "step.yaml", "--set", "calibration=mine.yaml", "--json").json
    assert summary["step_seconds"] == pytest.approx(target, rel=1e-3)
    assert [(each["entry"], each["used"]) for each in summary["calibration"]] == [("compute of a100_sxm_80", True)]
    mfu = summary["mfu"]
    again = ask("calibrate", "--scenario", "step.yaml", "--mfu", str(mfu), "--json").json
    assert again["compute"][0]["factor"] == pytest.approx(entry.factor, rel=1e-3)


def test_a_run_says_what_it_used_and_what_not(folder: Path) -> None:
    ask("calibrate", "ar.log", "ag.log", "--h2d", "24 GB/s", "--out", "mine.yaml")
    out = ask("run", "small.yaml", "--set", "calibration=mine.yaml").out
    told = " ".join(out.partition("\nassumed\n")[2].split())
    assert (
        "measured, all_reduce of 8 GPUs on 1 node: alpha 25 us, bandwidth 180 GB/s, kappa 0.4 (nccl-tests ar.log: 23"
        in told
    )
    assert "measured, but of no use to this step: all_gather of 16 GPUs on 2 nodes, copies.h2d" in told


def test_the_screen_keeps_to_its_width(folder: Path) -> None:
    ask("calibrate", "ar.log", "ag.log", "fio.txt", "--out", "mine.yaml")
    summary = simulate(load("small.yaml", ["calibration=mine.yaml"])).summary()
    for width in (80, 100, 120):
        screen = render(summary, width)
        well_written(screen, width)
        assert "measured, all_reduce of 8 GPUs" in screen
        assert len(screen.splitlines()) <= 45


def test_every_given_log_is_fitted_or_refused() -> None:
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        pytest.skip("ZEROSIM_SHARED names no folder of logs")
    fitted = 0
    print()
    for path in sorted((Path(shared) / "corpus" / "nccl_logs").iterdir()):
        answer = ask("calibrate", path, "--json")
        if answer.code:
            (problem,) = answer.refused()
            print(f"{path.name}: refused")
            assert problem.startswith(path.name)
            continue
        (each,) = answer.json["fits"]
        print(f"{path.name}: {each['points']} sizes, error {each['error']:.1%}")
        assert each["error"] < 0.25
        fitted += 1
    assert fitted == 11


def test_all_rates_that_are_wrong_are_told_at_once() -> None:
    first, second = ask("calibrate", "--h2d", "24 GBs", "--nvme-read", "0").refused()
    assert first.startswith('--h2d: found "24 GBs"; expected a rate')
    assert second == '--nvme-read: found "0"; expected more than 0'
