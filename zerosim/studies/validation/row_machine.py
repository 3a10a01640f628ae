"""The machine of a row: a machine that comes with zerosim where it is such a one, else a server of its parts.

The words of its GPU, its links and its network are read by form: "500W cap", "2.4TB/s", "4 x 100Gbps", "NV2", "RoCE".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from zerosim import catalog
from zerosim.catalog.recognise import Product, hybrid_cube_mesh, product, surroundings
from zerosim.spec.loading import read
from zerosim.spec.measured_row import Row
from zerosim.spec.topology_file import find_topology
from zerosim.studies.validation.assumptions import CannotError, Ledger

_SHIPPED: Mapping[tuple[str, int], str] = {  # GPU and how many of them: the machine that has such
    ("a100_sxm_40", 8): "dgx-a100-40", ("a100_sxm_80", 8): "dgx-a100-80", ("h100_sxm", 8): "dgx-h100",
    ("h200_sxm", 8): "dgx-h200", ("b200_sxm", 8): "dgx-b200", ("v100_sxm2_32", 16): "dgx2-v100-32",
    ("v100_sxm2_16", 8): "dgx-v100-16", ("v100_sxm2_32", 8): "dgx-v100-16", ("gb200", 4): "gb200-nvl72",
}  # fmt: skip
_KINDS = (  # words of a network, and its kind
    (r"\befa\b|aws|amazon|\bp[45]d", "efa"),
    (r"slingshot|cassini", "slingshot"),
    (r"omni-?path", "omnipath"),
    (r"tcpxo", "tcpxo"),
    (r"tcpx", "tcpx"),
    (r"roce", "roce"),
    (r"infiniband|\bib\b|rdma|[enhx]dr\b|mellanox|connectx|quantum", "infiniband"),
    (r"ether|tcp|gbe\b|vpc", "ethernet"),
)
_PORT_GBPS = (("v100", 100.0), ("a100", 200.0), ("mi250", 200.0), ("gh200", 200.0), ("h100|h200|b200|mi3", 400.0))
_DRIVER_SHARE = 0.99  # of a GPU's memory as it is sold: what the driver shows (80 GiB: 79.2)
_NEAR = 0.04
NVLINK2 = 25e9  # bytes/s each way of a link since generation 2
MOST_GPUS, MOST_NODES = 16, 4096  # of a server, and servers


class Machine(NamedTuple):
    """A topology as a scenario describes it, of whole servers, `gpus` of them used; `device` in the catalogue."""

    described: Mapping[str, Any]
    nodes: int
    gpus: int
    per_node: int
    device: str


class _Server(NamedTuple):
    """A server, before its ports are known."""

    node: Mapping[str, Any]
    fabric: Mapping[str, Any]


def machine_of(row: Row, ledger: Ledger) -> Machine:
    """The machine, or CannotError."""
    if row.gpus is None:
        raise CannotError("the number of its GPUs is not told")
    known = _product(row, ledger)
    device = known.gpu
    used = min(row.gpus_per_node or int(ledger.ask("gpus_per_node", device=device)), row.gpus)
    nodes = math.ceil(row.gpus / used)
    if used > MOST_GPUS or nodes > MOST_NODES:
        raise CannotError(f"{row.gpus} GPUs, {used} in a server")
    server = _server(row, device, used, ledger)
    node = dict(server.node) | {"count": nodes, "gpus": _gpus(row, known, int(server.node["gpus"]["count"]), ledger)}
    if nodes > 1:
        node = _with_ports(node, _ports(row, device, ledger))
    described = {"name": row.gpu or device, "node": node, "fabric": dict(server.fabric)}
    return Machine(described, nodes, row.gpus, used, device)


@cache
def _shipped(name: str) -> _Server:
    data = read(find_topology(name)).data
    return _Server(data["node"], data.get("fabric", {}))


# --- GPUs ---


def _product(row: Row, ledger: Ledger) -> Product:
    plain = re.sub(r"^\s*\d+ ?x ?|[_/]", " ", row.gpu)  # "8x A100"
    found = product(plain)
    if found is None:
        raise CannotError(f"no GPU like {row.gpu or 'this'} in the catalogue")
    if not found.vague:
        return found
    memory = row.gpu_memory_gb or _memory_in(plain)
    chosen = min((found.gpu, found.vague), key=lambda name: abs(_gib(name) - (memory or _gib(found.gpu))))
    if re.search(r"pcie", plain, re.IGNORECASE):
        chosen = chosen.replace("sxm2", "pcie").replace("sxm", "pcie")
    if memory is None:
        ledger.note(f"GPU {catalog.gpu(chosen).name}, as {row.gpu} says no more")
    return Product(chosen if chosen in catalog.gpus() else found.gpu)


def _gib(device: str) -> float:
    return catalog.gpu(device).memory_bytes / 2**30


def _memory_in(text: str) -> float | None:
    hit = re.search(r"(\d+) ?Gi?B?\b(?!/s|ps)", text, re.IGNORECASE)
    return float(hit[1]) if hit else None


def _gpus(row: Row, known: Product, count: int, ledger: Ledger) -> Mapping[str, Any]:
    """The figures that the words of the GPU change: memory, its bandwidth, its power."""
    changed: dict[str, Any] = dict(known.figures)
    if known.name:
        changed["name"] = known.name
        ledger.note(f"{known.name} as {catalog.gpu(known.gpu).name} with other figures")
    memory = row.gpu_memory_gb or _memory_in(row.gpu)
    sold = known.figures.get("memory")
    gib = float(sold.split()[0]) if isinstance(sold, str) else _gib(known.gpu)
    if memory is not None and abs(memory * _DRIVER_SHARE / gib - 1) > _NEAR:
        changed["memory"] = f"{memory * _DRIVER_SHARE:g} GiB"
    if known.gpu == "mi250x_gcd" and (memory or 0) > 100:  # the package of two
        ledger.note("a MI250 as one GPU, not as the two that programs see")
        changed |= {"flops": "383 TFLOP/s", "hbm": "3276 GB/s", "sms": 220}
    if watts := re.search(r"(\d{2,4}) ?W\b", row.gpu):
        changed["power"] = f"{watts[1]} W"
    if rate := re.search(r"(\d+(?:\.\d+)?) ?TB/s", row.gpu):
        changed["hbm"] = f"{rate[1]} TB/s"
    return {"device": known.gpu, **changed, "count": count}


# --- a server ---


def _server(row: Row, device: str, used: int, ledger: Ledger) -> _Server:
    """One that comes with zerosim, or of parts; one with more GPUs than are used if it is a single one."""
    names = [name for (gpu, count), name in _SHIPPED.items() if gpu == device and _fits(row, count, used)]
    meshed = row.says(r"mesh|nv1|dgx-?1\b", "intra_node_link", "host", "gpu")
    wanted = [name for name in names if ("v100" not in name) or (("dgx-v100" in name) == meshed or len(names) == 1)]
    joined = not re.search(r"^(none|no)\b|\bpcie\b", row.intra_node_link, re.IGNORECASE)
    if wanted and (joined or used == 1):
        return _with_memory(_shipped(wanted[0]), row)
    return _with_memory(_Server(_parts(row, device, used, ledger), {"kind": "switch", "latency": "2 us"}), row)


def _fits(row: Row, count: int, used: int) -> bool:
    """Whether a server of `count` GPUs may be meant: all of it, or some of one alone."""
    return count == used or (count > used and row.gpus == used)


def _with_memory(server: _Server, row: Row) -> _Server:
    """The server with the memory that the row's host is said to have."""
    hit = re.search(r"(\d+(?:\.\d+)?) ?(TB|GB)\s*(?:of )?(?:DRAM|DDR|RAM|mem|host|CPU)", row.host, re.IGNORECASE)
    sockets = server.node.get("sockets")
    if not hit or not sockets:
        return server
    size = float(hit[1]) * (1e12 if hit[2].upper() == "TB" else 1e9) / len(sockets)
    new = [{**each, "dram": {**each["dram"], "capacity": f"{size:g} B"}} for each in sockets]
    return server._replace(node={**server.node, "sockets": new})


