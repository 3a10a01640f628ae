"""A file is written whole or not at all."""

from pathlib import Path

import pytest

from zerosim.errors import InputError
from zerosim.report.files import write_bytes, write_text


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "picture.svg", "ä\n")
    write_bytes(tmp_path / "new" / "picture.svg", b"again")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["picture.svg"]
    assert (tmp_path / "new" / "picture.svg").read_bytes() == b"again"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "trace.json"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="found no space left on device; expected a path that can be written"):
        write_text(target, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    assert target.read_text() == "old"


def test_a_path_through_a_file_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a path that can be written"):
        write_text(tmp_path / "file" / "trace.json", "")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="found a folder; expected the name of a file"):
        write_text(tmp_path / "folder", "")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_a_pipe_is_written_to_and_a_link_leads_to_its_file(tmp_path: Path) -> None:
    write_text(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()  # it is still the device
    (tmp_path / "link.svg").symlink_to(tmp_path / "real.svg")
    write_text(tmp_path / "link.svg", "picture")
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").read_text() == "picture"


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a path that can be written"):
        write_text(tmp_path / name, "")
    assert list(tmp_path.iterdir()) == []
