"""`trace read` and `compare` with traces: measured steps in the words of `run`, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import SMALL, ask
from tests.cli.test_contract import RUN
from tests.profiled import document, profiled, three_steps, write


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    profiled(tmp_path / "traces")
    return tmp_path / "traces"


def test_a_measured_step_prints_as_a_played_one(traces: Path) -> None:
    answer = ask("trace", "read", *sorted(traces.iterdir()))
    assert (answer.code, answer.err) == (0, "")
    lines = [line.strip() for line in answer.out.splitlines()]
    assert lines[0].split("  ")[0] == "rank0.pt.trace.json and 1 more"
    assert lines[0].endswith("measured, step 5, 2 ranks of 2")
    assert "C  compute                540 us  54.0 %" in lines
    assert "X  exposed communication  100 us  10.0 %  50 % of 200 us hidden" in lines
    assert "phases: forward 400 us (40.0 %), backward 300 us (30.0 %), optimizer 300 us (30.0 %)" in lines
    assert "host not ready, optimizer       245 us  24.5 %" in lines
    assert "all-reduce         1 x  200 us  20.0 %  2 MB   10 GB/s" in lines
    assert "rank 1  1 ms   540 us   100 us     0 s" in lines
    assert all(len(line) <= 100 for line in answer.out.splitlines())


def test_json_has_the_keys_of_run_and_null_for_what_no_trace_tells(traces: Path) -> None:
    found = ask("trace", "read", traces, "--json").json
    assert RUN.keys() <= found.keys()
    assert found["measured"] is True
    assert found["world_size"] == 2
    assert found["step_seconds"] == pytest.approx(1e-3)
    for part in ("phases", "breakdown", "communication"):
        assert found[part].keys() == RUN[part].keys()
    assert sum(found["breakdown"].values()) == pytest.approx(found["step_seconds"])
    assert sum(found["phases"].values()) == pytest.approx(found["step_seconds"])
    for unknown in ("tokens_per_second", "mfu", "model_tflops_per_gpu", "fits", "nodes", "seed", "resources"):
        assert found[unknown] is None, unknown
    assert found["memory"]["gpu"]["capacity_bytes"] == 85e9
    assert found["memory"]["gpu"]["peak_bytes"] is None
    assert found["collectives"]["all_reduce"]["count"] == 1
    assert ask("trace", "read", traces, "--json") == ask("trace", "read", traces, "--json")


def test_a_step_a_picture_and_what_is_refused(tmp_path: Path, traces: Path) -> None:
    (file, _) = sorted(traces.iterdir())
    assert ask("trace", "read", file, "--step", "4", "--json").json["step"] == "step 4"
    assert "found 9; expected a step of" in ask("trace", "read", file, "--step", "9").refused()[0]
    drawn = ask("trace", "read", file, "--svg", tmp_path / "t.svg")
    assert (drawn.code, drawn.err) == (0, f"picture written to {tmp_path / 't.svg'}\n")
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    cut = write(tmp_path / "cut.json", '{"traceEvents": [{"ph": "X"')
    assert "it is cut off" in ask("trace", "read", cut).refused()[0]
    assert "no such file" in ask("trace", "read", tmp_path / "missing.json").refused()[0]
    assert ask("trace", "read").code == 2


def test_a_played_step_that_was_written_reads_as_it_was(tmp_path: Path, small: Path) -> None:
    played = ask("run", small, "--json").json
    ask("run", small, "--trace", tmp_path / "own.json.gz")
    found = ask("trace", "read", tmp_path / "own.json.gz", "--json").json
    for part in ("phases", "breakdown", "communication"):
        assert found[part] == pytest.approx(played[part], abs=2e-4), part
    counts = {kind: (each["count"], each["bytes"]) for kind, each in played["collectives"].items()}
    assert {kind: (each["count"], each["bytes"]) for kind, each in found["collectives"].items()} == counts


def test_compare_takes_measured_steps_beside_played_ones(small: Path, traces: Path) -> None:
    (file, _) = sorted(traces.iterdir())
    answer = ask("compare", small, file, traces, "--set", "title=played")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[:3] == [
        "A  played (baseline)", "B  rank0.pt.trace.json (measured, step 5)", "C  traces (measured, step 5)",
    ]  # fmt: skip
    cells = {line[:22].strip(): line[22:].split() for line in lines[4:]}
    assert cells["tokens/s"][1:] == ["-"] * 4
    assert cells["fits in memory"] == ["yes", "ran", "ran"]
    assert cells["compute"][2:4] == ["540", "us"]
    assert cells["GPU memory allocated"][2:] == ["-"] * 4
    rows = ask("compare", traces, small, "--json").json
    assert [row.get("measured", False) for row in rows] == [True, False]
    assert rows[1] == ask("run", small, "--json").json
    assert "-" in ask("compare", file, traces).out  # measured only


def test_what_asks_for_a_scenario_is_not_asked_of_a_trace(small: Path, traces: Path) -> None:
    assert "expected scenarios only" in ask("compare", small, traces, "--range").refused()[0]
    assert "expected a scenario to change" in ask("compare", traces, traces, "--set", "nodes=2").refused()[0]
    broken = write(traces.parent / "broken.json", document(three_steps()) | {"traceEvents": []})
    assert "found no GPU events" in ask("compare", small, broken).refused()[0]


def test_a_simulated_trace_is_called_one_and_has_a_peak(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # short paths, which no table cuts
    paths = [Path(folder) / "own.json" for folder in ("a", "b")]
    for path in paths:
        ask("run", small, "--trace", path)
    head = ask("trace", "read", paths[0]).out.splitlines()
    assert head[0].endswith("simulated, step 0, 1 rank of 8")
    assert "capacity 85.04 GB" in head[1]
    lines = ask("compare", small, *paths).out.splitlines()
    assert lines[1:3] == [f"{letter}  {path} (simulated, step 0)" for letter, path in zip("BC", paths, strict=True)]
    (peak,) = (line.split() for line in lines if line.startswith("GPU memory at its peak"))
    assert peak[5:7] == peak[7:9] == peak[10:12]
    (fits,) = (line.split() for line in lines if line.startswith("fits in memory"))
    assert fits[3:] == ["yes", "-", "-"]
    assert ask("trace", "read", "").refused() == ["trace: found no name; expected the name of a file or a folder"]
