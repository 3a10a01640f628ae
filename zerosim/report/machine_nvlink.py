"""NVLink beneath the GPUs of a server: switches as bars that GPUs go down to, pairs as tracks, a full mesh as one bar.

Where there are more pairs than an eye can follow, or GPUs that are drawn as one, the bar says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerosim.report import machine_tracks
from zerosim.report.machine import Server, Wire
from zerosim.report.machine_heat import Busy, hottest, percent, warmth
from zerosim.report.machine_marks import LINE, Box, Line, Sheet, Words, beside, cut, span, wide
from zerosim.report.machine_tree import Branch
from zerosim.units import show_rate

BAR, TRACK, CAPTION = 24.0, 16.0, 18.0  # heights
MESH_FROM = 5  # GPUs: a full mesh of fewer is drawn wire by wire
MOST_PAIRS = 32  # drawn wire by wire
MOST_BARS = 4
Seat = tuple[Branch, Box]


class Bar(NamedTuple):
    """What GPUs go down to: by the name of a GPU the rate of all its links to it, each way."""

    title: str
    about: str
    rates: dict[str, float]
    word: str


def draw(sheet: Sheet, seats: Sequence[Seat], server: Server, busy: Busy, top: float, done: set[int]) -> float:
    """The height that NVLink takes below `top`. Wires that are drawn are added to `done`, by identity."""
    wires = [wire for wire in server.wires if wire.kind == "nvlink"]
    kinds = {part.name: part.kind for part in server.parts}
    pairs = [wire for wire in wires if kinds[wire.a] == kinds[wire.b] == "gpu"]
    bars = _switches(server, wires, kinds)
    done.update(id(wire) for wire in wires if "gpu" in (kinds[wire.a], kinds[wire.b]))
    y = top
    if pairs and _as_bar(pairs, seats):
        bars.insert(0, _mesh(pairs))
    elif pairs:
        y += _pairs(sheet, seats, pairs, busy, y)
    for place, bar in enumerate(bars):
        y += _bar(sheet, seats, bar, (place + 1) / (len(bars) + 1), busy, y)
    return y - top


# --- bars ---


def _switches(server: Server, wires: Iterable[Wire], kinds: dict[str, str]) -> list[Bar]:
    """Switches that join the same GPUs at the same rates are one bar."""
    reached: dict[str, dict[str, float]] = {}
    words: dict[str, str] = {}
    for wire in wires:
        for gpu, switch in ((wire.a, wire.b), (wire.b, wire.a)):
            if kinds[gpu] == "gpu" and kinds[switch] == "nvswitch":
                reached.setdefault(switch, {})[gpu] = wire.rate
                words[switch] = wire.word
    groups: dict[frozenset[tuple[str, float]], list[str]] = {}
    for switch, rates in reached.items():
        groups.setdefault(frozenset(rates.items()), []).append(switch)
    named = {part.name: part for part in server.parts}
    bars = []
    for switches in groups.values():
        part = named[switches[0]]
        rates = {gpu: rate * len(switches) for gpu, rate in reached[switches[0]].items()}
        count = f"{len(switches)} " if len(switches) > 1 else ""
        title = f"{count}{part.model} {span(tuple(switches))}".strip()
        about = "\n".join([", ".join(switches), *([part.said] if part.said else [])])
        bars.append(Bar(title, about, rates, words[switches[0]]))
    return bars if len(bars) <= MOST_BARS else [_together(bars)]


def _together(bars: Sequence[Bar]) -> Bar:
    """More kinds of switch than can be told apart, as one."""
    rates: dict[str, float] = {}
    for bar in bars:
        for gpu, rate in bar.rates.items():
            rates[gpu] = rates.get(gpu, 0.0) + rate
    return Bar(f"NVSwitches in {len(bars)} groups", "\n".join(bar.about for bar in bars), rates, bars[0].word)


def _as_bar(pairs: Sequence[Wire], seats: Sequence[Seat]) -> bool:
    """Whether pairs are too many, or too much alike, to be drawn one by one."""
    count = len(seats)
    full = len(pairs) == count * (count - 1) // 2 and len({wire.rate for wire in pairs}) == 1
    stacked = any(len(branch.parts) > 1 for branch, _ in seats)
    return stacked or len(pairs) > MOST_PAIRS or (full and count >= MESH_FROM)


def _mesh(pairs: Sequence[Wire]) -> Bar:
    rates: dict[str, float] = {}
    for wire in pairs:
        for gpu in (wire.a, wire.b):
            rates[gpu] = rates.get(gpu, 0.0) + wire.rate
    count, least, most = len(rates), min(wire.rate for wire in pairs), max(wire.rate for wire in pairs)
    full = len(pairs) == count * (count - 1) // 2
    each = show_rate(least) if least == most else f"{show_rate(least)} to {show_rate(most)}"
    title = f"NVLink mesh: every pair of {count} GPUs, {each}" if full else f"NVLink: {len(pairs)} pairs, {each}"
    return Bar(title, "\n".join(wire.said() for wire in pairs), rates, pairs[0].word.split(":")[0])


def _bar(sheet: Sheet, seats: Sequence[Seat], bar: Bar, share: float, busy: Busy, top: float) -> float:
    """GPUs down to their bar; the first of those that are alike beside each other has a label."""
    y = top + LINE * (2 if busy is None else 3) + 10
    joined = [(branch, box) for branch, box in seats if not bar.rates.keys().isdisjoint(branch.names)]
    before: tuple[str, ...] = ()
    for branch, box in joined:
        rate = max(bar.rates.get(name, 0.0) for name in branch.names)
        heat = hottest(busy, "nvlink", branch.marks)
        several = len(branch.parts)
        x = box.x + box.width * share
        about = f"{span(branch.names)} – {bar.title}: {show_rate(rate)} each way{' each' if several > 1 else ''}"
        sheet.lines.append(Line(((x, box.bottom), (x, y)), "nvlink", rate * several, about, warmth(heat, busy)))
        label = [f"{bar.word or 'NVLink'}{' each' if several > 1 else ''}", show_rate(rate)]
        label += [] if heat is None else [percent(heat)]
        if tuple(label) != before:
            before = tuple(label)
            sheet.write(beside(x, rate * several), y - 5, label)
    left, right = min(box.x for _, box in joined), max(box.right for _, box in joined)
    lines = (cut(bar.title, right - left - 8),)
    sheet.boxes.append(Box(left, y, right - left, BAR, "nvswitch", lines, bar.about))
    return y + BAR - top


# --- pairs ---


def _pairs(sheet: Sheet, seats: Sequence[Seat], wires: Sequence[Wire], busy: Busy, top: float) -> float:
    place = {branch.part.name: number for number, (branch, _) in enumerate(seats)}
    marks = [branch.marks for branch, _ in seats]
    pairs = [tuple(sorted((place[wire.a], place[wire.b]))) for wire in wires]
    ends = [(a, b) for a, b in pairs]
    at = machine_tracks.ports(ends, [(box.x, box.right) for _, box in seats])
    found = machine_tracks.tracks(ends, at, 6.0)
    deep = {track.pair: track.depth for track in found}
    for track in found:
        wire, (a, b) = wires[track.pair], ends[track.pair]
        y = top + TRACK * (track.depth + 1)
        heat = warmth(hottest(busy, "nvlink", marks[a] | marks[b]), busy)
        points = (
            (track.left, seats[a][1].bottom),
            (track.left, y),
            (track.right, y),
            (track.right, seats[b][1].bottom),
        )
        sheet.lines.append(Line(points, "nvlink", wire.rate, wire.said(), heat))
        drops = [x for (pair, _), x in at.items() if deep[pair] > track.depth]
        middle, room = machine_tracks.clear(track, drops)
        label = next((word for word in (wire.word, show_rate(wire.rate)) if word and wide(word) + 6 <= room), "")
        if label:
            sheet.words.append(Words(middle, y - 4, label, "middle"))
    lowest = top + TRACK * (1 + max(track.depth for track in found))
    sheet.words.append(Words(seats[0][1].x, lowest + CAPTION - 2, _caption(wires, marks, busy)))
    return lowest + CAPTION - top


def _caption(wires: Sequence[Wire], marks: Sequence[frozenset[int]], busy: Busy) -> str:
    """What the words on the tracks mean."""
    rates = sorted({(wire.rate, wire.word) for wire in wires})
    said = ", ".join(f"{word} {show_rate(rate)}" if word else show_rate(rate) for rate, word in rates[:4])
    share = hottest(busy, "nvlink", frozenset().union(*marks))
    return f"NVLink pairs, each way: {said}" + ("" if share is None else f"; {percent(share)} busy")
