"""Bars, memory and rates as figures: what is drawn is what views and studies count."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tests.pictures import drawn_by_hand
from tests.plots import bars, entries, hatches, ys
from tests.plots import words as written
from tests.timelines import MB, host_optimizer, many, offloaded, tiny
from zerosim import InputError, plot
from zerosim.measured import Measured
from zerosim.plot.holding import COLUMNS
from zerosim.report.palette import HELD, SPENT, UNPARTED
from zerosim.resources import RankClass, Supply
from zerosim.spec.topology_file import named_topology
from zerosim.step import Step
from zerosim.studies.bandwidths import bandwidths
from zerosim.studies.collectives_check import sweeps
from zerosim.timeline import Timeline
from zerosim.views import breakdown, memory
from zerosim.views.memory_by_category import by_category
from zerosim.views.recorded import Facts

GB = 1e9


def names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


# --- where the time goes ---------------------------------------------------------------------------------------------


def test_the_parts_of_a_bar_are_the_breakdown() -> None:
    """Of tiny 20 s compute, 5 exposed collectives, 1 copy, 1 nothing; the CPU's optimizer takes 2 of 5 s."""
    ax = plot.breakdown([tiny(), host_optimizer()], ["tiny", "CPU"]).axes[0]
    assert names(ax) == ["tiny", "CPU"]
    assert bars(ax, "compute") == pytest.approx([20, 3])
    assert bars(ax, "exposed communication") == pytest.approx([5, 0])
    assert bars(ax, "exposed transfer") == pytest.approx([1, 0])
    assert bars(ax, "host compute") == pytest.approx([0, 2])
    assert bars(ax, "idle") == pytest.approx([1, 0])
    assert {"20 s", "27 s", "5 s", "3 s"} <= set(written(ax))


def test_shares_sum_to_the_step() -> None:
    ax = plot.breakdown([tiny(), offloaded()], ["a", "b"], share=True).axes[0]
    lengths = [bars(ax, str(each.get_label())) for each in ax.containers]
    assert np.sum(lengths, axis=0) == pytest.approx([1, 1])
    assert max(ax.get_xticks()) == 1.0


def test_parts_are_told_apart_without_colour() -> None:
    found = hatches(plot.breakdown([tiny(), host_optimizer()], ["a", "b"]))
    assert list(found) == [SPENT[name].word for name in asdict(breakdown(tiny()))]
    assert len(set(found.values())) == len(found)
    assert len({ink.hatch for ink in HELD.values()}) == len(HELD)


def test_bars_without_labels_are_numbered() -> None:
    assert names(plot.breakdown([tiny(), tiny()]).axes[0]) == ["step 1", "step 2"]
    with pytest.raises(InputError, match="labels: found 1 labels; expected 2, one a timeline"):
        plot.breakdown([tiny(), tiny()], ["a"])
    with pytest.raises(InputError, match="played: found none; expected one step or more"):
        plot.breakdown([])


# --- memory ----------------------------------------------------------------------------------------------------------


def test_the_parts_at_the_peak() -> None:
    """550 MB of 500: 40 of parameters, 120 of Adam, 50 of overhead, two layers gathered and their activations, and the
    gradients of one or two."""
    figure = plot.memory_parts([tiny(500 * MB)], ["tiny"])
    ax, tier = figure.axes[0], memory(tiny(500 * MB))["gpu"]
    for category, ink in HELD.items():
        assert bars(ax, ink.word) == [tier.parts[category]]
    assert bars(ax, "parameters") == [40 * MB]
    assert bars(ax, "optimizer") == [120 * MB]
    assert written(ax)[-1] == "550 MB, does not fit"
    assert np.asarray(ax.lines[0].get_xdata()).tolist() == [500 * MB] * 2
    assert entries(figure)[-1] == "capacity"


def areas(ax: Axes) -> dict[str, float]:
    """What lies under each category, byte seconds: the surface of its polygon (shoelace)."""
    found = {}
    for each in ax.collections:
        assert isinstance(each, PolyCollection)
        x, y = np.asarray(each.get_paths()[0].vertices).T
        found[str(each.get_label())] = float(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)
    return found


def test_the_areas_of_memory_are_byte_seconds() -> None:
    figure = plot.memory(tiny())
    found, held = areas(figure.axes[0]), by_category(tiny())
    assert found["parameters"] == pytest.approx(27 * 40 * MB)  # which are there all the time
    assert found["optimizer"] == pytest.approx(27 * 120 * MB)
    assert found["overhead"] == pytest.approx(27 * 50 * MB)
    lasting = np.diff(np.append(held.seconds, 27.0))
    for category, ink in HELD.items():
        assert found[ink.word] == pytest.approx(float(lasting @ held.bytes[category]))


