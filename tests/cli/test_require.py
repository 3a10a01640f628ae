"""The verb `require`: its tables on scenarios that come with zerosim, the keys of its JSON, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SMALL, ask
from tests.cli.test_contract import NUMBER, holds

SHIPPED = ROOT / "scenarios"
NIC = ("--resource", "node.nics.bandwidth")
SLOWER = ("--slowdown", "10%")
ONCE = "training.gradient_accumulation_steps=1"
ANSWER = {
    "resource": str, "today": (*NUMBER, type(None)), "required": (*NUMBER, type(None)), "slowdown": NUMBER,
    "curve": [list], "strategy": str, "unit": str, "free_seconds": NUMBER, "seconds": NUMBER, "fits": bool,
    "limited_by": str, "notes": list,
}  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


def of_shipped(path: str, *words: str) -> str:
    return ask("require", SHIPPED / path, *words).out


def test_the_network_of_two_nodes_by_stage() -> None:
    assert of_shipped("seven-b/zero3-two-nodes-ib.yaml", *NIC, *SLOWER, "--stages", "1,3", "--set", ONCE) == NETWORK


NETWORK = """\
node.nics.bandwidth: the least at which the step is at most 10 % longer than with a free one

strategy     today      step      free    required      step     MFU
zero1     200 Gb/s  796.7 ms  791.4 ms  107.8 Gb/s  869.1 ms  33.5 %
zero3     200 Gb/s  753.7 ms  750.6 ms  84.91 Gb/s  825.1 ms  35.3 %

 step at     zero1     zero3
 10 Gb/s   3.328 s   4.486 s
 25 Gb/s   1.505 s    1.89 s
 50 Gb/s   1.075 s   1.025 s
100 Gb/s  882.9 ms  800.6 ms
200 Gb/s  796.7 ms  753.7 ms
252 Gb/s  791.4 ms  750.7 ms
"""


def test_the_pcie_of_an_offloaded_optimizer() -> None:
    assert of_shipped("ten-b-one-v100.yaml", "--resource", "node.pcie.bandwidth", *SLOWER) == LANE


LANE = """\
node.pcie.bandwidth: the least at which the step is at most 10 % longer than with a free one

strategy            today     step     free    required    step     MFU
zero2-offload  15.75 GB/s  22.12 s  18.84 s  21.79 GB/s  20.7 s  25.4 %

zero2-offload: needs PCIe 4 x16; today's is PCIe 3 x16.

the step by rate
  1.969 GB/s  56.78 s  ========================================
  3.938 GB/s  36.97 s  ==========================
  7.875 GB/s  27.07 s  ===================
  15.75 GB/s  22.12 s  ================ today
  21.79 GB/s   20.7 s  =============== required
   31.5 GB/s  19.61 s  ==============
     63 GB/s  18.84 s  =============
    121 GB/s  18.84 s  ============= most
"""


def test_an_mfu_that_a_free_resource_does_not_reach() -> None:
    assert of_shipped("gpt2-large-ddp-4090.yaml", "--resource", "node.pcie.bandwidth", "--mfu", "30%") == VAIN


VAIN = """\
node.pcie.bandwidth: the least at which the step reaches 30 % MFU

strategy      today      step       free  required  step  MFU
ddp       31.5 GB/s  909.4 ms  485.1 ms*      none     -    -

ddp: no rate is enough; with a free one the step takes 485.1 ms, 12.9 % more than it may: computes
  95.9 % of the step and waits 4.09 % of the step: all-reduce, limited by host memory 204.8 GB/s,
  shared by 4 GPUs.
* does not fit in memory; what the step would take with more of it.

the step by rate
  3.938 GB/s   5.703 s  ========================================
  7.875 GB/s   2.972 s  =====================
  15.75 GB/s     1.6 s  ===========
   31.5 GB/s  909.4 ms  ====== today
     63 GB/s  583.4 ms  ====
    121 GB/s  485.1 ms  === most
