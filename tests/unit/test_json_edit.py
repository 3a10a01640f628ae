"""A JSON text with some values changed: the rest stays to the letter."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zerosim.spec.json_edit import edited

TEXT = """\
{
  "train_batch_size": "auto",
  "zero_optimization": {"stage": 3, "reduce_bucket_size": 2e8,
                        "overlap_comm": true},
  "list": [1, {"a": 2}],
  "empty": {}
}
"""


def changed(**more: Any) -> dict[str, Any]:
    return {**json.loads(TEXT), **more}


def test_nothing_changed_is_the_same_text() -> None:
    assert edited(TEXT, json.loads(TEXT)) == TEXT


def test_a_value_is_changed_in_its_place() -> None:
    zero = {"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": True}
    assert edited(TEXT, changed(zero_optimization=zero)) == TEXT.replace('"stage": 3', '"stage": 2')


def test_one_is_not_true() -> None:
    zero = {"stage": 3, "reduce_bucket_size": 2e8, "overlap_comm": 1}
    assert '"overlap_comm": 1}' in edited(TEXT, changed(zero_optimization=zero))


def test_a_new_key_comes_last_as_the_others_stand() -> None:
    assert edited(TEXT, changed(new=5)) == TEXT.replace('"empty": {}', '"empty": {},\n  "new": 5')
    assert edited(TEXT, changed(empty={"x": 1})) == TEXT.replace("{}", '{"x": 1}')
    zero = {"stage": 3, "reduce_bucket_size": 2e8, "overlap_comm": True, "offload_param": {"device": "cpu"}}
    inner = edited(TEXT, changed(zero_optimization=zero))
    assert inner == TEXT.replace("true}", 'true, "offload_param": {"device": "cpu"}}')


def test_what_is_no_strict_json_is_written_anew() -> None:
    assert json.loads(edited("{stage: 3 # hjson\n}", {"stage": 2})) == {"stage": 2}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=3), PLAIN, max_size=4)


@given(OBJECTS, OBJECTS, st.sampled_from([None, 1, 4]))
def test_the_text_says_what_is_wanted(before: dict[str, Any], after: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(before, indent=indent)
    assert json.loads(edited(text, after)) == after
    assert json.loads(edited(text, {**before, **after})) == {**before, **after}