def test_the_peak_and_the_capacity_are_marked() -> None:
    ax = plot.memory(tiny(600 * MB)).axes[0]
    assert ys(ax, "peak") == [550 * MB]
    assert ys(ax, "capacity") == [600 * MB] * 2
    far = plot.memory(tiny(5000 * MB))
    assert "capacity 5 GB, above the picture" in entries(far)
    assert far.axes[0].get_ylim()[1] < 1000 * MB
    assert "50 MB too much" in entries(plot.memory(tiny(500 * MB)))


def test_memory_as_one_line_and_in_part() -> None:
    ax = plot.memory(tiny(), by="total", start=1.0, end=20.0).axes[0]
    assert max(ys(ax, "held")) == 550 * MB
    assert ax.get_xlim() == (1, 20)
    assert not ax.collections


def test_many_moves_are_few_points_and_the_peak_stays() -> None:
    timeline = many(16_000)
    ax = plot.memory(timeline, by="total").axes[0]
    assert len(by_category(timeline).seconds) > 5 * COLUMNS
    assert len(ys(ax, "held")) <= 2 * COLUMNS + 4
    assert max(ys(ax, "held")) == memory(timeline)["gpu"].peak


def test_other_tiers() -> None:
    figure = plot.memory(tiny(), tier="dram")
    assert ys(figure.axes[0], "peak") == [40 * MB]
    assert figure.axes[0].get_ylabel() == "held by DRAM of a node, MB"
    with pytest.raises(
        InputError, match='tier: found "drem"; expected one of the tiers in use: gpu, dram; nearest dram'
    ):
        plot.memory(tiny(), tier="drem")


def test_a_measured_step_holds_nothing_that_is_known() -> None:
    step = Step((), (), frozenset(), {}, 1)
    empty = Timeline((step,), (RankClass("all", (0,)),), {"all": []}, {"all": []}, Supply({}, {}, {}, {}, {}))
    with pytest.raises(InputError, match=r"none, as a trace without .memory. events does not tell what was held"):
        plot.memory(empty)
    assert written(plot.breakdown([empty], ["none"]).axes[0]) == ["0 s"]


def test_a_recorded_step_shows_the_sum_that_is_known() -> None:
    """3 GB when it begins, 5 from 4 s on; beside steps of which more is known, or nothing."""
    known = Measured.of(tiny(8000 * MB), facts=Facts("trace", "step 1", 1, levels=((0.0, 3 * GB), (4.0, 5 * GB))))
    silent = Measured.of(tiny(), facts=Facts("trace", "step 1", 1))
    assert areas(plot.memory(known).axes[0]) == {UNPARTED.word: pytest.approx((4 * 3 + 23 * 5) * GB)}
    assert ys(plot.memory(known, by="total").axes[0], "peak") == [5 * GB]
    ax = plot.memory_parts([tiny(500 * MB), known, silent], ["played", "trace", "silent"]).axes[0]
    assert bars(ax, UNPARTED.word) == [0, 5 * GB, 0]
    assert bars(ax, "parameters") == [40 * MB, 0, 0]
    assert written(ax)[-3:] == ["550 MB, does not fit", "5 GB", "not recorded"]
    with pytest.raises(InputError, match=r"plot.memory_parts: tier: found .gpu.; expected"):
        plot.memory_parts([silent])


@pytest.mark.parametrize("tier", ["gpu", "dram"])
def test_categories_sum_to_the_curve_of_memory(tier: str) -> None:
    held, known = by_category(tiny(), tier, ranks_per_node=2), memory(tiny(), 2)[tier]
    curve = known.allocated if tier == "gpu" else known.busy
    assert held.seconds.tolist() == curve.seconds.tolist()
    assert held.total == pytest.approx(curve.bytes)
    top = int(held.total.argmax())
    assert {name: level[top] for name, level in held.bytes.items()} == dict(known.parts)


# --- the bill --------------------------------------------------------------------------------------------------------


def test_the_bill_of_seven_billion_on_eight() -> None:
    """2 + 2 + 12 bytes: stage 1 divides the 12, stage 2 a 2 as well, stage 3 all of them."""
    ax = plot.ledger(7e9, 8, capacity=80e9).axes[0]
    assert names(ax) == ["stage 0 (DDP)", "stage 1", "stage 2", "stage 3"]
    assert bars(ax, "parameters") == [14 * GB, 14 * GB, 14 * GB, 14 * GB / 8]
    assert bars(ax, "gradients") == [14 * GB, 14 * GB, 14 * GB / 8, 14 * GB / 8]
    assert bars(ax, "optimizer") == [84 * GB, 84 * GB / 8, 84 * GB / 8, 84 * GB / 8]
    assert written(ax)[-4:] == ["112 GB", "38.5 GB", "26.25 GB", "14 GB"]
    assert {tuple(np.asarray(each.get_xdata())) for each in ax.lines} == {(80e9, 80e9)}


