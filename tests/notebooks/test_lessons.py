"""The lessons run from top to bottom where a reader would run them, and all have one form.

The form: a title with the lesson's number, what is needed, figures, numbers that asserts hold, limits, questions to
try; no stored output. Rule: a lesson is executed once, by one test; what else is asked of it is read from the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
lessons = pytest.mark.parametrize("path", LESSONS, ids=[path.stem for path in LESSONS])

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WORDS = range(1000, 2501)  # ten to fifteen minutes, with the code
QUESTIONS = range(4, 7)
LONGEST_CELL = 15  # lines of code
RANDOM = re.compile(r"[0-9a-f]{8}|[0-9a-f-]{36}")  # what editors make up for a cell


def opened(path: Path) -> NotebookNode:
    text = path.read_text(encoding="utf-8")
    lesson: NotebookNode = nbformat.reads(text, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]  # it says no types
    return lesson


def cells(lesson: NotebookNode, kind: str) -> list[NotebookNode]:
    """The cells of one kind, `code` or `markdown`."""
    return [cell for cell in lesson.cells if cell.cell_type == kind]


def nodes(lesson: NotebookNode) -> Iterator[ast.AST]:
    """What the code of a lesson is made of."""
    for cell in cells(lesson, "code"):
        yield from ast.walk(ast.parse(cell.source))


def test_there_are_nine_lessons() -> None:
    assert [path.name.split("-")[0] for path in LESSONS] == [str(number) for number in range(1, 10)]


@lessons
def test_a_lesson_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lesson = opened(path)
    NotebookClient(lesson, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    code = cells(lesson, "code")
    assert all(cell.outputs for cell in code if "print(" in cell.source and "def " not in cell.source)
    shown = [output.data for cell in code for output in cell.outputs if "data" in output]
    assert any("image/png" in data for data in shown)


@lessons
def test_a_lesson_is_a_valid_notebook_without_output(path: Path) -> None:
    lesson = opened(path)
    nbformat.validate(lesson)
    assert (lesson.nbformat, lesson.nbformat_minor) == (4, 5)
    assert lesson.metadata == METADATA
    assert cells(lesson, "code")
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells(lesson, "code"))
    assert all(cell.metadata == {} for cell in lesson.cells)


@lessons
def test_cells_have_names_that_stay(path: Path) -> None:
    """An editor gives random ids, others in each copy, which would make every change look larger than it is."""
    names = [cell.id for cell in opened(path).cells]
    assert len(set(names)) == len(names)
    assert not [name for name in names if RANDOM.fullmatch(name)]


@lessons
def test_a_lesson_begins_with_its_number_and_ends_with_questions(path: Path) -> None:
    lesson = opened(path)
    first, last = lesson.cells[0], lesson.cells[-1]
    number = path.name.split("-")[0]
    assert first.source.startswith(f"# {number}. ")
    assert "What you need" in first.source
    assert last.source.startswith("## Questions to try\n")
    questions = re.findall(r"^(\d+)\. ", last.source, re.MULTILINE)
    assert questions == [str(place) for place in range(1, len(questions) + 1)]
    assert len(questions) in QUESTIONS
    assert "## What this does not say" in "\n".join(cell.source for cell in cells(lesson, "markdown"))


@lessons
def test_a_lesson_is_read_in_ten_to_fifteen_minutes(path: Path) -> None:
    lesson = opened(path)
    assert sum(len(cell.source.split()) for cell in lesson.cells) in WORDS
    assert max(len(cell.source.splitlines()) for cell in cells(lesson, "code")) <= LONGEST_CELL


@lessons
def test_the_numbers_of_a_lesson_are_held(path: Path) -> None:
    """What prose says of a result is asserted beside it, so that it cannot go stale."""
    assert any(isinstance(node, ast.Assert) for node in nodes(opened(path)))


@lessons
def test_a_lesson_finds_its_files_from_the_root_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it looks for from the current folder is the same from the folder of the lessons and from the root; nothing
    is opened by a path that depends on it; what is imported from beside the lesson is put on the path of imports."""
    lesson, found = opened(path), []
    for folder in (path.parent, ROOT):
        monkeypatch.chdir(folder)
        found.append([eval(place, {"Path": Path}) for place in looked_for(lesson)])
    assert found[0] == found[1]
    assert all(place.exists() for place in found[0])
    assert opened_by_name(lesson) == []
    beside = imported(lesson) & {each.stem for each in path.parent.iterdir()}
    assert not beside or any("sys.path" in cell.source for cell in cells(lesson, "code"))


def looked_for(lesson: NotebookNode) -> list[str]:
    """Expressions that find a place from the current folder."""
    assigned = (node for node in nodes(lesson) if isinstance(node, ast.Assign))
    return [ast.unparse(node.value) for node in assigned if "Path.cwd()" in ast.unparse(node.value)]


def opened_by_name(lesson: NotebookNode) -> list[str]:
    """Calls that open a file by plain text."""
    calls = (node for node in nodes(lesson) if isinstance(node, ast.Call))
    opening = (call for call in calls if ast.unparse(call.func) in ("zerosim.load", "open", "Path"))
    return [ast.unparse(call) for call in opening if any(isinstance(each, ast.Constant) for each in call.args[:1])]


def imported(lesson: NotebookNode) -> set[str]:
    """The top names of what is imported."""
    found = set()
    for node in nodes(lesson):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
    return found
