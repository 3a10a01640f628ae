"""The catalogue: every figure has a grade and a known source, and readers give base units."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zerosim import catalog
from zerosim.catalog.data import load

GRADES = set("EARDF")


def test_constants_are_read_by_dotted_path() -> None:
    assert catalog.constant("gemm.tile_m") == 256
    assert catalog.constant("gemm.k0.sm90_plus") == 64
    assert catalog.constants("collectives.hop_us")["pcie5"] == 0.4
    assert set(catalog.constants("gemm")) == {
        "tile_m",
        "tile_n",
        "t0_us",
        "efficiency",
        "sustained",
        "fp32",
        "split_depth",
    }
    assert catalog.described("copies.socket_link_eff").source == ("RTX6K", "NCCL")


def test_a_wrong_path_names_the_nearest() -> None:
    with pytest.raises(catalog.UnknownNameError, match=r'no constant "gemm.tile_n2" .*; nearest gemm.tile_n'):
        catalog.constant("gemm.tile_n2")
    with pytest.raises(catalog.UnknownNameError, match=r"nearest collectives.hop_us"):
        catalog.constants("collective.hop_us")
    with pytest.raises(catalog.UnknownNameError, match=r'no GPU "h100_sxm5" in the catalogue; nearest h100_sxm'):
        catalog.gpu("h100_sxm5")


def test_a_gpu_is_found_by_the_name_of_its_figures() -> None:
    assert {key: catalog.gpu_called(figures.name) for key, figures in catalog.gpus().items()} == {
        key: key for key in catalog.gpus()
    }
    assert catalog.gpu_called("mine") is None


@pytest.mark.parametrize("path", sorted(catalog.all_constants()))
def test_every_constant_has_a_grade_a_source_and_a_meaning(path: str) -> None:
    entry = catalog.described(path)
    assert entry.grade in GRADES
    assert entry.source
    assert set(entry.source) <= set(catalog.sources())
    assert len(entry.meaning) > 5
    assert entry.value >= 0


def test_fractions_are_fractions() -> None:
    shares = [path for path in catalog.all_constants() if re.search(r"_eff\b|_eff_|efficiency", path)]
    assert len(shares) > 15
    assert all(0 < catalog.constant(path) <= 1 for path in shares)


KEPT = {  # constants that no formula reads: who keeps them
    "collectives.relative_error": "what the published sweeps are held to",
}
_BY_HARDWARE = re.compile(r"pcie\d?|nvlink|volta|turing|ampere|ada|hopper|blackwell|cdna|c2c")


def test_every_constant_is_read() -> None:
    """By its path, by a path with holes such as `copies.{way}_eff.{lane}`, or by its name in a group that is read."""
    text = "".join(path.read_text() for path in Path(catalog.__file__).parents[1].rglob("*.py"))
    written = {re.sub(r"\{.*?\}", "*", string) for string in re.findall(r'"([^"\n]*)"', text)}
    groups = set(re.findall(r'constants\("([^"]+)"\)', text))
    paths = [re.escape(path).replace(r"\*", r"\w+") for path in written if re.fullmatch(r"\w+(\.[\w*]+)+", path)]
    asked = re.compile("|".join(paths))
    for path in catalog.all_constants():
        group, _, name = path.rpartition(".")
        of_group = group in groups and (name in written or _BY_HARDWARE.fullmatch(name))
        kept = any(path == word or path.startswith(f"{word}.") for word in KEPT)
        assert of_group or kept or asked.fullmatch(path), path


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    for section, named in load("hardware.yaml").items():
        for name, entry in named.items():
            yield f"{section}.{name}", entry


@pytest.mark.parametrize(("name", "entry"), list(entries()))
def test_every_piece_of_hardware_has_a_grade_and_a_source(name: str, entry: dict[str, Any]) -> None:
    given = entry["source"] if isinstance(entry["source"], list) else [entry["source"]]
    assert {entry["grade"], *entry.get("weaker", {}).values()} <= GRADES
    assert given
    assert set(given) <= set(catalog.sources())


def test_gpus_are_in_base_units() -> None:
    a100 = catalog.gpu("a100_sxm_80")
    assert (a100.sms, a100.architecture, a100.peak_flops["bf16"]) == (108, "ampere", 312e12)
    assert a100.memory_bytes == 79.2 * 2**30
    assert a100.memory_bandwidth == 2039e9
    assert a100.matmul_efficiency == pytest.approx(271.2 / 312, abs=5e-4)  # best found by search
    assert catalog.gpu("l40s").matmul_efficiency == catalog.constant("gemm.efficiency")
    assert catalog.gpu("h200_sxm").stream_efficiency == 0.90
    assert not catalog.gpu("rtx4090").p2p


@pytest.mark.parametrize("name", sorted(catalog.gpus()))
def test_figures_of_a_gpu_are_plausible(name: str) -> None:
    gpu, ports = catalog.gpu(name), catalog.gpu_ports(name)
    assert gpu.peak_flops["fp32"] <= gpu.peak_flops["fp16"] <= 5e15
    assert gpu.peak_flops["fp16"] == gpu.peak_flops.get("bf16", gpu.peak_flops["fp16"])
    assert 10e9 < gpu.memory_bytes < 300e9
    assert 0 < gpu.sustained <= gpu.matmul_efficiency <= 1
    assert 50 <= gpu.power <= 1500
    assert gpu.architecture in catalog.constants("attention.flash.forward")
    assert gpu.architecture in catalog.constants("contention.channels")
    assert ports.pcie_generation in (0, 3, 4, 5, 6)
    assert ports.pcie_generation or ports.c2c_bandwidth


def test_nvlink_is_links_times_the_rate_of_one() -> None:
    by_generation = {2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
    for name, entry in load("hardware.yaml")["gpus"].items():
        nvlink = entry.get("nvlink")
        if nvlink and nvlink["generation"] in by_generation and not nvlink.get("bridge"):
            rate = catalog.gpu_ports(name).nvlink_bandwidth
            assert rate == nvlink["links"] * by_generation[nvlink["generation"]], name


def test_ports_are_chosen_by_kind_and_rate() -> None:
    assert catalog.nic_for("infiniband", 25e9) == catalog.nics()["infiniband_hdr"]
    assert catalog.nic_for("efa", 12.5e9) == catalog.nics()["efa_v1_100"]  # the first of two of that rate
    assert catalog.nic("ethernet_10").transport == "tcp"
    assert catalog.nic("ethernet_10").latency == pytest.approx(30e-6)
    assert catalog.nics()["roce_400"].bandwidth == 50e9
    with pytest.raises(catalog.UnknownNameError, match="kind of network port"):
        catalog.nic_for("token_ring", 1e6)


def test_a_port_between_two_of_the_catalogue_achieves_what_lies_between() -> None:
    """25 Gb/s Ethernet achieves 0.80 x 25 = 20, 40 Gb/s 0.60 x 40 = 24: a third of the way, at 30, it is 21.33."""
    port = catalog.nic_for("ethernet", 30e9 / 8).figures
    assert port.efficiency * 30 == pytest.approx(20 + 4 / 3)
    assert (port.name, port.grade, port.transport) == ("ethernet_30", "D", "tcp")
    between = catalog.nic_for("ethernet", 75e9 / 8).figures
    assert (between.latency, between.large_latency) == pytest.approx((42.5e-6, 62.5e-6))  # half way from 30/45 to 55/80
    slow, fast = catalog.nic_for("infiniband", 10e9 / 8).figures, catalog.nic_for("ethernet", 400e9 / 8).figures
    assert (slow.efficiency, slow.latency) == pytest.approx((0.90, 5e-6))  # as the slowest
    assert fast.efficiency == 0.30  # as the fastest
    assert fast.latency == pytest.approx(55e-6)


def test_memory_links_and_drives() -> None:
    assert catalog.socket("epyc_7742").cores == 64
    assert catalog.sockets()["epyc_7742"].dram_bandwidth == pytest.approx(8 * 3200e6 * 8)  # channels x MT/s x bytes
    assert catalog.drive("nvme_gen4").read == 6.8e9
    assert catalog.pcie_bandwidth(4) == 31.5e9
    assert catalog.pcie_bandwidth(5, lanes=8) == 31.5e9


def test_other_numbers_stand_for_constants_for_a_while() -> None:
    assert catalog.constant("collectives.kappa") == 0.54
    with catalog.using({"collectives.kappa": 1.0, "collectives.hop_us.pcie4": 2.0}):
        assert catalog.constant("collectives.kappa") == 1.0
        assert catalog.constants("collectives.hop_us")["pcie4"] == 2.0
        assert catalog.constants("collectives.hop_us")["pcie3"] == 0.8
        with catalog.using({"collectives.kappa": 0.0}):
            assert catalog.constant("collectives.kappa") == 0.0
            assert catalog.constant("collectives.hop_us.pcie4") == 2.0
        assert catalog.constant("collectives.kappa") == 1.0
    assert catalog.constant("collectives.kappa") == 0.54
    with (
        pytest.raises(catalog.UnknownNameError, match=r"nearest collectives\.kappa"),
        catalog.using({"colectives.kappa": 1}),
    ):
        pass


def test_other_numbers_are_not_seen_by_other_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with catalog.using({"collectives.kappa": 1.0}), ThreadPoolExecutor(1) as others:
        assert others.submit(catalog.constant, "collectives.kappa").result() == 0.54
