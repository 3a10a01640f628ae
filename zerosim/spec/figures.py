"""From what a topology file says of a device to the device's figures: catalogue names, figures by hand, or both.

Rule: what is not given and not in the catalogue is a mistake, or an assumption that is told; never a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zerosim import catalog
from zerosim.errors import Problem, nearest
from zerosim.spec.devices import Drive, Gpu, Nic, Socket
from zerosim.spec.document import Document, Path
from zerosim.spec.topology_schema import (
    DeviceSpec,
    GpuFigures,
    GpuSpec,
    NicSpec,
    NvmeSpec,
    PortFigures,
    SocketSpec,
    UnlikePorts,
)
from zerosim.units import show_flops, show_rate

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
PLAIN_SMS = 108  # as an A100: shapes the waves of a matmul only
PLAIN_PEAKS = {"fp16": 1.0, "bf16": 1.0, "tf32": 1 / 2, "fp32": 1 / 16}  # by 16-bit peak, as on an A100


@dataclass
class Remarks:
    """What is wrong with, and what was assumed of, the part of a document that stands at `base`.

    A part may be made of several places: overrides (`over`), the last first, stand before the template they change.
    """

    document: Document
    base: Path = ()
    over: tuple[Path, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def wrong(self, path: Sequence[str | int], found: str, expected: str, close: str = "") -> None:
        self.problems.append(self.document.problem(self._where(tuple(path)), found, expected, close))

    def wrong_key(self, path: Sequence[str | int], expected: str, close: str = "") -> None:
        where = self._where(tuple(path))
        self.problems.append(self.document.key_problem(where, f'"{where[-1]}"', expected, close))

    def unknown(self, path: Sequence[str | int], name: str, what: str, known: Sequence[str]) -> None:
        close = nearest(name, known)
        self.wrong(path, f'"{name}"', f"{what} (zerosim list devices)", f'"{close}"' if close else "")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _where(self, path: Path) -> Path:
        """Where most of the path stands: what is missing is missed beside what is there."""
        places = (*reversed(self.over), self.base)
        found = {place: _standing(self.document.data, place + path) - len(place) for place in places}
        most = max(found.values())
        if most < len(path) and found[self.base] == most:
            return self.base + path
        return next(place for place, stands in found.items() if stands == most) + path


def _standing(data: Any, path: Path) -> int:
    """How many parts of a path are there."""
    for depth, part in enumerate(path):
        within = isinstance(part, int) and isinstance(data, list) and part < len(data)
        if not within and not (isinstance(data, Mapping) and part in data):
            return depth
        data = data[part]
    return len(path)


def gpu_figures(spec: GpuSpec | DeviceSpec, remarks: Remarks, path: Path) -> Gpu | None:
    """A named GPU with what is said otherwise beside the name, or one of which all is said."""
    base: Gpu | None = None
    if isinstance(spec.device, str):
        base = catalog.gpus().get(spec.device)
        if base is None:
            remarks.unknown((*path, "device"), spec.device, "a GPU of the catalogue", list(catalog.gpus()))
            return None
    elif spec.device is not None:
        base = _with_figures(None, spec.device, remarks, (*path, "device"))
    elif spec.flops is None and spec.memory is None:
        remarks.wrong((*path, "device"), "nothing", "a GPU of the catalogue, or flops, memory and hbm")
        return None
    keys = GpuFigures.model_fields.keys() - ({"name"} if isinstance(spec, DeviceSpec) else set())
    said = GpuFigures.model_construct(**{key: getattr(spec, key) for key in keys})
    if base is not None and said == GpuFigures():
        return base
    return _with_figures(base, said, remarks, path)


def _with_figures(base: Gpu | None, said: GpuFigures, remarks: Remarks, path: Path) -> Gpu | None:
    if base is None:
        missing = [key for key in ("flops", "memory", "hbm") if getattr(said, key) is None]
        for key in missing:
            remarks.wrong((*path, key), "nothing", "a figure, as no GPU of the catalogue is named")
        if missing:
            return None
        base = _plain(said, remarks)
    if said.power is not None and not base.power:
        remarks.wrong((*path, "power"), f"{said.power:g} W", f"nothing: the usual power of {base.name} is not known")
    best = said.matmul_efficiency or base.matmul_efficiency
    return Gpu(
        name=said.name or base.name,
        sms=said.sms or base.sms,
        peak_flops=base.peak_flops if said.flops is None else _peaks(said.flops, base.peak_flops, remarks, path),
        matmul_efficiency=best,
        sustained=said.sustained or _held(base, best, said.power),
        fp32_efficiency=min(said.matmul_efficiency or base.fp32_efficiency, said.sustained or 1.0),
        power=said.power or base.power,
        memory_bytes=said.memory or base.memory_bytes,
        memory_bandwidth=said.hbm or base.memory_bandwidth,
        stream_efficiency=base.stream_efficiency,
        architecture=said.architecture or base.architecture,
        p2p=base.p2p if said.p2p is None else said.p2p,
        nvls=base.nvls if said.nvls is None else said.nvls,
        grade="user",
    )


def _plain(said: GpuFigures, remarks: Remarks) -> Gpu:
    """An A100-like GPU to start from, where nothing is named."""
    remarks.note("GPU given by its rates: everything not given (SMs, kernels, matmul efficiency) is as on an A100")
    name = f"GPU of {show_flops(said.flops)}" if isinstance(said.flops, float) else "GPU"
    efficiency, copying = catalog.constant("gemm.efficiency"), catalog.constant("memory.stream_efficiency")
    sustained = catalog.constant("gemm.sustained") * efficiency
    plain = catalog.constant("gemm.fp32")
    return Gpu(name, PLAIN_SMS, {}, efficiency, sustained, plain, 0.0, 0.0, copying, "ampere", grade="user")


def _held(base: Gpu, best: float, power: float | None) -> float:
    """What products hold all through a step, at another best rate and under a limit of the board's power.

    Near the top of its range the voltage follows the clock, so that dynamic power goes with its cube (P = C V^2 f).
    """
    share = base.sustained / base.matmul_efficiency * best
    limited = power is not None and 0 < power < base.power
    return share * (power / base.power) ** (1 / 3) if limited and power is not None else share


def _peaks(
    flops: float | Mapping[str, float], base: Mapping[str, float], remarks: Remarks, path: Path
) -> dict[str, float]:
    """One number is the 16-bit peak, and the others keep their ratio to it."""
    if isinstance(flops, float):
        ratios = {dtype: peak / base["fp16"] for dtype, peak in base.items()} or PLAIN_PEAKS
        return {dtype: ratio * flops for dtype, ratio in ratios.items()}
    for dtype in flops:
        if dtype not in DTYPES:
            remarks.wrong_key((*path, "flops", dtype), f"one of {', '.join(DTYPES)}", nearest(dtype, DTYPES))
    peaks = {**base, **flops}
    if "fp16" not in peaks:
        remarks.wrong((*path, "flops"), "no fp16", "at least the dense fp16 rate")
    return peaks


def nic_figures(spec: PortFigures, remarks: Remarks, path: Path) -> tuple[Nic, float] | None:
    """Figures and rate of a port: by name, or the nearest of its kind."""
    chosen = _named_nic(spec, remarks, path) if spec.device else _nearest_nic(spec, remarks, path)
    if chosen is None:
        return None
    figures, rate = chosen
    if spec.efficiency is None and spec.latency is None:
        return figures, rate
    delay = figures.latency if spec.latency is None else spec.latency
    large = delay + figures.large_latency - figures.latency
    own = replace(figures, efficiency=spec.efficiency or figures.efficiency, latency=delay, large_latency=large)
    return replace(own, grade="user"), rate


def unlike_ports(spec: NicSpec) -> tuple[UnlikePorts, ...]:
    """The ports that are not as the others, of whose kind they are where none is given."""
    named = catalog.nics().get(spec.device or "")
    kind = {"kind": spec.kind or (named.kind if named else None)}
    return tuple(other if other.device or other.kind else other.model_copy(update=kind) for other in spec.unlike)


def _named_nic(spec: PortFigures, remarks: Remarks, path: Path) -> tuple[Nic, float] | None:
    entry = catalog.nics().get(spec.device or "")
    if entry is None:
        remarks.unknown((*path, "device"), spec.device or "", "a port of the catalogue", list(catalog.nics()))
        return None
    if spec.kind is not None and spec.kind != entry.kind:
        remarks.wrong((*path, "kind"), f'"{spec.kind}"', f'"{entry.kind}", as {spec.device} is')
    return entry.figures, spec.bandwidth or entry.bandwidth


def _nearest_nic(spec: PortFigures, remarks: Remarks, path: Path) -> tuple[Nic, float] | None:
    if spec.bandwidth is None:
        remarks.wrong((*path, "bandwidth"), "nothing", 'the rate of a port such as "200 Gbps"')
    if spec.kind is None:
        remarks.wrong((*path, "kind"), "nothing", f"one of {', '.join(catalog.nic_kinds())}")
    elif spec.kind not in catalog.nic_kinds():
        kinds = catalog.nic_kinds()
        close = nearest(spec.kind, kinds)
        remarks.wrong((*path, "kind"), f'"{spec.kind}"', f"one of {', '.join(kinds)}", f'"{close}"' if close else "")
    elif spec.bandwidth is not None:
        entry = catalog.nic_for(spec.kind, spec.bandwidth)
        if entry.figures.grade == "D":
            shown = show_rate(spec.bandwidth, bits=True)
            remarks.note(
                f"efficiency and latency of {spec.kind} of {shown} taken from the nearest rates of the catalogue"
            )
        return entry.figures, spec.bandwidth
    return None


def socket_figures(
    spec: SocketSpec | DeviceSpec, remarks: Remarks, path: Path
) -> tuple[Socket, float | None, float | None] | None:
    """Figures of a CPU; the rates of its memory and of its links to other sockets, where the catalogue knows them."""
    if spec.device is None:
        if spec.cores is None:
            remarks.wrong((*path, "device"), "nothing", "a CPU of the catalogue, or cores")
            return None
        return Socket(f"CPU of {spec.cores} cores", spec.cores, "user"), None, None
    entry = catalog.sockets().get(spec.device) if isinstance(spec.device, str) else None
    if entry is None:
        remarks.unknown((*path, "device"), str(spec.device), "a CPU of the catalogue", list(catalog.sockets()))
        return None
    figures = entry.figures if spec.cores is None else replace(entry.figures, cores=spec.cores, grade="user")
    return figures, entry.dram_bandwidth, entry.link_bandwidth or None


def drive_figures(spec: NvmeSpec | DeviceSpec, remarks: Remarks, path: Path) -> Drive | None:
    """Figures of a drive: named, given, or named and partly given otherwise."""
    base: Drive | None = None
    if spec.device is not None:
        base = catalog.drives().get(spec.device) if isinstance(spec.device, str) else None
        if base is None:
            remarks.unknown((*path, "device"), str(spec.device), "a drive of the catalogue", list(catalog.drives()))
            return None
    read, write = spec.read or (base and base.read), spec.write or (base and base.write)
    for key, rate in (("read", read), ("write", write)):
        if not rate:
            remarks.wrong((*path, key), "nothing", 'a rate such as "6.5 GB/s", or a drive of the catalogue as device')
    if not read or not write:
        return None
    cache = spec.cache if spec.cache is not None else base.cache if base else 0.0
    sustained = _sustained(spec, base, write, remarks, path)
    if base is None:
        return Drive(f"NVMe {show_rate(read)} read", read, write, sustained, cache, "user")
    said = replace(base, read=read, write=write, sustained_write=sustained, cache=cache)
    return base if said == base else replace(said, grade="user")


def _sustained(spec: NvmeSpec | DeviceSpec, base: Drive | None, write: float, remarks: Remarks, path: Path) -> float:
    """What a drive writes once its cache is full: as given, else as its device does, which is what it writes at first
    where it has no cache; never more than that."""
    if spec.sustained_write is not None:
        if spec.sustained_write > write:
            most = f"at most {show_rate(write)}, which the drive writes at first"
            remarks.wrong((*path, "sustained_write"), show_rate(spec.sustained_write), most)
        return spec.sustained_write
    if base is not None and base.cache:
        return min(base.sustained_write, write)
    if spec.cache:
        remarks.wrong((*path, "sustained_write"), "nothing", "what the drive writes once its cache is full")
    return write
