"""The house plan, held: who may import whom (DESIGN.md section 2), and that only `cli` prints.

A room is a module or package directly below `zerosim`; a name with a dot is one module of a room. The table is read
from the sources, not from what happens to be imported: an import inside a function counts.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2] / "zerosim"

BASICS = {"errors", "units"}
PAPERS = {"step", "resources", "timeline"}
SEEING = {"simulation", "checkpointing", "costs", "views", "report", "scenario", "spec", "catalog"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "step": {"errors"},
    "resources": {"errors"},
    "timeline": BASICS | {"step", "resources"},
    "catalog": BASICS | {"spec.devices"},  # values only: what a GPU, a NIC, a socket is
    "spec": BASICS | {"catalog"},
    "strategies": BASICS | PAPERS | {"spec"},
    "costs": BASICS | PAPERS | {"spec", "catalog"},
    "engine": BASICS | PAPERS,
    "views": BASICS | PAPERS,
    "report": BASICS | PAPERS | {"views"},
    "scenario": BASICS | {"step", "spec", "strategies", "catalog"},
    "simulation": BASICS | PAPERS | {"spec", "scenario", "strategies", "costs", "engine", "views"},
    "measured": BASICS | PAPERS | {"spec", "views"},  # what a profiler wrote, as a timeline: simulation's counterpart
    "checkpointing": BASICS | PAPERS | {"spec", "scenario", "strategies", "costs", "engine", "views"},
    "studies": BASICS | PAPERS | SEEING | {"strategies"},  # conform asks what is issued, and plays nothing
    "plot": BASICS | PAPERS | SEEING | {"studies", "measured"},
    "playground": BASICS | {"step", "simulation", "views", "report", "scenario", "spec"},  # one step, shown: no study
}
ANYTHING = {"__init__", "__main__", "cli"}  # the door
TRADES = ("strategies", "costs", "engine", "views")
SILENT = ["numpy", "networkx", "simpy", "yaml", "pydantic"]


def room(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


@cache
def sources() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"), str(path))) for path in sorted(HOUSE.rglob("*.py")))


def imported(path: Path, tree: ast.Module) -> set[str]:
    """Full names of what a module imports; `from zerosim import x` gives `zerosim.x`."""
    names: set[str] = set()
    package = ("zerosim", *path.relative_to(HOUSE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*base, *(node.module or "").split("."))).strip(".")
            names.update(f"{origin}.{alias.name}" for alias in node.names)
    return names


def own_imports(path: Path, tree: ast.Module) -> set[str]:
    """What a module imports from other rooms of the house, without the house's name."""
    names = {name.removeprefix("zerosim.") for name in imported(path, tree) if name.startswith("zerosim.")}
    return {name for name in names if name.split(".")[0] != room(path)}


def forbidden(path: Path, tree: ast.Module, allowed: set[str]) -> set[str]:
    return {name for name in own_imports(path, tree) if not any(f"{name}.".startswith(f"{a}.") for a in allowed)}


def test_every_room_has_a_row() -> None:
    assert {room(path) for path, _ in sources()} <= MAY_IMPORT.keys() | ANYTHING


def test_every_import_goes_down_the_house() -> None:
    wrong = [
        f"{path.relative_to(HOUSE)} imports {name}"
        for path, tree in sources()
        if room(path) not in ANYTHING
        for name in sorted(forbidden(path, tree, MAY_IMPORT.get(room(path), set())))
    ]
    assert not wrong


def test_the_table_has_no_way_up() -> None:
    seen: set[str] = set()
    while len(seen) < len(MAY_IMPORT):
        rooms = {name: {other for other in below if "." not in other} for name, below in MAY_IMPORT.items()}
        ready = {name for name, below in rooms.items() if name not in seen and below <= seen}
        assert ready, f"a circle among {sorted(set(MAY_IMPORT) - seen)}"
        seen |= ready
    for trade in TRADES:
        assert not MAY_IMPORT[trade] & set(TRADES)


def test_single_modules_that_a_lower_room_may_see_are_values() -> None:
    single = {name for below in MAY_IMPORT.values() for name in below if "." in name}
    for path, tree in sources():
        if ".".join(path.relative_to(HOUSE).with_suffix("").parts) in single:
            names = {name for name in imported(path, tree) if name.startswith("zerosim.")}
            assert all(name.split(".")[1] in BASICS for name in names), path


READERS = (
    "nccl_nvlinks",
    "nccl_xml",
    "plain_text",
    "seen",
    "smi",
    "smi_listings",
    "smi_table",
    "xml_tree",
    "yaml_lines",
)


@pytest.mark.parametrize("reader", READERS)
def test_what_a_tool_told_is_read_without_the_catalogue(reader: str) -> None:
    path = HOUSE / "spec" / "importers" / f"{reader}.py"
    names = imported(path, ast.parse(path.read_text(encoding="utf-8")))
    assert not {name for name in names if name.startswith("zerosim.catalog")}


def test_only_the_engine_knows_simpy() -> None:
    knowing = {room(path) for path, tree in sources() if any(n.split(".")[0] == "simpy" for n in imported(path, tree))}
    assert knowing == {"engine"}


PRINTING = {"sys.stdout", "sys.stderr", "click.echo"}
ENDS = {name.split(".")[1] for name in PRINTING}


def test_only_cli_prints() -> None:
    printing = [
        str(path.relative_to(HOUSE))
        for path, tree in sources()
        if room(path) not in {"cli", "__main__"}
        for node in ast.walk(tree)
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print")
        or (isinstance(node, ast.Attribute) and node.attr in ENDS and ast.unparse(node) in PRINTING)
    ]
    assert not printing


def has_cli() -> bool:
    return (HOUSE / "cli.py").exists() or (HOUSE / "cli").is_dir()


@pytest.mark.skipif(not has_cli(), reason="cli is not built yet")
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom zerosim.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(','.join(name for name in {SILENT!r} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HOUSE.parent, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("import zerosim.spec.model", {"spec.model"}),
        ("from zerosim import errors, step", {"errors", "step"}),
        ("def late() -> None:\n    from zerosim.costs.price import price", {"costs.price.price"}),
        ("from ..views import summary", {"views.summary"}),
        ("from . import fabric", set()),
        ("import simpy", set()),
    ],
)
def test_the_reader_sees_every_kind_of_import(line: str, names: set[str]) -> None:
    path, tree = HOUSE / "engine" / "play.py", ast.parse(line)
    assert own_imports(path, tree) == names
    assert forbidden(path, tree, MAY_IMPORT["engine"]) == {name for name in names if name not in {"errors", "step"}}


def test_a_single_module_may_be_seen_and_its_neighbours_not() -> None:
    path = HOUSE / "catalog" / "hardware.py"
    tree = ast.parse(
        "from zerosim.spec.devices import Gpu\nfrom zerosim.spec import devices\nimport zerosim.spec.model"
    )
    assert forbidden(path, tree, MAY_IMPORT["catalog"]) == {"spec.model"}
