"""Reading a topology, given as a node template or as a graph, and finding the machines that come with zerosim.

All mistakes of a file are told at once, each with its place. A cluster of equal servers becomes one `Node`; each server
that an override makes different becomes another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zerosim import catalog
from zerosim.errors import InputError, Problem, nearest
from zerosim.spec import graph_form
from zerosim.spec.buying_file import priced
from zerosim.spec.document import Document, by_place, shown
from zerosim.spec.fabric import LeafFabric
from zerosim.spec.figures import Remarks
from zerosim.spec.loading import Schema, read, validated
from zerosim.spec.node import Node
from zerosim.spec.node_drawing import draw, latency
from zerosim.spec.topology import Topology
from zerosim.spec.topology_schema import (
    FabricSpec,
    GraphSpec,
    NodeSpec,
    OverrideSpec,
    PowerSpec,
    PriceSpec,
    TemplateSpec,
)

PACKAGE = Path(__file__).resolve().parents[1]
OF_LINKS = {"nvlink": {"bandwidth"}, "pcie": {"generation", "lanes", "bandwidth"}}  # what is said of one GPU's
OF_UPLINKS = ("oversubscription", "leaf_nodes", "spine_nodes", "spine_oversubscription")  # said of several leaves
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
    topology, price, power = _read_graph(document) if "devices" in data else _read_template(document)
    _check_joined(topology, document)
    return topology if price is None and power is None else priced(topology, price, power, document)


class _Read(NamedTuple):
    """A topology, and what was said of its price and power."""

    topology: Topology
    price: PriceSpec | None
    power: PowerSpec | None


def _read_graph(document: Document) -> _Read:
    spec = validated(document, GraphSpec)
    return _Read(graph_form.assemble(spec, document), spec.price, spec.power)


def _read_template(document: Document) -> _Read:
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
    problems += _of_network(spec, nodes, document)
    if problems:
        raise InputError(sorted(problems, key=by_place))
    whole = _assembled(spec, _shared([node for node in nodes if node is not None]), tuple(notes))
    return _Read(whole, spec.price, spec.power)


def _of_network(spec: TemplateSpec, nodes: list[Node | None], document: Document) -> Iterator[Problem]:
    """What joins the nodes: ports of each, leaves under spines, racks as the template says."""
    for host in (host for host, node in enumerate(nodes) if node is not None and not node.ports):
        if spec.node.count > 1:
            where = next((("overrides", i) for i, o in enumerate(spec.overrides) if o.node == host), ("node",))
            yield document.problem(where, "no nics", f"nics, which join the {spec.node.count} nodes")
            break
    said = spec.fabric
    above = [key for key in OF_UPLINKS if getattr(said, key) != FabricSpec.model_fields[key].default]
    if said.kind == "switch" and above:
        expected = "kind: fat_tree or rail, as one switch has no uplinks"
        yield document.problem(("fabric", above[0]), f"{getattr(said, above[0]):g}", expected)
    elif said.spine_nodes is not None and said.spine_nodes % said.leaf_nodes:
        expected = f"a multiple of {said.leaf_nodes}, the nodes of a leaf"
        yield document.problem(("fabric", "spine_nodes"), str(said.spine_nodes), expected)
    elif said.spine_nodes is None and "spine_oversubscription" in said.model_fields_set:
        shown = f"{said.spine_oversubscription:g}"
        yield document.problem(("fabric", "spine_oversubscription"), shown, "spine_nodes beside it")
    for place, override in enumerate(spec.overrides):
        if override.nvlink and "hosts" in override.nvlink.model_fields_set:
            at = ("overrides", place, "nvlink", "hosts")
            yield document.key_problem(at, '"hosts"', "only in the template: racks are all alike")


def _assembled(spec: TemplateSpec, nodes: tuple[Node, ...], notes: tuple[str, ...]) -> Topology:
    said = spec.fabric
    delay = latency("network_switch") if said.latency is None else said.latency
    fabric = LeafFabric(
        said.kind,
        nodes,
        delay,
        said.oversubscription,
        said.leaf_nodes,
        said.spine_nodes or 0,
        said.spine_oversubscription,
        spec.node.nvlink.hosts,
    )
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
    wanted = own | OF_LINKS.keys() if override.gpu is not None else OverrideSpec.model_fields.keys() - own
    wrong: list[tuple[str, ...]] = [(key,) for key in sorted(override.model_fields_set - wanted - {"node", "gpu"})]
    if override.gpu is not None:
        links = [(key, getattr(override, key)) for key in OF_LINKS if getattr(override, key) is not None]
        wrong += [(key, inner) for key, said in links for inner in sorted(said.model_fields_set - OF_LINKS[key])]
    what = "of a GPU: compute, device, nvlink: {bandwidth: ...} or pcie: {lanes: 8}"
    what = what if override.gpu is not None else "of a node, such as gpus: {compute: 0.8}"
    return [document.key_problem((*at, *path), f'"{path[-1]}"', f"a figure {what}") for path in wrong]


def _overridden(template: NodeSpec, overrides: list[tuple[int, OverrideSpec]], remarks: Remarks) -> Node | None:
    spec = template
    single: dict[int, tuple[OverrideSpec, int]] = {}
    for place, override in overrides:
        _, gpu = _target(override)
        if gpu is None:
            remarks.over += (("overrides", place),)
            spec = _merged(spec, override)
        else:
            known = single.get(gpu, (override, place))[0]
            single[gpu] = known.model_copy(update={k: getattr(override, k) for k in override.model_fields_set}), place
    _check_there(spec, single, remarks)
    return draw(spec, remarks, single)


def _check_there(spec: NodeSpec, single: Mapping[int, tuple[OverrideSpec, int]], remarks: Remarks) -> None:
    """Overrides of single GPUs are of GPUs that are left when those of their node were laid over it."""
    for gpu, (_, place) in single.items():
        if gpu >= spec.gpus.count:
            expected = f"a GPU from 0 to {spec.gpus.count - 1}"
            remarks.problems.append(remarks.document.problem(("overrides", place, "gpu"), f"GPU {gpu}", expected))


def _merged(base: NodeSpec, override: OverrideSpec) -> NodeSpec:
    """The template with the sections of an override laid over it, key by key; lists are replaced."""
    sections = override.model_fields_set & NodeSpec.model_fields.keys()
    merged = base.model_copy(update={key: _laid_over(getattr(base, key), getattr(override, key)) for key in sections})
    return _with_own_links(merged, override)


def _with_own_links(spec: NodeSpec, override: OverrideSpec) -> NodeSpec:
    """GPUs of another kind have no more NVLink than that kind has."""
    device = override.gpus.device if override.gpus else None
    if not isinstance(device, str) or device not in catalog.gpus():
        return spec
    own, said = catalog.gpu_ports(device), override.nvlink
    given = said is not None and said.bandwidth is not None
    if given or not own.nvlink_bandwidth or not spec.nvlink.bandwidth:
        return spec
    least = min(own.nvlink_bandwidth, spec.nvlink.bandwidth)
    return spec.model_copy(update={"nvlink": spec.nvlink.model_copy(update={"bandwidth": least})})


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
