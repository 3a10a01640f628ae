"""`topology check`: the contract, the screen, the words of its options, and findings on standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import ask
from tests.cli.test_contract import NUMBER, holds
from tests.cli.test_screens import well_written
from zerosim.spec.topology_file import topology_names

ROW = {
    "collective": str, "gpus": int, "size_bytes": int, "algorithm": str, "time_us": NUMBER, "algbw": NUMBER,
    "busbw": NUMBER, "limited_by": str,
}  # fmt: skip
TWO_CARDS = """\
name: two-cards
node:
  gpus: {device: rtx4090, count: 2}
  pcie: {lanes: 8}
  sockets: [{device: epyc_7742, dram: {capacity: 1 TB}}]
"""


def swept(*words: str | Path) -> list[dict[str, Any]]:
    answer = ask("topology", "check", *words, "--json")
    assert answer.code == 0, answer.err
    rows: list[dict[str, Any]] = json.loads(answer.out)
    holds(rows, [ROW])
    return rows


@pytest.fixture
def two_cards(tmp_path: Path) -> Path:
    (tmp_path / "two-cards.yaml").write_text(TWO_CARDS)
    return tmp_path / "two-cards.yaml"


def test_the_question_of_the_contract() -> None:
    rows = swept("dgx-a100-80", "--collective", "all_reduce", "--gpus", "16", "--sizes", "1KiB,1MiB,1GiB")
    assert [(row["collective"], row["gpus"]) for row in rows] == [("all_reduce", 16)] * 3
    assert [row["size_bytes"] for row in rows] == [2**10, 2**20, 2**30]
    for row in rows:
        assert row["algbw"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 15 / 16)
    assert rows[0]["limited_by"] == "latency"


@pytest.mark.parametrize("name", topology_names())
def test_every_machine_answers(name: str) -> None:
    well_written(ask("topology", "check", name, "--sizes", "1K,1G").out, 100)
    rows = swept(name, "--sizes", "1K,1G")
    assert (not rows) == (name in ("gh200", "pcie-1x-rtx4090"))  # one GPU alone
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first["time_us"] < second["time_us"]


@pytest.mark.parametrize(
    "words",
    [
        ("dgx-a100-80", "--gpus", "2-64", "--collective", "all_reduce"),
        ("dgx-h100", "--nodes", "4", "--per-node", "1"),
        ("gh200", "--gpus", "4", "--sizes", "8,1000,1000001,1T"),
        ("pcie-4x-rtx4090",),
    ],
)
def test_screens(words: tuple[str, ...]) -> None:
    well_written(ask("topology", "check", *words).out, 100)


def test_text_and_json_say_the_same() -> None:
    words = ("roce-100g-a100", "--collective", "all_gather", "--sizes", "1GiB")
    (row,) = swept(*words)
    line = next(line for line in ask("topology", "check", *words).out.splitlines() if "1 GiB" in line)
    assert f"{row['busbw']:.3g}" in line
    assert line.endswith(row["label"])


def test_the_usual_collectives_and_sizes() -> None:
    rows = swept("dgx-a100-80")
    kinds = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
    assert list(dict.fromkeys(row["collective"] for row in rows)) == kinds
    assert sorted({row["size_bytes"] for row in rows}) == [2**10 * 4**step for step in range(12)]


@pytest.mark.parametrize(
    ("word", "kind"),
    [("allreduce", "all_reduce"), ("AllReduce", "all_reduce"), ("all_reduce_perf", "all_reduce"),
     ("alltoall", "all_to_all"), ("sendrecv", "send_recv"), ("sendrecv_perf", "send_recv"),
     ("reduce-scatter", "reduce_scatter"), ("reduce", "reduce")],
)  # fmt: skip
def test_names_of_nccl_tests(word: str, kind: str) -> None:
    (row,) = swept("dgx-a100-80", "--collective", word, "--sizes", "1M")
    assert row["collective"] == kind


def test_several_collectives_each_once() -> None:
    rows = swept("dgx-a100-80", "--collective", "broadcast,allreduce", "--collective", "all_reduce", "--sizes", "1M")
    assert [row["collective"] for row in rows] == ["broadcast", "all_reduce"]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("8", [8]), ("1K", [1024]), ("1KB", [1000]), ("1k,1KiB", [1024]), ("1M,8", [2**20, 8]), ("1.5K", [1536]),
     ("8-64", [8, 16, 32, 64]), ("1K-5K", [1024, 2048, 4096]), ("1KiB - 16KiB x4", [1024, 4096, 16384]),
     ("1G-1G", [2**30])],
)  # fmt: skip
def test_sizes(text: str, sizes: list[int]) -> None:
    rows = swept("dgx-a100-80", "--collective", "broadcast", "--sizes", text)
    assert [row["size_bytes"] for row in rows] == sizes


def test_counts_of_gpus() -> None:
    rows = swept("dgx-a100-80", "--collective", "broadcast", "--sizes", "1M", "--gpus", "2-8,16,16")
    assert [row["gpus"] for row in rows] == [2, 4, 8, 16]
    (row,) = swept("dgx-a100-80", "--collective", "broadcast", "--sizes", "1M", "--nodes", "3", "--per-node", "2")
    assert row["gpus"] == 6


def test_findings_go_to_standard_error_with_json(two_cards: Path) -> None:
    answer = ask("topology", "check", two_cards, "--sizes", "1M", "--json")
    assert isinstance(json.loads(answer.out), list)
    codes = [line.split(": ")[1] for line in answer.err.splitlines()]
    assert codes == ["no-p2p", "pcie-narrow", "GPUs without peer access exchange data through host memory"]
    screen = ask("topology", "check", two_cards, "--sizes", "1M")
    assert screen.err == ""
    assert "  warning  No peer access between 2 GPUs (RTX 4090)" in screen.out


WRONG = {
    "an unknown collective": (("--collective", "al_reduce"), 'found "al_reduce"; expected one of all_reduce, all'),
    "the nearest": (("--collective", "al_reduce"), 'nearest "all_reduce"'),
    "no collective": (("--collective", ""), '--collective: found ""; expected one of'),
    "no size": (("--sizes", ""), '--sizes: found ""; expected a size such as "64KiB"'),
    "a count as a size": (("--sizes", "many"), '--sizes: found "many"; expected a size such as "64KiB"'),
    "a unit that there is not": (("--sizes", "1 kiB"), 'nearest "1 KiB"'),
    "nothing": (("--sizes", "0"), '--sizes: found "0"; expected whole bytes, from 1'),
    "half a byte": (("--sizes", "0.5"), "expected whole bytes"),
    "too large": (("--sizes", "2P"), "--sizes: found"),
    "from more to less": (("--sizes", "1G-1K"), 'found "1G-1K"; expected a range from less to more'),
    "no steps": (("--sizes", "1K-1Gx1"), 'found "1K-1Gx1"; expected a range'),
    "one GPU": (("--gpus", "1"), '--gpus: found "1"; expected a count from 2'),
    "half a GPU": (("--gpus", "2.5"), '--gpus: found "2.5"; expected a count from 2'),
    "more than there are": (("--gpus", "3"), "--gpus: found 3; expected at most 2, as there are in two-cards"),
    "more nodes than can be": (("--nodes", "2"), "two-cards: nodes: found 2; expected 1 node, as these have no NICs"),
    "a part of the GPUs": (("--per-node", "3"), "--per-node: found 3 of 2 GPUs; expected a part"),
    "one rank alone": (("--per-node", "1"), "--per-node: found 1 on 1 node; expected 2 or more"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words(case: str, two_cards: Path) -> None:
    words, said = WRONG[case]
    (problem,) = ask("topology", "check", two_cards, *words).refused()
    assert said in problem


def test_all_that_is_wrong_is_told_at_once(two_cards: Path) -> None:
    words = ("--collective", "foo,all_reduce,bar", "--sizes", "x,1K,y", "--gpus", "0,2")
    problems = ask("topology", "check", two_cards, *words).refused()
    assert [problem.split(":")[0] for problem in problems] == ["--collective"] * 2 + ["--sizes"] * 2 + ["--gpus"]


def test_too_many_sizes(two_cards: Path) -> None:
    (problem,) = ask("topology", "check", two_cards, "--sizes", ",".join(map(str, range(1, 1002)))).refused()
    assert problem == "--sizes: found 1001 of them; expected at most 1000"


CURVE = """\
collectives:
- {collective: all_gather, gpus: 16, nodes: 2, alpha: 60 us, bandwidth: 90 GB/s, kappa: 0, source: rack 7}
"""


def test_times_as_measured(tmp_path: Path) -> None:
    """A gibibyte on 16 GPUs: 60 us and 15/16 GiB at 90 GB/s; on 8 GPUs of one node the model stands."""
    (tmp_path / "mine.yaml").write_text(CURVE)
    asked = ("dgx-a100-80", "--collective", "all_gather", "--gpus", "8,16", "--sizes", "1GiB")
    usual, found = swept(*asked), swept(*asked, "--calibration", tmp_path / "mine.yaml")
    assert found[0] == usual[0]
    assert found[1]["time_us"] == pytest.approx(60 + 2**30 * 15 / 16 / 90e3)
    screen = " ".join(ask("topology", "check", *asked, "--calibration", tmp_path / "mine.yaml").out.split())
    assert "measured, all_gather of 16 GPUs on 2 nodes: alpha 60 us, bandwidth 90 GB/s, kappa 0 (rack 7)" in screen
    assert "of no use to 8 GPUs on 1 node: all_gather of 16 GPUs on 2 nodes" in screen
    (problem,) = ask("topology", "check", *asked, "--calibration", tmp_path / "no.yaml").refused()
    assert "found no such file" in problem
