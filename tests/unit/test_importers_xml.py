"""NCCL topology XML: dumps with all elements, files of clouds with PCI devices only, and what must not be read."""

from __future__ import annotations

import pytest

from tests.imported import data, machine, refused, taken

GEN5 = 'link_speed="32.0 GT/s PCIe" link_width="16"'
ROME = 'arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"'


def gpu(number: int, inner: str = "", slot: str = GEN5, device: str = "0x2330", sm: int = 90) -> str:
    return (
        f'<pci busid="0000:{number + 16:02x}:00.0" class="0x030200" vendor="0x10de" device="{device}" {slot}>'
        f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">{inner}</gpu></pci>'
    )


def nic(bus: str, nets: list[tuple[str, int, int]], kind: str = "0x020700", slot: str = GEN5) -> str:
    ports = "".join(f'<net name="{name}" dev="{dev}" speed="{speed}" port="1"/>' for name, dev, speed in nets)
    return (
        f'<pci busid="0000:{bus}:00.0" class="{kind}" vendor="0x15b3" device="0x1021" {slot}><nic>{ports}</nic></pci>'
    )


def switch(inner: str, slot: str = GEN5) -> str:
    return f'<pci busid="0000:01:00.0" class="0x060400" {slot}>{inner}</pci>'


def system(*cpus: str, head: str = "") -> str:
    said = "".join(f'<cpu numaid="{n}" {ROME}>{inner}</cpu>' for n, inner in enumerate(cpus))
    return f'{head}<system version="1">{said}</system>'


def nvswitches(*counts: int) -> str:
    links = enumerate(counts)
    return "".join(f'<nvlink target="0000:f{n}:00.0" count="{count}" tclass="0x068000"/>' for n, count in links)


def peer(number: int, count: int) -> str:
    return f'<nvlink target="0000:{number + 16:02X}:00.0" count="{count}" tclass="0x030200"/>'


DUMP = system(
    switch(gpu(0, nvswitches(5, 5, 4, 4)) + nic("0c", [("mlx5_0", 0, 400000)])),
    switch(
        gpu(1, nvswitches(5, 5, 4, 4)) + nic("0d", [("mlx5_1", 1, 400000)]), 'link_speed="16.0 GT/s" link_width="8"'
    ),
)


def test_a_dump_gives_its_figures() -> None:
    node = data(DUMP, "box.xml")["node"]
    assert node["gpus"] == {"device": "h100_sxm", "count": 2}
    assert node["nvlink"] == {"kind": "switch", "bandwidth": "450 GB/s"}  # 5 + 5 + 4 + 4 links
    assert node["pcie"]["generation"] == 5
    assert node["pcie"]["switches"] == [
        {"gpus": [0], "nics": [0], "socket": 0},
        {"gpus": [1], "nics": [1], "uplink": "15.75 GB/s", "socket": 1},  # eight lanes of PCIe 4
    ]
    assert node["nics"] == {"count": 2, "bandwidth": "400 Gb/s", "kind": "infiniband"}
    assert [cpu["device"] for cpu in node["sockets"]] == ["epyc_rome", "epyc_rome"]
    topology = machine(DUMP)
    assert topology.link("0.pcie1", "0.socket1").bandwidth == 15.75e9
    assert dict(topology.nodes[0].ports) == {"nic0": 50e9, "nic1": 50e9}


def test_links_between_gpus_are_pairs_whichever_way_addresses_are_written() -> None:
    text = system(gpu(0, peer(1, 2) + peer(2, 1)) + gpu(1, peer(0, 2)) + gpu(2, peer(0, 1)))
    node = data(text, gpu="v100_sxm2_16")["node"]
    assert node["nvlink"] == {"kind": "pairs", "bandwidth": "75 GB/s", "pairs": [[0, 1, 2], [0, 2, 1]]}
    assert data(system(gpu(0) + gpu(1)))["node"]["nvlink"] == {"kind": "none"}


def test_gpus_are_numbered_by_device_not_by_place() -> None:
    text = system(switch(gpu(3) + gpu(1)), switch(gpu(0) + gpu(2)))
    switches = data(text)["node"]["pcie"]["switches"]
    assert [each["gpus"] for each in switches] == [[1, 3], [0, 2]]


