"""`zerosim topology import`: from a file or a pipe to a topology that `topology show` prints."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tests.cli.asking import ask
from tests.imported import gpus, matrix, switched
from tests.unit.test_importers_xml import DUMP
from zerosim.cli import main


def written(folder: Path, text: str, name: str = "box.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_topology_alone_is_on_standard_output(tmp_path: Path) -> None:
    path = written(tmp_path, DUMP, "box.xml")
    answer = ask("topology", "import", path)
    slow = "uplinks of 15.75 GB/s, as the text says; a link at rest may report too little"
    assert (answer.code, answer.err) == (0, f"{path}: {slow}\n")
    assert answer.out.startswith("# 2 GPUs, from NCCL topology XML (")
    shown = ask("topology", "show", written(tmp_path, answer.out, "box.yaml"))
    assert shown.out.startswith("box: 1 node, 2 ranks")
    assert "2 x H100-SXM5-80GB" in shown.out


def test_what_is_unsure_is_told_on_standard_error(tmp_path: Path) -> None:
    path = written(tmp_path, switched())
    answer = ask("topology", "import", path)
    assert answer.err.startswith(f"{path}: assumed: a100_sxm_80, as NV12 is what a GPU shows")
    assert ask("topology", "import", path, "--gpu", "a100_sxm_40").err == ""


def test_out_nodes_and_name(tmp_path: Path) -> None:
    out = tmp_path / "made" / "cluster.yaml"
    path = written(tmp_path, switched(8, "NV18"))
    answer = ask("topology", "import", path, "--gpu", "h200_sxm", "--nodes", "2", "--name", "rack", "--out", out)
    assert (answer.code, answer.out, answer.err) == (0, "", f"topology written to {out}\n")
    assert ask("topology", "show", out).out.startswith("rack: 2 nodes, 16 ranks, 1 rank class, NVLink joins 8")


def test_a_pipe() -> None:
    text = matrix(gpus(2), lambda a, b: "NV4", {})
    result = CliRunner().invoke(main, ["topology", "import", "-", "--gpu", "rtx3090"], input=text.encode("utf-16"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "name: imported\n" in result.stdout


def test_what_cannot_be_is_refused_in_a_line(tmp_path: Path) -> None:
    box = written(tmp_path, switched())
    assert "found no such file" in ask("topology", "import", tmp_path / "none.txt").refused()[0]
    assert "expected a GPU of the catalogue" in ask("topology", "import", box, "--gpu", "h100").refused()[0]
    rocm = written(tmp_path, "ROCm\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n", "rocm.txt")
    assert "rocm-smi" in ask("topology", "import", rocm).refused()[0]
    assert "found a path that leads through a file" in ask("topology", "import", box, "--out", box / "x.yaml").err
    assert ask("topology", "import", box, "--nodes", "0").code == 2