def _parts(row: Row, device: str, count: int, ledger: Ledger) -> Mapping[str, Any]:
    """What usually stands around such GPUs."""
    around, ports = surroundings(device), catalog.gpu_ports(device)
    single = bool(around.desktop) and count <= 2
    cpu = around.desktop if single else around.cpu
    sockets = 1 if single or count == 1 else 2
    ledger.note(f"a server of {count} with {cpu}")
    node: dict[str, Any] = {
        "gpus": {"count": count},
        "nvlink": _nvlink(row, device, count),
        "sockets": [{"device": cpu, "dram": {"capacity": around.dram_bytes}} for _ in range(sockets)],
        "nvme": [{"count": 1, "device": "nvme_gen4", "capacity": "2 TB"}],
    }
    if ports.c2c_bandwidth:
        node["c2c"] = {"bandwidth": ports.c2c_bandwidth}
    elif ports.pcie_generation:
        node["pcie"] = {"generation": ports.pcie_generation, "lanes": 16}
    return node


def _nvlink(row: Row, device: str, count: int) -> Mapping[str, Any]:
    """Of what the words say: none, a bridge of two, a cube mesh, else a switch, or each with each."""
    ports, words = catalog.gpu_ports(device), row.intra_node_link
    said = re.search(r"nv-?link|nv ?switch|xgmi|infinity|nv\d+|mesh|bridge", words, re.IGNORECASE)
    denied = re.search(r"^(none|no)\b", words, re.IGNORECASE) or (re.search("pcie", words, re.I) and not said)
    rate = _links(words) or ports.nvlink_bandwidth
    usual = ports.nvlink_bandwidth > 0 and not ports.nvlink_bridge
    if count == 1 or denied or not rate or not (said or usual):
        return {"kind": "none"}
    if ports.nvlink_bridge or not ports.nvlink_bandwidth or "bridge" in words.lower():
        return {"kind": "pairs", "bandwidth": rate, "pairs": [[a, a + 1] for a in range(0, count - 1, 2)]}
    if catalog.gpu(device).architecture == "volta":
        pairs = [list(each) for each in hybrid_cube_mesh() if max(each[:2]) < count]
        return {"kind": "pairs", "bandwidth": rate, "pairs": pairs} if count <= 8 else {
            "kind": "switch", "bandwidth": rate}  # fmt: skip
    kind = "mesh" if catalog.gpu(device).architecture == "cdna" else "switch"
    return {"kind": kind, "bandwidth": rate}