def test_slower_slots_are_overrides() -> None:
    text = system(
        gpu(0) + gpu(1, slot='link_speed="16 GT/s" link_width="4"') + gpu(2, slot='link_speed="5 GT/s" link_width="4"')
    )
    assert data(text)["overrides"] == [
        {"gpu": "0.1", "pcie": {"generation": 4, "lanes": 4}},
        {"gpu": "0.2", "pcie": {"bandwidth": "2 GB/s"}},  # four lanes of 5 GT/s, eight bits in ten
    ]
    rates = [machine(text).link(f"0.gpu{n}", "0.socket0").bandwidth for n in range(3)]
    assert rates == [63e9, 7.875e9, 2e9]


def test_two_ports_of_an_adapter_share_its_slot() -> None:
    ports = [("mlx5_0", 0, 200000), ("mlx5_1", 1, 200000)]
    text = system(switch(gpu(0) + nic("0c", ports, "0x020000")))
    node = data(text)["node"]
    assert node["pcie"]["switches"] == [{"gpus": [0], "socket": 0, "switches": [{"nics": [0, 1]}]}]
    assert node["nics"] == {"count": 2, "bandwidth": "200 Gb/s", "kind": "roce"}
    alone = system(switch(gpu(0) + switch(nic("0c", ports))))
    assert data(alone)["node"]["pcie"]["switches"] == [{"gpus": [0], "socket": 0, "switches": [{"nics": [0, 1]}]}]


def test_bridges_with_one_bridge_below_are_one() -> None:
    text = system(switch(switch(switch(gpu(0) + gpu(1)), 'link_speed="8 GT/s" link_width="16"')))
    assert data(text)["node"]["pcie"]["switches"] == [{"gpus": [0, 1], "uplink": "15.75 GB/s", "socket": 0}]


def test_ports_of_several_kinds() -> None:
    ports = (
        nic("0c", [("mlx5_0", 0, 400000)])
        + nic("0d", [("mlx5_1", 1, 400000)])
        + nic("0e", [("mlx5_2", 2, 100000)], "0x020000")
    )
    outside = '<nic><net name="eth0" dev="3" speed="10000" port="0"/></nic>'
    nics = data(system(gpu(0) + ports + outside))["node"]["nics"]
    assert (nics["count"], nics["bandwidth"], nics["kind"]) == (4, "400 Gb/s", "infiniband")
    assert nics["unlike"] == [
        {"nics": [2], "bandwidth": "100 Gb/s", "kind": "roce"},
        {"nics": [3], "bandwidth": "10 Gb/s", "kind": "ethernet"},
    ]


def test_a_port_is_no_faster_than_its_slot() -> None:
    slot = 'link_speed="8 GT/s" link_width="16"'
    text = system(gpu(0, slot=slot) + nic("0c", [("mlx5_0", 0, 600000)], slot=slot))
    assert data(text)["node"]["nics"]["bandwidth"] == "126 Gb/s"
    assert "600 Gb/s is more than its PCIe slot carries" in taken(text).text
    faster = system(gpu(0, slot=slot) + nic("0c", [("mlx5_0", 0, 200000)]))  # the port has a better slot than the GPU
    assert data(faster)["node"]["nics"]["bandwidth"] == "200 Gb/s"
    assert data(faster)["overrides"] == [{"gpu": "0.0", "pcie": {"generation": 3, "lanes": 16}}]


@pytest.mark.parametrize("slot", ['link_speed="" link_width="0"', "", 'link_speed="Unknown" link_width="255"'])
def test_slots_that_are_not_told_are_assumed(slot: str) -> None:
    text = system(gpu(0, slot=slot) + gpu(1, slot=slot), "")
    assert data(text)["node"]["pcie"] == {"generation": 5, "lanes": 16}
    assert "generation: 5  # assumed: PCIe 5 x16, as h100_sxm" in taken(text).text


