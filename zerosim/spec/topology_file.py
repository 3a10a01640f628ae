"""Reading a topology, given as a node template or as a graph, and finding the machines that come with zerosim.

All mistakes of a file are told at once, each with its place. A cluster of equal servers becomes one `Node`; each server
that an override makes different becomes another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec import graph_form
from zerosim.spec.document import Document, by_place, shown
from zerosim.spec.fabric import LeafFabric
from zerosim.spec.figures import Remarks
from zerosim.spec.loading import Schema, read, validated
from zerosim.spec.node import Node
from zerosim.spec.node_drawing import draw, latency
from zerosim.spec.topology import Topology
from zerosim.spec.topology_schema import GraphSpec, NodeSpec, OverrideSpec, TemplateSpec

PACKAGE = Path(__file__).resolve().parents[1]
PLACES = (PACKAGE.parent / "topologies", PACKAGE / "topologies_data")  # beside the package, or installed in it


def topology_names() -> tuple[str, ...]:
    """The machines that come with zerosim."""
    return tuple(sorted({path.stem for place in PLACES for path in place.glob("*.yaml")}))


def find_topology(name: str) -> Path:
    """The file of a machine by name."""
    known = topology_names()
    if name in known:
        return next(file for place in PLACES if (file := place / f"{name}.yaml").is_file())
    close = nearest(name.casefold(), known)
    expected = "a name (zerosim list topologies) or a path that ends in .yaml"
    raise InputError([Problem("topology", "", shown(name), expected, close and f'"{close}"')])


def named_topology(name: str) -> Topology:
    """A machine that comes with zerosim."""
    return read_topology(read(find_topology(name)))


def read_topology(document: Document) -> Topology:
    """The topology that a document describes in either form."""
    data = document.data
    if not isinstance(data, Mapping):
        raise InputError([document.problem((), shown(data), "a mapping with name and node, or with devices and links")])
    topology = _read_graph(document) if "devices" in data else _read_template(document)
    _check_joined(topology, document)
    return topology


def _read_graph(document: Document) -> Topology:
    return graph_form.assemble(validated(document, GraphSpec), document)


def _read_template(document: Document) -> Topology:
    spec = validated(document, TemplateSpec)
    remarks = Remarks(document, ("node",))
    template = draw(spec.node, remarks, {})
    problems, notes = list(remarks.problems), list(remarks.notes)
    nodes: list[Node | None] = [template] * spec.node.count
    for host, overrides in _by_node(spec, document, problems).items():
        changed = Remarks(document, ("node",))
        nodes[host] = _overridden(spec.node, overrides, changed)
        problems += [problem for problem in changed.problems if problem not in problems]
        notes += [note for note in changed.notes if note not in notes]
    if spec.node.count > 1 and template is not None and not template.ports:
        problems.append(document.problem(("node",), "no nics", f"nics, which join the {spec.node.count} nodes"))
    if problems:
        raise InputError(sorted(problems, key=by_place))
    return _assembled(spec, _shared([node for node in nodes if node is not None]), tuple(notes))


def _assembled(spec: TemplateSpec, nodes: tuple[Node, ...], notes: tuple[str, ...]) -> Topology:
    said = spec.fabric
    delay = latency("network_switch") if said.latency is None else said.latency
    fabric = LeafFabric(said.kind, nodes, delay, said.oversubscription, said.leaf_nodes)
    return Topology(spec.name, nodes, fabric, notes, repeatable=not spec.overrides)


def _shared(nodes: list[Node]) -> tuple[Node, ...]:
    """The same nodes, in which equal ones are one."""
    first: dict[Node, Node] = {}
    known = {id(node): first.setdefault(node, node) for node in {id(n): n for n in nodes}.values()}
    return tuple(known[id(node)] for node in nodes)


# --- overrides ---


def _by_node(
    spec: TemplateSpec, document: Document, problems: list[Problem]
) -> dict[int, list[tuple[int, OverrideSpec]]]:
    """The overrides of each node with their places in the list; those that name no node are problems."""
    found: dict[int, list[tuple[int, OverrideSpec]]] = {}
    for place, override in enumerate(spec.overrides):
        at = ("overrides", place)
        node, gpu = _target(override)
        if (override.node is None) == (override.gpu is None):
            problems.append(document.problem(at, "neither or both of node and gpu", "one of them"))
        elif node >= spec.node.count:
            last = spec.node.count - 1
            key = "node" if override.gpu is None else "gpu"
            problems.append(document.problem((*at, key), f"node {node}", f"a node from 0 to {last}"))
        elif gpu is not None and gpu >= spec.node.gpus.count:
            last = spec.node.gpus.count - 1
            problems.append(document.problem((*at, "gpu"), f"GPU {gpu}", f"a GPU from 0 to {last}"))
        else:
            problems += _misplaced(override, document, at)
            found.setdefault(node, []).append((place, override))
    return found


def _target(override: OverrideSpec) -> tuple[int, int | None]:
    if override.gpu is None:
        return (override.node if override.node is not None else -1), None
    node, _, gpu = override.gpu.partition(".")
    return int(node), int(gpu)


def _misplaced(override: OverrideSpec, document: Document, at: tuple[str | int, ...]) -> list[Problem]:
    """Sections of a node in an override of a GPU, and the other way round."""
    own = {"compute", "device"}
    wanted = own if override.gpu is not None else OverrideSpec.model_fields.keys() - own
    wrong = sorted(override.model_fields_set - wanted - {"node", "gpu"})
    what = "of a GPU: compute or device" if override.gpu is not None else "of a node, such as gpus: {compute: 0.8}"
    return [document.key_problem((*at, key), f'"{key}"', f"a figure {what}") for key in wrong]


def _overridden(template: NodeSpec, overrides: list[tuple[int, OverrideSpec]], remarks: Remarks) -> Node | None:
    spec = template
    single: dict[int, tuple[OverrideSpec, int]] = {}
    for place, override in overrides:
        _, gpu = _target(override)
        if gpu is None:
            remarks.over += (("overrides", place),)
            spec = _merged(spec, override)
        else:
            single[gpu] = override, place
    return draw(spec, remarks, single)


def _merged(base: NodeSpec, override: OverrideSpec) -> NodeSpec:
    """The template with the sections of an override laid over it, key by key; lists are replaced."""
    sections = override.model_fields_set & NodeSpec.model_fields.keys()
    return base.model_copy(update={key: _laid_over(getattr(base, key), getattr(override, key)) for key in sections})


def _laid_over(base: Any, above: Any) -> Any:
    if isinstance(base, Schema) and isinstance(above, Schema):
        return base.model_copy(update={key: getattr(above, key) for key in above.model_fields_set})
    return above


# --- what must hold of every topology ---


def _check_joined(topology: Topology, document: Document) -> None:
    """Every GPU reaches the first one and is reached by it: asked once for each different node."""
    hosts = {id(node): host for host, node in reversed(list(enumerate(topology.nodes)))}
    first = topology.gpus[0].name
    problems = []
    for host in sorted(hosts.values()):
        for gpu in (f"{host}.{gpu.name}" for gpu in topology.nodes[host].gpus):
            for a, b in ((first, gpu), (gpu, first)) if gpu != first else ():
                try:
                    topology.route(a, b)
                except InputError as error:
                    problems += [document.problem((), p.found, p.expected) for p in error.problems]
    if problems:
        raise InputError(problems)
