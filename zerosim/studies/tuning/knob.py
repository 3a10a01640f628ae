"""A knob: a setting of a scenario with the values that are tried, and the changes that each of them is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from zerosim.scenario import Scenario
from zerosim.spec.changes import Change

Value = str | int | float | bool | None
Block = Literal["strategy", "reduction", "gathering", "optimizer"]
MOST_BATCHES = 6  # sizes of a micro-batch in the default grid


class Knob(NamedTuple):
    """`values` in their order; `baseline` is one of them, for which nothing is changed unless `always`.

    `read` is the value that a scenario has. Knobs of a `block` act on each other more than on those of other blocks.
    `stages` of ZeRO read it; `""` where the strategy has none. `ranged`: all numbers between the values would do.
    """

    name: str
    values: tuple[Value, ...]
    baseline: Value
    block: Block
    change: Callable[[Value], tuple[Change, ...]]
    read: Callable[[Scenario], Value]
    stages: str = ""
    always: bool = False
    ranged: bool = False

    def changes(self, value: Value) -> tuple[Change, ...]:
        """What makes it this value."""
        return () if value == self.baseline and not self.always else self.change(value)

    def with_values(self, values: Iterable[Value]) -> Knob:
        """The same with other values; the baseline's stays."""
        listed = list(dict.fromkeys(values))
        if self.baseline not in listed:
            listed.append(self.baseline)
        numbers = [value for value in listed if isinstance(value, int | float) and not isinstance(value, bool)]
        ordered = sorted(numbers) if len(numbers) == len(listed) else listed
        return self._replace(values=tuple(ordered))


class LeftOut(NamedTuple):
    """A knob that is not searched, and why."""

    name: str
    reason: str


def clipped(values: Iterable[float], enough: float) -> list[int]:
    """The values up to the first that is `enough`: larger ones do the same."""
    ordered = sorted(map(int, values))
    return [value for place, value in enumerate(ordered) if not place or ordered[place - 1] < enough]


def rounded(value: float) -> int:
    """A whole number with two digits that are not 0: 7812500 is 7800000."""
    if value < 10:
        return round(value)
    digit = 10 ** (math.floor(math.log10(value)) - 1)
    return int(round(value / digit) * digit)


def spread(numbers: Sequence[int], most: int, kept: int) -> list[int]:
    """At most `most` of the numbers (ascending, from 1 up), about evenly on a logarithmic scale, and `kept`."""
    if len(numbers) <= most:
        return list(numbers)
    aims = [math.log(numbers[-1]) * place / (most - 1) for place in range(most)]
    near = {min(numbers, key=lambda number: abs(math.log(number) - aim)) for aim in aims}
    if kept not in near and len(near) == most:
        near.discard(min(near - {numbers[0], numbers[-1]}, key=lambda each: abs(math.log(each / kept))))
    return sorted(near | {kept})
