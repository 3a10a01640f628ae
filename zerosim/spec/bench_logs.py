"""Output of other benchmarks: copies (nvbandwidth, bandwidthTest), disks (fio, ds_io), all_reduce_bench.py.

Each is known by words that only it prints. Rates are told as they stand there, with their unit: fio has MiB/s and, in
parentheses, MB/s; nvbandwidth and bandwidthTest GB/s of 1e9; all_reduce_bench.py Gbps, or GBps in later versions. What
is known but tells nothing that a calibration needs is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.bench_json import COPIES, json_rates
from zerosim.spec.calibration import is_rate
from zerosim.spec.nccl_log import UNASKED, Asked, Sweep, nodes_of
from zerosim.spec.nccl_rows import lines
from zerosim.units import UnitError, parse_rate

COLD = 3.0  # times the median from which a trial is the first one, which sets up connections


class Found(NamedTuple):
    """What a text holds: sweeps of collectives, or rates by name."""

    sweeps: tuple[Sweep, ...] = ()
    rates: Mapping[str, float] = {}


class Kind(NamedTuple):
    """A benchmark: how it is called, the words that tell it, and its reader."""

    name: str
    mark: re.Pattern[str]
    read: Callable[[str, str, Asked], Found]


def read_benchmark(text: str, source: str, asked: Asked = UNASKED) -> Found:
    """What a text of one of the known kinds holds."""
    rates = json_rates(text)
    if rates is not None:
        expected = "jobs of fio that read or write, or host_to_device_memcpy_ce or device_to_host_memcpy_ce"
        return _rates(rates, source, expected)
    text = "\n".join(lines(text))
    for kind in KINDS:
        if kind.mark.search(text):
            return kind.read(text, source, asked)
    known = ", ".join(dict.fromkeys(kind.name for kind in KINDS))
    raise InputError([Problem(source, found="no log of a known benchmark", expected=f"one of nccl-tests, {known}")])


# --- collectives -----------------------------------------------------------------------------------------------------

_TRIAL = re.compile(
    r"duration:\s*([\d.]+)\s*sec.{0,400}?algo throughput:\s*([\d.]+)\s*Gbps.{0,400}?busbw:\s*([\d.]+)\s*Gbps", re.DOTALL
)
_PAYLOAD = re.compile(r"data size:\s*([\d.]+)\s*GB")
_TABLE = re.compile(r"^[^\w\n]*([\d.]+)\s*(B|KB|MB|GB)\s*\|\s*([\d.]+)\s*GBps\s*\|\s*([\d.]+)\s*GBps", re.MULTILINE)
_HEADS = re.compile(r"payload\s*\|\s*(busbw|algbw)\s*\|\s*(busbw|algbw)")
_OVER = re.compile(r"over\s+(\d+)\s+ranks")
_AVERAGE = re.compile(
    r"([\d.]+)\s*GB payload\s*\(\d+ trials, (\d+) ranks\).{0,400}?algbw:\s*([\d.]+)\s*GBps", re.DOTALL | re.IGNORECASE
)
_PREFIX = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def _trials(text: str, source: str, asked: Asked) -> Found:
    """The first version: one payload, a block for each rank and trial. `busbw` = 2 (n-1)/n S / t in Gbps, `algo
    throughput` = 2 S / t; so that their ratio is (n-1)/n. The cold trials are left out."""
    trials = [tuple(map(float, found)) for found in _TRIAL.findall(text)]
    payload = _PAYLOAD.search(text)
    if not trials or payload is None:
        raise InputError([Problem(source, found="all_reduce_bench.py without trials", expected="duration and busbw")])
    middle = median(trial[0] for trial in trials)
    warm = [trial for trial in trials if 0 < trial[0] <= COLD * middle]
    shares = [busbw / algo for _, algo, busbw in warm if algo > busbw > 0]
    if not shares:
        raise InputError([Problem(source, found="no busbw below the throughput", expected="(n-1)/n of it")])
    gpus = round(1 / (1 - median(shares)))
    told = ["one payload"]
    cold = len(trials) - len(warm)
    if cold:
        told.append(f"{cold} cold trial{'s' if cold > 1 else ''} left out")
    point = (float(payload[1]) * 1e9, median(trial[0] for trial in warm))
    return _sweep(source, gpus, (point,), told, asked)


def _payloads(text: str, source: str, asked: Asked) -> Found:
    """The later version: a table by payload (powers of two called KB) of busbw and algbw in GBps."""
    over, heads = _OVER.search(text), _HEADS.search(text)
    rows = _TABLE.findall(text)
    if over is None or heads is None or not rows or int(over[1]) < 2:
        expected = "a table of payloads with busbw and algbw in GBps, over N ranks"
        raise InputError([Problem(source, found="all_reduce_bench.py without its table", expected=expected)])
    algbw = 2 if heads[1] == "algbw" else 3
    sizes = [(float(row[0]) * _PREFIX[row[1]], float(row[algbw])) for row in rows]
    points = tuple((size, size / (rate * 1e9)) for size, rate in sorted(dict(sizes).items()) if rate >= 0.1)
    told = ["times from algbw, none below 0.1 GB/s, as it has two digits"]
    return _sweep(source, int(over[1]), points, told, asked)


def _average(text: str, source: str, asked: Asked) -> Found:
    """Versions between: one payload, and the average over trials and ranks."""
    found = _AVERAGE.search(text)
    if found is None or int(found[2]) < 2:
        expected = "the average with its payload, trials and ranks"
        raise InputError([Problem(source, found="all_reduce_bench.py without its average", expected=expected)])
    size, rate = float(found[1]) * 1e9, float(found[3]) * 1e9
    return _sweep(source, int(found[2]), ((size, size / rate),) if rate else (), ["time from the average algbw"], asked)


def _sweep(source: str, gpus: int, points: Sequence[tuple[float, float]], told: list[str], asked: Asked) -> Found:
    if asked.collective not in (None, "all_reduce") or asked.gpus not in (None, gpus) or not points:
        found = f"all_reduce of {gpus} GPUs, {len(points)} sizes"
        raise InputError([Problem(source, found=found, expected="what --collective and --gpus say, and sizes")])
    nodes = nodes_of(gpus, source, asked, told)
    return Found((Sweep(source, "all_reduce", gpus, nodes, tuple(points), tuple(told), "all_reduce_bench.py"),))


def _comms_logger(_text: str, source: str, _: Asked) -> Found:
    found = "a summary of DeepSpeed's comms logger, whose times include waiting for other ranks (rates in Gbps)"
    raise InputError([Problem(source, found=found, expected="nccl-tests, which time the collective alone")])


# --- copies ----------------------------------------------------------------------------------------------------------

_TEST = re.compile(r"Running\s+(?:benchmark\s+)?(\w+?)\.?\s*$|^(\w+_memcpy_\w+)\s*$", re.MULTILINE)
_MATRIX = re.compile(r"^[ \t]*0((?:[ \t]+(?:\d+\.\d+|N/A))+)[ \t]*$", re.MULTILINE)
_OLD_TEST = re.compile(
    r"(Host to Device|Device to Host) Bandwidth(?:, (\d+) Device)?.*?\n(.*?)(?=\n[ \t]*(?:Host|Device) to|\Z)",
    re.DOTALL,
)
_OLD_ROW = re.compile(r"^[ \t]*\d+[ \t]+([\d.]+)[ \t]*$", re.MULTILINE)
_OLD_UNIT = re.compile(r"Bandwidth\((GB/s|MB/s)\)")


def _nvbandwidth(text: str, source: str, _: Asked) -> Found:
    """Matrices of one row, GB/s by GPU: the median GPU. Bidirectional tests print the rate of one direction, the other
    being a load of its own; they are not taken."""
    rates: dict[str, float] = {}
    marks = [(found.start(), found[1] or found[2]) for found in _TEST.finditer(text)]
    for (start, test), (end, _next) in pairwise([*marks, (len(text), "")]):
        row = _MATRIX.search(text, start, end)
        known = [float(rate) for rate in row[1].split() if rate != "N/A"] if row else []
        if test in COPIES and known:
            rates[COPIES[test]] = median(known) * 1e9
    return _rates(rates, source, "host_to_device_memcpy_ce or device_to_host_memcpy_ce")


def _bandwidth_test(text: str, source: str, _: Asked) -> Found:
    """bandwidthTest of the CUDA samples: the largest rate of pinned copies."""
    unit = _OLD_UNIT.search(text)
    scale = 1e6 if unit and unit[1] == "MB/s" else 1e9
    rates: dict[str, float] = {}
    if re.search(r"PAGEABLE", text, re.IGNORECASE) and not re.search(r"PINNED", text, re.IGNORECASE):
        raise InputError([Problem(source, found="copies from pageable memory", expected="--memory=pinned")])
    for way, devices, body in _OLD_TEST.findall(text):
        if devices not in ("", "1"):
            raise InputError([Problem(source, found=f"copies of {devices} GPUs, added up", expected="one: --device=0")])
        measured = [] if "PAGEABLE" in body.upper() else [float(row) for row in _OLD_ROW.findall(body)]
        if measured:
            rates["copies.h2d" if way.startswith("Host") else "copies.d2h"] = max(measured) * scale
    return _rates(rates, source, "Host to Device and Device to Host Bandwidth of pinned memory")


# --- disks -----------------------------------------------------------------------------------------------------------

_FIO = re.compile(r"^[ \t]*(READ|WRITE):\s*bw=(\S+?)\s*\((\d+(?:\.\d+)?[kMG]?B/s)\)", re.MULTILINE)
_TUNED = re.compile(r"Best performance \(GB/sec\): read\s*=\s*([\d.]+), write\s*=\s*([\d.]+)")  # ds_nvme_tune
_DS_IO = re.compile(r"\b(read|write)\b.*?([\d.]+)\s*(GB/sec|GB/s|GBs)", re.IGNORECASE)


def _fio(text: str, source: str, _: Asked) -> Found:
    """The run status at the end, MB/s in parentheses; of several runs the best."""
    rates: dict[str, float] = {}
    for way, _, rate in _FIO.findall(text):
        name = f"nvme.{way.lower()}"
        try:
            rates[name] = max(rates.get(name, 0.0), parse_rate(rate))
        except UnitError:
            continue
    return _rates(rates, source, "a run status such as READ: bw=6200MiB/s (6501MB/s)")


def _ds_io(text: str, source: str, _: Asked) -> Found:
    """DeepSpeed's ds_io and its sweep: the best row of each direction."""
    rates: dict[str, float] = {}
    tuned = [(way, rate) for found in _TUNED.findall(text) for way, rate in zip(("read", "write"), found, strict=True)]
    for way, rate in [*tuned, *(found[:2] for found in _DS_IO.findall(text))]:
        name = f"nvme.{way.lower()}"
        try:
            rates[name] = max(rates.get(name, 0.0), float(rate) * 1e9)
        except ValueError:
            continue
    return _rates(rates, source, "rows with a read or write speed in GB/sec")


def _rates(rates: Mapping[str, float], source: str, expected: str) -> Found:
    known = {name: rate for name, rate in rates.items() if is_rate(rate)}
    if not known:
        raise InputError([Problem(source, found="no rate", expected=expected)])
    return Found(rates=known)


KINDS: tuple[Kind, ...] = (
    Kind("DeepSpeed comms logger", re.compile(r"Comm\. Op\s+Message Size"), _comms_logger),
    Kind("all_reduce_bench.py", re.compile(r"algo throughput:"), _trials),
    Kind("all_reduce_bench.py", _HEADS, _payloads),
    Kind("all_reduce_bench.py", re.compile(r"GB payload \(\d+ trials"), _average),
    Kind("nvbandwidth", re.compile(r"nvbandwidth|_memcpy_(?:ce|sm)"), _nvbandwidth),
    Kind("bandwidthTest", re.compile(r"(?:Host to Device|Device to Host) Bandwidth"), _bandwidth_test),
    Kind("fio", re.compile(r"^[ \t]*(?:READ|WRITE):\s*bw=", re.MULTILINE), _fio),
    Kind("ds_io", re.compile(r"\bds_io\b|\d[ \t]*GB/sec|\(GB/sec\)", re.IGNORECASE), _ds_io),
)