@pytest.mark.parametrize(
    ("cpu", "device"),
    [
        ('vendor="GenuineIntel" familyid="6" modelid="79"', "xeon_broadwell"),
        ('vendor="GenuineIntel" familyid="6" modelid="0x8f"', "xeon_sapphire_rapids"),
        ('vendor="AuthenticAMD" familyid="143" modelid="49"', "epyc_rome"),  # as NCCL writes 17h
        ('vendor="AuthenticAMD" familyid="175" modelid="1"', "epyc_milan"),
        ('vendor="AuthenticAMD" familyid="25" modelid="17"', "epyc_genoa"),
        ('arch="arm64"', "grace"),
        ("", "xeon_sapphire_rapids"),  # usual with H100
    ],
)
def test_cpus_by_cpuid(cpu: str, device: str) -> None:
    text = f'<system version="1"><cpu numaid="0" affinity="00ff,0000ff" {cpu}>{gpu(0)}</cpu></system>'
    socket = data(text)["node"]["sockets"][0]
    assert (socket["device"], socket["cores"]) == (device, 8)  # two runs of eight: two threads a core


# --- files for virtual machines ---


def plain(bus: str, kind: str, more: str = "") -> str:
    return f'<pci busid="{bus}" class="{kind}" {more} link_speed="16 GT/s" link_width="16"/>'


def test_a_cloud_file_counts_classes() -> None:
    inner = plain("0003:00:00.0", "0x030200") + plain("0101:00:00.0", "0x020700") + plain("0004:00:00.0", "0x030200")
    text = system(
        switch(inner, 'link_speed="16 GT/s" link_width="16"'), plain("0001:00:00.0", "0x030200"), head="<!-- c -->\n"
    )
    node = data(text)["node"]
    assert node["gpus"] == {"device": "a100_sxm_80", "count": 3}  # of PCIe 4
    assert node["nvlink"] == {"kind": "switch", "bandwidth": "300 GB/s"}  # of which the file has nothing
    assert "assumed: the text has no NVLink" in taken(text).text
    assert node["pcie"]["switches"] == [{"gpus": [1, 2], "nics": [0], "socket": 0}]  # by PCI address
    assert node["nics"] == {"count": 1, "bandwidth": "200 Gb/s", "kind": "infiniband"}


def test_a_comment_may_name_the_machine() -> None:
    efa = plain("0000:10:1b.0", "0x020000", 'vendor="0x1d0f" device="0xefa0"')
    text = system(plain("0000:10:1c.0", "0x030200") + efa, head="<!-- topology for `p4d.24xlarge` -->\n")
    node = data(text)["node"]
    assert node["gpus"]["device"] == "a100_sxm_40"
    assert node["nics"] == {"count": 1, "device": "efa_v1_100"}
    assert data(system(plain("0000:10:1c.0", "0x030200")), "azure_ndv2.xml")["node"]["gpus"]["device"] == "v100_sxm2_32"


def test_devices_without_a_class() -> None:
    leaves = "".join(f'<pci busid="0000:00:1{n}.0"/>' for n in range(5))
    node = data(system(leaves), gpu="a10g")["node"]
    assert (node["gpus"]["count"], node["nics"]["count"]) == (4, 1)
    assert any(
        "the 5 PCI devices have no class: 4 of them taken as GPUs" in said for said in taken(system(leaves)).warnings
    )


def test_graphics_cards_and_other_devices() -> None:
    aspeed = plain("0000:02:00.0", "0x030000", 'vendor="0x1a03" device="0x2000"')  # the console of a server
    nvswitch = plain("0000:03:00.0", "0x068000", 'vendor="0x10de" device="0x22a3"')
    card = plain("0000:04:00.0", "0x030000", 'vendor="0x10de" device="0x2684"')
    node = data(system(aspeed + nvswitch + card))["node"]
    assert node["gpus"] == {"device": "rtx4090", "count": 1}


def test_rccl_names_its_links_otherwise() -> None:
    def card(number: int) -> str:
        links = "".join(
            f'<xgmi target="0000:{other + 16:02x}:00.0" count="1" tclass="0x038000"/>'
            for other in range(4)
            if other != number
        )
        return (
            f'<pci busid="0000:{number + 16:02x}:00.0" class="0x038000" vendor="0x1002" device="0x74a1" {GEN5}>'
            f'<gpu dev="{number}" sm="94" gcn="gfx942" rank="{number}">{links}</gpu></pci>'
        )

    node = data(system("".join(map(card, range(4)))))["node"]
    assert node["gpus"]["device"] == "mi300x"
    assert node["nvlink"] == {"kind": "mesh", "bandwidth": "192 GB/s"}  # three links of 64