def _links(words: str) -> float:
    """Bytes/s of "NV2" as nvidia-smi writes it: so many links; 0 where it is not said, or differs from pair to pair."""
    hits = {int(hit) for hit in re.findall(r"\bNV(\d+)\b", words)}
    return hits.pop() * NVLINK2 if len(hits) == 1 else 0.0


# --- the network ---


class _Ports(NamedTuple):
    number: int
    gbps: float
    kind: str


def _ports(row: Row, device: str, ledger: Ledger) -> _Ports:
    """So many ports of a rate: "4 x 100Gbps", else as many of the usual rate as make the whole."""
    words = f"{row.network} {row.raw.get('inter_node_gbps_per_node', '')}"
    kind = next((name for pattern, name in _KINDS if re.search(pattern, words, re.IGNORECASE)), "")
    total = row.network_gbps or _gbps(row.network)
    if total is None:
        total = float(ledger.ask("network_gbps", device=device))
    if not kind:
        kind = "slingshot" if "mi250" in device or "gh200" in device else "ethernet" if total < 100 else "infiniband"
        ledger.note(f"network of kind {kind}")
    if several := re.search(r"(\d+) ?x ?(\d+) ?G", row.network):
        count = int(several[1])
        if abs(count * float(several[2]) / total - 1) < _NEAR:
            return _Ports(count, total / count, kind)
    usual = next((rate for gpu, rate in _PORT_GBPS if re.search(gpu, device)), 100.0)
    count = max(1, min(8, round(total / (100.0 if kind == "efa" else usual))))
    return _Ports(count, total / count, kind)


def _gbps(words: str) -> float | None:
    """A rate in words: "800 Gbps", "100Gb/s", "200 GbE"; that of one port times their number."""
    hit = re.search(r"(?:(\d+) ?x ?)?(\d+(?:\.\d+)?) ?([GT])b(?:/s|ps|it|E)?", words)
    if not hit:
        return None
    return float(hit[1] or 1) * float(hit[2]) * (1000 if hit[3] == "T" else 1)


def _with_ports(node: Mapping[str, Any], ports: _Ports) -> dict[str, Any]:
    """The server with these ports, spread evenly over its PCIe switches."""
    count = ports.number
    new = {**node, "nics": {"count": count, "bandwidth": f"{ports.gbps:g} Gbps", "kind": ports.kind}}
    pcie = node.get("pcie") or {}
    if not pcie.get("switches"):
        return new
    homes = len(list(_leaves(pcie["switches"])))
    numbers = iter([[port for port in range(count) if port * homes // count == home] for home in range(homes)])
    return new | {"pcie": {**pcie, "switches": [_renumbered(switch, numbers) for switch in pcie["switches"]]}}


def _leaves(switches: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for switch in switches:
        if switch.get("switches"):
            yield from _leaves(switch["switches"])
        else:
            yield switch


def _renumbered(switch: Mapping[str, Any], numbers: Iterator[list[int]]) -> Mapping[str, Any]:
    inner = switch.get("switches")
    if inner:
        return {**switch, "switches": [_renumbered(each, numbers) for each in inner]}
    return {**switch, "nics": next(numbers)}
