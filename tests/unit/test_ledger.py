"""The bill of model states by formula against what the programs hold: resident bytes of a built step.

On the toy every parameter divides by four, so that nothing is padded: 213,888 parameters.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.toy import toy, toy_training
from zerosim.spec.strategy import DeepSpeed, Offload, Zero
from zerosim.step import Step
from zerosim.strategies import build
from zerosim.studies.ledger import Entry, ledger, model_states

PSI = 213_888
TOUCHED = {1: PSI, 2: 115_200}  # elements of the whole tensors that lie in rank 0's part


def offloaded(stage: int, ranks: int, micro_steps: int = 1) -> Step:
    zero = Zero(stage=stage, reduce_bucket_size=20_000, offload_optimizer=Offload(device="cpu"))  # type: ignore[arg-type]  # a row of the test
    return build(DeepSpeed(zero=zero), toy(), toy_training(gradient_accumulation_steps=micro_steps), ranks)[0]


def in_dram(step: Step) -> Counter[str]:
    """Resident bytes of a rank by name, without the buffer that one gradient passes through."""
    held: Counter[str] = Counter()
    for buffer in (step.buffers[number] for number in step.resident):
        if buffer.tier == "dram" and buffer.name != "gradient on its way":
            held[buffer.name] += int(buffer.bytes)
    return held


def entry(rows: list[Entry], stage: int) -> Entry:
    (row,) = [row for row in rows if (row.stage, row.offload) == (stage, "cpu")]
    return row


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_dram_is_what_the_programs_of_a_node_hold(stage: int, ranks: int) -> None:
    held = in_dram(offloaded(stage, ranks))
    assert ranks * held.total() == entry(ledger(PSI, ranks), stage).dram_bytes_per_node == 18 * PSI


@pytest.mark.parametrize("ranks", [1, 2])
def test_accumulation_on_stage_2_is_what_the_ledger_does_not_count(ranks: int) -> None:
    more = in_dram(offloaded(2, ranks, micro_steps=3))
    more.subtract(in_dram(offloaded(2, ranks)))
    assert +more == {"accumulated gradient": 2 * TOUCHED[ranks]}
    for stage in (1, 3):
        assert in_dram(offloaded(stage, ranks, micro_steps=3)) == in_dram(offloaded(stage, ranks))


def test_a_node_holds_the_shares_of_its_own_ranks() -> None:
    """7B on two nodes of eight: half of 18 bytes a parameter; on one node of eight all of it."""
    assert {row.dram_bytes_per_node for row in ledger(7e9, 16, 8) if row.offload == "cpu"} == {0.0, 63e9}
    assert entry(ledger(7e9, 8, 8), 3).dram_bytes_per_node == 126e9
    assert entry(ledger(7e9, 4, 8), 3).dram_bytes_per_node == 126e9


def test_the_gpu_keeps_weights_and_on_stage_1_gradients() -> None:
    rows = ledger(7e9, 8)
    assert [entry(rows, stage).gpu_bytes_per_gpu for stage in range(4)] == [112e9, 28e9, 14e9, 1.75e9]
    assert [model_states(stage, 7e9, 8) for stage in range(4)] == [112e9, 38.5e9, 26.25e9, 14e9]
