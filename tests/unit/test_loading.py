"""Files become data with places; mistakes are told all at once, each where it stands."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from zerosim.errors import InputError
from zerosim.spec import yaml_tree
from zerosim.spec.loading import Document, Rate, Schema, Seconds, Whole, inline, parse, read, validated


class Link(Schema):
    bandwidth: Rate
    latency: Seconds = 0.0
    kind: Literal["nvlink", "pcie"] = "pcie"


class Machine(Schema):
    name: str
    links: tuple[Link, ...] = ()
    uplink: Link | str = "none"
    gpus: Whole = 1
    by_name: dict[str, Link] | None = None


def complaints(text: str, schema: type[Schema] = Machine) -> list[str]:
    with pytest.raises(InputError) as caught:
        validated(parse(text, "m.yaml"), schema)
    return [str(problem) for problem in caught.value.problems]


def mistakes(text: str, is_json: bool = False) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse(text, "f", is_json)
    return [str(problem) for problem in caught.value.problems]


# --- data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e9", 1e9),
        ("5e-6", 5e-6),
        ("1.0e9", 1e9),
        ("1.5", 1.5),
        ("7", 7),
        ("-7", -7),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", "010"),
        ("12:30", "12:30"),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("'1e9'", "1e9"),
        ('"7"', "7"),
        ("no", False),
        ("on", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("500m", "500m"),
        ("25 GB/s", "25 GB/s"),
    ],
)
def test_scalars_are_what_people_mean(scalar: str, value: Any) -> None:
    data = parse(f"a: {scalar}", "f").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_keys_are_text() -> None:
    assert parse("{on: 1, 3: 2, 1e9: 3}", "f").data == {"on": 1, "3": 2, "1e9": 3}


def test_merge_keys_do_not_override() -> None:
    text = "base: &b {p: 1, q: 2}\nuse: {<<: *b, q: 3}\nboth: {<<: [*b, {r: 4}]}"
    data = parse(text, "f").data
    assert data["use"] == {"p": 1, "q": 3}
    assert data["both"] == {"p": 1, "q": 2, "r": 4}


def test_places_of_values_and_keys() -> None:
    document = parse("a:\n  - b: 1\n    cc:   2\n", "f")
    assert document.positions[("a", 0, "cc")] == (3, 11)
    assert document.keys[("a", 0, "cc")] == (3, 5)
    assert document.positions[()] == (1, 1)


def test_the_pure_python_loader_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: {b: [1, 'x', 1e9], c: &k {d: no}}\ne: *k\n"
    quick = parse(text, "f")
    monkeypatch.setattr(yaml_tree, "_LOADER", yaml.SafeLoader)
    assert parse(text, "f") == quick


def test_json_keeps_its_data_and_gains_places() -> None:
    text = '{\n\t"a": [1, 2.5, "1e9"],\n\t"b":{"c":null}}'
    document = parse(text, "f.json", is_json=True)
    assert document.data == json.loads(text)
    assert document.positions[("a", 2)] == (2, 16)
    assert document.positions[("b", "c")] == (3, 11)


def test_json_that_the_walk_cannot_read_has_no_places() -> None:
    document = parse('{"\\ud83d\\ude00": 1}', "f.json", is_json=True)
    assert document.data == {"\N{GRINNING FACE}": 1}
    assert document.positions == {}


# --- documents ------------------------------------------------------------------------------------------------------


def test_a_part_keeps_its_place_and_path() -> None:
    part = parse("a:\n  b:\n    c: 3\n", "f").below("a", "b")
    assert part.data == {"c": 3}
    assert str(part.problem(("c",), "3", "4")) == "f:3:8: a.b.c: found 3; expected 4"
    assert str(part.problem("c", "3", "4")) == "f:3:8: a.b.c: found 3; expected 4"


def test_a_missing_part_has_the_place_of_its_nearest_ancestor() -> None:
    document = parse("a:\n  b: 1\n", "f")
    problem = document.problem("a.x.y", "nothing", "something")
    assert (problem.line, problem.column, problem.path) == (2, 3, "a.x.y")


def test_inline_data_has_no_places() -> None:
    assert str(inline({"a": 1}, "--set").problem(("a",), "1", "2")) == "--set: a: found 1; expected 2"


# --- syntax ---------------------------------------------------------------------------------------------------------


def test_repeated_keys_are_refused_all_at_once() -> None:
    assert mistakes("a: 1\na: 2\nb: {c: 1, c: 2}") == [
        'f:2:1: a: found the key "a" again; expected each key once; the first is in line 1',
        'f:3:11: b.c: found the key "c" again; expected each key once; the first is in line 3',
    ]
    (json_mistake,) = mistakes('{"a": {"b": 1,\n "b": 2}}', is_json=True)
    assert json_mistake.startswith('f:2:2: a.b: found the key "b" again')


def test_repeated_keys_in_json_without_places() -> None:
    (mistake,) = mistakes('{"\\ud83d\\ude00": 1, "b": 1, "b": 2}', is_json=True)
    assert mistake == 'f: b: found the key "b" again; expected each key once'


@pytest.mark.parametrize(
    ("text", "is_json", "start"),
    [
        ("a: [1,\nb: 2", False, "f:3:1: found a syntax error"),
        ("a: 1\n b: 2", False, "f:2:3: found a syntax error"),
        ("a: 1\n---\nb: 1", False, "f:2:1: found a syntax error"),
        ("a: !foo 3", False, "f:1:4: a: found the tag !foo"),
        ("{[1]: 2}", False, "f:1:2: found a key that is not text"),
        ("a: &a [*a]", False, "f:1:4: a.0: found an alias inside of its own anchor"),
        ("a: \x01", False, "f: found unacceptable character"),
        ("[" * 5000, False, "f"),
        ('{"a": 1,}', True, "f:1:"),
        ("", True, "f:1:1: found a syntax error (expecting value); expected JSON"),
        ("{'a': 1}", True, "f:1:2: found a syntax error"),
        ("[" * 100_000, True, "f: found brackets nested too deep"),
    ],
)
def test_syntax_errors_have_places(text: str, is_json: bool, start: str) -> None:
    assert mistakes(text, is_json)[0].startswith(start)


def test_anchors_may_not_explode() -> None:
    names = "abcdefgh"
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{b}: &{b} [{', '.join(['*' + a] * 8)}]" for a, b in pairwise(names)]
    (mistake,) = mistakes("\n".join(lines))
    assert "aliases that expand too far" in mistake


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "dgx.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: a\n")  # a byte order mark is no mistake
    assert read(file).data == {"name": "a"}
    with pytest.raises(InputError, match=r"dgx\.yml: found no such file; expected a file; nearest .*dgx\.yaml"):
        read(tmp_path / "dgx.yml")
    with pytest.raises(InputError, match="found a folder; expected a file"):
        read(tmp_path)
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(InputError, match="expected UTF-8"):
        read(file)


# --- schemas --------------------------------------------------------------------------------------------------------


def test_good_values_arrive_in_base_units() -> None:
    text = "{name: a, gpus: 8, links: [{bandwidth: 100 Gbps, latency: 5 us}], uplink: leaf}"
    machine = validated(parse(text, "f"), Machine)
    assert machine.links[0].bandwidth == 12.5e9
    assert machine.links[0].latency == 5e-6
    assert machine.uplink == "leaf"


def test_all_mistakes_at_once_in_reading_order() -> None:
    text = """\