# --- NVSwitches out of sight, and GPUs with fewer links than others ---

UNSEEN = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'  # as NCCL writes in virtual machines


def test_links_to_what_the_machine_cannot_see_lead_to_nvswitches() -> None:
    imported = taken(system(gpu(0, UNSEEN) + gpu(1, UNSEEN), gpu(2, UNSEEN) + gpu(3, UNSEEN)))
    assert "nvlink: {kind: switch, bandwidth: 450 GB/s}" in imported.text
    assert imported.warnings == ()


def test_links_to_the_cpu_are_no_links_to_a_switch() -> None:
    """POWER9 has NVLink to its GPUs: class 0x068001."""
    to_cpu = '<nvlink target="0000:00:00.0" count="3" tclass="0x068001"/>'
    text = system(gpu(0, peer(1, 3) + to_cpu, sm=70) + gpu(1, peer(0, 3) + to_cpu, sm=70))
    assert data(text, gpu="v100_sxm2_16")["node"]["nvlink"] == {
        "kind": "pairs", "bandwidth": "75 GB/s", "pairs": [[0, 1, 3]],
    }  # fmt: skip
    assert any("NVLinks of GPUs 0, 1 lead to the CPU: not taken" in said for said in taken(text).warnings)


def test_a_gpu_with_fewer_links_to_the_switches_is_an_override() -> None:
    whole = nvswitches(5, 5, 4, 4)
    text = system(gpu(0, whole) + gpu(1, nvswitches(5, 4, 4)) + gpu(2, whole))
    assert data(text, nodes=2)["overrides"] == [
        {"gpu": "0.1", "nvlink": {"bandwidth": "325 GB/s"}},  # 13 links of 25 GB/s
        {"gpu": "1.1", "nvlink": {"bandwidth": "325 GB/s"}},
    ]
    assert any("GPU 1 has 13 links to NVSwitches, where others have 18" in said for said in taken(text).warnings)


def test_a_gpu_without_a_link_is_outside_of_what_nvlink_joins() -> None:
    text = system(gpu(0, UNSEEN) + gpu(1, UNSEEN), gpu(2) + gpu(3, UNSEEN))
    assert machine(text).nvlink_domains() == ((0, 1, 3), (2,))
    assert data(text)["node"]["nvlink"] == {
        "kind": "pairs", "bandwidth": "450 GB/s", "pairs": [[0, 1, 9], [0, 3, 9], [1, 3, 9]],
    }  # fmt: skip
    assert any("no NVLink of GPU 2, where others have 18" in said for said in taken(text).warnings)


# --- hosts of a rack, ports that are no PCI devices ---


def test_equal_hosts_of_a_rack_are_nodes_that_nvlink_joins() -> None:
    c2c = '<c2c bw="44712" count="5"/>'

    def host(name: str, gpus: int) -> str:
        held = "".join(gpu(number, UNSEEN + c2c, device="0x2941", sm=100) for number in range(gpus))
        port = nic("0c", [("mlx5_0", 0, 400000)])
        return f'<cpu host_hash="{name}" numaid="0" arch="arm64">{held}{port}</cpu>'

    text = f'<system version="1">{host("0xa", 2)}{host("0xb", 2)}{host("0xc", 2)}</system>'
    rack = machine(text)
    assert (len(rack.nodes), len(rack.gpus), len(rack.nvlink_domains())) == (3, 6, 1)
    assert data(text)["node"]["nvlink"] == {"kind": "switch", "bandwidth": "900 GB/s", "hosts": 3}
    assert data(text)["node"]["c2c"] == {"bandwidth": "223.6 GB/s"}  # five links of 44.7
    assert len(machine(text, nodes=6).nvlink_domains()) == 2
    unequal = f'<system version="1">{host("0xa", 2)}{host("0xb", 1)}</system>'
    assert len(machine(unequal).nodes) == 1
    assert any("2 unequal hosts stand here as one node" in said for said in taken(unequal).warnings)


