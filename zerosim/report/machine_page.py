"""Servers and the switches between them on one sheet: spines on top, leaves, servers, and at the bottom the switches of
NVLink that joins several servers.

Rule: nothing is drawn but what differs; a group of equal switches is one bar, equal servers are one frame. Servers
stand in as many rows as come nearest to the shape of a slide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from zerosim.report.machine import End, Machine, Switches
from zerosim.report.machine_cables import LANE, ROOM, Lanes, Way, draw_cable, is_down, is_drawn, rates_of
from zerosim.report.machine_marks import LINE, Box, Sheet, cut, span, wide
from zerosim.report.machine_server import Drawn, draw_server

BAR, GAP = 42.0, 26.0  # height; pixels between servers, and between bars
NARROWEST, LONGEST = 160.0, 420.0  # of a bar; of the words that it makes room for
SHAPE = 16 / 9  # width / height
MOST_NAMES = 64  # of switches
Level = tuple[bool, int]  # below the servers; how far from them


class Page(NamedTuple):
    """The drawn part of a machine, and what it could only tell in words."""

    sheet: Sheet
    width: float
    height: float
    notes: tuple[str, ...]


def draw_page(machine: Machine, least: float) -> Page:
    """Servers, switches and cables, on a sheet at least so wide."""
    return _Page(machine, least).drawn()


class _Page:
    """The sheet on which a machine is drawn."""

    def __init__(self, machine: Machine, least: float) -> None:
        self.machine, self.sheet = machine, Sheet()
        self.frames: dict[End, Box] = {}
        self.label = LINE * (2 if machine.busy is None else 3)  # height of the words at a cable
        self.servers: list[Drawn] = [
            draw_server(server, machine.busy, self._least(place)) for place, server in enumerate(machine.servers)
        ]
        self.levels: list[Level] = sorted({(each.kind == "nvswitch", each.level) for each in machine.switches})
        bars = [
            sum(map(self._bar_least, self._bars(level))) + GAP * (len(self._bars(level)) - 1) for level in self.levels
        ]
        self.least = max([least, *bars])
        self.rows = self._rows()
        self.row_of = {number: place for place, row in enumerate(self.rows) for number in row}
        self.margins = self._margin(self.rows[1:], False), self._margin(self.rows[:-1], True)
        widest = max(self._taken(row) for row in self.rows)
        self.width = max(self.least, widest + sum(self.margins))

    def drawn(self) -> Page:
        up = [level for level in self.levels if not level[0]]
        y = 0.0
        for level in reversed(up):
            self._row_of_bars(level, y)
            y += BAR + LANE * self._lanes_below(level) + (0 if level == up[0] else self.label + 6)
        for row in self.rows:
            y = self._row_of_servers(row, y)
        for level in self.levels[len(up) :]:
            self._row_of_bars(level, y + GAP)
            y += BAR + GAP
        self._cables()
        height = max(box.bottom for box in self.sheet.boxes)
        notes = dict.fromkeys(note for drawn in self.servers for note in drawn.notes)
        return Page(self.sheet, self.width, height, (*notes, *self._untold()))

    # --- servers ---

    def _hanging(self, end: End, down: bool) -> list[int]:
        """The cables at the top of a server or a bar, or at its bottom."""
        cables = self.machine.cables
        return [n for n, cable in enumerate(cables) if cable.source == end and is_down(self.machine, cable) == down]

    def _ends(self, row: Sequence[int], down: bool) -> int:
        return sum(len(self._hanging(End("server", number), down)) for number in row)

    def _least(self, place: int) -> float:
        return ROOM * (max(self._ends([place], True), self._ends([place], False)) + 1)

    def _taken(self, row: Sequence[int]) -> float:
        return sum(self.servers[number].width + GAP for number in row) - GAP

    def _rows(self) -> list[list[int]]:
        widest = max(drawn.width for drawn in self.servers) + GAP
        choices = [self._packed(widest * columns) for columns in range(1, len(self.servers) + 1)]
        return min(choices, key=self._misshapen)

    def _packed(self, room: float) -> list[list[int]]:
        """The servers in rows of so many pixels."""
        rows: list[list[int]] = [[]]
        for number in range(len(self.servers)):
            if rows[-1] and self._taken([*rows[-1], number]) + GAP > room:
                rows.append([])
            rows[-1].append(number)
        return rows

    def _misshapen(self, rows: Sequence[Sequence[int]]) -> float:
        """How far from the shape of a slide."""
        height = sum(max(self.servers[number].height for number in row) + 3 * GAP for row in rows)
        return abs(math.log(max(map(self._taken, rows)) / height / SHAPE))

    def _margin(self, rows: Sequence[Sequence[int]], down: bool) -> float:
        """Room at a side for the cables of rows that others stand in front of."""
        lanes = sum(self._ends(row, down) for row in rows)
        return lanes * LANE + GAP if lanes else 0.0

    def _row_of_servers(self, row: Sequence[int], y: float) -> float:
        """The y below the row."""
        first, ups, downs = row is self.rows[0], self._ends(row, False), self._ends(row, True)
        if ups:
            y += self.label + 12 + (0 if first else LANE * ups)
        elif not first:
            y += GAP
        left, right = self.margins
        x = left + (self.width - left - right - self._taken(row)) / 2
        for number in row:
            drawn = self.servers[number]
            self.sheet.lay(drawn.sheet, x, y)
            self.frames[End("server", number)] = Box(x, y, drawn.width, drawn.height, "")
            x += drawn.width + GAP
        return y + max(self.servers[n].height for n in row) + (LANE * downs + self.label if downs else 0)

    # --- bars of switches ---

    def _bars(self, level: Level) -> list[int]:
        return [n for n, each in enumerate(self.machine.switches) if (each.kind == "nvswitch", each.level) == level]

    def _bar_least(self, number: int) -> float:
        said = wide(cut(self.machine.switches[number].said, LONGEST)) + 16
        return max(NARROWEST, said, ROOM * (len(self._hanging(End("switches", number), False)) + 1))

    def _lanes_below(self, level: Level) -> int:
        """Lanes beneath a row of bars: where there is one, every cable can reach it straight."""
        here = {End("switches", number) for number in self._bars(level)}
        return sum(cable.target in here for cable in self.machine.cables) if len(here) > 1 else 1

    def _row_of_bars(self, level: Level, y: float) -> None:
        numbers = self._bars(level)
        least = [self._bar_least(number) for number in numbers]
        spare = (self.width - sum(least) - GAP * (len(numbers) - 1)) / len(numbers)
        x = 0.0
        for number, own in zip(numbers, least, strict=True):
            switches = self.machine.switches[number]
            room = own + spare - 10
            lines = tuple(filter(None, (cut(switches.said, room), _names(switches, room))))
            about = "\n".join((", ".join(switches.names[:MOST_NAMES]), switches.said))
            several = len(switches.names) > 1
            box = Box(x, y, own + spare, BAR, switches.kind, lines, about, several=several)
            self.sheet.boxes.append(box)
            self.frames[End("switches", number)] = box
            x += own + spare + GAP

    # --- cables ---

    def _cables(self) -> None:
        lanes = Lanes(self.label)
        sides = {False: 0, True: 0}
        leaving = self._leaving()
        for number, cable in enumerate(self.machine.cables):
            if not is_drawn(self.machine, cable):
                continue
            down, start = is_down(self.machine, cable), self.frames[cable.source]
            side = None
            if cable.source.what == "server" and self.row_of[cable.source.place] != (len(self.rows) - 1 if down else 0):
                off = LANE * sides[down] + GAP / 2
                side = self.width - self.margins[1] + off if down else self.margins[0] - off
                sides[down] += 1
            edge = start.bottom if down else start.y
            way = Way(leaving[number], edge, self.frames[cable.target], down, side)
            draw_cable(self.sheet, self.machine, cable, lanes.route(way))

    def _leaving(self) -> dict[int, float]:
        """The x at which each cable leaves."""
        found: dict[int, float] = {}
        for end, box in self.frames.items():
            for numbers in (self._hanging(end, False), self._hanging(end, True)):
                step = box.width / (len(numbers) + 1)
                found.update((number, box.x + step * place) for place, number in enumerate(numbers, start=1))
        return found

    def _untold(self) -> list[str]:
        out = []
        for cable in self.machine.cables:
            if not is_drawn(self.machine, cable):
                one, other = (span(self.machine.switches[end.place].names) for end in (cable.source, cable.target))
                out.append(f"also joined ({cable.kind}): {one} – {other}, {rates_of(cable)} {cable.each}".rstrip())
        return out


def _names(switches: Switches, room: float) -> str:
    """All names if they fit, else the first and the last."""
    if switches.kind == "cable":
        return ""
    every = "  ".join(switches.names) if len(switches.names) <= MOST_NAMES else ""
    return every if every and wide(every) <= room else cut(span(switches.names), room)
