"""Cables on the page of a machine: from servers and switches to the bars that they hang on, each on a way of its own.

A cable goes straight where the bar is above (or below) its start; else along a lane, a stretch before an edge that no
other cable takes, and for servers that others stand in front of through a lane in the margin.
"""

from __future__ import annotations

from typing import NamedTuple

from zerosim.report.machine import Cable, End, Machine
from zerosim.report.machine_heat import hottest, percent, warmth
from zerosim.report.machine_marks import LINE, Box, Line, Sheet, beside, cut
from zerosim.units import show_rate

LANE = 12.0  # pixels from one lane to the next
ROOM = 118.0  # pixels for a cable and its label
EDGE = 4.0  # pixels of a bar's end where nothing arrives
Points = tuple[tuple[float, float], ...]


class Way(NamedTuple):
    """From where a cable leaves to the bar that it goes to; `side`: the x of its lane in the margin, if any."""

    x: float
    y: float
    bar: Box
    down: bool
    side: float | None


class Lanes:
    """Lanes as they are taken. `label`: the height of words at the start of a cable, which a lane stays clear of."""

    def __init__(self, label: float) -> None:
        self._label = label
        self._taken: dict[tuple[float, bool], int] = {}
        self._arrived: dict[tuple[float, float], int] = {}

    def route(self, way: Way) -> Points:
        """The points of a cable."""
        points, here = [(way.x, way.y)], way.x
        if way.side is not None:
            lane = self._lane(way.y, way.down, self._label + 6)
            here = way.side
            points += [(way.x, lane), (here, lane)]
        target = way.bar.y if way.down else way.bar.bottom
        arrive = self._arrival(way.bar, here)
        if arrive != here:
            lane = self._lane(target, not way.down, EDGE)
            points += [(here, lane), (arrive, lane)]
        return (*points, (arrive, target))

    def _lane(self, edge: float, below: bool, room: float) -> float:
        number = self._taken[edge, below] = self._taken.get((edge, below), 0) + 1
        off = room + LANE * (number - 0.5)
        return edge + off if below else edge - off

    def _arrival(self, bar: Box, x: float) -> float:
        """Where to meet a bar: right here, or at the end that is nearer."""
        if bar.x + EDGE <= x <= bar.right - EDGE:
            return x
        number = self._arrived[bar.x, bar.y] = self._arrived.get((bar.x, bar.y), 0) + 1
        return bar.x + LANE * number if x < bar.x else bar.right - LANE * number


def is_down(machine: Machine, cable: Cable) -> bool:
    """Whether it goes to switches below the servers, which those of NVLink are."""
    return machine.switches[cable.target.place].kind == "nvswitch"


def is_drawn(machine: Machine, cable: Cable) -> bool:
    """A cable between switches is where it goes one level up; other ones are told in words."""
    if cable.source.what == "server":
        return True
    one, other = (machine.switches[end.place] for end in (cable.source, cable.target))
    return other.level == one.level + 1 and one.kind != "nvswitch"


def draw_cable(sheet: Sheet, machine: Machine, cable: Cable, points: Points) -> None:
    """The line, and at its start what it carries."""
    share, rates = _share(machine, cable), rates_of(cable)
    about = f"{cable.kind}, {rates} {cable.each}".strip()
    sheet.lines.append(Line(points, cable.kind, cable.rate, about, warmth(share, machine.busy)))
    label = [cut(_short(cable), ROOM - 10), cable.each, "" if share is None else percent(share)]
    lines = [line for line in label if line]
    x, y = points[0]
    sheet.write(beside(x, cable.rate) + 4, y + LINE * len(lines) if is_down(machine, cable) else y - 6, lines)


def rates_of(cable: Cable) -> str:
    """ "7 × 200 Gb/s + 1 × 25 Gb/s": networks in bits, NVLink in bytes."""
    return " + ".join(_times(count, rate, cable.kind) for rate, count in cable.rates)


def _short(cable: Cable) -> str:
    """The same in few words, where there are several rates."""
    if len(cable.rates) == 1:
        return rates_of(cable)
    return f"{sum(count for _, count in cable.rates)} links, {_times(1, cable.rate, cable.kind)}"


def _times(count: int, rate: float, kind: str) -> str:
    shown = show_rate(rate, bits=kind == "network")
    return shown if count == 1 else f"{count} × {shown}"


def _share(machine: Machine, cable: Cable) -> float | None:
    """How busy: ports for a server, uplinks for a leaf or spine, as the classes that are behind it see them."""
    marks = _behind(machine, cable.source)
    if cable.source.what == "server":
        return hottest(machine.busy, "nvlink" if cable.kind == "nvlink" else "nic", marks)
    return hottest(machine.busy, machine.switches[cable.source.place].kind, marks)


def _behind(machine: Machine, end: End) -> frozenset[int]:
    """The classes of the GPUs in a server, or in those below a switch."""
    if end.what == "server":
        return frozenset(part.mark for part in machine.servers[end.place].parts if part.mark is not None)
    level = machine.switches[end.place].level
    below = [cable.source for cable in machine.cables if cable.target == end]
    lower = [each for each in below if each.what == "server" or machine.switches[each.place].level < level]
    return frozenset().union(*(_behind(machine, each) for each in lower))