def test_the_bill_with_the_optimizer_in_host_memory() -> None:
    """18 bytes a parameter there; stage 1 keeps gradients on the GPU until they are reduced."""
    ax = plot.ledger(7e9, 8, offload=True).axes[0]
    assert names(ax)[4:] == ["stage 1 + offload", "stage 2 + offload", "stage 3 + offload"]
    assert bars(ax, "gradients")[4:] == [14 * GB, 0, 0]
    assert bars(ax, "optimizer")[4:] == [0, 0, 0]
    assert written(ax)[-1] == "1.75 GB + 126 GB of DRAM"


# --- rates -----------------------------------------------------------------------------------------------------------


def test_the_ladder_of_a_machine() -> None:
    """A DGX A100 has two sockets of eight channels of DDR4-3200 and a port of 200 Gb/s a GPU."""
    tiers = {tier.name: tier for tier in bandwidths(named_topology("dgx-a100-80"))}
    assert list(tiers) == ["HBM", "NVLink", "PCIe", "PCIe uplinks", "DRAM", "network", "NVMe reads", "NVMe writes"]
    assert (tiers["DRAM"].number, tiers["DRAM"].rate, tiers["DRAM"].per_gpu) == (2, 204.8 * GB, 51.2 * GB)
    assert (tiers["network"].number, tiers["network"].per_gpu) == (8, 25 * GB)
    assert tiers["NVLink"].per_gpu == 300 * GB


def test_a_port_is_shared_by_the_gpus_of_a_node() -> None:
    topology = named_topology("roce-100g-a100")
    port = next(tier for tier in bandwidths(topology) if tier.network)
    assert (port.rate, port.per_gpu) == (12.5 * GB, 12.5 * GB / 8)
    figure = plot.bandwidth(topology)
    ax = figure.axes[0]
    lengths = {bar.get_width() for each in ax.containers for bar in each.patches}  # type: ignore[attr-defined]  # bars
    assert {tier.per_gpu for tier in bandwidths(topology)} | {tier.rate for tier in bandwidths(topology)} == lengths
    assert "1.562 GB/s (1 port of 100 Gb/s)" in written(ax)
    assert ax.get_xscale() == "log"
    assert max(ax.get_xticks()) <= 2.1e12


def test_memory_has_a_rung_whatever_it_is_called() -> None:
    """One DRAM, "mem", of 200 GB/s for two GPUs; a node of another kind beside it."""
    tiers = {tier.name: tier for tier in bandwidths(drawn_by_hand())}
    assert (tiers["DRAM"].number, tiers["DRAM"].rate, tiers["DRAM"].per_gpu) == (1, 200 * GB, 100 * GB)


def test_a_machine_without_a_network_or_drives_has_fewer_rungs() -> None:
    names = [tier.name for tier in bandwidths(named_topology("pcie-1x-rtx4090"))]
    assert names[:3] == ["HBM", "PCIe", "DRAM"]
    assert "NVLink" not in names


def test_bus_bandwidth_is_that_of_the_check() -> None:
    swept = sweeps(named_topology("dgx-a100-80"), ["all_reduce", "all_gather"], [2**20, 2**30], gpus=[8])
    figure = plot.bus_bandwidth(swept)
    expected = [row.busbw * GB for row in swept[0].rows if row.collective == "all_reduce"]
    assert ys(figure.axes[0], "all-reduce, 8 GPUs") == expected
    assert entries(figure) == ["all-reduce, 8 GPUs", "all-gather, 8 GPUs"]


def test_sweeps_of_two_machines_have_names() -> None:
    both = [sweeps(named_topology(name), ["all_reduce"], [2**20], gpus=[8])[0] for name in ("dgx-a100-80", "dgx-h100")]
    labels = ["measured", "catalogue"]
    assert entries(plot.bus_bandwidth(both, labels)) == [f"{label}, all-reduce, 8 GPUs" for label in labels]
    with pytest.raises(InputError, match="1 labels; expected 2, one a sweep"):
        plot.bus_bandwidth(both, labels[:1])


def test_a_figure_of_ones_own() -> None:
    own = Figure(layout="constrained")
    places = own.subplots(2, 2).ravel()
    assert plot.breakdown([tiny()], ["a"], ax=places[0]) is own
    assert plot.memory(tiny(), ax=places[1]) is own
    assert plot.ledger(7e9, 8, ax=places[2], title="bill") is own
    assert plot.bandwidth(named_topology("dgx-a100-80"), ax=places[3]) is own
    assert not own.legends
    assert places[2].get_title(loc="left") == "bill"
    assert bars(places[0], "compute") == [20]


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    figure = plot.breakdown([tiny()], ["$5$ & <b>"], title="$x$")
    figure.draw_without_rendering()
    assert names(figure.axes[0]) == ["$5$ & <b>"]
    assert not figure.axes[0].get_yticklabels()[0].get_parse_math()
