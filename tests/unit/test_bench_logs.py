"""Output of other benchmarks: which it is, the rates in it with their units, and what tells nothing."""

from __future__ import annotations

import json

import pytest

from zerosim.errors import InputError
from zerosim.spec.bench_logs import read_benchmark
from zerosim.spec.nccl_log import UNASKED, Asked, Sweep

TRIALS = """\
data size: 4.0 GB
ignore me 0
0:
 duration: 0.6000 sec
 algo throughput: 106.6667 Gbps
 busbw: 80.0000  Gbps
node-0:1:9 [0] NCCL INFO comm 0x5
1:
 duration: 0.0500 sec
 algo throughput: 1280.0000 Gbps
 busbw: 960.0000  Gbps
2:
 duration: 0.0480 sec
 algo throughput: 1333.3333 Gbps
 busbw: 1000.0000  Gbps
3:
 duration: 0.0500 sec
 algo throughput: 1280.0000 Gbps
 busbw: 960.0000  Gbps
"""
TABLE = """\
The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    32KB |   0.05GBps |   0.03GBps |
|    64MB | 140.00GBps |  80.00GBps |
|     4GB | 437.50GBps | 250.00GBps |
"""
NVBANDWIDTH = """\
nvbandwidth Version: v0.6
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0     55.10     55.30     54.90

SUM host_to_device_memcpy_ce 165.30

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1         2
 0     50.00     50.20     50.10

Running host_to_device_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
           0         1         2
 0     18.00     18.00     18.00
"""
OLD_TEST = """\
[CUDA Bandwidth Test] - Starting...
 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t12.3

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t13.2

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t1157.5
"""
FIO = """\
read: (groupid=0, jobs=4): err= 0: pid=41: Mon Nov 30
  read: IOPS=6199, BW=6200MiB/s (6501MB/s)(363GiB/60001msec)
Run status group 0 (all jobs):
   READ: bw=6200MiB/s (6501MB/s), 1550MiB/s-1550MiB/s (1625MB/s-1625MB/s), io=363GiB (390GB), run=60001-60001msec
  WRITE: bw=3.9GiB/s (4.2GB/s), 1MiB/s-1MiB/s (1MB/s-1MB/s), io=1GiB (1GB), run=1-1msec
"""
DS_IO = """\
('read', 'single', 'overlap', 1, 8, 131072) = 5.61 GB/sec
('read', 'single', 'overlap', 4, 32, 1048576) = 6.83 GB/sec
('write', 'block', 'overlap', 1, 8, 131072) = 4.02 GB/sec
"""
COMMS = """\
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)
broadcast
                    2.0 KB              146                 11.12               0.08                0.43
"""


def sweep(text: str, asked: Asked = UNASKED) -> Sweep:
    (found,) = read_benchmark(text, "bench.out", asked).sweeps
    return found


def test_trials_of_all_reduce_bench() -> None:
    """The cold trial is left out; 4 GB in 50 ms are 2 x 640 Gbps, of which the bus has 3/4 over 4 GPUs."""
    found = sweep(TRIALS)
    assert (found.collective, found.gpus, found.nodes, found.points) == ("all_reduce", 4, 1, ((4e9, 0.05),))
    assert "1 cold trial left out" in found.told
    assert sweep(TRIALS, Asked(nodes=2)).nodes == 2


def test_the_table_of_all_reduce_bench() -> None:
    found = sweep(TABLE)
    assert (found.gpus, found.nodes) == (8, 1)
    first, last = found.points
    assert first == pytest.approx((2**26, 2**26 / 80e9))
    assert last == pytest.approx((2**32, 2**32 / 250e9))


