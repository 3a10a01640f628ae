"""The border between text with units and plain numbers in base units (bytes, bytes/s, seconds, elements, FLOP/s).

One closed table a dimension, so that `m` can mean a million in a count and is refused in a time. Case decides: `B` is a
byte, `b` a bit; `KiB` is 1024 bytes, `kB` and `KB` are 1000. What is not in the table is refused with the nearest unit
that is, never guessed: `80G` could be three things. Numbers without a unit are in the base unit. All quantities are
finite and not negative. This module knows no file and no schema.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, Overflow
from numbers import Real

_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>\S*)")
_DIGITS = 4  # significant digits shown; nothing here is known better than that


class UnitError(ValueError):
    """A quantity that cannot be read: what was found, what was expected, what is nearest to it."""

    def __init__(self, found: object, expected: str, nearest: str = "") -> None:
        self.found, self.expected, self.nearest = found, expected, nearest
        shown = f'"{found}"' if isinstance(found, str) else str(found)
        hint = f"; nearest {nearest}" if nearest else ""
        super().__init__(f"found {shown}; expected {expected}{hint}")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A kind of quantity: its units with their factors to the base unit, and how it is called and written."""

    name: str
    example: str
    units: Mapping[str, float]

    def parse(self, given: object) -> float:
        """The quantity in base units."""
        if isinstance(given, str):
            return self._finite(given, self._read(given))
        if isinstance(given, Real) and not isinstance(given, bool):
            return self._finite(given, given)
        raise UnitError(given, self.expected)

    @property
    def expected(self) -> str:
        return f'{self.name} such as "{self.example}"'

    def _read(self, text: str) -> float:
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:
            raise UnitError(text, self.expected)
        number, unit = match["number"], match["unit"]
        if unit and unit not in self.units:
            likely = [f'"{number} {known}"' for known in _likely(unit, self.units)]
            raise UnitError(text, self.expected, " or ".join(likely))
        factor = self.units[unit] if unit else 1.0
        try:
            return float(Decimal(number) * Decimal(repr(factor)))  # as decimals: "5 us" is the float nearest to 5e-6
        except Overflow:
            return math.inf

    def _finite(self, given: object, value: Real | float) -> float:
        try:
            plain = float(value)
        except OverflowError:
            plain = math.inf
        if not math.isfinite(plain):
            raise UnitError(given, f"{self.expected}, finite")
        if plain < 0:
            raise UnitError(given, f"{self.expected}, not negative")
        return plain


def _likely(unit: str, known: Iterable[str]) -> list[str]:
    """Up to three known units that `unit` may have meant: other case, then longer spelling, then similar spelling."""
    names = list(known)
    folded = unit.casefold()
    other_case = [name for name in names if name.casefold() == folded]
    longer = [name for name in names if name.startswith(unit)]
    return (other_case or longer or difflib.get_close_matches(unit, names, n=1, cutoff=0.6))[:3]


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIX = _DECIMAL | _BINARY
_SIZE = {f"{p}B": f for p, f in _PREFIX.items()} | {
    f"{p}{bit}": f / 8 for p, f in _PREFIX.items() for bit in ("b", "bit")
}
_RATE = {f"{unit}{per}": factor for per in ("/s", "ps") for unit, factor in _SIZE.items()}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_COUNT = {"k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "b": 1e9, "B": 1e9, "t": 1e12, "T": 1e12}
_FLOPS = {f"{p}{word}": f for p, f in _DECIMAL.items() for word in ("FLOP/s", "FLOPS", "FLOPs", "flops", "flop/s")}

SIZE = Dimension("a size", "80 GB", _SIZE)
RATE = Dimension("a rate", "25 GB/s", _RATE)
SECONDS = Dimension("a time", "5 us", _TIME)
COUNT = Dimension("a count", "500m", _COUNT)
FLOPS = Dimension("a compute rate", "312 TFLOP/s", _FLOPS)
POWER = Dimension("a power", "500 W", {"W": 1.0, "kW": 1e3})
SHARE = Dimension("a share", "10 %", {"%": 0.01})


def parse_size(given: object) -> float:
    """Bytes: "80 GiB", "2 MB"."""
    return SIZE.parse(given)


def parse_rate(given: object) -> float:
    """Bytes per second: "25 GB/s", "100 Gbps"."""
    return RATE.parse(given)


def parse_seconds(given: object) -> float:
    """Seconds: "5 us"."""
    return SECONDS.parse(given)


def parse_count(given: object) -> float:
    """Elements: "500m" is 500 million, "5e8" too."""
    return COUNT.parse(given)


def parse_flops(given: object) -> float:
    """FLOP per second: "312 TFLOPS"."""
    return FLOPS.parse(given)


def parse_power(given: object) -> float:
    """Watts: "500 W"."""
    return POWER.parse(given)


def parse_share(given: object) -> float:
    """A fraction: "10 %" is 0.1."""
    return SHARE.parse(given)


_SHOW_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SHOW_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SHOW_TIME = ((3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SHOW_COUNT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> tuple[str, str]:
    """The number and the prefix of the largest step that leaves it at least 1. 999.96 ms rounds to 1 s, not 1000 ms."""
    rounded = float(f"{value:.{_DIGITS}g}")
    fitting = (step for step in steps if abs(rounded) >= step[0])
    scale, prefix = next(fitting, steps[-1]) if rounded else next(step for step in steps if step[0] == 1.0)
    return _plain(value / scale), prefix


def _plain(number: float) -> str:
    """Four digits, and no exponent where a few zeros say it."""
    return f"{number:.0f}" if 1e4 <= abs(number) < 1e9 else f"{number:.{_DIGITS}g}"


def show_size(size: float) -> str:
    """ "17.6 GB": powers of 1000."""
    number, prefix = _scaled(size, _SHOW_SI)
    return f"{number} {prefix}B"


def show_binary_size(size: int) -> str:
    """ "64 KiB" where it is whole in one of the binary units, else as other sizes."""
    whole = next(((size // unit, name) for unit, name in _SHOW_BINARY if size % unit == 0), None)
    return f"{whole[0]} {whole[1]}" if whole and whole[0] < 10_000 else show_size(size)


def show_rate(rate: float, bits: bool = False) -> str:
    """ "25 GB/s", or for a network "200 Gb/s"."""
    number, prefix = _scaled(rate * 8 if bits else rate, _SHOW_SI)
    return f"{number} {prefix}{'b' if bits else 'B'}/s"


def show_seconds(seconds: float) -> str:
    """ "12.34 ms"; hours where seconds would have five digits."""
    return " ".join(_scaled(seconds, _SHOW_TIME if abs(seconds) >= 9999.5 else _SHOW_TIME[1:]))


def show_count(count: float) -> str:
    """ "6.738B": short scale, as models are called."""
    return "".join(_scaled(count, _SHOW_COUNT))


def show_flops(rate: float) -> str:
    """ "312 TFLOP/s"."""
    number, prefix = _scaled(rate, _SHOW_SI)
    return f"{number} {prefix}FLOP/s"


def show_power(power: float) -> str:
    """ "6.5 kW"."""
    number, prefix = _scaled(power, _SHOW_SI)
    return f"{number} {prefix}W"


def show_share(share: float) -> str:
    """ "12.3 %"."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 1000 else f"{percent:.3g} %"
