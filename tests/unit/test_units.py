"""What each spelling of a quantity means, or that it is refused with what was probably meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from zerosim import units
from zerosim.units import UnitError

Parser = Callable[[object], float]


@pytest.mark.parametrize(
    ("parse", "given", "expected"),
    [
        (units.parse_rate, "25 GB/s", 25e9),
        (units.parse_rate, "25 GBps", 25e9),
        (units.parse_rate, "25GB/s", 25e9),
        (units.parse_rate, "100Gbps", 12.5e9),
        (units.parse_rate, "100 Gb/s", 12.5e9),
        (units.parse_rate, "100 Gbit/s", 12.5e9),
        (units.parse_rate, "1 GiB/s", 2.0**30),
        (units.parse_rate, "5e8", 5e8),
        (units.parse_rate, 12_500_000_000, 12.5e9),
        (units.parse_size, "80 Gb", 10e9),
        (units.parse_size, "80 GB", 80e9),
        (units.parse_size, "80 GiB", 80 * 1024**3),
        (units.parse_size, "2KB", 2000),
        (units.parse_size, "2 kB", 2000),
        (units.parse_size, "2 KiB", 2048),
        (units.parse_size, "1_000 B", 1000),
        (units.parse_size, "0", 0),
        (units.parse_seconds, "5 us", 5e-6),
        (units.parse_seconds, "5 µs", 5e-6),
        (units.parse_seconds, "5 μs", 5e-6),
        (units.parse_seconds, "1.5e3 ms", 1.5),
        (units.parse_seconds, "2 min", 120),
        (units.parse_seconds, "5e-6", 5e-6),
        (units.parse_count, "500m", 500e6),
        (units.parse_count, "500M", 500e6),
        (units.parse_count, "7b", 7e9),
        (units.parse_count, "7B", 7e9),
        (units.parse_count, "16k", 16_000),
        (units.parse_count, "5e8", 5e8),
        (units.parse_flops, "312 TFLOPS", 312e12),
        (units.parse_flops, "312 TFLOP/s", 312e12),
        (units.parse_flops, 312e12, 312e12),
        (units.parse_share, "10%", 0.1),
        (units.parse_share, "10 %", 0.1),
        (units.parse_share, 0.8, 0.8),
    ],
)
def test_reads(parse: Parser, given: object, expected: float) -> None:
    assert parse(given) == expected


@pytest.mark.parametrize(
    ("parse", "given", "nearest"),
    [
        (units.parse_size, "80G", '"80 GB" or "80 GiB" or "80 Gb"'),
        (units.parse_size, "80 gb", '"80 GB" or "80 Gb"'),
        (units.parse_size, "80 GBIT", '"80 Gbit"'),
        (units.parse_size, "80 gib", '"80 GiB" or "80 Gib"'),
        (units.parse_rate, "25 GBs", '"25 GBps"'),
        (units.parse_rate, "25 GB", '"25 GB/s" or "25 GBps"'),
        (units.parse_rate, "100 gbps", '"100 GBps" or "100 Gbps"'),
        (units.parse_seconds, "500m", '"500 ms" or "500 min"'),
        (units.parse_flops, "312T", '"312 TFLOP/s" or "312 TFLOPS" or "312 TFLOPs"'),
    ],
)
def test_refuses_with_what_was_meant(parse: Parser, given: str, nearest: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(given)
    assert caught.value.nearest == nearest
    assert str(caught.value).endswith(f"nearest {nearest}")


@pytest.mark.parametrize("parse", [units.parse_rate, units.parse_size, units.parse_seconds, units.parse_count])
@pytest.mark.parametrize(
    "given",
    [
        *("", "fast", "GB", "5 parsecs", "1 2", "1__0", "-5", "nan", "inf", "1e999"),
        *(-1, float("nan"), float("inf"), 10**400, True, False, None, [], {}),
    ],
)
def test_refuses(parse: Parser, given: object) -> None:
    with pytest.raises(UnitError, match="expected a"):
        parse(given)


def test_message_names_found_and_expected() -> None:
    with pytest.raises(UnitError, match='found "25 GBs"; expected a rate such as "25 GB/s"'):
        units.parse_rate("25 GBs")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.show_size(17.6e9), "17.6 GB"),
        (units.show_size(0), "0 B"),
        (units.show_size(2_000), "2 kB"),
        (units.show_size(-5e6), "-5 MB"),
        (units.show_rate(25e9), "25 GB/s"),
        (units.show_rate(12.5e9, bits=True), "100 Gb/s"),
        (units.show_seconds(0.0123456), "12.35 ms"),
        (units.show_seconds(0.99999), "1 s"),
        (units.show_seconds(5e-6), "5 us"),
        (units.show_seconds(0), "0 s"),
        (units.show_count(6_738_415_616), "6.738B"),
        (units.show_count(500e6), "500M"),
        (units.show_count(12), "12"),
        (units.show_flops(989.4e12), "989.4 TFLOP/s"),
        (units.show_share(0.12345), "12.3 %"),
        (units.show_share(1), "100 %"),
        (units.show_share(0), "0 %"),
        (units.show_share(25), "2500 %"),
    ],
)
def test_shows(shown: str, text: str) -> None:
    assert shown == text


def test_importing_units_stays_cheap() -> None:
    code = "import sys, zerosim.units; print([m for m in ('pydantic', 'yaml', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