"""


PCIE = ("--resource", "node.pcie.bandwidth")
LAYERS = ("--set", "model.layers=2")


def test_the_pcie_that_the_rate_needs_is_named_and_takes_it() -> None:
    path = ROOT / "scenarios" / "gpt2-large-ddp-4090.yaml"
    answer = ask("require", path, *PCIE, *SLOWER, *LAYERS, "--json").json
    assert answer["notes"] == ["needs PCIe 6 x16; today's is PCIe 4 x16"]
    rate = ("--set", f"topology.node.pcie.bandwidth={answer['required']!r}")
    assert "as PCIe 4 x16" in ask("run", path, *LAYERS, *rate).refused()[0]
    found = ask("run", path, *LAYERS, *rate, "--set", "topology.node.pcie.generation=6", "--json").json
    assert found["step_seconds"] == pytest.approx(answer["seconds"])


def test_the_required_rate_is_the_same_in_table_and_curve() -> None:
    path = ROOT / "scenarios" / "gpt2-large-ddp-4090.yaml"
    lines = ask("require", path, *PCIE, "--slowdown", "0.0000001%", *LAYERS).out.splitlines()
    (marked,) = (line for line in lines if line.endswith(" required"))
    assert " ".join(marked.split()[:2]) in next(line for line in lines if line.startswith("ddp "))


def test_far_from_enough_is_so_many_times_as_long() -> None:
    path = ROOT / "scenarios" / "gpt2-large-ddp-4090.yaml"
    said = ask("require", path, *PCIE, "--seconds", "1us", *LAYERS).out
    assert "k times as long as it may" in " ".join(said.split())
    assert "% more" not in said


def test_stages_are_of_the_changed_scenario() -> None:
    zero = "strategy={deepspeed: {bf16: {enabled: true}, zero_optimization: {stage: 2}}}"
    found = ask(
        "require", ROOT / "scenarios" / "gpt2-large-ddp-4090.yaml", "--set", zero, "--set", "model.layers=2",
        "--resource", "node.pcie.bandwidth", "--slowdown", "50%", "--stages", "1", "--json",
    ).json  # fmt: skip
    assert found["strategy"] == "zero1"


def test_one_strategy_is_an_object_and_several_are_a_list(small: Path) -> None:
    two = ("--set", "nodes=2")
    one = ask("require", small, *NIC, *SLOWER, *two, "--json").json
    holds(one, ANSWER)
    assert all(len(point) == 2 for point in one["curve"])
    assert one["slowdown"] == 0.1
    assert one["today"] == 25e9
    several = ask("require", small, *NIC, *SLOWER, *two, "--stages", "1", "--with", small, "--json").json
    holds(several, [ANSWER])
    assert [each["strategy"] for each in several] == ["zero1", "zero2"]
    assert several[1] == one


def test_what_does_not_fit_is_marked(small: Path) -> None:
    said = ask("require", small, *NIC, *SLOWER, "--set", "training.micro_batch_size=100000").out
    assert "* does not fit in memory" in said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((*NIC,), "require: found no wish; expected one of --slowdown, --mfu, --seconds"),
        (
            (*NIC, *SLOWER, "--mfu", "40%"),
            "require: found --slowdown and --mfu; expected one of --slowdown, --mfu, --s",
        ),
        ((*NIC, "--slowdown", "10"), '--slowdown: found "10"; expected a share such as "10%" or 0.1; nearest "10%"'),
        ((*NIC, "--slowdown", "0%"), '--slowdown: found "0%"; expected a share above 0'),
        ((*NIC, "--mfu", "140%"), '--mfu: found "140%"; expected a share above 0, of at most 100 %'),
        ((*NIC, "--mfu", "forty"), '--mfu: found "forty"; expected a share such as "10 %"'),
        ((*NIC, "--seconds", "0"), '--seconds: found "0"; expected a time above 0'),
        ((*NIC, "--seconds", "1 sec"), '--seconds: found "1 sec"; expected a time such as "5 us"'),
        ((*NIC, *SLOWER, "--stages", "1,4"), '--stages: found "4"; expected stages from 0 to 3, such as 1,2,3'),
        (("--resource", "node.nic.bandwidth", *SLOWER), 'found the rate "node.nic.bandwidth"; expected one of node.n'),
    ],
)
def test_wrong_words_are_told(small: Path, words: tuple[str, ...], line: str) -> None:
    (said,) = ask("require", small, *words).refused()
    assert line in said


def test_stages_are_those_of_deepspeed() -> None:
    (line,) = ask("require", SHIPPED / "llama-2-7b-fsdp.yaml", *NIC, *SLOWER, "--stages", "1").refused()
    assert line.startswith("--stages: found ")


def test_all_files_are_read_before_one_is_played(small: Path) -> None:
    lines = ask("require", small, *NIC, *SLOWER, "--with", "no.yaml", "--with", "none.yaml").refused()
    assert [line.partition(":")[0] for line in lines] == ["no.yaml", "none.yaml"]
