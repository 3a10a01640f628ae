"""Wrong files of every kind: exit code 2, nothing on standard output, each mistake with its place, and no traceback.

A right file of each kind is made wrong in one place; `¦` marks where the mistake should be found.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.asking import Answer, ask
from tests.cli.wrong_files import MARK, RIGHT, WRONG


def ask_for(file: str) -> Answer:
    """The command that reads a file of this name in the current folder."""
    if file == "reference.yaml":
        return ask("ladder", "scenario.yaml", "--reference", file)
    if file == "recording.json":
        return ask("conform", file)
    part = {"drawn.yaml": "topology", "network.yaml": "model"}.get(file)
    return ask("run", "scenario.yaml", *(("--set", f"{part}={file}") if part else ()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a right file of each kind."""
    for file, text in RIGHT.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", RIGHT)
def test_the_files_that_are_made_wrong_here_are_right(file: str, folder: Path) -> None:
    assert ask_for(file).code == 0


@pytest.mark.parametrize(("file", "old", "new", "said"), [(file, *case) for file in WRONG for case in WRONG[file]])
def test_a_mistake_is_told_with_its_place(file: str, old: str, new: str, said: str, folder: Path) -> None:
    assert old in RIGHT[file]
    marked = RIGHT[file].replace(old, new, 1)
    (folder / file).write_text(marked.replace(MARK, ""))
    place = f"{file}:"
    if MARK in marked:
        before = marked.partition(MARK)[0]
        place = f"{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
    problems = ask_for(file).refused()
    assert any(problem.startswith(place) and said in problem for problem in problems), (place, problems)


BROKEN = {  # bytes of any file, and what is said of them
    "empty": (b"", "found an empty file; expected YAML or JSON"),
    "blank": (b" \n\n", "found an empty file; expected YAML or JSON"),
    "binary": (bytes(range(256)), "which is no text; expected UTF-8"),
    "UTF-16": ("title: a\n".encode("utf-16"), "which is no text; expected UTF-8"),
    "Latin-1": ("title: ä\n".encode("latin-1"), "found byte 0xe4 at offset 7, which is no text; expected UTF-8"),
    "a list": (b"[1, 2]", "found a list; expected a mapping"),
    "a number": (b"7", "found 7; expected a mapping"),
    "an open bracket": (b'{"a": [1, 2', "found a syntax error ("),
    "brackets": (b"[" * 50_000, "expected"),
    "braces": (b'{"a": ' * 5_000 + b"1" + b"}" * 5_000, "expected"),
    "a few braces": (b'{"a": ' * 300 + b"1" + b"}" * 300, "found brackets nested too deep; expected at most 64 levels"),
}


@pytest.mark.parametrize("file", RIGHT)
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_such_file_at_all(case: str, file: str, folder: Path) -> None:
    content, said = BROKEN[case]
    (folder / file).write_bytes(content)
    (problem,) = ask_for(file).refused()
    assert problem.startswith(f"{file}:")
    if file != "reference.yaml" or "mapping" not in said:
        assert said in problem


@pytest.mark.parametrize("file", RIGHT)
def test_a_folder_instead_of_a_file(file: str, folder: Path) -> None:
    (folder / file).unlink()
    (folder / file).mkdir()
    (problem,) = ask_for(file).refused()
    assert f'found "{file}"; expected a file' in problem or f"{file}: found a folder; expected a file" in problem


@pytest.mark.parametrize("file", RIGHT)
def test_a_missing_file(file: str, folder: Path) -> None:
    (folder / file).unlink()
    (problem,) = ask_for(file).refused()
    assert f'found "{file}"; expected a file' in problem or f"{file}: found no such file; expected a file" in problem


def test_a_clash_of_two_files_shows_both_places(folder: Path) -> None:
    (folder / "scenario.yaml").write_text(RIGHT["scenario.yaml"].replace("bf16", "fp16").replace("size: 2", "size: 4"))
    assert ask_for("scenario.yaml").refused() == [
        "ds.json:2:23: bf16.enabled: found true; expected precision fp16, as training.precision says (scenario.yaml:7)",
        "ds.json:3:37: train_micro_batch_size_per_gpu: found 2; expected 4, as training.micro_batch_size says "
        "(scenario.yaml:6)",
    ]


def test_all_mistakes_of_all_files_at_once(folder: Path) -> None:
    spoilt = {
        "scenario.yaml": ("128", "-1"),
        "machine.yaml": ("300 GB/s", "300 GBs"),
        "config.json": ("1000", "0"),
        "ds.json": ('"stage": 2', '"stage": 9'),
    }
    for file, (old, new) in spoilt.items():
        (folder / file).write_text(RIGHT[file].replace(old, new, 1))
    problems = ask("run", "scenario.yaml").refused()
    assert [problem.split(":")[0] for problem in problems] == list(spoilt)
    (folder / "other.yaml").write_text("title: 3\n")
    assert len(ask("compare", "scenario.yaml", "other.yaml").refused()) > len(spoilt)


def test_a_chain_of_aliases_does_not_grow(folder: Path) -> None:
    names = "abcdefgh"
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in pairwise(names)]
    (folder / "scenario.yaml").write_text("\n".join(lines))
    assert "found aliases that expand too far" in ask_for("scenario.yaml").refused()[0]
