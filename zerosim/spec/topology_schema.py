"""What may stand in a topology file: the node template and the graph form.

Rule: shapes and units only. What figures a name stands for, and whether the parts fit together, is asked elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from zerosim.spec.devices import DeviceKind, LinkKind
from zerosim.spec.fabric import MOST_NODES, FabricKind
from zerosim.spec.loading import Flops, Power, Rate, Schema, Seconds, Share, Size
from zerosim.units import UnitError

# Bounds far beyond any machine, so that what is left can be computed with: no rate drowns in rounding, no list of
# devices fills the memory.
LARGEST = 1e18  # bytes, and bytes/s
LONGEST = 1.0  # seconds of latency
SLOWEST = 1e6  # bytes/s: below it a number has most likely lost its unit
FASTEST = 10.0  # of the rate of a GPU: above it a number is most likely one of percent
MOST_DEVICES = 1024  # of one kind in a server
LEAST_MONEY = 1e-6  # of any currency, so that tokens for one of it stay numbers
SHORTEST = 0.01  # years of a life, a few days


def _has_its_unit(rate: float) -> float:
    if rate < SLOWEST:
        raise UnitError(f"{rate:g} B/s", 'a rate of at least 1 MB/s, such as "25 GB/s" or "100 Gbps"')
    return rate


def _is_a_share(compute: float) -> float:
    if compute > FASTEST:
        raise UnitError(float(f"{compute:g}"), "a share of the rate such as 0.8")
    return compute


Positive = Annotated[Rate, AfterValidator(_has_its_unit), Field(le=LARGEST)]
Capacity = Annotated[Size, Field(ge=1, le=LARGEST)]
Peak = Annotated[Flops, Field(ge=1, le=1e21)]
Delay = Annotated[Seconds, Field(le=LONGEST)]
Watts = Annotated[Power, Field(ge=1, le=100_000)]
Money = Annotated[float, Field(ge=LEAST_MONEY, le=1e12)]
Compute = Annotated[Share, AfterValidator(_is_a_share), Field(ge=1e-6)]
Fraction = Annotated[Share, Field(ge=1e-6, le=1)]
Several = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Cores = Annotated[int, Field(ge=1, le=100_000)]
Generation = Annotated[int, Field(ge=1, le=99)]
Host = Annotated[int, Field(ge=0, lt=MOST_NODES)]
Name = Annotated[str, Field(min_length=1)]
PcieGeneration = Literal[3, 4, 5, 6]


def _node_and_gpu(given: object) -> str:
    node, dot, gpu = given.partition(".") if isinstance(given, str) else ("", "", "")
    if not (dot and node.isdecimal() and gpu.isdecimal()):
        raise ValueError('node and GPU as text such as "0.5"')
    return f"{node}.{gpu}"


def _short_word(given: object) -> str:
    if not (
        isinstance(given, str) and 0 < len(given) <= 8 and given.isprintable() and not set(given) & set(" /0123456789")
    ):
        raise ValueError("the name of a currency such as EUR")
    return given


Currency = Annotated[str, BeforeValidator(_short_word)]


class GpuFigures(Schema):
    """Figures of a GPU, or what differs from those of a named one."""

    name: str | None = None
    flops: Peak | dict[str, Peak] | None = None
    memory: Capacity | None = None
    hbm: Positive | None = None
    sms: Cores | None = None
    architecture: Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna"] | None = None
    matmul_efficiency: Fraction | None = None
    sustained: Fraction | None = None
    power: Watts | None = None
    p2p: bool | None = None
    nvls: bool | None = None


class GpuSpec(GpuFigures):
    device: str | GpuFigures | None = None
    count: Several = 1
    compute: Compute = 1.0


class NvlinkSpec(Schema):
    """`bandwidth` is that of all links of a GPU, one direction. A pair is [a, b] or [a, b, number of links]. `hosts`:
    how many servers that follow each other share a switch, as in a rack of 72 GPUs."""

    kind: Literal["switch", "mesh", "pairs", "none"] = "switch"
    bandwidth: Positive | None = None
    latency: Delay | None = None
    generation: Generation | None = None
    hosts: Annotated[int, Field(ge=1, le=MOST_DEVICES)] = 1
    pairs: (
        list[Annotated[list[Annotated[int, Field(ge=0, le=MOST_DEVICES)]], Field(min_length=2, max_length=3)]] | None
    ) = None


class SwitchSpec(Schema):
    """`switches` hang on this one, and this one on its socket; `uplink` is the rate upward, where that is not the rate
    of the other PCIe links."""

    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    switches: tuple[SwitchSpec, ...] = ()
    socket: int = 0
    uplink: Positive | None = None


class PcieSpec(Schema):
    generation: PcieGeneration | None = None
    lanes: Literal[1, 2, 4, 8, 16] = 16
    bandwidth: Positive | None = None
    switches: tuple[SwitchSpec, ...] = ()


class C2cSpec(Schema):
    bandwidth: Positive | None = None
    latency: Delay | None = None


class DramSpec(Schema):
    capacity: Capacity
    bandwidth: Positive | None = None


class SocketSpec(Schema):
    """`interconnect`: all links to another socket together. `gpus` and `nics` hang on it without a switch; what no
    switch and no socket names hangs on the sockets evenly in order."""

    device: str | None = None
    cores: Cores | None = None
    dram: DramSpec
    interconnect: Positive | None = None
    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()


class DriveFigures(Schema):
    """`write` is the rate until `cache` bytes are written at once, `sustained_write` the rate from then on.

    Beside a `device` these replace its figures one by one; without one there is no cache, and `write` lasts.
    """

    read: Positive | None = None
    write: Positive | None = None
    sustained_write: Positive | None = None
    cache: Annotated[Size, Field(ge=0, le=LARGEST)] | None = None


class NvmeSpec(DriveFigures):
    device: str | None = None
    socket: int = 0
    count: Several = 1
    capacity: Capacity


class PortFigures(Schema):
    """`device` names a port of the catalogue; else `kind` and `bandwidth` choose the nearest."""

    device: str | None = None
    bandwidth: Positive | None = None
    kind: str | None = None
    efficiency: Fraction | None = None
    latency: Delay | None = None


class UnlikePorts(PortFigures):
    """The ports of these numbers are not as the others are; their kind is, where none is given."""

    nics: Annotated[tuple[Annotated[int, Field(ge=0, lt=MOST_DEVICES)], ...], Field(min_length=1)]


class NicSpec(PortFigures):
    """`unlike`: ports of another kind or rate. `down`: ports that do not work, by their numbers."""

    count: Annotated[int, Field(ge=0, le=MOST_DEVICES)] = 1
    socket: int | None = None
    unlike: tuple[UnlikePorts, ...] = ()
    down: tuple[Annotated[int, Field(ge=0, lt=MOST_DEVICES)], ...] = ()


class NodeSpec(Schema):
    count: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    gpus: GpuSpec
    nvlink: NvlinkSpec = NvlinkSpec(kind="none")
    pcie: PcieSpec | None = None
    c2c: C2cSpec | None = None
    sockets: Annotated[list[SocketSpec], Field(min_length=1)] | None = None
    nvme: tuple[NvmeSpec, ...] = ()
    nics: NicSpec | None = None


class FabricSpec(Schema):
    """`latency` is from port to port through one switch. `spine_nodes`: servers under one spine, where spines hang on
    a core; a multiple of `leaf_nodes`."""

    kind: FabricKind = "switch"
    latency: Delay | None = None
    oversubscription: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    leaf_nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 32
    spine_nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] | None = None
    spine_oversubscription: Annotated[float, Field(ge=1, le=1e6)] = 1.0


class OverrideSpec(Schema):
    """Of one `node` any section; or of one `gpu` its figures, the rate of its NVLinks and its PCIe lane."""

    node: Host | None = None
    gpu: Annotated[str, BeforeValidator(_node_and_gpu)] | None = None
    compute: Compute | None = None
    device: str | GpuFigures | None = None
    gpus: GpuSpec | None = None
    nvlink: NvlinkSpec | None = None
    pcie: PcieSpec | None = None
    c2c: C2cSpec | None = None
    sockets: Annotated[list[SocketSpec], Field(min_length=1)] | None = None
    nvme: list[NvmeSpec] | None = None
    nics: NicSpec | None = None


class PriceSpec(Schema):
    """What the machine costs, in a `currency` called as one likes (EUR). Rented: `gpu_hour`, of each GPU that is used,
    or `node_hour`, of each node. Bought: `node`, what one cost, spread over the `years` of its life, of which it is in
    `use` a share. `electricity`: of a kWh of the `power`, beside either or alone. All nodes cost the same."""

    currency: Currency
    gpu_hour: Money | None = None
    node_hour: Money | None = None
    node: Money | None = None
    years: Annotated[float, Field(ge=SHORTEST, le=100)] | None = None
    use: Fraction = 1.0
    electricity: Money | None = None


class PowerSpec(Schema):
    """What the machine draws while it trains: `node`, a whole one; or by its parts. `gpu`: of one while it computes;
    where it is not given, what its board draws at most, by `gpus: {power: ...}` or the catalogue. `idle`: of one while
    it computes nothing, waiting or moving data; where it is not given, as much as `gpu`. `rest`: of all else in a node.
    `pue`: what the building draws, by what the machine draws. GPUs that are not used draw nothing."""

    node: Watts | None = None
    gpu: Watts | None = None
    idle: Annotated[Power, Field(ge=0, le=100_000)] | None = None
    rest: Annotated[Power, Field(ge=0, le=100_000)] = 0.0
    pue: Annotated[float, Field(ge=1, le=10)] = 1.0


class TemplateSpec(Schema):
    name: Name
    node: NodeSpec
    fabric: FabricSpec = FabricSpec()
    overrides: tuple[OverrideSpec, ...] = ()
    price: PriceSpec | None = None
    power: PowerSpec | None = None


class DeviceSpec(GpuFigures, DriveFigures):
    """A vertex of the graph form. `node` (or `host`) is the server it is in; leaves and spines have none."""

    name: Name
    kind: DeviceKind
    node: Host | None = None
    host: Host | None = None
    device: str | GpuFigures | None = None
    capacity: Capacity | None = None
    compute: Compute = 1.0
    cores: Cores | None = None
    network: str | None = None


class LinkSpec(Schema):
    """An edge of the graph form; `half` duplex is the same as `shared`, `simplex` goes one way only."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    bandwidth: Positive
    latency: Delay = 0.0
    duplex: Literal["full", "half", "simplex"] = "full"
    shared: bool | None = None
    kind: LinkKind | None = None
    generation: Generation | None = None


class GraphSpec(Schema):
    name: Name
    devices: Annotated[list[DeviceSpec], Field(min_length=1)]
    links: tuple[LinkSpec, ...] = ()
    price: PriceSpec | None = None
    power: PowerSpec | None = None