name: 3
gpus: no
links:
  - bandwidth: 25 GBs
  - bandwith: 100Gbps
    latency: 5 parsecs
    kind: NVlink
  - bandwidth: -5
  - latency: 0
uplink: {bandwith: 3}
by_name: {x: {bandwidth: 1, kind: 7}}
x: 1
"""
    assert complaints(text) == [
        "m.yaml:1:7: name: found 3; expected text",
        'm.yaml:2:7: gpus: found false; expected a whole number such as "32"',
        'm.yaml:4:16: links.0.bandwidth: found "25 GBs"; expected a rate such as "25 GB/s"; nearest "25 GBps"',
        'm.yaml:5:5: links.1.bandwith: found unknown key "bandwith"; expected one of bandwidth, kind, latency; '
        "nearest bandwidth",
        'm.yaml:6:14: links.1.latency: found "5 parsecs"; expected a time such as "5 us"',
        'm.yaml:7:11: links.1.kind: found "NVlink"; expected "nvlink" or "pcie"; nearest "nvlink"',
        'm.yaml:8:16: links.2.bandwidth: found -5; expected a rate such as "25 GB/s", not negative',
        "m.yaml:9:5: links.3.bandwidth: found nothing; expected a value, as it has no default",
        'm.yaml:10:10: uplink.bandwith: found unknown key "bandwith"; expected one of bandwidth, kind, latency; '
        "nearest bandwidth",
        'm.yaml:11:35: by_name.x.kind: found 7; expected "nvlink" or "pcie"',
        'm.yaml:12:1: x: found unknown key "x"; expected one of by_name, gpus, links, name, uplink',
    ]


def test_of_a_union_all_members_say_what_they_want() -> None:
    assert complaints("{name: a, uplink: 3}") == ["m.yaml:1:19: uplink: found 3; expected a mapping or text"]


def test_a_document_that_is_no_mapping() -> None:
    assert complaints("[1]") == ["m.yaml:1:1: found a list; expected a mapping"]
    assert complaints("") == ["m.yaml: found null; expected a mapping"]


def test_a_part_is_validated_with_its_full_path() -> None:
    document = parse("a:\n  links:\n    - bandwidth: fast\n", "f")
    with pytest.raises(InputError) as caught:
        validated(document.below("a", "links", 0), Link)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.column) == ("a.links.0.bandwidth", 3, 18)


def test_values_do_not_change() -> None:
    link = validated(Document("f", {"bandwidth": 1}), Link)
    with pytest.raises(ValueError, match="frozen"):
        link.bandwidth = 2.0
