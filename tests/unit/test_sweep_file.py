"""What may stand in a sweep file, the points that it makes, and each mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps import AGAINST, GRID, SCENARIO, STAGE, written
from zerosim.errors import InputError
from zerosim.spec.changes import Change
from zerosim.spec.sweep import Sweep, lasting
from zerosim.spec.sweep_file import MOST_POINTS, read_sweep


def read(folder: Path, *parts: str, changes: tuple[str, ...] = ()) -> Sweep:
    return read_sweep(written(folder, *parts), changes)


def wrong(folder: Path, *parts: str, changes: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(InputError) as told:
        read(folder, *parts, changes=changes)
    return [str(problem).replace(f"{folder}/", "") for problem in told.value.problems]


def made(sweep: Sweep) -> list[dict[str, object]]:
    """What each point changes, by path."""
    return [{".".join(change.path): change.value for change in point.changes} for point in sweep.points()]


def test_a_grid_is_the_product_of_its_axes_the_last_one_fastest(tmp_path: Path) -> None:
    sweep = read(tmp_path, GRID)
    assert made(sweep) == [{STAGE: stage, "nodes": nodes} for stage in (1, 2, 3) for nodes in (1, 2)]
    assert [dict(point.labels) for point in sweep.points()] == [
        {"stage": stage, "nodes": nodes} for stage in (1, 2, 3) for nodes in (1, 2)
    ]


def test_values_have_names_and_are_whole_mappings(tmp_path: Path) -> None:
    nics = "{count: 1, bandwidth: 10 Gbps, kind: ethernet}"
    sweep = read(tmp_path, f"axes:\n  network: {{path: topology.node.nics, values: {{slow: {nics}}}}}\n")
    (point,) = sweep.points()
    assert dict(point.labels) == {"network": "slow"}
    assert made(sweep) == [{"topology.node.nics": {"count": 1, "bandwidth": "10 Gbps", "kind": "ethernet"}}]


def test_a_case_changes_several_paths(tmp_path: Path) -> None:
    sweep = read(tmp_path, "axes:\n  size: {cases: {small: {nodes: 1, gpus: 2}, large: {nodes: 2}}}\n")
    assert made(sweep) == [{"nodes": 1, "gpus": 2}, {"nodes": 2}]


def test_a_value_without_a_name_is_its_own(tmp_path: Path) -> None:
    sweep = read(tmp_path, "axes: {model: [{parameters: 1e9}, llama-2-7b]}\n")
    assert [point.labels["model"] for point in sweep.points()] == ['{"parameters": 1000000000.0}', "llama-2-7b"]


@pytest.mark.parametrize("nodes", [1, 4])
def test_listed_points_follow_the_grid_and_name_axes_or_paths(tmp_path: Path, nodes: int) -> None:
    sweep = read(tmp_path, GRID, f"points: [{{stage: 3, nodes: {nodes}, training.micro_batch_size: 2}}]\n")
    assert made(sweep)[6:] == [{STAGE: 3, "nodes": nodes, "training.micro_batch_size": 2}]


def test_changes_of_the_command_are_of_the_sweep_or_of_its_scenario(tmp_path: Path) -> None:
    sweep = read(tmp_path, GRID, changes=("axes.stage.values=[3]", "training.micro_batch_size=2"))
    assert made(sweep) == [{"training.micro_batch_size": 2, STAGE: 3, "nodes": nodes} for nodes in (1, 2)]


def test_a_scenario_may_be_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own.yaml").write_text("title: own\n")
    sweep = read_sweep(written(tmp_path, "axes: {nodes: [1]}\n", scenario="scenario: there/own.yaml\n"))
    assert sweep.document.data == {"title": "own"}
    assert sweep.base == tmp_path / "there"


def test_places_in_a_scenario_written_out_are_kept(tmp_path: Path) -> None:
    problem = read(tmp_path, GRID).document.problem(("training", "attention"), "a", "b")
    assert (problem.line, problem.path) == (6, "training.attention")


def test_the_least_rate_is_searched_where_no_axis_sets_it(tmp_path: Path) -> None:
    network = "  network: {path: topology.node.nics, values: {a: {}, b: {}}}\n"
    require = "require: {resource: topology.node.nics.bandwidth, slowdown: 5 %, changes: {nodes: 2}}\n"
    sweep = read(tmp_path, GRID, network, AGAINST, require)
    assert [axis.name for axis in sweep.searched_axes] == ["stage", "nodes"]
    assert len(list(sweep.searched())) == 6
    assert all(point.changes[-1].path == ("nodes",) for point in sweep.searched())
    assert sweep.wanted is not None
    assert sweep.wanted.slowdown == 0.05


def test_a_later_change_undoes_what_it_covers() -> None:
    deep, other, whole = (Change("", tuple(path.split(".")), 1) for path in ("a.b.c", "a.d", "a.b"))
    assert lasting([deep, other, whole]) == (other, whole)
    assert lasting([whole, deep]) == (whole, deep)


BEFORE = len(SCENARIO.splitlines())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((), ["sweep.yaml:1:1: found no point; expected axes, or points"]),
        (("axs: {nodes: [1]}\n",), [f'sweep.yaml:{BEFORE + 1}:1: axs: found unknown key "axs"; nearest axes']),
        (("axes: {nods: [1]}\n",), [f'sweep.yaml:{BEFORE + 1}:8: axes.nods: found "nods"; nearest nodes']),
        (("axes: {n: {path: nodes}}\n",), ["axes.n: found path; expected path and values, or cases"]),
        (("axes: {n: {path: nods, values: [1]}}\n",), ['axes.n.path: found "nods"; nearest nodes']),
        (("axes: {nodes: []}\n",), ["axes.nodes: found a list of 0"]),
        (("axes: {nodes: [1, 2, 1]}\n",), ["axes.nodes.2: found 1 again; expected each value once"]),
        (("axes: {n: {cases: {a: {trainin.x: 1}}}}\n",), ['found "trainin.x"; nearest training.x']),
        (
            ("axes: {n: {path: nodes, values: {few: 1}}}\npoints: [{n: many}]\n",),
            ['points.0.n: found "many"; expected one of few'],
        ),
        ((GRID, "points: [{stag: 3}]\n"), ['points.0.stag: found "stag"; nearest stage']),
        ((GRID, "table: {rows: stag, columns: nodes}\n"), ['table.rows: found "stag"; nearest stage']),
        ((GRID, "table: {rows: nodes, columns: nodes}\n"), ["table.columns: found"]),
        ((GRID, "require: {resource: topology.x, slowdown: 5 %}\n"), ["require: found no against"]),
        ((GRID, AGAINST, "require: {resource: topology.x, slowdown: 5}\n"), []),
        ((GRID, AGAINST, "require: {resource: topolgy.x, slowdown: 5x}\n"), ['require.slowdown: found "5x"']),
        (("axes: {nods: [1], trainin.x: [1]}\n",), ["nearest nodes", "nearest training.x"]),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, parts: tuple[str, ...], said: list[str]) -> None:
    if not said:
        assert read(tmp_path, *parts).wanted is not None
        return
    lines = wrong(tmp_path, *parts)
    assert len(lines) == len(said)
    for line, wanted in zip(lines, said, strict=True):
        for part in wanted.split("; nearest "):
            assert part in line, line


def test_there_is_a_limit(tmp_path: Path) -> None:
    many = ", ".join(map(str, range(1, 401)))
    (line,) = wrong(tmp_path, f"axes: {{nodes: [{many}], gpus: [{many}]}}\n")
    assert f"found 160000 points; expected at most {MOST_POINTS}" in line


def test_a_change_of_what_an_axis_sets_is_refused(tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, GRID, changes=("nodes=4",))
    assert line == "--set nodes=4: found a path that the axis nodes sets; expected a change of axes.nodes"


def test_a_change_of_what_an_axis_is_in_is_made_before_it(tmp_path: Path) -> None:
    sweep = read(tmp_path, GRID, changes=("strategy.deepspeed={}",))
    assert made(sweep)[0] == {"strategy.deepspeed": {}, STAGE: 1, "nodes": 1}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            "axes: {topology.node.nics.bandwidth: [1 Gbps, 2 Gbps], topology: [roce-100g-a100]}",
            "axes.topology.node.nics.bandwidth: found topology.node.nics.bandwidth, which the axis topology sets again;"
            " expected this axis after topology, which sets all of topology",
        ),
        (
            "axes: {nodes: [1, 2], size: {cases: {a: {gpus: 4}, b: {nodes: 1}}}}",
            "axes.nodes: found nodes, which the axis size sets again; expected a path that no other axis sets",
        ),
        (
            "axes: {size: {cases: {a: {training.micro_batch_size: 2, training: {}}}}}",
            "axes.size.cases.a: found training.micro_batch_size, which training after it sets again; "
            "expected it behind that, or only one of them",
        ),
        (
            "points: [{nodes: 1}, {model.layers: 3, model: gpt2}]",
            "points.1: found model.layers, which model after it sets again; expected it behind that, or only one",
        ),
    ],
)
def test_a_change_that_another_undoes_is_told(tmp_path: Path, parts: str, said: str) -> None:
    (line,) = wrong(tmp_path, parts)
    assert said in line


def test_an_axis_may_change_a_part_of_what_one_before_it_sets(tmp_path: Path) -> None:
    sweep = read(tmp_path, "axes: {topology: [roce-100g-a100], topology.node.nics.bandwidth: [1 Gbps]}")
    assert made(sweep) == [{"topology": "roce-100g-a100", "topology.node.nics.bandwidth": "1 Gbps"}]


def test_long_values_that_begin_alike_are_different(tmp_path: Path) -> None:
    alike = ", ".join(f"{{layers: 12, hidden: 768, heads: 12, kv_heads: 12, ffn: 3072, vocab: {n}}}" for n in (1, 2))
    sweep = read(tmp_path, f"axes: {{model: [{alike}]}}")
    labels = [str(point.labels["model"]) for point in sweep.points()]
    assert [label[-11:] for label in labels] == ['"vocab": 1}', '"vocab": 2}']


def test_numbers_that_json_does_not_have_are_named_in_words(tmp_path: Path) -> None:
    sweep = read(tmp_path, "axes: {training.micro_batch_size: [1, .inf, .nan]}")
    assert [point.labels["training.micro_batch_size"] for point in sweep.points()] == [1, "inf", "nan"]


def test_a_wrong_change_of_the_sweep_is_told_as_such(tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, GRID, changes=("axes.stage.valus=[3]",))
    assert line.startswith("--set axes.stage.valus=[3]: axes.stage.valus: found unknown key")
