"""Machines to draw, and what stands on a drawn picture: words with their boxes, frames, lines."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from zerosim.report.machine_marks import wide
from zerosim.report.marks import FONT
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology

SVG = "{http://www.w3.org/2000/svg}"
TITLE = 16.0  # pixels of the letters of the title


class Area(NamedTuple):
    """A rectangle, and what stands in it."""

    left: float
    top: float
    right: float
    bottom: float
    text: str = ""

    def within(self, other: Area, slack: float = 0.01) -> bool:
        return (
            self.left >= other.left - slack
            and self.top >= other.top - slack
            and self.right <= other.right + slack
            and self.bottom <= other.bottom + slack
        )

    def meets(self, other: Area, slack: float = 0.01) -> bool:
        return (
            self.left < other.right - slack
            and other.left < self.right - slack
            and self.top < other.bottom - slack
            and other.top < self.bottom - slack
        )


def words(picture: ET.Element) -> list[Area]:
    """All words with the room they take: letters from their ascent to their baseline."""
    return [_area(each) for each in picture.iter(f"{SVG}text")]


def _area(each: ET.Element) -> Area:
    classes = each.get("class", "").split()
    size = TITLE if "title" in classes else FONT
    width = wide(each.text or "") * size / FONT
    x, y = float(each.attrib["x"]), float(each.attrib["y"])
    left = x - width / 2 if {"middle", "on-dark", "on-light"} & set(classes) else x
    return Area(left, y - 0.75 * size, left + width, y + 0.1 * size, each.text or "")


def framed(picture: ET.Element) -> Iterator[tuple[Area, list[Area]]]:
    """Each box with the words in it."""
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        yield Area(x, y, x + width, y + height), [_area(each) for each in group.iter(f"{SVG}text")]


def tooltips(picture: ET.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}title")]


def overlaps(picture: ET.Element) -> list[tuple[str, str]]:
    """Words that stand on one another."""
    areas = sorted(words(picture), key=lambda area: area.top)
    found = []
    for number, one in enumerate(areas):
        for other in areas[number + 1 :]:
            if other.top >= one.bottom:
                break
            if one.meets(other):
                found.append((one.text, other.text))
    return found


def collisions(picture: ET.Element) -> list[tuple[str, str]]:
    """Boxes that overlap, the frames of servers aside."""
    boxes = []
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None and rect.get("class") != "server":
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes.append(Area(x, y, x + width, y + height, group.findtext(f"{SVG}title") or ""))
    return [(one.text, other.text) for one, other in combinations(boxes, 2) if one.meets(other)]


def outside(picture: ET.Element) -> list[str]:
    """Words that leave the picture, or the box that they belong to."""
    left, top, width, height = map(float, picture.attrib["viewBox"].split())
    whole = Area(left, top, left + width, top + height)
    lost = [area.text for area in words(picture) if not area.within(whole)]
    return lost + [area.text for box, inside in framed(picture) for area in inside if not area.within(box)]


def thicknesses(picture: ET.Element) -> dict[str, float]:
    """Pixels of each line by its tooltip."""
    lines = (each for each in picture.iter(f"{SVG}path") if each.find(f"{SVG}title") is not None)
    return {each.findtext(f"{SVG}title") or "": float(each.attrib["stroke-width"]) for each in lines}


def colours(picture: ET.Element) -> dict[str, str]:
    """The classes of each line by its tooltip."""
    lines = (each for each in picture.iter(f"{SVG}path") if each.find(f"{SVG}title") is not None)
    return {each.findtext(f"{SVG}title") or "": each.attrib["class"] for each in lines}


def rules(picture: ET.Element) -> dict[str, str]:
    """The style of each class, in light colours."""
    light = (picture.findtext(f"{SVG}style") or "").partition("@media")[0]
    return dict(re.findall(r"\.zerosim-machine \.([\w-]+)\{([^}]*)\}", light))


# --- machines ---

SWITCHES = [
    {"gpus": [2 * pair, 2 * pair + 1], "nics": [2 * pair, 2 * pair + 1], "socket": pair // 2} for pair in range(4)
]
SOCKETS = [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2
CUBE = [
    *([a, b, 1] for a, b in ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))),
    *([a, b, 2] for a, b in ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))),
]


def described(name: str, node: dict[str, Any], **more: Any) -> Topology:
    return read_topology(inline({"name": name, "node": node, **more}, name))


def eights(count: int = 1, **more: Any) -> Topology:
    """Servers of eight A100 with eight ports, on rails."""
    node = {
        "count": count,
        "gpus": {"device": "a100_sxm_80", "count": 8},
        "nvlink": {"kind": "switch"},
        "pcie": {"generation": 4, "switches": SWITCHES},
        "sockets": SOCKETS,
        "nvme": [{"count": 4, "device": "nvme_gen4_enterprise", "capacity": "3.84 TB"}],
        "nics": {"count": 8, "bandwidth": "200 Gbps", "kind": "infiniband"},
    }
    fabric = {"kind": "rail", "leaf_nodes": 8, "oversubscription": 2}
    return described(more.pop("name", "eights"), node, fabric=fabric, **more)


def unequal() -> Topology:
    """A slow port, a throttled GPU and a server with fewer GPUs among sixteen."""
    overrides = [
        {"node": 3, "nics": {"bandwidth": "25 Gbps"}},
        {"gpu": "0.5", "compute": 0.8},
        {"node": 9, "gpus": {"count": 4}},
    ]
    return eights(16, name="unequal", overrides=overrides)


def cube() -> Topology:
    """A hybrid cube mesh of eight V100."""
    node = {
        "gpus": {"device": "v100_sxm2_16", "count": 8},
        "nvlink": {"kind": "pairs", "pairs": CUBE},
        "pcie": {"generation": 3},
        "sockets": [{"device": "xeon_e5_2698_v4", "dram": {"capacity": "256 GB"}}] * 2,
    }
    return described("cube", node)


def rack() -> Topology:
    """Two racks of 72 GPUs that NVLink joins, under leaves, spines and a core."""
    node = {
        "count": 36,
        "gpus": {"device": "gb200", "count": 4},
        "nvlink": {"kind": "switch", "hosts": 18},
        "c2c": {"bandwidth": "450 GB/s"},
        "sockets": [{"device": "grace", "dram": {"capacity": "480 GB"}, "interconnect": "600 GB/s"}] * 2,
        "nics": {"count": 4, "bandwidth": "400 Gbps", "kind": "infiniband"},
    }
    return described("rack", node, fabric={"kind": "rail", "leaf_nodes": 9, "spine_nodes": 18})


def crowded(gpus: int = 72) -> Topology:
    """More GPUs in one server than can be drawn one by one, and an odd one among them."""
    node = {"gpus": {"device": "h100_sxm", "count": gpus}, "nvlink": {"kind": "switch"}, "sockets": SOCKETS}
    return described("crowded", node, overrides=[{"gpu": "0.5", "compute": 0.8}])


def wordy() -> Topology:
    """Four sockets, a full mesh, names that no box has room for, and a title that is no markup."""
    gpu = {"name": "An accelerator with a name as long as a sentence <b>", "flops": "100 TFLOPS", "memory": "64 GB"}
    node = {
        "gpus": {"device": {**gpu, "hbm": "1 TB/s"}, "count": 8},
        "nvlink": {"kind": "mesh", "bandwidth": "400 GB/s"},
        "pcie": {"generation": 4},
        "sockets": [{"device": "xeon_8168", "dram": {"capacity": "384 GB"}}] * 4,
    }
    return described("<script>alert('&')</script> " * 8, node)


def drawn_by_hand() -> Topology:
    """The graph form: two unlike servers, two leaves, a spine, and a cable from port to port."""
    devices = [
        {"name": "g0", "kind": "gpu", "node": 0, "device": "a100_sxm_80"},
        {"name": "g1", "kind": "gpu", "node": 0, "device": "a100_sxm_80"},
        {"name": "n0", "kind": "nic", "node": 0, "network": "ethernet"},
        {"name": "cpu", "kind": "socket", "node": 0, "cores": 64},
        {"name": "mem", "kind": "dram", "node": 0, "capacity": "512 GB"},
        {"name": "sw", "kind": "pcie_switch", "node": 0},
        {"name": "d0", "kind": "nvme", "node": 0, "capacity": "2 TB", "read": "6 GB/s", "write": "3 GB/s"},
        {"name": "h0", "kind": "gpu", "node": 1, "device": "v100_sxm2_16"},
        {"name": "m0", "kind": "nic", "node": 1, "network": "ethernet"},
        {"name": "l0", "kind": "leaf"},
        {"name": "l1", "kind": "leaf"},
        {"name": "s0", "kind": "spine"},
    ]
    ends = [
        ("g0", "sw", "31.5 GB/s"), ("g1", "sw", "31.5 GB/s"), ("g0", "g1", "300 GB/s"), ("n0", "sw", "31.5 GB/s"),
        ("d0", "sw", "7 GB/s"), ("sw", "cpu", "31.5 GB/s"), ("mem", "cpu", "200 GB/s"), ("h0", "m0", "16 GB/s"),
        ("n0", "l0", "100 Gbps"), ("m0", "l1", "25 Gbps"), ("l0", "s0", "400 Gbps"), ("l1", "s0", "100 Gbps"),
        ("n0", "m0", "10 Gbps"),
    ]  # fmt: skip
    links = [{"from": a, "to": b, "bandwidth": rate} for a, b, rate in ends]
    return read_topology(inline({"name": "by hand", "devices": devices, "links": links}, "by hand"))
