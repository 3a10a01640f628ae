"""The picture of a machine: words apart and in their places, all there is on it, nothing told by colour alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import pictures
from tests.counting import calls
from zerosim.report.machine import Machine
from zerosim.report.machine_heat import Place
from zerosim.report.machine_marks import letter, span, thickness
from zerosim.report.machine_svg import BADGE_INKS, render
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import named_topology, topology_names
from zerosim.studies.drawing import drawing

PLACES = ("sm", "hbm", "nvlink", "pcie", "uplink", "uplink2", "sockets", "dram", "cpu", "nic", "nvme", "leaf", "spine")
MADE: dict[str, Callable[[], Topology]] = {
    "unequal": pictures.unequal,
    "cube": pictures.cube,
    "rack": pictures.rack,
    "crowded": pictures.crowded,
    "wordy": pictures.wordy,
    "by hand": pictures.drawn_by_hand,
}


def heated(machine: Machine, share: float = 0.987) -> Machine:
    """The machine after a run that left nothing idle."""
    places = product(PLACES, range(len(machine.classes)))
    return machine._replace(busy={Place(what, mark): share for what, mark in places})


def picture(topology: Topology, hot: bool = False) -> ET.Element:
    machine = drawing(topology)
    return ET.fromstring(render(heated(machine) if hot else machine))


def made(name: str) -> Topology:
    return MADE[name]() if name in MADE else named_topology(name)


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("name", [*MADE, *topology_names()])
def test_no_word_or_box_is_on_another_or_out_of_its_place(name: str, hot: bool) -> None:
    drawn = picture(made(name), hot)
    assert pictures.overlaps(drawn) == []
    assert pictures.collisions(drawn) == []
    assert pictures.outside(drawn) == []


@pytest.mark.parametrize("name", [*MADE, *topology_names()])
def test_every_device_of_every_kind_of_server_is_there(name: str) -> None:
    topology = made(name)
    boxes = [tip.partition("\n")[0].split(", ") for tip in pictures.tooltips(picture(topology))]
    named = {each for names in boxes for each in names}
    for node in topology.nodes:
        own = {device.name for device in node.devices if device.kind != "nvswitch"}
        assert own <= named
    assert {switch.name for switch in topology.fabric.switches()} <= named


@pytest.mark.parametrize("name", MADE)
def test_the_same_machine_gives_the_same_bytes(name: str) -> None:
    assert render(drawing(made(name))) == render(drawing(made(name)))


def test_names_are_no_markup() -> None:
    drawn = picture(pictures.wordy())
    assert (drawn.findtext(f"{pictures.SVG}title") or "").startswith("<script>alert('&')</script>")
    assert not list(drawn.iter(f"{pictures.SVG}script"))
    assert not list(drawn.iter(f"{pictures.SVG}b"))


def test_a_name_that_is_cut_is_whole_in_its_tooltip() -> None:
    drawn = picture(pictures.wordy())
    box = next(tip for tip in pictures.tooltips(drawn) if tip.startswith("gpu0\n"))
    assert "as long as a sentence <b>" in box
    assert any(word.text.endswith("…") for word in pictures.words(drawn))


def test_who_cannot_see_it_is_told_what_there_is() -> None:
    drawn = picture(pictures.unequal())
    assert drawn.get("role") == "img"
    ids = {each.get("id"): each.text or "" for each in drawn if each.get("id")}
    title, description = (ids[name] for name in drawn.attrib["aria-labelledby"].split())
    assert title == "unequal"
    assert "13 × node (hosts 1–2, 4–8, 10–15) with socket0 EPYC 7742 64 cores" in description
    assert "oversubscription 2" in description


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = render(drawing(pictures.unequal()))
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not any(word in text for word in ("<script", "@import", "@font-face", "url("))
    assert "prefers-color-scheme:dark" in text


@given(st.floats(1e8, 1e15), st.floats(1.01, 1e3))
def test_a_faster_link_is_thicker(rate: float, factor: float) -> None:
    assert thickness(rate) <= thickness(rate * factor)
    if rate * factor <= 1e15:
        assert thickness(rate) < thickness(rate * factor)


def test_the_lines_of_a_picture_are_as_thick_as_their_rates() -> None:
    found = pictures.thicknesses(picture(pictures.cube()))
    assert found["gpu0 – gpu1: NV1, 25 GB/s each way"] == pytest.approx(thickness(25e9), abs=0.01)
    assert found["gpu0 – gpu3: NV2, 50 GB/s each way"] == pytest.approx(thickness(50e9), abs=0.01)
    assert len([tip for tip in found if ": NV" in tip]) == 16


def test_every_link_of_a_cube_mesh_is_labelled_with_how_many_it_is() -> None:
    said = [word.text for word in pictures.words(picture(pictures.cube()))]
    assert (said.count("NV1"), said.count("NV2")) == (8, 8)
    assert "NVLink pairs, each way: NV1 25 GB/s, NV2 50 GB/s" in said


def test_equal_wires_beside_each_other_are_labelled_once() -> None:
    said = [word.text for word in pictures.words(picture(pictures.eights()))]
    assert said.count("300 GB/s") == 1
    assert said.count("PCIe 4") == 4  # of the switches and of the GPUs of two sockets
    assert said.count("204.8 GB/s") == 2


def test_classes_have_letters_and_a_line_each() -> None:
    drawn = picture(pictures.unequal())
    said = [word.text for word in pictures.words(drawn)]
    assert [said.count(mark) for mark in "ABCDEF"] == [8, 2, 9, 9, 5, 0]  # GPUs and the legend
    assert (
        "1 rank (5): A100-SXM4-80GB: 312 TFLOP/s dense fp16, 85.04 GB at 2.039 TB/s, at 80 % of its compute rate"
        in said
    )
    assert "80 % compute" in said
    assert sum(line.endswith(" TB/s, set apart by links or neighbours") for line in said) == 4
    inks = [pictures.rules(drawn)[f"class{mark}"] for mark in range(5)]
    assert len(set(inks)) == 5


def test_letters_go_on_where_the_alphabet_ends() -> None:
    names = [letter(mark) for mark in range(800)]
    assert names[:3] + names[25:28] + names[701:703] == ["A", "B", "C", "Z", "AA", "AB", "ZZ", "AAA"]
    assert len(set(names)) == 800
    assert len({ink for ink, _ in BADGE_INKS}) == len(BADGE_INKS)


def test_kinds_of_link_differ_without_colour() -> None:
    style = pictures.rules(picture(pictures.rack()))
    dashed = [
        style[f"{kind}-line"].partition("stroke-dasharray")[2] for kind in ("c2c", "socket", "dram", "nvme", "network")
    ]
    assert len({*dashed, ""}) == 6


def test_a_hot_machine_says_how_hot_in_figures() -> None:
    said = [word.text for word in pictures.words(picture(pictures.eights(2), hot=True))]
    assert "99 %" in said
    assert "SM 99 %" in said
    assert "99 % busy" in said


def test_uplinks_are_as_hot_as_the_servers_behind_them_see_them() -> None:
    machine = drawing(pictures.rack())
    busy = {Place("leaf", 0): 0.3, Place("spine", 0): 0.9}
    lines = pictures.colours(ET.fromstring(render(machine._replace(busy=busy))))
    # 9 nodes x 400 Gb/s up from a leaf, those of 8 leaves up from a spine
    assert lines["network, 3.6 Tb/s from each"] == "network-line heat1"
    assert lines["network, 28.8 Tb/s from each"] == "network-line heat3"
    assert lines["network, 4 × 400 Gb/s from each"] == "network-line idle"


def test_the_slot_of_a_busy_port_is_no_longer_cold() -> None:
    """Ports of 25 GB/s that are busy all the time, in slots of 31.5 GB/s; GPUs that are idle."""
    machine = drawing(pictures.eights(2))
    lines = pictures.colours(ET.fromstring(render(machine._replace(busy={Place("nic", 0): 1.0}))))
    slots = {about: warm for about, warm in lines.items() if about.endswith("; carries what its NIC does")}
    assert slots
    assert set(slots.values()) == {"pcie-line heat2"}
    assert all("nic" in about for about in slots)
    assert "carries what its NIC does" not in render(machine)


def test_before_a_run_nothing_is_hot() -> None:
    text = render(drawing(pictures.eights(2)))
    body = text.partition("</style>")[2]
    assert "heat" not in body
    assert "idle" not in body


def test_pictures_of_many_equal_servers_cost_no_more() -> None:
    few, many = (drawing(pictures.eights(count)) for count in (128, 2048))
    assert calls(lambda: render(many)) < 1.02 * calls(lambda: render(few))
    assert len(render(many)) < 1.02 * len(render(few))
    assert len(many.servers) == 1


def test_looking_at_a_server_more_is_cheap() -> None:
    """Of 2,048 servers of eight GPUs and eight ports each, one is looked at; the rest are counted."""
    assert calls(lambda: drawing(pictures.eights(2048))) < 2048 * 200


def test_a_run_of_names_is_told_by_its_ends() -> None:
    assert span(("gpu0", "gpu1", "gpu7")) == "gpu0–7"
    assert span(("mem",)) == "mem"
    assert span(("left", "right")) == "left … right"


@st.composite
def nodes(draw: st.DrawFn) -> Topology:
    """Servers as people describe them: any number of GPUs, ports, drives and sockets, on switches or not."""
    gpus, sockets = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    ports, count = draw(st.integers(1, 10)), draw(st.integers(1, 5))
    switches = [
        {"gpus": [gpu], "nics": [gpu] if gpu < ports else [], "socket": gpu % sockets}
        for gpu in draw(st.sets(st.integers(0, gpus - 1)))
    ]
    kinds = ["none", "switch", "pairs"] + (["mesh"] if gpus > 1 else [])
    node = {
        "count": count,
        "gpus": {"device": draw(st.sampled_from(["a100_sxm_80", "h100_sxm"])), "count": gpus},
        "nvlink": {"kind": draw(st.sampled_from(kinds))},
        "pcie": {"generation": 5, "switches": switches},
        "sockets": [{"device": "xeon_8480c", "dram": {"capacity": "1 TB"}}] * sockets,
        "nvme": [{"socket": 0, "count": draw(st.integers(1, 9)), "device": "nvme_gen4", "capacity": "512.5 GB"}],
        "nics": {"count": ports, "bandwidth": draw(st.sampled_from(["25 Gbps", "400 Gbps"])), "kind": "infiniband"},
    }
    slow = st.fixed_dictionaries({"gpu": st.builds("{}.{}".format, st.integers(0, count - 1), st.integers(0, gpus - 1)),
                                  "compute": st.sampled_from([0.8, 0.333])})  # fmt: skip
    overrides = draw(st.lists(slow, max_size=3, unique_by=lambda each: each["gpu"]))
    kind, leaf_nodes = draw(st.sampled_from(["switch", "rail", "fat_tree"])), draw(st.integers(1, 3))
    fabric = {"kind": kind} | ({} if kind == "switch" else {"leaf_nodes": leaf_nodes})
    return pictures.described("any", node, fabric=fabric, overrides=overrides)


@settings(max_examples=60, deadline=None)
@given(nodes(), st.booleans())
def test_any_machine_is_drawn_with_its_words_apart(topology: Topology, hot: bool) -> None:
    drawn = picture(topology, hot)
    assert pictures.overlaps(drawn) == []
    assert pictures.collisions(drawn) == []
    assert pictures.outside(drawn) == []
    boxes = {name for tip in pictures.tooltips(drawn) for name in tip.partition("\n")[0].split(", ")}
    assert {f"gpu{number}" for number in range(len(topology.nodes[0].gpus))} <= boxes
