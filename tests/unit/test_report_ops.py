"""The rows of `ops --json`: the keys of the contract, and numbers that can be checked with a pencil."""

import json

from tests.timelines import host_optimizer, offloaded, tiny_step
from zerosim.report import ops
from zerosim.step import Attention, Collective, Op, Pass, Slice, Step

CONTRACT = [
    "index", "name", "kind", "stream", "phase", "micro_batch", "layer",
    "elements", "dtype", "bytes", "group_size", "after",
]  # fmt: skip


def test_every_row_begins_with_the_keys_of_the_contract() -> None:
    assert all(list(row)[: len(CONTRACT)] == CONTRACT for row in ops.rows([tiny_step()]))


def test_rows_are_plain_json_in_issue_order() -> None:
    rows = ops.rows([tiny_step()])
    assert json.loads(json.dumps(rows)) == rows
    assert [row["index"] for row in rows] == list(range(10))


def test_a_collective_tells_elements_bytes_and_ranks() -> None:
    row = ops.rows([tiny_step()])[5]
    assert (row["kind"], row["elements"], row["dtype"], row["group_size"]) == ("reduce_scatter", 30, "bf16", 2)
    assert row["bytes"] == 60  # 30 elements of 2 bytes
    assert (row["after"], row["phase"], row["layer"]) == ([4], "backward", 1)


def test_compute_tells_its_flop() -> None:
    row = ops.rows([tiny_step()])[2]
    assert (row["kind"], row["flops"], row["elements"], row["group_size"]) == ("compute", 240, None, None)


def test_every_kind_of_work_has_its_word() -> None:
    attention = Attention(1, 1, 2, 2, 3, True, False, "bf16")
    step = Step((Op(0, "core", "compute", attention),), (), frozenset(), {}, 1)
    kinds = [row["kind"] for part in (tiny_step(), host_optimizer().step, step) for row in ops.rows([part])]
    assert kinds[-3:] == ["compute", "host_compute", "compute"]
    assert kinds[8:10] == ["compute", "transfer"]
    assert ops.rows([step])[0]["flops"] == 24  # 4 x 1 x 1 x 2 x 2 x 3, halved because causal


def test_table() -> None:
    lines = ops.render([tiny_step()]).splitlines()
    assert (len(lines), lines[0], lines[6]) == (
        11,
        "op  stream   phase      micro  layer  kind            name               work  dtype  ranks  after",
        " 5  nccl.dp  backward       0      1  reduce_scatter  reduce 1    30 elements  bf16       2  4",
    )


def test_a_narrow_screen_cuts_names_first() -> None:
    long = Step((Op(0, "x" * 90, "compute", Pass(8.0, "stream")),), (), frozenset(), {}, 1)
    assert max(map(len, ops.render([long], 100).splitlines())) == 100
    assert "xxxxxxxxxxx…" in ops.render([long], 10)
    assert "x" * 90 in ops.render([long])


def test_an_op_that_does_nothing_is_named_by_what_it_waits_for() -> None:
    work = Pass(8.0, "stream")
    ops_ = (
        Op(0, "a", "gather", work),
        Op(1, "mark", "compute", None, after=(0,)),
        Op(2, "b", "reduce", work, after=(1,)),
    )
    rows = ops.rows([Step(ops_, (), frozenset(), {}, 1)])
    assert [(row["index"], row["after"]) for row in rows] == [(0, []), (2, [0])]


def test_a_copy_tells_its_tiers() -> None:
    row = ops.rows([tiny_step()])[9]
    assert (row["kind"], row["bytes"], row["source"], row["target"], row["pinned"]) == (
        "transfer", 40, "gpu", "dram", True,
    )  # fmt: skip
    assert [ops.rows([tiny_step()])[5][key] for key in ("source", "target", "pinned")] == [None] * 3
    assert "gpu to dram" in ops.render([tiny_step()]).splitlines()[10]
    assert ops.rows([offloaded().step])[2]["pinned"] is False


def test_a_collective_tells_which_parameters_it_carries() -> None:
    """By their place in the model; of a reduction the elements from and to."""
    ops_of = (
        Op(0, "gather", "nccl.dp", Collective("all_gather", 8, "bf16", "dp"), gathers=(2, 5)),
        Op(1, "reduce", "nccl.dp", Collective("reduce_scatter", 4, "bf16", "dp"), reduces=(Slice(5, 0, 3),)),
        Op(2, "run", "compute", Pass(8.0, "stream")),
    )
    found = [(row["gathers"], row["reduces"]) for row in ops.rows([Step(ops_of, (), frozenset(), {}, 1)])]
    assert found == [([2, 5], []), ([], [[5, 0, 3]]), (None, None)]
