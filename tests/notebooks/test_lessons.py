"""The lessons run from top to bottom where a reader would run them, and carry no stored output."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
lessons = pytest.mark.parametrize("path", LESSONS, ids=[path.stem for path in LESSONS])


def opened(path: Path) -> NotebookNode:
    text = path.read_text(encoding="utf-8")
    lesson: NotebookNode = nbformat.reads(text, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]  # it says no types
    return lesson


def test_there_are_lessons() -> None:
    assert "sharding-changes-no-mathematics" in [path.stem for path in LESSONS]


@lessons
def test_a_lesson_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lesson = opened(path)
    NotebookClient(lesson, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert all(cell.outputs for cell in lesson.cells if cell.cell_type == "code" and "print" in cell.source)


@lessons
def test_a_lesson_is_a_valid_notebook_without_output(path: Path) -> None:
    lesson = opened(path)
    nbformat.validate(lesson)
    code = [cell for cell in lesson.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