def test_a_merged_port_is_its_parts_on_their_bridge() -> None:
    merged = '<nic><net name="mlx5_0+mlx5_1" dev="0" speed="800000"/></nic>'
    node = data(system(switch(gpu(0) + merged) + switch(gpu(1)), gpu(2)))["node"]
    assert node["nics"] == {"count": 2, "bandwidth": "400 Gb/s", "kind": "infiniband"}
    assert node["pcie"]["switches"][0] == {"gpus": [0], "nics": [0, 1], "socket": 0}


def test_a_virtual_port_under_each_cpu_is_one_of_ethernet() -> None:
    virtual = '<nic><net name="docker0" dev="0" speed="10000"/></nic>'
    assert data(system(gpu(0) + virtual, gpu(1) + virtual))["node"]["nics"] == {
        "count": 1, "bandwidth": "10 Gb/s", "kind": "ethernet",
    }  # fmt: skip


def test_speeds_that_cannot_be_are_not_taken() -> None:
    ports = nic("0c", [("mlx5_0", 0, 10**20)]) + nic("0d", [("mlx5_1", 1, -1)])
    assert data(system(gpu(0) + ports))["node"]["nics"]["bandwidth"] == "400 Gb/s"  # of a ConnectX-7


def test_gpus_without_gpudirect_are_told() -> None:
    text = system(gpu(0) + gpu(1) + nic("0c", [("mlx5_0", 0, 400000)])).replace('gdr="1"', 'gdr="0"')
    assert any("the GPUs have no GPUDirect RDMA (gdr 0)" in said for said in taken(text).warnings)
    assert taken(system(gpu(0)).replace('gdr="1"', 'gdr="0"')).warnings == ()  # without a port it does not matter


def test_switches_that_hold_only_gpus_of_a_superchip_are_left_out() -> None:
    c2c = '<c2c bw="44712" count="10"/>'
    text = system(switch(gpu(0, c2c, device="0x2342")) + switch(nic("0c", [("mlx5_0", 0, 400000)])))
    assert data(text)["node"]["pcie"]["switches"] == [{"nics": [0], "socket": 0}]


def test_ports_of_which_each_gpu_has_several_share_its_usual_rate() -> None:
    ports = "".join(plain(f"0000:02:{n:02x}.0", "0x020000") for n in range(4))
    cards = plain("0000:01:00.0", "0x030200", 'vendor="0x10de" device="0x2330"')
    assert data(system(cards + ports))["node"]["nics"]["bandwidth"] == "100 Gb/s"  # 400 of a GPU over four


def test_more_gpus_than_a_server_holds_are_refused_at_once() -> None:
    assert "found 1100 GPUs; expected at most 1024 in a server" in refused(system("".join(map(gpu, range(1100)))))


# --- what is refused ---

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE system [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><system version="1">&b;</system>'
)
OUTSIDE = '<!DOCTYPE system [<!ENTITY x SYSTEM "file:///etc/passwd">]><system version="1">&x;</system>'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LAUGHS, "box.txt:1: found a DOCTYPE"),
        (OUTSIDE, "box.txt:1: found a DOCTYPE"),
        (DUMP[:-20], "found a syntax error"),
        ('<system version="1"></system>', "box.txt:1: system: found no GPU"),
        ("<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "elements nested too deep"),
        ('<topology version="2.0"><object type="Machine"/></topology>', "found hwloc XML (lstopo)"),
        ('<?xml version="1.0"?>\n<platform version="4.1"/>', "found a SimGrid platform"),
        ('<graphs version="1"><graph id="0"/></graphs>', "found an NCCL graph dump"),
        ("<html><body/></html>", "found XML with the root html"),
    ],
)
def test_what_is_refused(text: str, found: str) -> None:
    assert found in refused(text)


def test_text_around_the_xml_is_no_matter() -> None:
    assert data(f"host: dumping topology\n{DUMP}\nhost: done\n") == data(DUMP)
    assert data(b"\xff\xfe" + f'<?xml version="1.0" encoding="UTF-16"?>\n{DUMP}'.encode("utf-16-le")) == data(DUMP)
