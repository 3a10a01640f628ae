"""What can be wrong with a file that should be a trace, and how it is told."""

import gzip
import json
from pathlib import Path

import pytest

from tests.profiled import document, kernel, three_steps, write
from zerosim.errors import InputError
from zerosim.measured import read_trace
from zerosim.spec.profile import read_profile
from zerosim.spec.profile_events import HostEvent
from zerosim.spec.profile_file import is_trace

ROOT = Path(__file__).parents[2]
WHOLE = json.dumps(document(three_steps()))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "found an empty file"),
        ("<html>", 'found "<html>"'),
        ("5", 'found "5"'),
        ('{"traceEvents": [{"ph": "X"', ": found the end of the file within the JSON: it is cut off"),
        (WHOLE[:700], "1:701: found the end of the file within the JSON: it is cut off"),
        (WHOLE[:-1], "found the end of the file"),
        ('{"traceEvents": [{"ph": nix}]}', "1:25: found Expecting value"),
        ('{"traceEvents": [{} {}]}', "found an event without a comma before it"),
        ('{"traceEvents" []}', "found"),
        ('{"title": "a scenario"}', 'found an object with "title"; expected a profiler trace'),
        ("{}", "found an object with nothing in it"),
        ('{"traceEvents": []}', "found no GPU events (kernel, gpu_memcpy, gpu_memset), and no others"),
        ('{"traceEvents": [{"ph": "X", "name": "a", "ts": 0, "dur": 1}]}', "memset); expected a trace with the GPU's"),
        ('{"traceEvents": ' + "[" * 100_000, "found a value nested too deeply"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, content: str, found: str) -> None:
    file = write(tmp_path / "t.json", content)
    with pytest.raises(InputError) as refused:
        read_trace(file)
    assert found in str(refused.value)
    assert str(refused.value).startswith(str(file))


def test_broken_packed_files(tmp_path: Path) -> None:
    packed = gzip.compress(WHOLE.encode())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "broken.json.gz").write_bytes(packed[:40] + b"\xff" * 400)
    with pytest.raises(InputError, match="found a gzip file that is cut off"):
        read_trace(tmp_path / "cut.json.gz")
    with pytest.raises(InputError, match=r"found a broken gzip file \("):
        read_trace(tmp_path / "broken.json.gz")
    with pytest.raises(InputError, match=r"found no such file"):
        read_trace(tmp_path / "missing.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found a folder without traces"):
        read_trace(tmp_path / "empty")


def test_every_form_of_a_trace_gives_the_same(tmp_path: Path) -> None:
    """Packed or not, indented, with a byte order mark, a list, one without its end; told by content, not by name."""
    events = json.dumps(three_steps())
    forms = {
        "plain.json": WHOLE, "packed.json.gz": WHOLE, "no_name": WHOLE, "list.json": events, "open.json": events[:-1],
        "comma.json": events[:-1] + ",\n", "marked.json": "\ufeff" + WHOLE,
        "lines.json": json.dumps(document(three_steps()), indent=1),
    }  # fmt: skip
    files = [write(tmp_path / name, content) for name, content in forms.items()]
    assert all(map(is_trace, files))
    parts = {read_trace(file).summary().breakdown for file in files}
    assert len(parts) == 1


def test_scenarios_are_no_traces() -> None:
    files = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "scenarios").rglob("*.json"), *ROOT.glob("topologies/*")]
    assert files
    assert not any(map(is_trace, files))
    assert not is_trace(ROOT / "nothing")


def test_letters_that_are_no_utf8_lose_only_themselves(tmp_path: Path) -> None:
    text = json.dumps(document([kernel("gemm_X", 0, 10, 1)])).encode().replace(b"gemm_X", b"gemm_\xff")
    (tmp_path / "t.json").write_bytes(text)
    assert read_trace(tmp_path / "t.json").summary().kernels["matmul"].count == 1


def test_a_stream_may_be_anything_and_nothing_is_shared(tmp_path: Path) -> None:
    """A list cannot be a key, so it is text; and what a call says, when it says nothing, cannot be written to."""
    events = [kernel("gemm", 0, 10, 1) | {"args": {"stream": [7]}}, kernel("gemm", 10, 20, 2)]
    file = write(tmp_path / "t.json", document(events))
    assert [event.stream for event in read_profile(file).gpu] == ["[7]", 7]
    assert {op.stream for op in read_trace(file).step.ops} == {"compute", "stream 7"}
    with pytest.raises(TypeError):
        HostEvent("call", (1, 1), 0.0, 1.0).arguments["a"] = 1  # type: ignore[index]  # that is what is tried