def test_the_average_of_all_reduce_bench() -> None:
    heading = "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):\n"
    found = sweep(heading + " algbw: 10.0 GBps (80.0 Gbps)\n busbw: 18.75 GBps (150.0 Gbps)\n")
    assert (found.gpus, found.nodes) == (16, 2)
    assert found.points[0] == pytest.approx((4e9, 0.4))


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        (NVBANDWIDTH, {"copies.h2d": 55.1e9, "copies.d2h": 50.1e9}),
        (OLD_TEST, {"copies.h2d": 12.3e9, "copies.d2h": 13.2e9}),
        (OLD_TEST.replace("GB/s", "MB/s").replace("12.3", "12300.0"), {"copies.h2d": 12.3e9, "copies.d2h": 13.2e6}),
        (FIO, {"nvme.read": 6501e6, "nvme.write": 4.2e9}),
        (DS_IO, {"nvme.read": 6.83e9, "nvme.write": 4.02e9}),
    ],
    ids=["nvbandwidth", "bandwidthTest", "bandwidthTest in MB/s", "fio", "ds_io"],
)
def test_rates(text: str, rates: dict[str, float]) -> None:
    assert read_benchmark(text, "x").rates == pytest.approx(rates)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COMMS, "found a summary of DeepSpeed's comms logger, whose times include waiting"),
        (OLD_TEST.replace("PINNED", "PAGEABLE"), "found copies from pageable memory; expected --memory=pinned"),
        ("READ: bw=nothing\n", "expected a run status such as"),
        ("nvbandwidth Version: v0.6\n", "found no rate; expected host_to_device_memcpy_ce"),
        (OLD_TEST.replace("1 Device", "8 Device"), "found copies of 8 GPUs, added up; expected one: --device=0"),
        ('{"nvbandwidth": {"testcases": 5}}', "expected jobs of fio that read or write, or host_to_device_memcpy_ce"),
        (
            '{"fio version": "fio-3.28", "jobs": [{"read": {"bw_bytes": "x"}}, 5]}',
            "found no rate; expected jobs of fio",
        ),
        ("hello\n", "found no log of a known benchmark; expected one of nccl-tests, "),
        (TABLE.replace("over 8 ranks", ""), "found all_reduce_bench.py without its table"),
        (TRIALS.replace("data size", "size"), "found all_reduce_bench.py without trials"),
    ],
)
def test_what_tells_nothing_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        read_benchmark(text, "bench.out")
    assert len(told.value.problems) == 1
    assert str(told.value).startswith("bench.out: ")
    assert said in str(told.value)


def test_what_is_asked_must_be_what_it_is() -> None:
    with pytest.raises(InputError, match="what --collective and --gpus say"):
        read_benchmark(TRIALS, "x", Asked(gpus=8))


JOB = {"groupid": 0, "read": {"bw_bytes": 3_000_000_000, "bw": 2929687}, "write": {"bw_bytes": 0, "bw": 0}}
IN_JSON = [
    (
        {"nvbandwidth": {"testcases": [
            {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.5", "54.5", "N/A"]], "sum": "110"},
            {"name": "device_to_host_memcpy_ce", "bandwidth_matrix": [[53.0]]},
            {"name": "device_to_device_memcpy_read_ce", "status": "Waived"},
        ]}},
        {"copies.h2d": 55e9, "copies.d2h": 53e9},
    ),
    # two jobs at once, and before them a slower one alone
    (
        {"fio version": "fio-3.28", "jobs": [{**JOB, "groupid": 1}, {**JOB, "groupid": 1}, JOB]},
        {"nvme.read": 6e9},
    ),
    ({"fio version": "fio-2.2", "jobs": [{"write": {"bw": 1_000_000}}]}, {"nvme.write": 1.024e9}),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "rates"), IN_JSON, ids=["nvbandwidth", "fio", "fio 2"])
@pytest.mark.parametrize("indent", [None, 2])
def test_rates_in_json(answer: object, rates: dict[str, float], indent: int | None) -> None:
    text = f"note: both iodepth >= 1 and synchronous I/O engine are selected\n{json.dumps(answer, indent=indent)}\n"
    assert read_benchmark(text, "x").rates == pytest.approx(rates)


def test_pageable_copies_beside_pinned_ones_are_left_out() -> None:
    both = OLD_TEST + OLD_TEST.replace("PINNED", "PAGEABLE").replace("2", "3")
    assert read_benchmark(both, "x").rates == read_benchmark(OLD_TEST, "x").rates


def test_the_best_of_ds_nvme_tune() -> None:
    text = "Running DeepNVMe performance tuning\nBest performance (GB/sec): read =  3.69, write =  3.18\n"
    assert read_benchmark(text, "x").rates == pytest.approx({"nvme.read": 3.69e9, "nvme.write": 3.18e9})


@pytest.mark.parametrize(
    "text", ["1" * 10**5, "1." * 10**5, "\n" * 10**5, "read " * 10**5, "[" * 10**5, '{"a":' * 10**5]
)
def test_what_is_nothing_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match="found no log of a known benchmark"):
        read_benchmark(text, "x")
