"""The rows of `ops --json`: the keys of the contract, and numbers that can be checked with a pencil."""

import json

from tests.timelines import host_optimizer, tiny_step
from zerosim.report import ops
from zerosim.step import Attention, Op, Step

CONTRACT = [
    "index", "name", "kind", "stream", "phase", "micro_batch", "layer",
    "elements", "dtype", "bytes", "group_size", "after",
]  # fmt: skip


def test_every_row_begins_with_the_keys_of_the_contract() -> None:
    assert all(list(row)[: len(CONTRACT)] == CONTRACT for row in ops.rows(tiny_step()))


def test_rows_are_plain_json_in_issue_order() -> None:
    rows = ops.rows(tiny_step())
    assert json.loads(json.dumps(rows)) == rows
    assert [row["index"] for row in rows] == list(range(10))


def test_a_collective_tells_elements_bytes_and_ranks() -> None:
    row = ops.rows(tiny_step())[5]
    assert (row["kind"], row["elements"], row["dtype"], row["group_size"]) == ("reduce_scatter", 30, "bf16", 2)
    assert row["bytes"] == 60  # 30 elements of 2 bytes
    assert (row["after"], row["phase"], row["layer"]) == ([4], "backward", 1)


def test_compute_tells_its_flop() -> None:
    row = ops.rows(tiny_step())[2]
    assert (row["kind"], row["flops"], row["elements"], row["group_size"]) == ("compute", 240, None, None)


def test_every_kind_of_work_has_its_word() -> None:
    attention = Attention(1, 1, 2, 2, 3, True, False, "bf16")
    step = Step((Op(0, "core", "compute", attention), Op(1, "mark", "compute", None)), (), frozenset(), {}, 1)
    kinds = [row["kind"] for part in (tiny_step(), host_optimizer().step, step) for row in ops.rows(part)]
    assert kinds[-4:] == ["compute", "host_compute", "compute", "marker"]
    assert kinds[8:10] == ["compute", "transfer"]
    assert ops.rows(step)[0]["flops"] == 24  # 4 x 1 x 1 x 2 x 2 x 3, halved because causal


def test_table() -> None:
    lines = ops.render(tiny_step()).splitlines()
    assert (len(lines), lines[0], lines[6]) == (
        11,
        "op  stream   phase      micro  layer  kind            name               work  dtype  ranks  after",
        " 5  nccl.dp  backward       0      1  reduce_scatter  reduce 1    30 elements  bf16       2  4",
    )


def test_a_narrow_screen_cuts_names_first() -> None:
    long = Step((Op(0, "x" * 90, "compute", None),), (), frozenset(), {}, 1)
    assert max(map(len, ops.render(long, 100).splitlines())) == 100
    assert "xxxxxxxxxxx…" in ops.render(long, 10)
    assert "x" * 90 in ops.render(long)
